"""Prefill attention (causal, paged KV), per kernel and KV format (the format of an entry is the KV's).

Held out: whole head geometries (16/2, 40/8, 12/1 query/KV heads of one rank). Fitted on 4 to 16 query heads per KV head,
head sizes 64 and 128. The tables have no cached context: a chunk over cached tokens is the same arithmetic (its
query-key pairs and the KV it reads) and is outside the fitted range, which `range: cached` says.
"""

import numpy as np

import forms
import source
from entry import fitted, scope, with_families
from fit import Free

VLLM = "vllm/0.24.0"
KERNEL = {
    "h100": ("vllm_flash_attn_fa3", "flash-attn/fa3"),
    "h200": ("vllm_flash_attn_fa3", "flash-attn/fa3"),
    "b200": ("vllm_flashinfer_trtllmprefill", "flashinfer/trtllm-gen-prefill"),
}
# Whether a tile holds the query heads of one KV head side by side (FlashAttention packs them, trtllm-gen prefill does not).
PACKS_GROUP = {"h100": 1.0, "h200": 1.0, "b200": 0.0}
HELD_GEOMETRIES = ((16, 2), (40, 8), (12, 1))
FORMATS = (("bf16", "bfloat16", 2.0), ("fp8", "fp8", 1.0))
HEAD_DIMS = (64, 128)


def inputs_of(table, facts, element_bytes):
    return {
        "rows": table["batch_size"].astype(float), "new": table["isl"].astype(float), "cached": 0.0 * table["isl"],
        "window": table["window_size"].astype(float), "query_heads": table["num_heads"].astype(float),
        "kv_heads": table["num_key_value_heads"].astype(float), "head_dim": table["head_dim"].astype(float),
        "element_bytes": element_bytes, "bandwidth": facts["bandwidth"], "peak": facts["peak"]["bf16"],
    }


def entries(chip, wheel, report):
    return with_families(measured(chip, wheel, report))


def measured(chip, wheel, report):
    facts = source.facts(chip)
    kernel_source, kernel = KERNEL[chip]
    whole = wheel.table(chip, "attention", VLLM, "context_attention_perf")
    ratio = whole["num_heads"] / whole["num_key_value_heads"]
    mine = (whole["kernel_source"] == kernel_source) & np.isin(whole["head_dim"], HEAD_DIMS) & (ratio >= 4) & (ratio <= 16)
    mine &= whole["isl"] >= 16   # a row of one token is decode
    for tensor_format, dtype, element_bytes in FORMATS:
        table = whole.where(mine & (whole["kv_cache_dtype"] == dtype))
        inputs = inputs_of(table, facts, element_bytes)
        geometry = inputs["query_heads"] * 1000 + inputs["kv_heads"]
        held = np.isin(geometry, [h * 1000 + kv for h, kv in HELD_GEOMETRIES])
        free = [
            Free("latency", "us", 12.0),
            Free("tile_time", "us", 0.03, over="head_dim", xs=HEAD_DIMS),
            Free("window_tile_time", "us", 0.01, over="head_dim", xs=HEAD_DIMS),
            Free("key_time", "us", 0.01, over="head_dim", xs=HEAD_DIMS),
            Free("compute_efficiency", "ratio", 0.6, "ratio", over="head_dim", xs=HEAD_DIMS),
            Free("memory_efficiency", "ratio", 0.7, "ratio", over="head_dim", xs=HEAD_DIMS),
            Free("sharpness", "ratio", 2.0, "sharpness"),
        ]
        new = inputs["new"]
        parts = (("new >= 512, no window", (new >= 512) & (inputs["window"] == 0)), ("new >= 512, rows = 1", (new >= 512) & (inputs["rows"] == 1)),
                 ("new < 512", new < 512), ("windowed", (inputs["window"] > 0) & (new > inputs["window"])))
        entry, _ = fitted(
            scope(f"{tensor_format}-{kernel.replace('/', '-')}", "attention.prefill", kernel, tensor_format), "attention_prefill",
            chip, forms.attention_prefill, table, inputs, held, free, report, fixed={"packs_group": PACKS_GROUP[chip]}, clusters=geometry * 1000 + inputs["head_dim"],
            ranges=("rows", "new", "cached", "kv_heads", "head_dim"), parts=parts,
        )
        yield entry
