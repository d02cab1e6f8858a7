"""Break the port one line at a time and count what notices: mutate.py --work DIR [--seed N] [--count K] [--since COMMIT]

Draws K mutants (default: all) of scheduler, block pool, managers and coordinators from a seed (of the lines changed since a
commit, where one is named), and runs cargo-mutants over
them in a copy of the working tree under DIR, so that nothing here is ever edited. A mutant is judged by the replay of the
short written traces, which takes seconds; what that misses, by every trace and the unit tests beside the mutated code.
Prints the counts and every mutant that nothing noticed; `outcomes.json` in DIR keeps them, and a second call goes on
where the first one stopped.
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
FILES = [f"{SOURCES}/{name}" for name in ("sched/*.rs", "kv/*.rs", "request.rs", "engine/core.rs", "engine/coordinator.rs", "engine/lockstep.rs")]
QUICK = ["--test", "it", "short_written"]
THOROUGH = ["--lib", "--test", "it", "--", "sched::", "kv::", "request::", "engine::", "conformance::", "every_recorded"]
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


def drawn(work: Path, seed: int, count: int | None, since: str | None) -> list[str]:
    listed = cargo_mutants(work, "--list", *changed(work, since))
    if listed.returncode != 0:
        sys.exit(listed.stderr)
    names = sorted(name for name in listed.stdout.splitlines() if not LEFT_OUT.search(name))
    random.Random(seed).shuffle(names)
    return names[:count]


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
    parser.add_argument("--seconds", type=int, help="start no batch after so many seconds")
    options = parser.parse_args()
    started = time.monotonic()
    copy_tree(options.work)
    record = options.work / "outcomes.json"
    outcomes = json.loads(record.read_text()) if record.exists() else {}
    waiting = [name for name in drawn(options.work, options.seed, options.count, options.since) if name not in outcomes]
    while waiting and (options.seconds is None or time.monotonic() - started < options.seconds):
        batch, waiting = waiting[:BATCH], waiting[BATCH:]
        found = judge(options.work, batch, QUICK)
        if missed := [name for name, outcome in found.items() if outcome == "MissedMutant"]:
            found |= judge(options.work, missed, THOROUGH)
        outcomes |= found
        record.write_text(json.dumps(outcomes, indent=1) + "\n")
        print(summary(outcomes).splitlines()[0], flush=True)
    print(summary(outcomes))


if __name__ == "__main__":
    main()
