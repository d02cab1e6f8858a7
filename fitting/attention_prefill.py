"""Prefill attention (causal, paged KV), per kernel and KV format (the format of an entry is the KV's).

Held out: whole head geometries (16/2, 40/8, 12/1 query/KV heads of one rank). Fitted on 4 to 16 query heads per KV head,
head sizes 64 and 128. The tables have no cached context: a chunk over cached tokens is the same arithmetic (its
query-key pairs and the KV it reads) and is outside the fitted range, which `range: cached` says.
"""

import numpy as np

import block_sparse
import forms
import source
from entry import fitted, scope, with_families
from fit import Free

VLLM = "vllm/0.24.0"
# KV format -> (the table's name of the kernel, ours); a format absent was not measured.
AMPERE = {"bf16": ("vllm_flash_attn", "flash-attn/fa2")}
HOPPER = dict.fromkeys(("bf16", "fp8"), ("vllm_flash_attn_fa3", "flash-attn/fa3"))
BLACKWELL = dict.fromkeys(("bf16", "fp8"), ("vllm_flashinfer_trtllmprefill", "flashinfer/trtllm-gen-prefill"))
PCIE = {"bf16": ("vllm_flash_attn_fa2", "flash-attn/fa2"), "fp8": ("vllm_flashinfer_fiprefill", "flashinfer/fa2-prefill")}
KERNELS = {"a100-sxm": AMPERE, "h100": HOPPER, "h200": HOPPER, "b200": BLACKWELL, "b300": BLACKWELL, "gb200-nvl72": BLACKWELL,
           "gb300-nvl72": BLACKWELL, "l40s": PCIE, "rtx-pro-6000": PCIE}
# Whether a tile holds the query heads of one KV head side by side.
PACKS_GROUP = {"flash-attn/fa2": 0.0, "flash-attn/fa3": 1.0, "flashinfer/fa2-prefill": 1.0, "flashinfer/trtllm-gen-prefill": 0.0}
HELD_GEOMETRIES = ((16, 2), (40, 8), (12, 1))
FORMATS = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0)}      # the table's name, bytes of an element
HEAD_DIMS = (64, 128)


def inputs_of(table, facts, element_bytes):
    return {
        "rows": table["batch_size"].astype(float), "new": table["isl"].astype(float), "cached": 0.0 * table["isl"],
        "window": table["window_size"].astype(float), "query_heads": table["num_heads"].astype(float),
        "kv_heads": table["num_key_value_heads"].astype(float), "head_dim": table["head_dim"].astype(float),
        "element_bytes": element_bytes, "bandwidth": facts["bandwidth"], "peak": facts["peak"]["bf16"],
    }


def entries(chip, wheel, report):
    yield from with_families(measured(chip, wheel, report))
    yield from block_sparse.entries(chip, wheel, report, "prefill")


def measured(chip, wheel, report):
    facts = source.facts(chip)
    whole = wheel.table(chip, "attention", VLLM, "context_attention_perf")
    ratio = whole["num_heads"] / whole["num_key_value_heads"]
    mine = np.isin(whole["head_dim"], HEAD_DIMS) & (ratio >= 4) & (ratio <= 16)
    mine &= whole["isl"] >= 16   # a row of one token is decode
    for tensor_format, (kernel_source, kernel) in KERNELS[chip].items():
        dtype, element_bytes = FORMATS[tensor_format]
        table = whole.where(mine & (whole["kernel_source"] == kernel_source) & (whole["kv_cache_dtype"] == dtype))
        widths = tuple(d for d in HEAD_DIMS if (table["head_dim"] == d).any())
        inputs = inputs_of(table, facts, element_bytes)
        geometry = inputs["query_heads"] * 1000 + inputs["kv_heads"]
        held = np.isin(geometry, [h * 1000 + kv for h, kv in HELD_GEOMETRIES])
        free = [
            Free("latency", "us", 12.0),
            Free("tile_time", "us", 0.03, over="head_dim", xs=widths),
            Free("window_tile_time", "us", 0.01, over="head_dim", xs=widths),
            Free("key_time", "us", 0.01, over="head_dim", xs=widths),
            Free("compute_efficiency", "ratio", 0.6, "ratio", over="head_dim", xs=widths),
            Free("memory_efficiency", "ratio", 0.7, "ratio", over="head_dim", xs=widths),
            Free("sharpness", "ratio", 2.0, "sharpness"),
        ]
        if not inputs["window"].any():
            free = [f for f in free if not f.name.startswith("window_")]
        new = inputs["new"]
        parts = (("new >= 512, no window", (new >= 512) & (inputs["window"] == 0)), ("new >= 512, rows = 1", (new >= 512) & (inputs["rows"] == 1)),
                 ("new < 512", new < 512), ("windowed", (inputs["window"] > 0) & (new > inputs["window"])))
        entry, _ = fitted(
            scope(f"{tensor_format}-{kernel.replace('/', '-')}", "attention.prefill", kernel, tensor_format), "attention_prefill",
            chip, forms.attention_prefill, table, inputs, held, free, report, fixed={"packs_group": PACKS_GROUP[kernel]}, clusters=geometry * 1000 + inputs["head_dim"],
            ranges=("rows", "new", "cached", "kv_heads", "head_dim"), parts=parts,
        )
        yield entry
