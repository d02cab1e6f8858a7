"""Writes one coefficient file, byte for byte the same for the same fit."""

import math

SIGNIFICANT = 4


def rounded(value):
    """To the significant digits the registry carries; every error in the report uses such values."""
    value = float(value)
    if value == 0.0 or not math.isfinite(value):
        return value
    return float(f"{value:.{SIGNIFICANT}g}")


def number(value):
    """A decimal literal our strict loader reads: no exponent, no trailing zeros, no nan."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, int):
        return str(value)
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be written")
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return format(value, ".17f").rstrip("0") if "e" in repr(value) else repr(value)


def text(value):
    """A plain or double-quoted scalar on one line."""
    plain = value and value[0].isalpha() and all(c.isalnum() or c in " -_./" for c in value)
    if plain and value.strip() == value and value.lower() not in ("null", "true", "false", "yes", "no", "on", "off"):
        return value
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def flow(value):
    """One-line form, for leaves."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(v) for v in value) + "]"
    return text(value) if isinstance(value, str) else number(value)


def entry_lines(entry):
    lines = []
    for key, value in entry.items():
        if key in ("coefficients", "curves"):
            if value:
                lines.append(f"{key}:")
                lines += [f"  {name}: {flow(leaf)}" for name, leaf in value.items()]
        elif key in ("sources", "ranges"):
            lines.append(f"{key}:")
            lines += [f"  - {flow(leaf)}" for leaf in value]
        elif value is not None:
            lines.append(f"{key}: {flow(value)}")
    return ["  - " + lines[0]] + ["    " + line for line in lines[1:]]


def document(chip, family, entries):
    lines = [
        "# Written by the script named below; never edited by hand.",
        "kind: CoefficientSet",
        f"chip: {chip}",
        f"family: {family}",
        f"script: fitting/{family}.py",
        "entries:",
    ]
    for entry in entries:
        lines += entry_lines(entry)
    return "\n".join(lines) + "\n"
