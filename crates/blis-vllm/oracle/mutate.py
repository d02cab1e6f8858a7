"""Break the port one line at a time and count what notices: mutate.py --work DIR [--seed N] [--count K] [--since COMMIT] [--at-once]

Draws K mutants (default: all) of scheduler, block pool, managers, coordinators, pool sizing and request queue from a seed (of
the lines changed since a commit, where one is named), and runs cargo-mutants over them in a copy of the working tree under
DIR, so that nothing here is ever edited. A mutant is judged by the replay of the short written traces, which takes seconds;
what that misses, by every trace and the unit tests beside the mutated code. Prints the counts and every mutant that nothing
noticed; `outcomes.json` in DIR keeps them, and a second call goes on where the first one stopped.
With --at-once the mutants are built into one binary (schemata.py), and only what cannot be put so is built by itself.
Left out: the self-checks (`check_invariants`), which judge and decide nothing, and tests.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SOURCES = "crates/blis-vllm/src"
FILES = [
    f"{SOURCES}/{name}"
    for name in ("sched/*.rs", "kv/*.rs", "kv_sizing/*.rs", "request.rs", "engine/core.rs", "engine/coordinator.rs", "engine/lockstep.rs")
]
# Tests by their names.
QUICK = ["short_written"]
THOROUGH = ["sched::", "kv::", "kv_sizing::", "request::", "engine::", "conformance::", "every_recorded"]
QUICK_TARGETS = ["--test", "it", "--"]
THOROUGH_TARGETS = ["--lib", "--test", "it", "--"]
LEFT_OUT = re.compile(r"check_invariants|impl (Debug|std::fmt)|/tests?[/.]")
BATCH = 20
# Replay and build take seconds; a mutant that loops for ever is noticed by this.
TIMEOUT_S = 120


def copy_tree(work: Path) -> None:
    """Every file that git knows or would know, without the build folder."""
    listing = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, check=True, capture_output=True).stdout
    work.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(["tar", "-C", str(ROOT), "--null", "-T", "-", "-cf", "-"], input=names, check=True, capture_output=True)
    subprocess.run(["tar", "-C", str(work), "-xf", "-"], input=packed.stdout, check=True)


def cargo_mutants(work: Path, *arguments: str, within: list[str] = FILES) -> subprocess.CompletedProcess:
    files = [part for pattern in within for part in ("-f", pattern)]
    command = ["cargo", "mutants", "-p", "blis-vllm", *files, *arguments]
    environment = {**os.environ, "CARGO_PROFILE_DEV_DEBUG": "0"}
    return subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True)


def changed(work: Path, since: str | None) -> list[str]:
    """The arguments that leave out every line older than a commit."""
    if since is None:
        return []
    lines = subprocess.run(["git", "-C", str(ROOT), "diff", since, "--", SOURCES], check=True, capture_output=True).stdout
    (work / "since.diff").write_bytes(lines)
    return ["--in-diff", "since.diff"]


def drawn(work: Path, seed: int, count: int | None, since: str | None) -> dict[str, dict]:
    """The mutants that a seed draws, by name."""
    listed = cargo_mutants(work, "--list", "--json", *changed(work, since))
    if listed.returncode != 0:
        sys.exit(listed.stderr)
    mutants = {mutant["name"]: mutant for mutant in json.loads(listed.stdout) if not LEFT_OUT.search(mutant["name"])}
    names = sorted(mutants)
    random.Random(seed).shuffle(names)
    return {name: mutants[name] for name in names[:count]}


def escaped(name: str) -> str:
    return re.sub(r"([\\^$.|?*+()\[\]{}])", r"\\\1", name)


def judge(work: Path, batch: list[str], judges: list[str]) -> dict[str, str]:
    out = work / "mutants"
    pattern = "^(" + "|".join(map(escaped, batch)) + ")$"
    options = ["--in-place", "--baseline", "skip", "--timeout", str(TIMEOUT_S), "-o", str(out), "--re", pattern]
    # The tool does not apply the pattern to mutants that leave out a field, so others of the same files may come along.
    files = sorted({name.split(":")[0] for name in batch})
    run = cargo_mutants(work, *options, "--", *judges, within=files)
    outcomes = json.loads((out / "mutants.out" / "outcomes.json").read_text())["outcomes"]
    found = {row["scenario"]["Mutant"]["name"]: row["summary"] for row in outcomes if row["scenario"] != "Baseline"}
    if not set(batch) <= set(found):
        sys.exit(f"cargo mutants did not judge what it was asked to:\n{run.stdout}\n{run.stderr}")
    return {name: found[name] for name in batch}


def judge_at_once(work: Path, mutants: list[dict], keep) -> None:
    """Judges what one binary can hold, and leaves the copy as it was."""
    from schemata import Binary

    binary = Binary(ROOT, work, mutants)
    for name, outcome in binary.judge_all(QUICK, THOROUGH):
        keep({name: outcome})
    copy_tree(work)


def summary(outcomes: dict[str, str]) -> str:
    counts = Counter(outcomes.values())
    viable = len(outcomes) - counts["Unviable"]
    noticed = counts["CaughtMutant"] + counts["Timeout"]
    missed = sorted(name for name, outcome in outcomes.items() if outcome == "MissedMutant")
    share = f"{noticed / viable:.1%}" if viable else "none"
    return "\n".join([f"{viable} viable mutants, {noticed} noticed ({share}), {counts['Unviable']} do not compile", *missed])


def main() -> None:
    parser = argparse.ArgumentParser(description="count the mutants of the port that its tests notice")
    parser.add_argument("--work", type=Path, required=True, help="a folder for the copy; what was judged there is kept")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int)
    parser.add_argument("--since", help="only lines changed since this commit")
    parser.add_argument("--at-once", action="store_true", help="build one binary that holds the mutants; needs tree-sitter")
    parser.add_argument("--seconds", type=int, help="start no batch after so many seconds")
    options = parser.parse_args()
    started = time.monotonic()
    copy_tree(options.work)
    record = options.work / "outcomes.json"
    outcomes = json.loads(record.read_text()) if record.exists() else {}
    mutants = drawn(options.work, options.seed, options.count, options.since)

    def keep(found: dict[str, str]) -> None:
        outcomes.update(found)
        record.write_text(json.dumps(outcomes, indent=1) + "\n")

    if options.at_once:
        judge_at_once(options.work, [mutant for name, mutant in mutants.items() if name not in outcomes], keep)
    waiting = [name for name in mutants if name not in outcomes]
    while waiting and (options.seconds is None or time.monotonic() - started < options.seconds):
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        found = judge(options.work, batch, QUICK_TARGETS + QUICK)
        if missed := [name for name, outcome in found.items() if outcome == "MissedMutant"]:
            found |= judge(options.work, missed, THOROUGH_TARGETS + THOROUGH)
        keep(found)
        print(summary(outcomes).splitlines()[0], flush=True)
    print(summary(outcomes))


if __name__ == "__main__":
    main()
