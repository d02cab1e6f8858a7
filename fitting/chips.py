"""How far off each method would be on a chip whose measurements did not exist: leaves out one chip at a time.

    python fitting/chips.py --wheel PATH

Every measured row of a chip is priced by the coefficients of other chips, at its own peaks and bandwidth: by entries of the same kernel
and format (the method `transferred`, from each chip that has one, in turn), and by the family entries of the other chips, for a kernel
of which nothing was measured anywhere (`roofline`). Collectives are left out: their coefficients are times and rates of links, which no
chip scales. Products of many rows are priced as they last (`lasting.py`), the rows as they were measured. Writes the last section of `REPORT.md`; the registry's coefficients are read as they are shipped.
"""

import argparse
import importlib
import sys
from pathlib import Path

import numpy as np
import yaml

import forms
import source

HERE = Path(__file__).resolve().parent
REGISTRY = HERE.parent / "registry"
FAMILIES = ("gemm", "attention_prefill", "attention_decode", "moe")
TITLE = "# Chips left out"


def shipped(chip, family):
    """A family's entries of a chip by name, coefficients as the forms read them."""
    document = yaml.safe_load((REGISTRY / chip / f"{family}.yaml").read_text())
    return {entry["name"]: forms.values_of(entry) for entry in document["entries"]}


def rows_of(family, chip, wheel):
    """Each entry's measured rows, as its script reads them: name, inputs, and microseconds net of what the entry does not price."""
    module = importlib.import_module(family)
    taken = []

    def take(head, _family, _chip, _form, table, inputs, *_, **__):
        net = table["latency_us"] - inputs.get("quantisation", 0.0)
        keep = net > 0.0
        taken.append((head["name"], {k: v[keep] if isinstance(v, np.ndarray) else v for k, v in inputs.items()}, net[keep]))
        return dict(head), None

    own, module.fitted = module.fitted, take
    try:
        list(module.measured(chip, wheel, None))
    finally:
        module.fitted = own
    return taken


def errors(family, wheel):
    """(method, chip) -> relative errors over rows and donors."""
    form = forms.FORMS["moe" if family == "moe" else "matmul" if family == "gemm" else family]
    chips = [chip for chip in source.PINS["chips"] if (REGISTRY / chip / f"{family}.yaml").exists()]
    entries = {chip: shipped(chip, family) for chip in chips}
    found = {}
    for chip in chips:
        for name, inputs, observed in rows_of(family, chip, wheel):
            for donor in chips:
                if donor == chip:
                    continue
                for method, key in (("transferred", name), ("roofline", "any")):
                    if key in entries[donor]:
                        error = form(inputs, entries[donor][key]) / observed - 1.0
                        found.setdefault((method, chip), []).append(error[np.isfinite(error)])
    return {key: np.concatenate(parts) for key, parts in found.items()}


def line(family, method, chip, error):
    size = np.abs(error)
    return f"| {family} | {method} | {chip} | {len(error)} | {np.median(size):.1%} | {np.percentile(size, 90):.1%} | {np.median(error):+.1%} |"


def section(wheel):
    lines = [
        TITLE, "", "Relative error of prices of a chip's measured rows by coefficients of other chips alone, as `chips.py` explains; rows are counted once",
        "for each chip the coefficients came from.", "", "| family | method | chip left out | rows | median | p90 | bias |", "|---|---|---|---:|---:|---:|---:|",
    ]
    for family in FAMILIES:
        found = errors(family, wheel)
        for method in ("transferred", "roofline"):
            parts = {chip: error for (of, chip), error in found.items() if of == method}
            lines.append(line(family, method, "all in turn", np.concatenate(list(parts.values()))))
            lines += [line(family, method, chip, error) for chip, error in parts.items()]
        print(family, flush=True)
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheel", required=True)
    args = parser.parse_args()
    path = HERE / "REPORT.md"
    before = path.read_text().split(f"\n{TITLE}\n")[0].rstrip("\n") + "\n"
    path.write_text(before + "\n" + section(source.Wheel(args.wheel)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
