"""Coefficients that no operator measurement determines, as `calibrate.py` left them in `calibrated.toml`."""

import tomllib
from pathlib import Path

PATH = Path(__file__).resolve().parent / "calibrated.toml"
# Chips of the measured deployments; on others the values are carried over.
CHIPS = ("h100", "h200", "b200", "b300")
CARRIED = ". No unit of this chip was measured: the value of the others"
STATE = tomllib.loads(PATH.read_text())


def coefficient(name):
    """Value, unit and interval as the registry writes them."""
    stated = STATE["coefficients"][name]
    return {key: stated[key] for key in ("value", "unit", "interval")}


def cite():
    """The end-to-end measurements the coefficients were obtained from."""
    return dict(STATE["source"])


def fit():
    """What was left of the errors, judged on deployments left out in turn."""
    return dict(STATE["fit"])


def span():
    """Numbers of requests in flight that the measurements cover."""
    return {"requests": list(STATE["range"]["requests"])}


def method(chip):
    """How an entry of this chip got its value, and what its reason adds."""
    return ("calibrated", "") if chip in CHIPS else ("transferred", CARRIED)
