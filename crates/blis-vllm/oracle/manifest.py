"""The ledger of committed traces: manifest.py check | write [--changed NAME --why TEXT]

`check` needs no upstream package: it compares the hashes of scenarios, traces and the lock with manifest.json.
`write` brings manifest.json up to date after a recording. A trace that was already listed may change only with a line
that names it and says why; the line stays in `changes`.
"""

import argparse
import gzip
import hashlib
import json
import re
import sys
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
LEDGER = HERE / "manifest.json"
LOCK = HERE / "requirements.txt"
COMMAND = "oracle-python record.py scenarios/{name}.yaml --out traces"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def release() -> str:
    """The release the lock pins; manifest rows state what they were recorded with."""
    return re.search(r"^vllm==(\S+)", LOCK.read_text(), re.MULTILINE)[1]


# Recordings beside the traces, each with its command; CONFIGS are the vendors' configurations.
RECORDS = {
    "dispatch.json.gz": "dispatch.py",
    "hashes.json": "hashes.py",
    "metrics.json.gz": "metrics.py",
    "rejections.json": "rejections.py",
    "resolution.json": "resolve.py --configs CONFIGS",
    "rows.json": "rows.py --configs CONFIGS",
    "weights.json.gz": "weights.py --configs CONFIGS",
}


def records() -> dict:
    """The recordings beside the traces, as rows of the manifest."""
    return {
        name: {
            "sha256": sha256(gzip.decompress(content) if name.endswith(".gz") else content),
            "release": release(),
            "lock_sha256": sha256(LOCK.read_bytes()),
            "command": f"oracle-python {command}",
        }
        for name, command in RECORDS.items()
        for content in [(HERE / name).read_bytes()]
    }


def survey() -> dict:
    """What lies in scenarios/ and traces/ now, as the rows of the manifest."""
    rows = {}
    for path in sorted((HERE / "scenarios").glob("*.yaml")):
        name, scenario = path.stem, path.read_bytes()
        packed = HERE / "traces" / f"{name}.jsonl.gz"
        if not packed.exists():
            raise FileNotFoundError(f"scenario {name} has no trace")
        trace = gzip.decompress(packed.read_bytes())
        first, *calls = trace.splitlines()
        if json.loads(first)["scenario_sha256"] != sha256(scenario):
            raise ValueError(f"trace {name} was recorded from another version of its scenario")
        rows[name] = {
            "scenario_sha256": sha256(scenario),
            "trace_sha256": sha256(trace),
            "calls": len(calls),
            "seed": yaml.safe_load(scenario)["seed"],
            "release": release(),
            "lock_sha256": sha256(LOCK.read_bytes()),
            "command": COMMAND.format(name=name),
        }
    stray = {path.name.removesuffix(".jsonl.gz") for path in (HERE / "traces").glob("*.gz")} - rows.keys()
    if stray:
        raise ValueError(f"traces without a scenario: {', '.join(sorted(stray))}")
    return rows


def write(changed: list[str], why: str | None) -> None:
    ledger = json.loads(LEDGER.read_text()) if LEDGER.exists() else {"changes": [], "traces": {}}
    rows = survey()
    before, now = ledger.get("records", {}), records()
    differing = [n for n, row in before.items() if now.get(n, {}).get("sha256") != row["sha256"]]
    differing += [n for n, row in ledger["traces"].items() if rows.get(n, {}).get("trace_sha256") != row["trace_sha256"]]
    if unnamed := sorted(set(differing) - set(changed)):
        sys.exit(f"these recordings changed or went; name each with --changed and say --why: {', '.join(unnamed)}")
    if differing and not why:
        sys.exit("--why is missing")
    ledger["changes"] += [{"trace": name, "why": why} for name in sorted(differing)]
    ledger["traces"], ledger["records"] = rows, now
    LEDGER.write_text(json.dumps(ledger, indent=1) + "\n")
    print(f"{len(rows)} traces, {sum(row['calls'] for row in rows.values())} calls")


def check() -> None:
    ledger = json.loads(LEDGER.read_text())
    listed, found = ledger["traces"] | ledger["records"], survey() | records()
    wrong = sorted(name for name in listed.keys() | found.keys() if listed.get(name) != found.get(name))
    if wrong:
        sys.exit(f"manifest.json and the files disagree on: {', '.join(wrong)}")
    print(f"{len(found)} recordings agree with the manifest")


def main() -> None:
    parser = argparse.ArgumentParser(description="keep the manifest of the committed traces")
    parser.add_argument("action", choices=["check", "write"])
    parser.add_argument("--changed", action="append", default=[], metavar="NAME")
    parser.add_argument("--why")
    options = parser.parse_args()
    check() if options.action == "check" else write(options.changed, options.why)


if __name__ == "__main__":
    main()
