"""Host time to launch one forward pass, and the accelerator's time between its kernels.

Not measured for vLLM on a graph; eager rows of the tables bound a launch from Python. What the tables cannot show is calibrated
(`calibrate.py`): the time between different kernels of a pass, and a kernel's dispatch from Python. What modules measured whole take beyond
their pieces is reported beside the first and is no part of it (`between.py`, `NOTES.md`).
"""

import numpy as np

import between
import calibrated
import forms
from entry import scope, stated

HOST = {"clock": "host", "launch": "graph"}
DEVICE = {"clock": "device", "launch": "graph"}
FULL = (
    "assumed: one graph launch is a few microseconds plus little for each node on current CUDA toolkits; the rest is the runner's own "
    "dispatch around it"
)
PIECES = (
    "assumed: each piece is one graph launch behind a Python wrapper, and between pieces attention is dispatched as a custom operation; "
    "bounded above by the eager dispatch of a lone collective in the operator tables"
)
NODE = (
    "the tables time a kernel following itself; between different kernels that depend on each other the accelerator drains, resolves "
    "the dependency and fetches code and addresses anew. Calibrated on decode steps of fit units, the same on every chip"
)
DEPENDENT = (
    "the same to a kernel launched as a programmatic dependent, which begins while the one before it drains (the plan says which are, as sources and "
    "binaries launch them). Calibrated beside the other, the same on every chip"
)
EAGER = (
    "a kernel launched from Python through its custom operation. Calibrated on prompts of fit units whose launch line leaves prefill without "
    "graphs; the tables' eager rows bound it (medians of small sizes): {:.0f} us of host time for a collective"
)
LINEAR = ", {:.0f} us for each of a linear layer's two operations in the block format"


def entries(chip, wheel, report):
    table = wheel.table(chip, "comm", "vllm/0.24.0", "custom_allreduce_perf")
    table = table.where((table["backend"] == "vllm_eager") & (table["message_size"] <= 65536))
    dispatch = float(np.median(table["latency_us"]))
    linear = wheel.table(chip, "gemm", "vllm/0.24.0", "gemm_perf")
    linear = linear.where((linear["gemm_dtype"] == "fp8_block") & (linear["m"] <= 512) & (linear["n"] * linear["k"] <= 4_000_000)
                          & (linear["kernel_source"] == "CutlassFp8BlockScaledMMKernel"))
    bound = LINEAR.format(float(np.median(linear["latency_us"])) / 2) if len(linear) else ""
    method, carried = calibrated.method(chip)
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
        "per_operation": calibrated.coefficient("eager_operation"),
    }, method, EAGER.format(dispatch) + bound + carried, dict(HOST, launch="eager"), ranges=calibrated.span(),
       sources=[table.cite(), *([linear.cite()] if len(linear) else []), calibrated.cite()], fit=calibrated.fit())
    if report is not None:
        for part, error in between.inside(chip, wheel)["errors"]:
            report.add("launch", chip, "between-kernels", part, error)
    between_calls = (("between-kernels", "graph.node", "between_kernels", NODE), ("between-dependents", "graph.dependent", "between_dependents", DEPENDENT))
    for name, primitive, term, reason in between_calls:
        yield stated(scope(name, primitive, None), forms.per_unit.__name__, {
            "base": {"value": 0, "unit": "us", "interval": [0, 0]},
            "per_operation": calibrated.coefficient(term),
        }, method, reason + carried, DEVICE, ranges=calibrated.span(), sources=[calibrated.cite()], fit=calibrated.fit())
