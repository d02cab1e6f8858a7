"""Writes `registry/errors.yaml`: how far measurements lay from simulation, and where any lay at all.

    python fitting/residuals.py --blis PROGRAM --wheel PATH --units FILE --measurements FILE [--check]

Run it after `calibrate.py` and the fitting command, with a program built from the registry they wrote. Residuals are logarithms of
measured over simulated, each of a deployment that was left out of the calibrated terms. An interval spans the middle 80% of the residuals
of a family, chip and load, its ends moved outwards (or inwards) by one amount for each kind of deployment, so that intervals made without
a deployment cover 80% of such deployments' points: of measured families on measured chips; of families on a chip none of theirs was
measured on; of families never measured. The share covered, of deployments left out of intervals and amount alike, is written beside
each; where it lies outside 75% to 85% for measured families on measured chips, the command fails. `--check` writes
nothing and fails where the file would change.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import calibrate
import calibrated

PATH = calibrate.REGISTRY / "errors.yaml"
LATENCIES = ("tpot", "ttft")
# Requests in flight, by the upper end of each load.
LOADS = (8, 32, 4096)
LEVEL, BAND = 0.8, (0.75, 0.85)
# Fewer deployments say nothing of a cell, and its interval is that of a wider one.
ENOUGH = 3
ANY = "any"


def family(model):
    """The words of a model's name before the first with a digit, as the program groups models."""
    words = []
    for word in model.split("-"):
        if any(character.isdigit() for character in word):
            break
        words.append(word)
    return "-".join(words) or "".join(c for c in model.split("-")[0] if c.isalpha())


class Point:
    """One measured point: its deployment, what it was, and the residual of each latency."""

    def __init__(self, key, unit, residuals):
        self.deployment, self.requests, self.residuals = key[:2], key[2], dict(zip(LATENCIES, residuals))
        self.family, self.chip = family(unit["scenario"]), unit["gpu"]
        self.load = next(i for i, upper in enumerate(LOADS) if self.requests <= upper)


def points(args):
    measured = calibrate.measured(args.measurements)
    simulator = calibrate.Simulator(args, measured)
    values = np.array([calibrated.coefficient(name)["value"] for name, *_ in calibrate.TERMS], float)
    keys, rest, slopes = calibrate.linear(simulator, measured, values)
    deployment = lambda key: f"{key[0]} {key[1]}"
    left = calibrate.left_out(keys, rest, slopes, values, deployment)
    units = {(u["scenario"], u["label"]): u for u in map(json.loads, Path(args.units).read_text().splitlines())}
    found, taken = [], defaultdict(int)
    for key in keys:
        name = deployment(key)
        at = taken[name]
        taken[name] += len(LATENCIES)
        found.append(Point(key, units[key[:2]], -np.log1p(left[name][1][at : at + len(LATENCIES)])))
    return found, units


def pool(among, latency, load, family, chip):
    """Residuals that speak of a cell, from the most specific set with enough deployments."""
    for wanted in ((family, chip), (family, ANY), (ANY, chip), (ANY, ANY)):
        chosen = [p for p in among if p.load == load and wanted[0] in (ANY, p.family) and wanted[1] in (ANY, p.chip)]
        deployments = {p.deployment for p in chosen}
        if len(deployments) >= ENOUGH or wanted == (ANY, ANY):
            return wanted, [p.residuals[latency] for p in chosen], len(deployments)


def middle(residuals):
    return np.quantile(residuals, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])


def widening(all_points, latency, left_out):
    """By how much the ends are moved so that `LEVEL` of the points lie within intervals of points without their `left_out`, and the share
    of points within intervals whose ends were moved by what the others say."""
    beyond, groups = [], []
    for point in all_points:
        _, residuals, _ = pool([p for p in all_points if not left_out(p, point)], latency, point.load, point.family, point.chip)
        low, high = middle(residuals)
        beyond.append(max(low - point.residuals[latency], point.residuals[latency] - high))
        groups.append([not left_out(p, point) for p in all_points])
    beyond = np.array(beyond)
    by = lambda chosen: np.quantile(chosen, LEVEL, method="higher")
    covered = np.mean([value <= by(beyond[others]) for value, others in zip(beyond, groups)])
    return float(by(beyond)), float(covered)


KINDS = {
    "measured": lambda p, point: p.deployment == point.deployment,
    "other_chip": lambda p, point: p.family == point.family and p.chip == point.chip,
    "other_family": lambda p, point: p.family == point.family,
}


def rows(all_points, latency, factors):
    for load in range(len(LOADS)):
        for name, chip in cells(all_points):
            kind = "measured" if ANY not in (name, chip) else "other_chip" if chip == ANY else "other_family"
            over, residuals, deployments = pool(all_points, latency, load, name, chip)
            if not residuals:
                continue
            low, high = np.exp(middle(residuals) + np.array([-1.0, 1.0]) * factors[kind][0])
            least = LOADS[load - 1] + 1 if load else 1
            yield (
                f"  - {{latency: {latency}, family: {name}, chip: {chip}, requests: [{least}, {LOADS[load]}], low: {low:.3f}, high: {high:.3f}, "
                f"points: {len(residuals)}, deployments: {deployments}, over_family: {over[0]}, over_chip: {over[1]}}}"
            )


def layout(unit):
    """Tensor-parallel, data-parallel and expert-parallel ranks of a launch line. (A unit's name counts ranks otherwise.)"""
    args = unit["launch"]["args"]
    tensor, data = (int(args.get(f"{name}-parallel-size", 1)) for name in ("tensor", "data"))
    return tensor, data, tensor * data if args.get("enable-expert-parallel") else 1


def domain(among, units, name, chip):
    """What deployments ranged over: one line of the table."""
    clients = [units[key]["launch"]["client"] for key in {p.deployment for p in among}]
    span_of = lambda length: [int(min(c[length] * c["range_ratio"] for c in clients)), max(c[length] for c in clients)]
    layouts = sorted({layout(units[p.deployment]) for p in among})
    widths = ", ".join(f"{{tensor: {tp}, data: {dp}, expert: {ep}}}" for tp, dp, ep in layouts)
    return (
        f"  - {{family: {name}, chip: {chip}, requests: [{min(p.requests for p in among)}, {max(p.requests for p in among)}], "
        f"prompt_tokens: {span_of('isl')}, output_tokens: {span_of('osl')}, layouts: [{widths}]}}"
    )


def cells(all_points):
    """The measured families on the measured chips, each of both alone, in the order of the table."""
    families, chips = sorted({p.family for p in all_points}), sorted({p.chip for p in all_points})
    pairs = {(p.family, p.chip) for p in all_points}
    return [(f, c) for f in families for c in chips if (f, c) in pairs] + [(f, ANY) for f in families] + [(ANY, c) for c in chips]


def text(all_points, units):
    factors = {latency: {kind: widening(all_points, latency, left) for kind, left in KINDS.items()} for latency in LATENCIES}
    used = {p.deployment for p in all_points}
    lines = [
        "# Written by fitting/residuals.py; never edited by hand.", "kind: ErrorTable",
        "source: " + json.dumps(calibrated.cite()["source"]), f"points: {len(all_points)}", f"deployments: {len(used)}", f"level: {LEVEL}", "domains:",
    ]
    lines += [
        domain([p for p in all_points if name in (ANY, p.family) and chip in (ANY, p.chip)], units, name, chip) for name, chip in cells(all_points)
    ]
    lines += ["coverage:"]
    lines += [
        f"  - {{latency: {latency}, kind: {kind}, widened: {factor:.3f}, covered: {covered:.3f}}}"
        for latency in LATENCIES for kind, (factor, covered) in factors[latency].items()
    ]
    lines += ["rows:"]
    lines += [row for latency in LATENCIES for row in rows(all_points, latency, factors[latency])]
    missed = [latency for latency in LATENCIES if not BAND[0] <= factors[latency]["measured"][1] <= BAND[1]]
    return "\n".join(lines) + "\n", missed


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("blis", "wheel", "units", "measurements"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    page, missed = text(*points(args))
    print(page.split("rows:")[0])
    if args.check:
        if not PATH.exists() or PATH.read_text() != page:
            print(f"{PATH} is not what this script writes", file=sys.stderr)
            return 1
    else:
        PATH.write_text(page)
    for latency in missed:
        print(f"the intervals of {latency} do not cover {BAND[0]:.0%} to {BAND[1]:.0%}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
