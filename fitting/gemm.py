"""Dense linear layers, per kernel: time of one call of rows x depth by depth x columns.

Held out: whole values of depth (768, 2560, 5120, 10240) over every number of rows and columns.
Activation quantisation: the tables time it together with the product. For fp8 its own tables exist
(same rows and depth), so it is taken off and priced as the primitive `quantise`, for nvfp4 with the fp8 table in its
place; the block format (one fused path in the library measured) includes it, as its reason says.
"""

import numpy as np

import forms
import source
from entry import any_kernel, fitted, scope
from fit import Free

HELD_DEPTHS = (768, 2560, 5120, 10240)
DEPTHS = (32, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536)
NARROW = 32                 # columns of the narrowest product in the tables
READ_EFFICIENCY = 0.8       # share of bandwidth at which the narrow product reads its input (a small correction)
LEAST_NET_SHARE = 0.3       # rows that are mostly quantisation say nothing about the product
NET_OF_QUANTISATION = ("fp8", "nvfp4")
ROWS = (1, 32, 128, 256, 512, 1024, 4096, 32768)

VLLM, SGLANG = "vllm/0.24.0", "sglang/0.5.14"
SGLANG_RULE = (
    "the same DeepGEMM kernel measured under SGLang 0.5.14: vLLM's own rows for this format were timed without a "
    "graph and show host time"
)
# (format, gemm_dtype in the table, framework, kernel_source or None, our kernel, bytes per weight, bytes per activation, peak)
KERNELS = {
    "h100": (
        ("bf16", "bfloat16", VLLM, None, "cublas/linear"),
        ("fp8", "fp8", VLLM, None, "cutlass/scaled-mm-fp8"),
        ("fp8_block", "fp8_block", SGLANG, None, "deepgemm/fp8-block"),
    ),
}
KERNELS["h200"] = KERNELS["h100"]
KERNELS["b200"] = KERNELS["h100"] + (("nvfp4", "nvfp4", VLLM, None, "flashinfer/cutedsl-nvfp4"),)

STORED = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4.0 / (128 * 128), "nvfp4": 0.5 + 1.0 / 16}
# Bytes moved per activation element: fp8 and nvfp4 are net of quantisation (read once); the block format reads
# the bf16 input, write the quantised one with its scales and read it again.
ACTIVATION = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 2.0 + 2.0 * (1.0 + 4.0 / 128), "nvfp4": 0.5 + 1.0 / 16}
PEAK = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4"}


def by_shape(table, *names):
    return dict(zip(zip(*(table[n].tolist() for n in names)), table["latency_us"].tolist()))


def quantisation(wheel, chip, tensor_format, table):
    """(rows, depth) -> microseconds of the table's rows that are activation quantisation, not the product.

    fp8: the narrowest product (32 columns) at the same rows and depth is almost only quantisation; what is left of
    it at few rows after the quantisation tables (static + dynamic scale) is the product's own latency.
    nvfp4: no table; the static fp8 quantisation table stands in (same kernel structure, one pass over the input).
    """
    static = by_shape(wheel.table(chip, "quantize", VLLM, "scale_matrix_perf"), "m", "k")
    if tensor_format == "nvfp4":
        return static
    scale = by_shape(wheel.table(chip, "quantize", VLLM, "computescale_perf"), "m", "k")
    dynamic = {key: us + max(scale.get(key, 0.0), 0.0) for key, us in static.items()}
    narrow = by_shape(table.where(table["n"] == NARROW), "m", "k")
    taken = {}
    for depth in sorted({k for _, k in narrow}):
        few = [narrow[m, k] - dynamic[m, k] for m, k in narrow if k == depth and 2 <= m <= 64]
        latency = float(np.median(few))
        for m, k in narrow:
            if k == depth:
                read = m * k / (source.facts(chip)["bandwidth"] * READ_EFFICIENCY)
                taken[m, k] = max(narrow[m, k] - latency - read, 0.0)
    return taken


def despiked(table):
    """Drops isolated spikes: rows above 1.3 times the median of their five neighbours in `rows`."""
    order = np.lexsort((table["m"], table["k"], table["n"]))
    t = table["latency_us"][order]
    shape = table["n"][order].astype(np.int64) * 1_000_000 + table["k"][order]
    keep = np.ones(len(t), bool)
    for i in range(len(t)):
        lo, hi = max(0, i - 2), min(len(t), i + 3)
        near = t[lo:hi][shape[lo:hi] == shape[i]]
        keep[i] = t[i] <= 1.3 * np.median(near) or len(near) < 4
    mask = np.zeros(len(t), bool)
    mask[order] = keep
    return table.where(mask)


def calls(wheel, chip, tensor_format, dtype, framework):
    table = wheel.table(chip, "gemm", framework, "gemm_perf")
    table = table.where(table["gemm_dtype"] == dtype)
    table = despiked(table)
    if tensor_format in NET_OF_QUANTISATION:
        whole = table.columns["latency_us"]
        taken = quantisation(wheel, chip, tensor_format, table)
        taken = np.array([taken.get(key, np.nan) for key in zip(table["m"].tolist(), table["k"].tolist())])
        net = whole - taken
        keep = np.isfinite(net) & (net > LEAST_NET_SHARE * whole) & (table["m"] > 1)
        table = table.where(keep)
        table.columns["latency_us"] = net[keep]
    return table


def inputs_of(table, facts, tensor_format):
    m, n, k = (table[c].astype(float) for c in ("m", "n", "k"))
    return {
        "rows": m, "columns": n, "depth": k, "weight_bytes": STORED[tensor_format] * n * k,
        "input_bytes": ACTIVATION[tensor_format], "bandwidth": facts["bandwidth"], "peak": facts["peak"][PEAK[tensor_format]],
    }


def entries(chip, wheel, report):
    facts = source.facts(chip)
    first = None
    for tensor_format, dtype, framework, _, kernel in KERNELS[chip]:
        table = calls(wheel, chip, tensor_format, dtype, framework)
        inputs = inputs_of(table, facts, tensor_format)
        m, n, k = inputs["rows"], inputs["columns"], inputs["depth"]
        free = [
            Free("latency", "us", 4.0, over="depth", xs=DEPTHS),
            Free("memory_efficiency", "ratio", 0.85, "ratio"),
            Free("compute_efficiency", "ratio", 0.75, "ratio", over="rows", xs=ROWS),
            Free("sharpness", "ratio", 2.5, "sharpness"),
        ]
        parts = (("rows <= 64", m <= 64), ("64 < rows <= 512", (m > 64) & (m <= 512)), ("rows > 512", m > 512),
                 ("columns, depth >= 1024", (n >= 1024) & (k >= 1024)))
        includes = "" if tensor_format != "fp8_block" else "; includes the quantisation of its input"
        rule = None if framework == VLLM else SGLANG_RULE
        more = {"reason": (rule + includes)} if rule else {}
        entry, _ = fitted(
            scope(f"{tensor_format}-{kernel.replace('/', '-')}", "gemm", kernel, tensor_format), "gemm", chip, forms.matmul,
            table, inputs, np.isin(k, HELD_DEPTHS), free, report, clusters=n * 1e6 + k,
            ranges=("rows", "columns", "depth"), parts=parts, **more,
        )
        yield entry
        first = first or entry
    yield any_kernel(first)
