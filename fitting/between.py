"""What a captured run of different kernels takes beyond the same kernels timed alone, for each of its calls.

A kernel timed alone follows itself: its replay holds a launch, and its drain. In a captured pass the next kernel's launch may hide behind
the one before it (it does where kernels are launched as dependents, which is most of those for Blackwell), or it may add to it. The tables have
one module whose every piece is measured or priced apart: attention of DeepSeek V4 in the layers that select nothing (`dsv4_hca`). What it takes
beyond its pieces, divided by its calls, is one time for each chip: the median over few rows, where launches are what counts. It is below zero
where a chain is shorter than its links. Held out: tensor-parallel width 4.

A check alone: no price holds it (`NOTES.md`). Whole modules of latent attention are compared, not fitted:
they read all their weights from the L2 cache in every replay, and on most chips their norms were timed as chains of operations that serving
fuses.
"""

from functools import lru_cache

import numpy as np

import compose
import gathered
import latent
from writer import rounded

VLLM = "vllm/0.24.0"
LEAST, MOST_ROWS, WIDTHS, HELD_WIDTH = gathered.LEAST, 64, (2, 4, 8), 4
RATIO, LATENT, RANK_OUT, GROUP_HEADS = 128, 512, 1024, 8
CALLS = 8                                   # as a plan counts them, without the projections on another stream
LATENT_CALLS = 9


def pieces(priced, narrow, model, heads, batch, cached):
    """Microseconds of the module's calls, each at its own entry's price."""
    hidden, rank = gathered.SHAPES[model]
    groups = heads // GROUP_HEADS
    attends = {"comparisons": 0.0, "requests": batch, "queries": batch, "entries": batch * gathered.row_entries(1, cached, RATIO, 0),
               "entry_bytes": gathered.STORED, "entry_operations": 4.0 * gathered.HEADS * gathered.HEAD_DIM}
    return (
        narrow(batch, rank + LATENT, hidden)
        + priced.price("latent", "beside", bytes=2.0 * hidden * 2 * LATENT)
        + priced.stream("norm", 4.0 * (rank + LATENT) * batch)
        + narrow(batch, heads * LATENT, rank)
        + priced.stream("rope", 2.0 * (heads + gathered.HEADS + 1) * LATENT * batch)
        + priced.price("gathered", "flashmla-sparse-decode", **attends)
        + priced.stream("rope", 3.0 * heads * LATENT * batch)
        + narrow(batch, groups * RANK_OUT, GROUP_HEADS * LATENT)
        + narrow(batch, hidden, groups * RANK_OUT)
    )


def modules(chip, wheel):
    """The table's rows, and for each the measured time and that of its pieces."""
    table = wheel.table(chip, gathered.FAMILY, VLLM, "dsv4_hca_generation_module_perf")
    kept = (table["isl"] == 1) & (table["step"] >= LEAST) & (table["batch_size"] <= MOST_ROWS) & np.isin(table["tp_size"], WIDTHS)
    table = table.where(kept)
    priced, (narrow, _) = compose.Chip(table.chip), gathered.products(table.chip)
    rows = zip(table["model"], table["num_heads"], table["batch_size"], table["step"])
    alone = [pieces(priced, narrow, "Pro" if "Pro" in model else "Flash", int(heads), float(batch), int(step)) for model, heads, batch, step in rows]
    return table, table["latency_us"], np.array(alone)


@lru_cache(maxsize=None)
def inside(chip, wheel):
    """Time of a call within a module beyond its own, its interval (95%, by tensor-parallel width and batch), the rows it was taken from, and errors for
    the report."""
    table, measured, alone = modules(chip, wheel)
    each = (measured - alone) / CALLS
    held = table["tp_size"] == HELD_WIDTH
    error = (alone[held] + CALLS * rounded(np.median(each[~held]))) / measured[held] - 1.0
    value = rounded(np.median(each))
    cells = [each[(table["tp_size"] == tp) & (table["batch_size"] == batch)] for tp in WIDTHS for batch in np.unique(table["batch_size"])]
    medians = np.array([np.median(cell) for cell in cells if len(cell)])
    generator = np.random.default_rng(20240901)
    draws = np.median(medians[generator.integers(len(medians), size=(200, len(medians)))], axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    errors = [("held out (V4 module)", error), ("the same without it", alone[held] / measured[held] - 1.0),
              ("all rows, shipped fit", (alone + CALLS * value) / measured - 1.0), *(latent_modules(chip, wheel, value) if chip in latent.MODULES else ())]
    return {"value": value, "interval": (min(rounded(low), value), max(rounded(high), value)), "table": table, "errors": errors}


def latent_modules(chip, wheel, value):
    """Whole modules of latent attention in 16 bits at that time between their calls: a check."""
    table = wheel.table(chip, "mla", latent.MODULES[chip], "mla_generation_module_perf")
    kept = (table["gemm_type"] == "bfloat16") & (table["kv_cache_dtype"] == "fp8") & (table["batch_size"] <= MOST_ROWS) & (table["step"] >= LEAST)
    table = table.where(kept & np.isin(table["num_heads"], (8, 16, 32)) & np.char.startswith(table["model"].astype(str), "deepseek"))
    priced, (columns, depth), (few, _) = compose.Chip(chip), latent.FUSED_DOWN, latent.FUSED_ROWS
    down = lambda rows: priced.gemm(rows, columns, depth) if rows > few else priced.price(
        "gemm", "bf16-vllm-csrc-dsv3-fused-a", rows=rows, columns=columns, depth=depth, weight_bytes=2.0 * columns * depth, input_bytes=2.0)
    rows = zip(table["num_heads"].astype(float), table["step"], table["batch_size"].astype(float))
    alone, measured = np.array([latent.around(priced, *row) + down(row[2]) for row in rows]), table["latency_us"]
    return ("latent modules, not fitted", (alone + LATENT_CALLS * value) / measured - 1.0), ("the same without it", alone / measured - 1.0)
