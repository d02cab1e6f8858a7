"""Experts that ranks hold whole, of a kernel that no rank holds parts for: FlashInfer's CUTLASS experts in block fp8 on Hopper, which upstream takes with expert parallelism.

A row is one rank's call among several. Rows of even routing are read, where every rank has the same number of pairs and how many of its experts are hit is no matter of draws,
and which of the ranks was timed is none either; with as many pairs as ranks or more. Held out: eight ranks, and token counts 96 and 1,536 at every number of them.
"""

import numpy as np

import forms
import source
from entry import TABLE_RULE, fitted, scope
from fit import Free

VLLM, KERNEL = "vllm/0.24.0", "flashinfer/cutlass-moe"
SERVED = ("h100", "h200")
ROWS_OF, DTYPE, FORMAT = "vllm_fp8moe_flashinfer_cutlass", "fp8_block", "fp8_block"
HELD_RANKS, HELD_TOKENS = 8, (96, 1536)
EXPERT_BYTES = (1e6, 4e6, 16e6, 64e6)
ROWS = (8, 16, 64, 128, 512)
STORED = 1.0 + 4.0 / (128 * 128)


def entries(chip, wheel, report):
    if chip not in SERVED:
        return
    table = wheel.table(chip, "moe", VLLM, "moe_perf")
    mine = np.char.startswith(table["kernel_source"].astype(str), ROWS_OF) & (table["moe_dtype"] == DTYPE) & (table["moe_tp_size"] == 1)
    table = table.where(mine & (table["distribution"] == "balanced") & (table["num_tokens"] * table["topk"] >= table["moe_ep_size"]))
    inputs, tokens, ranks = inputs_of(table, source.facts(chip)), table["num_tokens"], table["moe_ep_size"].astype(float)
    inputs["replayed"] = source.replayed(chip, inputs["hit"] * inputs["expert_bytes"])
    free = [Free("floor", "us", 20.0), Free("expert_time", "us", 0.02), Free("element_time", "us", 1e-3), Free("width_time", "us", 1.0),
            Free("memory_efficiency", "ratio", 0.7, "ratio", over="expert_bytes", xs=knots(inputs["expert_bytes"])),
            Free("compute_efficiency", "ratio", 0.4, "ratio", over="rows_per_expert", xs=ROWS, law="rate"), Free("saved", "ratio", 0.5, "ratio")]
    held = (ranks == HELD_RANKS) | np.isin(tokens, HELD_TOKENS)
    parts = (("tokens <= 128", tokens <= 128), ("tokens > 128", tokens > 128))
    entry, _ = fitted(
        scope(f"{FORMAT}-flashinfer-cutlass-moe", "moe.experts", KERNEL, FORMAT), "moe", chip, replayed, table, inputs, held, free, report,
        clusters=table["hidden_size"] * 1e6 + table["inter_size"] + ranks, ranges=("tokens", "experts", "hit", "expert_bytes"), parts=parts, reason=TABLE_RULE,
        nuisance=("saved",), form_name=forms.moe.__name__,
    )
    yield entry


def inputs_of(table, facts):
    """Calls of a rank that holds its share of gated experts in block fp8 whole, each under even routing of as many pairs as ranks or more."""
    tokens, picks, ranks = (table[name].astype(float) for name in ("num_tokens", "topk", "moe_ep_size"))
    experts, pairs = table["num_experts"] / ranks, tokens * picks / ranks
    elements = 3.0 * table["hidden_size"] * table["inter_size"]
    return {
        "tokens": tokens, "experts": experts, "pairs": pairs, "hit": np.minimum(experts, pairs), "expert_bytes": STORED * elements,
        "width": table["hidden_size"].astype(float), "pair_operations": 2.0 * elements, "bandwidth": facts["bandwidth"], "peak": facts["peak"]["fp8"],
    }


def replayed(x, values):
    """A row: the call, and what a replay saves of reading experts that fit the second-level cache."""
    return forms.moe(x, values) - values["saved"] * x["replayed"]


def knots(sizes):
    """Sizes at which the efficiency of reading experts may bend, of those that rows lie about."""
    return tuple(size for size in EXPERT_BYTES if np.any(sizes < 2.0 * size) and np.any(sizes > 0.5 * size))
