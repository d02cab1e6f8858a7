"""Fits one entry's coefficients: robust least squares on the logarithm of predicted over measured time.

Logarithms, so that a 10 us and a 10 ms call weigh the same; a soft L1 loss, so that isolated spikes in the
tables do not steer the fit. Intervals are 95% from a one-step clustered bootstrap: clusters (whole shapes)
are drawn with replacement and one Gauss-Newton step is taken from the fitted point.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares

from writer import rounded

LOSS_SCALE = 0.05
BOOTSTRAP_DRAWS = 200
DRAWN = [2.5, 97.5]       # percentiles: 95%
NOTHING = 1e-6            # a time (us) the data drive this low is none at all


# What a curve may be at a knot, by its value at the knot before and how many times as large its input is there, so that more work takes no less time: linear in the
# logarithm between knots, it may move by its own value for each natural logarithm of the step. One percent of that stays out, for rounding.
MOST = {
    "rate": lambda before, step: min(1.0, before * moves(step)),         # of the work: work over it does not fall
    "level": lambda before, step: before,                                # of work that hardly grows
    "gain": lambda before, step: (1.0 + before) * moves(step) - 1.0,     # of a rate, over one; nothing at the last knot
}
LEAST = {
    "each": lambda before, step: before / moves(step),                   # time of each unit of the input
    "whole": lambda before, step: before,                                # time of all of it
}


SHARE_OF_MOST = (-3.0, 9.0)     # its logit: from a twentieth, which no kernel falls by between two knots, to all but a ten-thousandth


def moves(step):
    return 1.0 + 0.99 * np.log(step)


@dataclass(frozen=True)
class Free:
    """A coefficient to fit. `kind`: positive (log space), ratio (0..1], sharpness (1..). A curve has `xs`, and a `law` where they grow with the work: each knot is then
    fitted as a share of the most it may be, or as what it has over the least."""

    name: str
    unit: str
    start: object
    kind: str = "positive"
    over: str = None
    xs: tuple = None
    law: str = None

    @property
    def size(self):
        return len(self.xs) if self.xs else 1

    def encode(self):
        y = np.broadcast_to(np.asarray(self.start, dtype=float), (self.size,))
        if self.law in ("whole", "level"):      # what is fitted to be no less, or no more, cannot start as much
            y = y * (1.3 if self.law == "whole" else 0.97) ** np.arange(self.size)
        if self.kind == "ratio":
            z = np.log(y / (1.0 - y))
        else:
            z = np.log(y - 1.0) if self.kind == "sharpness" else np.log(y)
        if self.law in MOST:
            shares = y[1:] / [MOST[self.law](*at) for at in zip(y, self.steps)]
            return np.concatenate([z[:1], np.log(shares / (1.0 - shares))])
        if self.law in LEAST:
            return np.concatenate([z[:1], np.log(y[1:] - [LEAST[self.law](*at) for at in zip(y, self.steps)])])
        return z

    @property
    def steps(self):
        return [after / before for before, after in zip(self.xs, self.xs[1:])]

    def decode(self, z):
        if self.kind == "ratio":
            y = 1.0 / (1.0 + np.exp(-z))
        else:
            y = 1.0 + np.exp(z) if self.kind == "sharpness" else np.exp(z)
        for i in range(1, self.size if self.law else 1):
            step = self.steps[i - 1]
            y[i] = MOST[self.law](y[i - 1], step) / (1.0 + np.exp(-z[i])) if self.law in MOST else LEAST[self.law](y[i - 1], step) + np.exp(z[i])
        if self.law == "gain":
            y[-1] = 0.0
        return y

    def limits(self, z, steps):
        """The interval's ends over the draws' `steps`. A ratio's, and those of a curve with a law, whose knots hang together, are taken along the tangent of their own scale,
        where a share near the whole is not stretched without end. What no row determines may be anything."""
        floor, ceiling = bounds(self)
        open_to = np.all(steps == 0.0, axis=0) & (self.decode(z) > NOTHING)
        steps = steps - np.median(steps, axis=0)
        if self.kind == "ratio" or self.law:
            ends = self.decode(z) + np.percentile(steps @ self._slopes(z).T, DRAWN, axis=0)
            low, high = np.clip(ends, self.decode(floor), self.decode(ceiling))
        else:
            low, high = (self.decode(np.clip(z + ends, floor, ceiling)) for ends in np.percentile(steps, DRAWN, axis=0))
        return np.where(open_to, self.decode(floor), low), np.where(open_to, self.decode(ceiling), high)

    def _slopes(self, z):
        """By how much each knot moves with each of `z`."""
        around = [(self.decode(z + near) - self.decode(z - near)) / 2e-5 for near in 1e-5 * np.eye(self.size)]
        return np.array(around).T


def bounds(free):
    """Keeps a coefficient that the data do not determine from running off to infinity."""
    spans = {"positive": (-16.0, 14.0), "ratio": (-6.0, 4.6), "sharpness": (-3.0, 2.2)}
    low, high = (np.full(free.size, end) for end in spans[free.kind])
    if free.law:
        low[1:], high[1:] = SHARE_OF_MOST if free.law in MOST else spans["positive"]
    return low, high


class Problem:
    """One entry: a form, fixed coefficients, free ones, and the measured calls."""

    def __init__(self, form, inputs, observed, free, fixed=None):
        self.form, self.inputs, self.observed = form, inputs, observed
        self.free, self.fixed = free, fixed or {}

    def values(self, z, post=lambda v: v):
        out, at = dict(self.fixed), 0
        for f in self.free:
            y = [post(v) if v > NOTHING else 0.0 for v in f.decode(z[at : at + f.size])]
            out[f.name] = (f.over, np.array(f.xs, float), np.array(y)) if f.xs else y[0]
            at += f.size
        return out

    def residual(self, z):
        return np.log(self.form(self.inputs, self.values(z)) / self.observed)

    def solve(self, clusters, start=None):
        start = np.concatenate([f.encode() for f in self.free]) if start is None else start
        low, high = (np.concatenate(v) for v in zip(*(bounds(f) for f in self.free)))
        found = least_squares(
            self.residual, np.clip(start, low + 1e-6, high - 1e-6), bounds=(low, high), loss="soft_l1",
            f_scale=LOSS_SCALE, xtol=1e-9, ftol=1e-9, gtol=1e-9, max_nfev=100,
        )
        return Fitted(self, found.x, self._spread(found, clusters))

    def _spread(self, found, clusters):
        """Steps in the encoded space, of each draw of the one-step bootstrap over clusters."""
        residual = self.residual(found.x)
        robust = 1.0 / np.sqrt(1.0 + (residual / LOSS_SCALE) ** 2)
        names, index = np.unique(clusters, return_inverse=True)
        plain = self._plain_jacobian(found.x)
        size = plain.shape[1]
        normal = np.zeros((len(names), size, size))
        score = np.zeros((len(names), size))
        weighted = plain * robust[:, None]
        for k in range(len(names)):
            rows = index == k
            normal[k] = weighted[rows].T @ plain[rows]
            score[k] = weighted[rows].T @ residual[rows]
        ridge = 1e-6 * np.eye(size) * max(np.trace(normal.sum(0)) / size, 1e-12)
        generator = np.random.default_rng(20240901)
        steps = np.empty((BOOTSTRAP_DRAWS, size))
        for draw in range(BOOTSTRAP_DRAWS):
            times = np.bincount(generator.integers(0, len(names), len(names)), minlength=len(names))
            lhs = np.tensordot(times, normal, axes=1) + ridge
            steps[draw] = -np.linalg.solve(lhs, times @ score)
        return steps

    def _plain_jacobian(self, z):
        base = self.residual(z)
        columns = []
        for i in range(len(z)):
            step = np.zeros_like(z)
            step[i] = 1e-5
            columns.append((self.residual(z + step) - base) / 1e-5)
        return np.array(columns).T


class Fitted:
    """The solution, rounded as the registry carries it."""

    def __init__(self, problem, z, spread):
        self.problem, self.z, self.spread = problem, z, spread
        self.values = problem.values(z, rounded)

    def error(self, inputs, observed):
        return self.problem.form(inputs, self.values) / observed - 1.0

    def blocks(self):
        """(coefficients, curves) as the registry writes them."""
        coefficients, curves, at = {}, {}, 0
        for f in self.problem.free:
            z = self.z[at : at + f.size]
            low, high = f.limits(z, self.spread[:, at : at + f.size])
            at += f.size
            value = self.values[f.name]
            ys = np.atleast_1d(value[2] if f.xs else value)
            limits = [[rounded(a) if y else 0.0, rounded(b)] for y, a, b in zip(ys, np.minimum(low, ys), np.maximum(high, ys))]
            if f.xs:
                points = [[float(x), float(y)] for x, y in zip(value[1], value[2])]
                curves[f.name] = {"over": f.over, "unit": f.unit, "points": points, "intervals": limits}
            else:
                coefficients[f.name] = {"value": value, "unit": f.unit, "interval": limits[0]}
        return coefficients, curves


def summary(error):
    """Median and p90 of the absolute relative error."""
    size = np.abs(error)
    return {"median_abs_error": rounded(np.median(size)), "p90_abs_error": rounded(np.percentile(size, 90))}
