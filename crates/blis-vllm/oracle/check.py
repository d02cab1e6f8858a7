"""Show that the comparison can fail: check.py [--traces DIR] [--report FILE]

Every field of a trace must take at least two values somewhere in the corpus, and every situation the scenarios are
there for must occur. Exits 1 and names what is missing otherwise.
"""

import argparse
import gzip
import json
import re
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Fields that can hold one value only while the features that would move them are refused.
CONSTANT = {
    "format": "the version of the format",
    "holding": "only KV connectors and streaming sessions put requests there",
    "running.stale": "a request is not resumed before its stale output has been delivered",
}
COLUMNS = {
    "in": ["kind", "id"],
    "sched.new": ["id", "computed", "blocks", "resumed"],
    "sched.cached": ["id", "new_blocks", "computed", "outputs"],
    "sched.tokens": ["id", "count"],
    "sched.preempted": ["id", "stale"],
    "done.out": ["id", "count", "finish_reason"],
    "done.stats.kv": ["used", "total"],
    "running": ["id", "computed", "placeholders", "in_flight", "stale", "outputs"],
    "waiting": ["id", "stale", "preemptions"],
    "routes": ["id", "core"],
    "sched.drafts": ["id", "count"],
    "attached": ["id", "count"],
    "grammar.requests": ["id", "allowed"],
}
SEEN_AT_MOST = 1000


def leaves(value: object, path: str, found: dict[str, set]) -> None:
    if len(found[path]) < SEEN_AT_MOST:
        found[path].add(json.dumps(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            leaves(inner, f"{path}.{key}" if path else key, found)
    elif path in COLUMNS:
        rows = value if value and isinstance(value[0], list) else [value] if value else []
        for row in rows:
            for column, cell in zip(COLUMNS[path], row, strict=True):
                leaves(cell, f"{path}.{column}", found)
    elif path == "config.kv_groups":
        for group in value:
            leaves(group, "config.kv_groups[]", found)


def aborts(before: dict, call: dict, prompts: dict[str, int], seen: set[str]) -> None:
    """What the requests that this call's aborts hit were doing at the end of the call before."""
    hit = {request for kind, request in call["in"] if kind == "abort"} | set((call["done"] or {}).get("aborted", ()))
    for request, computed, _, in_flight, _, _ in before["running"]:
        if request in hit:
            seen.add("abort in a prompt" if computed < prompts.get(request, 0) else "abort of a decode")
            if in_flight:
                seen.add("abort with tokens in flight")
    for request, _, preemptions in before["waiting"]:
        if request in hit:
            seen.add("abort of a preempted request" if preemptions else "abort of a waiting request")


def several_cores(records: list[dict], seen: set[str]) -> list[dict]:
    """The calls of a trace, noting what only deployments of several cores or stages show."""
    seen.add(f"batch queue of {records[0]['config']['batch_queue_size']}")
    calls = [record for record in records[1:] if "routes" not in record]
    if len(calls) < len(records) - 1:
        seen |= {f"request to core {core}" for _, core in records[-1]["routes"]}
    for call in calls:
        seen |= {"step without requests in lockstep"} if call.get("dp", {}).get("dummy") else set()
        seen |= {"wave over"} if call.get("dp", {}).get("running") is False else set()
    return calls


def features(before: dict, call: dict, verifying: dict[int, dict], seen: set[str]) -> None:
    """What only drafts and grammars show. `verifying` holds the drafts of each step by its number."""
    sched, done = call["sched"] or {}, call["done"] or {}
    drafts = dict(sched.get("drafts") or ())
    attached = dict(before.get("attached") or ())
    verifying[call["step"]] = drafts
    seen |= {"new decode widened by drafts" for row in sched.get("new", ()) if row[0] in drafts}
    seen |= {"drafts cut short" for name, count in drafts.items() if count < attached.get(name, 0)}
    seen |= {"drafts left out" for name, _ in sched.get("tokens", ()) if name in attached and name not in drafts}
    seen |= {"drafts follow the batch" for count in [sched.get("next_drafts")] if count not in (None, max(attached.values(), default=count))}
    behind = {name for step in before["queue"] for name in verifying.get(step, ())}
    seen |= {"preempted with a verification in flight" for name, stale in sched.get("preempted", ()) if stale and name in behind}
    verified = verifying.get(done.get("step"), {})
    for name, count, reason in done.get("out", ()):
        if name in verified:
            seen.add("all drafts accepted" if count > verified[name] else "no draft accepted" if count == 1 else "some drafts accepted")
            seen |= {"stop inside a run of drafts"} if reason == "stop" and 1 < count <= verified[name] else set()
    grammar = call.get("grammar")
    if grammar:
        late = done and not any(step == call["step"] for step in before["queue"]) and len(call["queue"]) == 1 and call["queue"][0] == call["step"]
        seen |= {"mask made after the step before"} if late else set()
        seen |= {"grammar forbids drafts" for name, count in grammar["requests"] if 0 < count < drafts.get(name, 0)}
        seen |= {"drafts without names" for name, count in grammar["requests"] if count == 0 and drafts.get(name)}
    seen |= {"deferred for a grammar or an adapter" for name in call["deferred"] if not any(name == row[0] and row[1] for row in call["waiting"])}


def situations(header: dict, calls: list[dict], prompts: dict[str, int], seen: set[str]) -> None:
    seen.add(f"blocks of {header['block_size']}")
    if len(calls) >= 5000:
        seen.add(f"five thousand calls, {header['policy']}")
    before = {"running": [], "waiting": [], "queue": []}
    verifying: dict[int, dict] = {}
    if "speculation" in header:
        seen.add(f"drafting by {header['speculation']['method']}, {'a' if header['async_scheduling'] else ''}synchronous, "
                 f"{'with' if header['enable_prefix_caching'] else 'without'} prefix caching")
    for call in calls:
        aborts(before, call, prompts, seen)
        features(before, call, verifying, seen)
        started = {request for request, computed, *_ in before["running"] if computed < prompts.get(request, 0)}
        before = call
        sched, done = call["sched"], call["done"]
        stale = {request for request, count in sched["preempted"] if count} if sched else set()
        seen |= {f"{kind} taken" for kind, _ in call["in"]}
        if sched:
            seen |= {"resumed request travels as new" for row in sched["new"] if row[3]}
            seen |= {"prefix hit" for row in sched["new"] if row[1] > 0}
            left = [prompts.get(row[0], 0) - row[1] for row in sched["new"] if row[1] and not row[3]]
            seen |= {"all but a block is hit" for tokens in left if 0 < tokens <= header["block_size"]}
            seen |= {"preempted in its prompt" for request, _ in sched["preempted"] if request in started}
            seen |= {"cached request without new blocks" for row in sched["cached"] if row[1] is None}
            seen |= {"cached request with new blocks" for row in sched["cached"] if row[1] is not None}
            seen |= {f"preempted {'with' if count else 'without'} output in flight" for _, count in sched["preempted"]}
            if len(sched["preempted"]) > 1:
                seen.add("several preemptions in one step")
            if not sched["tokens"]:
                seen.add("empty batch")
            if len(sched["head"]) < 8:
                seen.add("fewer than eight free blocks")
            if sched["free"] == 0:
                seen.add("no free block")
            seen |= {"two groups" for row in sched["new"] if len(row[2]) == 2}
            seen |= {"six groups" for row in sched["new"] if len(row[2]) == 6}
            seen |= {"three groups" for row in sched["new"] if len(row[2]) == 3}
        else:
            seen.add("call that schedules nothing")
        if done is None:
            seen.add("call that processes nothing")
        else:
            seen |= {f"finish {reason}" for _, _, reason in done["out"] if reason}
            seen |= {"abort during the wait" for _ in done["aborted"]}
            seen |= {"stale token delivered" for request, _, _ in done["out"] if request in stale}
            seen |= {"stale token is the last" for request, _, why in done["out"] if request in stale and why}
            if done["stats"]["preempted_hits"]:
                seen.add("prefix hit of a resumed request")
        seen |= {"preempted more than once" for row in call["waiting"] if row[2] > 1}


METHODS = ("ngram_gpu", "eagle", "eagle3", "mtp", "draft_model", "dflash", "dspark")
EXPECTED = {
    *(f"drafting by {m}, {a}synchronous, {c} prefix caching" for m in METHODS for a in ("a", "") for c in ("with", "without")),
    *(f"drafting by ngram, synchronous, {c} prefix caching" for c in ("with", "without")),
    "new decode widened by drafts",
    "drafts cut short",
    "drafts left out",
    "drafts follow the batch",
    "preempted with a verification in flight",
    "all drafts accepted",
    "some drafts accepted",
    "no draft accepted",
    "stop inside a run of drafts",
    "mask made after the step before",
    "grammar forbids drafts",
    "drafts without names",
    "deferred for a grammar or an adapter",
    "finish error",
    "step without requests in lockstep",
    "wave over",
    "request to core 0",
    "request to core 1",
    "request to core 2",
    "batch queue of 1",
    "batch queue of 2",
    "batch queue of 3",
    "batch queue of 5",
    "add taken",
    "abort taken",
    "resumed request travels as new",
    "prefix hit",
    "prefix hit of a resumed request",
    "cached request without new blocks",
    "cached request with new blocks",
    "several preemptions in one step",
    "preempted more than once",
    "empty batch",
    "fewer than eight free blocks",
    "no free block",
    "two groups",
    "three groups",
    "six groups",
    "call that schedules nothing",
    "call that processes nothing",
    "finish stop",
    "finish length",
    "abort during the wait",
    "stale token delivered",
    "preempted with output in flight",
    "preempted without output in flight",
    "stale token is the last",
    *(f"blocks of {size}" for size in (16, 32, 64, 128, 256)),
    "five thousand calls, fcfs",
    "five thousand calls, priority",
    "abort in a prompt",
    "abort of a decode",
    "abort with tokens in flight",
    "abort of a waiting request",
    "abort of a preempted request",
    "all but a block is hit",
    "preempted in its prompt",
}


def prompt_lengths(scenario: Path) -> dict[str, int]:
    """Tokens of each prompt, where one request bears the identifier; rows are in flow style, so that no parser is needed."""
    rows = re.findall(r"^ +- \{id: (\S+), .*?prompt: \[(.*?)\]", scenario.read_text(), re.MULTILINE)
    names = [name for name, _ in rows]
    lengths = ((name, sum(map(int, re.findall(r"(?:unique|length): (\d+)", prompt)))) for name, prompt in rows)
    return {name: length for name, length in lengths if names.count(name) == 1}


def main() -> int:
    parser = argparse.ArgumentParser(description="check that every compared field and situation varies in the corpus")
    parser.add_argument("--traces", type=Path, default=HERE / "traces")
    parser.add_argument("--scenarios", type=Path, default=HERE / "scenarios")
    parser.add_argument("--report", type=Path)
    options = parser.parse_args()
    found: dict[str, set] = defaultdict(set)
    seen: set[str] = set()
    files = sorted(options.traces.glob("*.jsonl.gz"))
    calls = 0
    for path in files:
        records = [json.loads(row) for row in gzip.decompress(path.read_bytes()).splitlines()]
        calls += len(records) - 1
        for record in records:
            leaves(record, "", found)
        name = path.name.removesuffix(".jsonl.gz")
        prompts = prompt_lengths(options.scenarios / f"{name}.yaml")
        situations(records[0]["config"], several_cores(records, seen), prompts, seen)
    del found[""]
    rows = [f"{path}: {min(len(values), SEEN_AT_MOST)}" for path, values in sorted(found.items())]
    if options.report:
        options.report.write_text("\n".join(["field: distinct values (counted to 1000)", *rows]) + "\n")
    flat = [path for path, values in found.items() if len(values) < 2 and path not in CONSTANT]
    stale_excuses = [path for path in CONSTANT if len(found[path]) > 1]
    missing = sorted(EXPECTED - seen)
    for problem, names in (("one value only", flat), ("listed as constant but varies", stale_excuses), ("never occurs", missing)):
        if names:
            print(f"{problem}: {', '.join(names)}", file=sys.stderr)
    print(f"{len(files)} traces, {calls} calls, {len(found)} fields, {len(seen & EXPECTED)}/{len(EXPECTED)} situations")
    return 1 if flat or missing or stale_excuses else 0


if __name__ == "__main__":
    sys.exit(main())
