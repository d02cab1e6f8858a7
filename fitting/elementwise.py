"""Kernels that only move data: norms, activations, rotary embedding, token look-up, activation quantisation.

One such kernel is measured for vLLM: static fp8 quantisation (reads 2 bytes and writes 1 for each element). Its floor, share of
bandwidth and gain of the second-level cache are fitted (held out: whole depths) and carried to the others, which are one pass over their
operands too. Operands that fit the cache are read from it, in the tables as in serving, where the kernel before has just written them.
"""

import numpy as np

import forms
import lanes
import scan
import source
from entry import TABLE_RULE, fitted, scope
from fit import Free

VLLM = "vllm/0.24.0"
HELD_DEPTHS = (768, 2560, 5120, 10240)
CARRIED = (
    ("norm", "norm"), ("activation", "activation"), ("rope", "rope"), ("embedding", "embedding"),
)
RULE = (
    "not measured: floor and bandwidth share of static fp8 quantisation (vLLM 0.24.0), another kernel of one pass over its operands"
)
NVFP4_RULE = "not measured: floor and bandwidth share of static fp8 quantisation (vLLM 0.24.0), a kernel of the same structure"
WIDTHS = (1024, 16384)     # of a row, as models have them: narrower rows are bound by their number, wider ones by one block's walk


def entries(chip, wheel, report):
    table = wheel.table(chip, "quantize", VLLM, "scale_matrix_perf")
    facts = source.facts(table.chip)
    table = table.where((table["k"] >= WIDTHS[0]) & (table["k"] <= WIDTHS[1]))
    moved = 3.0 * table["m"].astype(float) * table["k"]
    inputs = {"bytes": moved, "bandwidth": facts["bandwidth"]}
    gain, fixed, untold = scan.cached(table.chip, inputs, "stream")
    free = [Free("floor", "us", 1.8), *gain]
    entry, _ = fitted(
        scope("fp8-quantise", "activation", "vllm-csrc/quantise", "fp8"), "elementwise", chip, forms.stream, table, inputs,
        np.isin(table["k"], HELD_DEPTHS), free, report, fixed, clusters=table["k"], ranges=("bytes",), reason=TABLE_RULE,
    )
    rules = [rule + untold for rule in (TABLE_RULE, NVFP4_RULE, RULE)]
    if table.chip != chip:
        rules = [f"{rule}; measured on the {table.chip}, at the same share of bandwidth" for rule in rules]
    entry["reason"] = rules[0]
    yield entry
    yield dict(entry, name="nvfp4-quantise", format="nvfp4", reason=rules[1])
    for name, primitive in CARRIED:
        carried = {k: v for k, v in entry.items() if k not in ("kernel", "format")}
        yield dict(carried, name=name, primitive=primitive, reason=rules[2])
    yield from lanes.entries(chip, wheel, report)
