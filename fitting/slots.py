"""Experts that read tokens from slots which the low-latency exchange fills: DeepGEMM's masked products and the quantisation between them.

SGLang runs the same two products and times them with what lies between, on DeepSeek V3's shape alone, each rank with 1 to 128 of the experts. Rows of even routing are
read, where how many experts are hit is no matter of draws. Held out: 16 ranks, and 1,024 and 8,192 tokens on any number of them.
"""

import numpy as np

import forms
import resident
import source
from entry import fitted, scope
from fit import Free

SERVED = ("h100", "h200", "b200", "b300", "gb200-nvl72", "gb300-nvl72")
HELD_RANKS, HELD_TOKENS = 16, (1024, 8192)
ROWS = (128, 512, 2048)
RULE = "the same two products of DeepGEMM, as SGLang 0.5.10 runs them on tokens that DeepEP has brought; releases differ, and other shapes than DeepSeek V3's are carried"


def entries(chip, wheel, report):
    if chip not in SERVED:
        return
    table = wheel.table(chip, "moe", "sglang/0.5.10", "wideep_generation_moe_perf")
    table = table.where((table["distribution"] == "uniform") & (table["num_tokens"] * table["topk"] >= table["moe_ep_size"]))
    inputs = resident.inputs_of(table, source.facts(chip))
    free = [Free("floor", "us", 20.0), Free("expert_time", "us", 0.02), Free("element_time", "us", 1e-4), Free("memory_efficiency", "ratio", 0.7, "ratio"),
            Free("compute_efficiency", "ratio", 0.4, "ratio", over="rows_per_expert", xs=ROWS, law="rate")]
    entry, _ = fitted(
        scope("fp8_block-deepgemm-masked-moe", "moe.experts", "deepgemm/masked-moe", "fp8_block"), "moe", chip, forms.moe, table, inputs,
        (table["moe_ep_size"] == HELD_RANKS) | np.isin(table["num_tokens"], HELD_TOKENS), free, report, clusters=table["moe_ep_size"].astype(float), ranges=("tokens", "experts", "hit", "expert_bytes"), reason=RULE,
    )
    yield entry
