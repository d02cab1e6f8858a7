"""Host time to launch one forward pass. Not measured for vLLM on a graph; eager rows of the tables give a bound."""

import numpy as np

import forms
from entry import scope, stated

HOST = {"clock": "host", "launch": "graph"}
FULL = (
    "assumed: one graph launch is a few microseconds plus little for each node on current CUDA toolkits; the rest is the runner's own "
    "dispatch around it"
)
PIECES = (
    "assumed: each piece is one graph launch behind a Python wrapper, and between pieces attention is dispatched as a custom operation; "
    "bounded above by the eager dispatch of a lone collective in the operator tables"
)


def entries(chip, wheel, report):
    table = wheel.table(chip, "comm", "vllm/0.24.0", "custom_allreduce_perf")
    table = table.where((table["backend"] == "vllm_eager") & (table["message_size"] <= 65536))
    dispatch = float(np.median(table["latency_us"]))
    yield stated(scope("full-graph", "graph.full", None), forms.per_unit.__name__, {
        "base": {"value": 40, "unit": "us", "interval": [20, 100]},
        "per_operation": {"value": 0.01, "unit": "us", "interval": [0.001, 0.2]},
    }, "assumed", FULL, HOST)
    yield stated(scope("piecewise-graph", "graph.piecewise", None), forms.per_unit.__name__, {
        "base": {"value": 40, "unit": "us", "interval": [20, 100]},
        "per_operation": {"value": 25, "unit": "us", "interval": [10, round(2 * dispatch)]},
    }, "assumed", PIECES, HOST)
    yield stated(scope("eager", "graph.eager", None), forms.per_unit.__name__, {
        "base": {"value": 40, "unit": "us", "interval": [20, 100]},
        "per_operation": {"value": 8, "unit": "us", "interval": [4, round(dispatch)]},
    }, "assumed", f"assumed: a kernel launched from Python; the operator tables' eager all-reduce, a heavier operation, takes {dispatch:.0f} us "
       "of host time (median of small sizes)", dict(HOST, launch="eager"), sources=[table.cite()])
