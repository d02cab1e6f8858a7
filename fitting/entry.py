"""What every family script shares: building an entry of the registry and recording its held-out error."""

from dataclasses import dataclass, field

import numpy as np

import forms
from fit import Problem, summary

TABLE_RELEASE = "0.24.0"
TABLE_RULE = (
    "measured on the kernel of the same name in vLLM 0.24.0; its code is not shown unchanged up to the modelled release"
)
DEVICE_GRAPH = {"clock": "device", "launch": "graph"}
UNITS = dict.fromkeys((*forms.TILES, "tile_rows"), "rows")      # of coefficients that a family fixes, where not a ratio


@dataclass
class Report:
    """Rows of the held-out report, in the order they were fitted."""

    rows: list = field(default_factory=list)
    fitted: set = field(default_factory=set)        # (family, chip) of this run

    def add(self, family, chip, kernel, part, error):
        size = np.abs(error)
        self.rows.append((family, chip, kernel, part, len(size), float(np.median(size)), float(np.percentile(size, 90)), float(np.median(error))))

    def text(self, page, order):
        """The report as a page: every entry's error on rows it was not fitted to, and by part of them. Of the families and chips
        that this run did not fit (`order` lists all of both), the lines of the page as it was stay, and so does the section of `chips.py`."""
        page, mark, rest = page.partition("\n# Chips left out\n")
        lines = {place: [] for place in order}
        for family, chip, kernel, part, rows, median, p90, bias in self.rows:
            lines[family, chip].append(f"| {family} | {chip} | {kernel} | {part} | {rows} | {median:.1%} | {p90:.1%} | {bias:+.1%} |")
        for line in page.splitlines():
            place = tuple(line.split(" | ")[:2]) if line.startswith("| ") else ()
            place = (place[0].removeprefix("| "), place[1]) if place else ()
            if place in order and place not in self.fitted:
                lines[place].append(line)
        head = [
            "# Held-out errors", "",
            "Relative error of rounded coefficients; bias is the median signed error. `held out` and the parts below it are rows left out of",
            "that fit (`NOTES.md` says which); the registry then carries a fit of all rows, whose own error is the line `shipped fit`.",
            "Written by the fitting command.", "",
            "| family | chip | entry | part | rows | median | p90 | bias |", "|---|---|---|---|---:|---:|---:|---:|",
        ]
        return "\n".join(head + [line for place in order for line in lines[place]]) + "\n" + mark + rest


def span(values):
    return [float(np.min(values)), float(np.max(values))]


def scope(name, primitive, kernel, tensor_format=None, group=None):
    head = {"name": name, "primitive": primitive}
    if kernel:
        library, variant = kernel.split("/")
        head["kernel"] = {"library": library, "variant": variant}
    if tensor_format:
        head["format"] = tensor_format
    if group:
        head["group"] = group
    return head


def fitted(head, family, chip, form, table, inputs, held, free, report, fixed=None, clusters=None,
           ranges=(), method="transferred", reason=TABLE_RULE, parts=(), sources=None, nuisance=(), form_name=None):
    """Fits without the rows held out, reports the error on those, then fits all rows for the entry. `nuisance` names coefficients of the measurement (not of
    the kernel), which the entry leaves out; `form_name` is then the form without them. One of `fixed` that is no plain number brings its interval."""
    observed = table["latency_us"]
    take = lambda mask: {k: v[mask] if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    train = ~held
    stated = {name: value if isinstance(value, dict) else {"value": value, "unit": UNITS.get(name, "ratio"), "interval": [value, value]}
              for name, value in (fixed or {}).items()}
    fixed = {name: block["value"] for name, block in stated.items()}
    problem = Problem(form, take(train), observed[train], free, fixed)
    solution = problem.solve(clusters[train])
    error = solution.error(take(held), observed[held])
    kernel = head["name"]
    report.add(family, chip, kernel, "held out", error)
    for label, mask in parts:
        if (held & mask).any():
            report.add(family, chip, kernel, label, solution.error(take(held & mask), observed[held & mask]))
    solution = Problem(form, inputs, observed, free, fixed).solve(clusters, solution.z)     # what is shipped: all rows
    report.add(family, chip, kernel, "all rows, shipped fit", solution.error(inputs, observed))
    coefficients, curves = ({n: v for n, v in block.items() if n not in nuisance} for block in solution.blocks())
    coefficients.update(stated)
    entry = dict(
        head, method=method, form=form_name or form.__name__, coefficients=coefficients, curves=curves,
        range={name: span(inputs[name]) for name in ranges}, boundary=DEVICE_GRAPH,
        sources=sources or [table.cite()],
        fit=dict(rows=len(observed), held_out=int(held.sum()), **summary(error)), reason=table.reason(reason),
    )
    return entry, solution


def priced(entry, inputs):
    """Microseconds that an entry as it is shipped gives for calls."""
    return forms.FORMS[entry["form"]](inputs, forms.values_of(entry))


def stated(head, form, coefficients, method, reason, boundary=DEVICE_GRAPH, ranges=None, curves=None, **more):
    """An entry that no fit stands behind: roofline, assumed, literature, vendor_spec or not_charged."""
    return dict(head, method=method, form=form, coefficients=coefficients, curves=curves or {}, range=ranges or {},
                boundary=boundary, **more, reason=reason)


def any_kernel(entry, tensor_format=None):
    """The family entry for kernels nothing was measured of: a roofline at the efficiencies of `entry`, for one format or for all."""
    carried = {k: v for k, v in entry.items() if k not in ("name", "primitive", "kernel", "format", "group", "fit")}
    head = scope(f"any-{tensor_format}" if tensor_format else "any", entry["primitive"], None, tensor_format)
    return dict(head, **dict(carried, method="roofline", reason=f"efficiencies and fixed times of {entry['name']} on this chip, for a kernel of "
                "the same primitive that was not measured"))


def with_families(entries):
    """The entries, then one for unmeasured kernels of each format (the first kernel's), then one for whatever else."""
    first = {}
    for entry in entries:
        yield entry
        first.setdefault(entry["format"], entry)
    for tensor_format, entry in first.items():
        yield any_kernel(entry, tensor_format)
    yield any_kernel(next(iter(first.values())))
