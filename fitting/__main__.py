"""Fits every coefficient of the registry: `python fitting --wheel PATH [--check]` (see README.md)."""

import argparse
import importlib
import os
import sys
from pathlib import Path

# Before numpy loads: a sum that several threads share is rounded by how they share it, and so by the machine's load and cores.
os.environ.update({name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")})

import source
import vectors
import writer
from entry import Report

FAMILIES = ("gemm", "attention_prefill", "attention_decode", "latent", "gathered", "recurrent", "moe", "collective", "elementwise", "sampling",
            "launch", "host", "memory")
# Those that others read from the registry first.
ORDER = ("latent", "gemm", "elementwise", "gathered", *(family for family in FAMILIES if family not in ("latent", "gemm", "elementwise", "gathered")))
HERE = Path(__file__).resolve().parent
REGISTRY = HERE.parent / "registry"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", required=True, help="the operator database's wheel (sources.toml pins it)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail unless every file is as it would be written")
    parser.add_argument("--chip", choices=sorted(source.PINS["chips"]), action="append")
    parser.add_argument("--family", choices=FAMILIES, action="append")
    args = parser.parse_args()
    wheel, report, stale = source.Wheel(args.wheel), Report(), []
    for family in (family for family in ORDER if family in (args.family or FAMILIES)):
        script = importlib.import_module(family)
        for chip in args.chip or source.PINS["chips"]:
            report.fitted.add((family, chip))
            text = writer.document(chip, family, list(script.entries(chip, wheel, report)))
            path = REGISTRY / chip / f"{family}.yaml"
            if args.check:
                stale += [] if path.exists() and path.read_text() == text else [path]
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            print(family, chip, flush=True)
    path = HERE / "vectors.json"
    if args.check:
        stale += [] if path.exists() and path.read_text() == vectors.text() else [path]
    else:
        path.write_text(vectors.text())
    path = HERE / "REPORT.md"
    page = path.read_text() if path.exists() else ""
    text = report.text(page, [(family, chip) for family in FAMILIES for chip in source.PINS["chips"]])
    if args.check:
        stale += [] if page == text else [path]
    else:
        path.write_text(text)
    for row in report.rows:
        print("%-18s %-12s %-34s %-26s %6d  median %.3f  p90 %.3f  bias %+.3f" % row)
    for path in stale:
        print(f"{path} is not what its script writes", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
