"""Diff the port against recorded traces: compare.py --port BINARY [--traces DIR] [SCENARIO...]

Runs `BINARY SCENARIO` for each scenario, compares its output with the recorded trace byte for byte, and prints where
the first difference lies: call, field, upstream's value, the port's value.
"""

import argparse
import gzip
import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def difference(ours: object, theirs: object, path: str = "") -> str | None:
    """The first place in which two records differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and list(ours) == list(theirs):
        inner = (difference(ours[key], theirs[key], f"{path}.{key}" if path else key) for key in ours)
        return next((found for found in inner if found), None)
    return None if ours == theirs else f"{path or 'record'}\n    upstream {json.dumps(theirs)}\n    port     {json.dumps(ours)}"


def first_difference(port: list[str], upstream: list[str]) -> str | None:
    for number, (ours, theirs) in enumerate(zip(port, upstream)):
        if ours != theirs:
            where = "header" if number == 0 else f"call {number - 1}"
            try:
                found = difference(json.loads(ours), json.loads(theirs))
            except ValueError:
                found = f"not JSON: {ours[:200]}"
            return f"{where}: {found or 'same content, other bytes'}"
    if len(port) != len(upstream):
        return f"{len(port) - 1} calls, upstream made {len(upstream) - 1}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="compare the port's traces with upstream's")
    parser.add_argument("scenarios", nargs="*", type=Path)
    parser.add_argument("--port", required=True, help="the vllm-trace binary")
    parser.add_argument("--traces", type=Path, default=HERE / "traces")
    options = parser.parse_args()
    scenarios = options.scenarios or sorted((HERE / "scenarios").glob("*.yaml"))
    different = 0
    for path in scenarios:
        recording = options.traces / f"{path.stem}.jsonl.gz"
        if not recording.exists():
            different += 1
            print(f"{path.stem}: no recorded trace")
            continue
        upstream = gzip.decompress(recording.read_bytes()).decode()
        run = subprocess.run([options.port, str(path)], capture_output=True, text=True)
        if run.returncode != 0:
            found = f"the port failed: {run.stderr.strip()[:500]}"
        elif run.stdout == upstream:
            continue
        else:
            found = first_difference(run.stdout.splitlines(), upstream.splitlines()) or "line ends differ"
        different += 1
        print(f"{path.stem}: {found}")
    print(f"{len(scenarios) - different} of {len(scenarios)} scenarios agree")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
