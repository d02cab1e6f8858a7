"""Dense linear layers, per kernel: time of one call of rows x depth by depth x columns.

Held out: whole values of depth (768, 2560, 5120, 10240) over every number of rows and columns.
Long products lose what the tables' rows do not show (`lasting.py`): entries hold it from thousands of rows on.
Activation quantisation: the tables time it together with the product. For fp8 its own tables exist
(same rows and depth), so it is taken off and priced as the primitive `quantise`, for nvfp4 with the fp8 table in its
place; the block format (one fused path in the library measured) includes it, as its reason says.
"""

import numpy as np

import compose
import forms
import lasting
import latent
import source
from entry import TABLE_RULE, any_kernel, fitted, scope, stated, with_families
from fit import Free
from writer import rounded

HELD_DEPTHS = (768, 2560, 5120, 10240)
DEPTHS = {"bf16": (32, 256, 512, 1024, 2048, 4096, 8192, 65536)}
FEW_DEPTHS = (32, 1024, 4096, 16384)
NET_OF_QUANTISATION = ("fp8", "nvfp4")
ROWS = (256, 512, 1024, 4096, 32768)
WALK_ROWS = (16, 64, 128, 256, 1024, 8192)
# CUTLASS's fp8 products choose a kernel by the rows: tiles of 16 rows up to 16, of 64 up to 64, of 128 up to 128, and of 256 beyond (times step there
# on Hopper and data-centre Blackwell, in vLLM's rows and SGLang's alike).
TILES = {"tile_first": 16.0, "tile_second": 64.0, "tile_third": 128.0, "tile_rows": 256.0}
TILED = {("fp8", chip): TILES for chip in ("h100", "h200", "b200", "b300", "gb200-nvl72", "gb300-nvl72")}
# Each of those kernels reads its weights at a share of its own on Hopper.
READS_BY_TILE = ("h100", "h200")
SHORT_WALK = ("l40s",)     # whose last knot the fit pulls down, where its rows rise

VLLM, SGLANG = "vllm/0.24.0", "sglang/0.5.14"
SGLANG_RULE = (
    "the same DeepGEMM kernel measured under SGLang 0.5.14: vLLM's own rows for this format were timed without a "
    "graph and show host time; includes the quantisation of its input"
)
# format, gemm_dtype in the table, framework, our kernel, reason
HOPPER = (
    ("bf16", "bfloat16", VLLM, "cublas/linear", TABLE_RULE),
    ("fp8", "fp8", VLLM, "cutlass/scaled-mm-fp8", TABLE_RULE + "; net of activation quantisation"),
    ("fp8_block", "fp8_block", SGLANG, "deepgemm/fp8-block", SGLANG_RULE),
)
BLACKWELL = HOPPER + (
    ("nvfp4", "nvfp4", VLLM, "flashinfer/cutedsl-nvfp4", TABLE_RULE + "; net of activation quantisation, taken to be that of static fp8"),
)
AMPERE = HOPPER[:1]
# The block format's rows were timed without a graph on these two, and SGLang has none: it is left to the family entry.
ADA = HOPPER[:2]
WORKSTATION = ADA + (
    ("nvfp4", "nvfp4", VLLM, "flashinfer/cutlass-nvfp4", TABLE_RULE + "; net of activation quantisation, taken to be that of static fp8"),
)
KERNELS = {"a100-sxm": AMPERE, "h100": HOPPER, "h200": HOPPER, "b200": BLACKWELL, "b300": BLACKWELL, "gb200-nvl72": BLACKWELL,
           "gb300-nvl72": BLACKWELL, "l40s": ADA, "rtx-pro-6000": WORKSTATION}

# Products of 32 bits, which only routers are, and of which nothing was measured: what a chip multiplies without tensor cores (operations per microsecond, NVIDIA's
# datasheets of each), beside which tensor cores reading 19 bits have half the 16-bit rate and three products of 16 bits a third.
PLAIN_RATE = {"a100-sxm": 19.5e6, "h100": 67e6, "h200": 67e6, "l40s": 91.6e6, "rtx-pro-6000": 120e6}
WIDE_RULE = "no product of 32 bits was measured: {}, at the efficiencies of {}, which are stated against the 16-bit rate, and with its fixed times"

WEIGHTS_CYCLED = 6         # different weights the tables go through between two uses of one
CACHE_MATTERS_US = 3.0     # of reading the weights from memory, below which the latency hides the difference

STORED = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4.0 / (128 * 128), "nvfp4": 0.5 + 1.0 / 16}
# Bytes moved per activation element: fp8 and nvfp4 are net of quantisation (read once); the block format reads
# the bf16 input, write the quantised one with its scales and read it again.
ACTIVATION = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 2.0 + 2.0 * (1.0 + 4.0 / 128), "nvfp4": 0.5 + 1.0 / 16}
PEAK = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4"}


def by_shape(table, *names):
    return dict(zip(zip(*(table[n].tolist() for n in names)), table["latency_us"].tolist()))


def quantisation(wheel, chip, tensor_format, table):
    """Microseconds of each row that are activation quantisation: for fp8 the two tables of it (static, and what dynamic scales add);
    for nvfp4, which has none, the static fp8 one (a kernel of the same structure, one pass over the input)."""
    static = by_shape(wheel.table(chip, "quantize", VLLM, "scale_matrix_perf"), "m", "k")
    scale = by_shape(wheel.table(chip, "quantize", VLLM, "computescale_perf"), "m", "k")
    keys = zip(table["m"].tolist(), table["k"].tolist())
    if tensor_format == "nvfp4":
        return np.array([static[key] for key in keys])
    return np.array([static[key] + max(scale.get(key, 0.0), 0.0) for key in keys])


def quantised_matmul(x, values):
    """A row of the table: quantisation, its own time for each row that those tables lack, and the product."""
    return x["quantisation"] + values["row_time"] * x["rows"] + forms.matmul(x, values)


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


def cold(table, facts, tensor_format):
    """Rows whose weights do not all fit the second-level cache together, or are too small for that to matter: a serving step
    reads other layers' weights in between. (Only where memory is slow beside the cache are there rows of the other kind.)"""
    weights = STORED[tensor_format] * table["n"].astype(float) * table["k"]
    return (weights * WEIGHTS_CYCLED > facts["l2_cache"]) | (weights / facts["bandwidth"] < CACHE_MATTERS_US)


def calls(wheel, chip, tensor_format, dtype, framework):
    table = wheel.table(chip, "gemm", framework, "gemm_perf")
    table = table.where(table["gemm_dtype"] == dtype)
    table = despiked(table.where(cold(table, source.facts(chip), tensor_format)))
    if tensor_format in NET_OF_QUANTISATION:
        table = table.where(table["m"] > 1)
        table.columns["quantisation"] = quantisation(wheel, chip, tensor_format, table)
    return table


def inputs_of(table, facts, tensor_format):
    m, n, k = (table[c].astype(float) for c in ("m", "n", "k"))
    return {
        "rows": m, "columns": n, "depth": k, "weight_bytes": STORED[tensor_format] * n * k,
        "input_bytes": ACTIVATION[tensor_format], "bandwidth": facts["bandwidth"], "peak": facts["peak"][PEAK[tensor_format]],
    }


def entries(chip, wheel, report):
    """The measured kernels and the families, one for mxfp8, of which nothing was measured (8 bits at the rate of fp8), products of 32 bits, and one that
    whole modules tell."""
    facts = source.facts(chip)
    short = measured(chip, wheel, report)
    written = list(with_families(lasting.served(short, chip, wheel, report, lambda table, tensor_format: inputs_of(table, facts, tensor_format))))
    yield from written
    fp8 = next((entry for entry in written if entry.get("format") == "fp8"), None)
    if fp8:
        yield any_kernel(fp8, "mxfp8")
    yield from wide(chip, written[0])
    priced = compose.Chip(chip)
    priced.entries.update({("gemm", entry["name"]): entry for entry in written})
    yield from latent.fused_a(chip, wheel, report, priced.gemm)


def wide(chip, entry):
    """Products of 32 bits by the kernels the modelled release has: shares of the 16-bit rate of `entry`."""
    half = source.facts(chip)["peak"]["bf16"]
    if chip in PLAIN_RATE:
        yield share_of(entry, "cublas/linear", "fp32", PLAIN_RATE[chip] / half, "cuBLAS multiplies in 32 bits without tensor cores")
        yield share_of(entry, "cublas/linear-tf32", "fp32", 0.5, "tensor cores that read 19 bits of each operand have half the 16-bit rate")
    else:
        yield share_of(entry, "vllm-cutedsl/bf16x3-router-gemm", "fp32_bf16", 1.0 / 3.0, "each weight is the sum of three of 16 bits, multiplied in turn")


def share_of(entry, kernel, tensor_format, share, why):
    curve = entry["curves"]["compute_efficiency"]
    scaled = dict(curve, points=[[x, rounded(y * share)] for x, y in curve["points"]],
                  intervals=[[rounded(0.8 * low * share), rounded(min(1.25 * high * share, 1.0))] for low, high in curve["intervals"]])
    return stated(scope(f"{tensor_format}-{kernel.replace('/', '-')}", "gemm", kernel, tensor_format), entry["form"], entry["coefficients"], "roofline",
                  WIDE_RULE.format(why, entry["name"]), ranges=entry["range"], curves=dict(entry["curves"], compute_efficiency=scaled), sources=entry["sources"])


def measured(chip, wheel, report):
    facts = source.facts(chip)
    for tensor_format, dtype, framework, kernel, reason in KERNELS[chip]:
        table = calls(wheel, chip, tensor_format, dtype, framework)
        inputs = inputs_of(table, facts, tensor_format)
        m, n, k = inputs["rows"], inputs["columns"], inputs["depth"]
        tiles = TILED.get((tensor_format, chip), {})
        read = dict(over="rows", xs=tuple(tiles.values()), law="level") if tiles and chip in READS_BY_TILE else {}
        free = [
            Free("latency", "us", 3.0, over="depth", xs=DEPTHS.get(tensor_format, FEW_DEPTHS)),
            Free("memory_efficiency", "ratio", 0.85, "ratio", **read),
            Free("compute_efficiency", "ratio", 0.75, "ratio", over="rows", xs=ROWS, law="rate"),
            Free("sharpness", "ratio", 2.5, "sharpness"),
        ]
        if tensor_format not in DEPTHS:      # cuBLAS splits the depth: its latency alone describes it
            free.append(Free("depth_time", "us", 5e-4, over="rows", xs=WALK_ROWS[:-1] if chip in SHORT_WALK else WALK_ROWS, law="whole"))
        form = forms.matmul
        if "quantisation" in table.columns:
            form = quantised_matmul
            inputs["quantisation"] = table["quantisation"]
            free.append(Free("row_time", "us", 2e-3))
        parts = (("rows <= 64", m <= 64), ("64 < rows <= 512", (m > 64) & (m <= 512)), ("rows > 512", m > 512),
                 ("columns, depth >= 1024", (n >= 1024) & (k >= 1024)))
        entry, _ = fitted(
            scope(f"{tensor_format}-{kernel.replace('/', '-')}", "gemm", kernel, tensor_format), "gemm", chip, form,
            table, inputs, np.isin(k, HELD_DEPTHS), free, report, fixed=tiles, clusters=n * 1e6 + k,
            ranges=("rows", "columns", "depth"), parts=parts, reason=reason, nuisance=("row_time",), form_name="matmul",
        )
        yield entry
