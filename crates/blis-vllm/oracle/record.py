"""Record what upstream decides: record.py SCENARIO... --out DIR

Each scenario runs in a forked child of one warmed process, so that no cache of one recording reaches the next.
"""

import argparse
import gc
import gzip
import json
import os
import sys
import traceback
from pathlib import Path

import scenario as scenarios


def write(path: Path, lines: list[str], compress: bool) -> None:
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content, compresslevel=9, mtime=0) if compress else content)


def record(path: Path, out: Path, compress: bool) -> None:
    import engine

    loaded = scenarios.load(path)
    lines = engine.run(loaded)
    write(out / (loaded.name + (".jsonl.gz" if compress else ".jsonl")), lines, compress)
    print(f"{loaded.name}: {len(lines) - 1} calls", flush=True)


def start(path: Path, out: Path, compress: bool) -> int:
    """Record in a forked child; returns its process id."""
    child = os.fork()
    if child == 0:
        try:
            record(path, out, compress)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    return child


def apart(recorder, *arguments) -> dict:
    """Records in a child, so that nothing of one recording reaches the next."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(send, "w") as pipe:
                json.dump(recorder(*arguments), pipe)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(send)
    with os.fdopen(receive) as pipe:
        answer = pipe.read()
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise RuntimeError(f"{arguments} cannot be recorded")
    return json.loads(answer)


def main() -> int:
    parser = argparse.ArgumentParser(description="record upstream's decisions for scenario files")
    parser.add_argument("scenarios", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--plain", action="store_true", help="write NAME.jsonl instead of NAME.jsonl.gz")
    parser.add_argument("--jobs", type=int, default=1, help="recordings at a time")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    import engine  # noqa: F401  (imported once, before forking)
    import mocks

    print(f"{mocks.verify_wheel()} upstream files are as released", flush=True)
    mocks.written_here()
    # What was imported stays: the children's collections need not look at it again.
    gc.freeze()
    waiting, running, failed = list(options.scenarios), {}, []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            path = waiting.pop(0)
            running[start(path, options.out, not options.plain)] = path
        child, status = os.wait()
        path = running.pop(child)
        if os.waitstatus_to_exitcode(status) != 0:
            failed.append(path.name)
    if failed:
        print(f"failed: {', '.join(sorted(failed))}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
