"""Calibrates the few terms no operator measurement determines, on end-to-end measurements of fit units alone.

    python fitting/calibrate.py --wheel PATH --blis PROGRAM --units FILE --measurements FILE

`FILE`s are JSON lines: launch lines without latencies, and latencies of the units with the role `fit`; units without a latency are not
simulated. Each term is one number for every chip and model. The simulator is run at the values at hand and at each term moved by a
tenth; the logarithms of its figures, taken as linear in the terms, are solved by robust least squares within the bounds below, and
again from the answer until it settles or the simulator's own loss no longer falls, five times at most. Intervals are 95%, by resampling whole deployments. What is left is reported on families, on chips
and on single deployments left out of the solution. Writes `calibrated.toml`; the registry is then written by the fitting command.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

# Before numpy loads: a sum that several threads share is rounded by how they share it.
os.environ.update({name: "1" for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")})

import numpy as np
from scipy.optimize import least_squares

import calibrated
import host
import launch
import source
import writer

REGISTRY = Path(__file__).resolve().parent.parent / "registry"
# Name, unit, bounds: what the operator tables or the nature of the term admit.
TERMS = (("between_kernels", "us", (0.0, 5.0)), ("between_dependents", "us", (0.0, 5.0)), ("eager_operation", "us", (20.0, 85.0)), ("text_token", "us", (2.0, 8.0)),
         ("host_pace", "ratio", (0.3, 1.2)))
FIGURES = ("mean_tpot_us", "mean_ttft_us")
STEP, ROUNDS, DRAWS, SEED = 0.1, 5, 200, 7
# Errors above this count in proportion, not by their square: a point measured wrong must not move a term.
SCALE = 0.1
NOTHING = 1e-6             # of any unit: a solution that stopped short of zero


def measured(path):
    """Logarithm of TPOT and TTFT by (scenario, label, concurrency)."""
    points = {}
    for line in Path(path).read_text().splitlines():
        unit = json.loads(line)
        for concurrency in unit["mean_tpot_us"] if unit["framework"] == "vllm" else ():
            points[unit["scenario"], unit["label"], int(concurrency)] = [np.log(unit[f][concurrency]) for f in FIGURES]
    return points


class Simulator:
    """Runs the program on the fit units with given values of the terms."""

    def __init__(self, args, points):
        self.wheel, self.blis, self.folder = source.Wheel(args.wheel), args.blis, Path(tempfile.mkdtemp())
        self.units = self.folder / "units.jsonl"
        wanted = {key[:2] for key in points}
        lines = [line for line in Path(args.units).read_text().splitlines() if (lambda u: (u["scenario"], u["label"]) in wanted)(json.loads(line))]
        self.units.write_text("\n".join(lines) + "\n")

    def figures(self, values):
        registry = self.folder / "registry"
        shutil.rmtree(registry, ignore_errors=True)
        shutil.copytree(REGISTRY, registry)
        for (name, *_), value in zip(TERMS, values):
            calibrated.STATE["coefficients"][name].update(value=float(value), interval=[0.0, 2.0 * float(value)])
        for chip in source.PINS["chips"]:
            for family, script in (("launch", launch), ("host", host)):
                (registry / chip / f"{family}.yaml").write_text(writer.document(chip, family, list(script.entries(chip, self.wheel, None))))
        run = subprocess.run([self.blis, "score", "predict", "--units", self.units, "--registry", registry], capture_output=True, text=True, check=True)
        lines = [json.loads(line) for line in run.stdout.splitlines()]
        return {(p["scenario"], p["label"], p["concurrency"]): [np.log(p[f]) for f in FIGURES] for p in lines if p["refused"] is None}


def table(keys, figures):
    return np.array([figures[key] for key in keys]).reshape(-1)


def residuals(simulator, points, keys, values):
    """Logarithms of simulated over measured figures; a row for each figure of each point."""
    return table(keys, simulator.figures(values)) - table(keys, points)


def slopes_at(simulator, points, keys, values, rest):
    """How the residuals at `values`, which are `rest`, move with each term."""
    slopes = np.empty((len(rest), len(TERMS)))
    for i, value in enumerate(values):
        moved = list(values)
        moved[i] = value * (1.0 + STEP) if value > 0.0 else STEP
        slopes[:, i] = (residuals(simulator, points, keys, moved) - rest) / (moved[i] - value)
    return slopes


def linear(simulator, points, values):
    """The points, their residuals at `values`, and how these move with each term."""
    base = simulator.figures(values)
    keys = sorted(set(base) & set(points))
    rest = table(keys, base) - table(keys, points)
    return keys, rest, slopes_at(simulator, points, keys, values, rest)


def solve(rest, slopes, values):
    """The values at which the linear residuals are least."""
    low, high = np.array([bounds for *_, bounds in TERMS]).T
    size = np.maximum(np.abs(values), 1.0)
    answer = least_squares(
        lambda x: rest + slopes @ (x * size - values), np.clip(values, low + 1e-9, high - 1e-9) / size, bounds=(low / size, high / size),
        loss="soft_l1", f_scale=SCALE,
    )
    return answer.x * size


def loss(rest):
    """What the robust least squares make least."""
    return 2.0 * SCALE**2 * float(np.sum(np.sqrt(1.0 + (rest / SCALE) ** 2) - 1.0))


def family(key):
    return key[0].split("-b")[0].split("-h")[0]


def chip(key):
    return next(name for name in calibrated.CHIPS if f"-{name}-" in key[0])


def left_out(keys, rest, slopes, values, group):
    """Errors of each group's points under the terms solved from all others."""
    errors = {}
    of = np.repeat([group(key) for key in keys], len(FIGURES))
    for name in sorted(set(of)):
        found = solve(rest[of != name], slopes[of != name], values) if len(set(of)) > 1 else values
        errors[name] = (found, np.exp(rest[of == name] + slopes[of == name] @ (found - values)) - 1.0)
    return errors


def show(title, errors):
    print(title)
    for name, (found, error) in errors.items():
        tpot, ttft = error[0::2], error[1::2]
        terms = ", ".join(f"{term[0]} {value:.3g}" for term, value in zip(TERMS, found))
        print(f"  {name:<28} {len(tpot):>4} points  TPOT {np.mean(np.abs(tpot)):6.1%} ({np.mean(tpot):+6.1%})  TTFT {np.mean(np.abs(ttft)):6.1%} "
              f"({np.mean(ttft):+6.1%})  with {terms}")


def bootstrap(keys, rest, slopes, values):
    """95% interval of each term, by resampling deployments."""
    generator = np.random.default_rng(SEED)
    of = np.repeat([f"{key[0]} {key[1]}" for key in keys], len(FIGURES))
    names = sorted(set(of))
    rows = {name: np.flatnonzero(of == name) for name in names}
    draws = []
    for _ in range(DRAWS):
        chosen = np.concatenate([rows[names[i]] for i in generator.integers(len(names), size=len(names))])
        draws.append(solve(rest[chosen], slopes[chosen], values))
    return np.percentile(draws, [2.5, 97.5], axis=0).T


def text(values, intervals, keys, error):
    size = np.abs(error)
    requests = [key[2] for key in keys]
    lines = [
        "# Written by calibrate.py; never edited by hand.", "[source]",
        'source = "InferenceX dump of 2026-09-28, sweeps with the role `fit`"', f"rows = {len(keys)}", "",
        "[range]", f"requests = [{min(requests)}, {max(requests)}]", "",
        "[fit]", f"rows = {len(error)}", f"held_out = {len(error)}",
        f"median_abs_error = {writer.rounded(statistics.median(size))}", f"p90_abs_error = {writer.rounded(np.percentile(size, 90))}",
    ]
    for (name, unit, _), value, (low, high) in zip(TERMS, values, intervals):
        value, low, high = (writer.rounded(x) if x > NOTHING else 0.0 for x in (value, low, high))
        lines += ["", f"[coefficients.{name}]", f"value = {value}", f'unit = "{unit}"', f"interval = [{low}, {high}]"]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("wheel", "blis", "units", "measurements"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    points = measured(args.measurements)
    simulator = Simulator(args, points)
    values = np.array([calibrated.coefficient(name)["value"] for name, *_ in TERMS], float)
    keys, rest, slopes = linear(simulator, points, values)
    for _ in range(ROUNDS):
        found = solve(rest, slopes, values)
        settled = np.all(np.abs(found - values) <= 0.02 * np.maximum(values, 1.0))
        there = residuals(simulator, points, keys, found)
        print("terms", dict(zip((name for name, *_ in TERMS), found)), "loss", loss(rest), "to", loss(there), flush=True)
        if loss(there) >= loss(rest):
            break
        values, rest = found, there
        slopes = slopes_at(simulator, points, keys, values, rest)
        if settled:
            break
    everything = {"all": (values, np.exp(rest) - 1.0)}
    show("solved from all", everything)
    show("family left out", left_out(keys, rest, slopes, values, family))
    show("chip left out", left_out(keys, rest, slopes, values, chip))
    single = left_out(keys, rest, slopes, values, lambda key: f"{key[0]} {key[1]}")
    error = np.concatenate([error for _, error in single.values()])
    show("each deployment left out in turn", {"all": (values, error)})
    calibrated.PATH.write_text(text(values, bootstrap(keys, rest, slopes, values), keys, error))
    return 0


if __name__ == "__main__":
    sys.exit(main())
