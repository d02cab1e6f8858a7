"""Decode attention over a paged KV cache, per kernel and KV format (the format of an entry is the KV's).

Held out: whole head geometries (16/2, 40/8, 12/1 query/KV heads of one rank). Fitted on 2 to 16 query heads per KV
head, head sizes 64 and 128. The tables read the same KV on every replay, so a KV that fits the L2 cache reads faster than
memory allows; a serving step walks all layers in between, so such rows are dropped unless their KV would take
less than a microsecond from memory, where the difference vanishes in the latency.
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
BLACKWELL = dict.fromkeys(("bf16", "fp8"), ("vllm_flashinfer_trtllmdecode", "flashinfer/trtllm-gen-decode"))
PCIE = {"bf16": ("vllm_flash_attn_fa2", "flash-attn/fa2"), "fp8": ("vllm_flashinfer_fidecode", "flashinfer/fa2-decode")}
KERNELS = {"a100-sxm": AMPERE, "h100": HOPPER, "h200": HOPPER, "b200": BLACKWELL, "b300": BLACKWELL, "gb200-nvl72": BLACKWELL,
           "gb300-nvl72": BLACKWELL, "l40s": PCIE, "rtx-pro-6000": PCIE}
HELD_GEOMETRIES = ((16, 2), (40, 8), (12, 1))
FORMATS = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0)}      # the table's name, bytes of an element
CONTEXTS = (2, 128, 512, 2048, 8192, 32768, 131072)
HEAD_DIMS = (64, 128)


def inputs_of(table, facts, element_bytes):
    n, cached = table["batch_size"].astype(float), table["step"].astype(float) + 1.0
    window = table["window_size"].astype(float)
    cut = (window > 0) & (cached > window)
    return {
        "requests": n, "context": n * np.where(cut, window, cached), "windowed": cut.astype(float),
        "query_heads": table["num_heads"].astype(float), "kv_heads": table["num_key_value_heads"].astype(float),
        "head_dim": table["head_dim"].astype(float), "element_bytes": element_bytes, "bandwidth": facts["bandwidth"],
    }


def honest(inputs, l2_bytes):
    """Rows whose KV lies beyond the L2 cache, or is too small for the cache to matter."""
    kv = 2.0 * inputs["context"] * inputs["kv_heads"] * inputs["head_dim"] * inputs["element_bytes"]
    return (kv > l2_bytes) | (kv / inputs["bandwidth"] < 1.0)


def entries(chip, wheel, report):
    yield from with_families(measured(chip, wheel, report))
    yield from block_sparse.entries(chip, wheel, report, "decode")


def measured(chip, wheel, report):
    facts = source.facts(chip)
    whole = wheel.table(chip, "attention", VLLM, "generation_attention_perf")
    ratio = whole["num_heads"] / whole["num_key_value_heads"]
    mine = np.isin(whole["head_dim"], HEAD_DIMS) & (ratio >= 2) & (ratio <= 16)
    for tensor_format, (kernel_source, kernel) in KERNELS[chip].items():
        dtype, element_bytes = FORMATS[tensor_format]
        table = whole.where(mine & (whole["kernel_source"] == kernel_source) & (whole["kv_cache_dtype"] == dtype))
        table = table.where(honest(inputs_of(table, facts, element_bytes), facts["l2_cache"]))
        inputs = inputs_of(table, facts, element_bytes)
        geometry = inputs["query_heads"] * 1000 + inputs["kv_heads"]
        held = np.isin(geometry, [h * 1000 + kv for h, kv in HELD_GEOMETRIES])
        widths = tuple(d for d in HEAD_DIMS if (table["head_dim"] == d).any())
        free = [
            Free("latency", "us", 10.0, over="mean_context", xs=CONTEXTS, law="whole"),
            Free("unit_time", "us", 0.01, over="head_dim", xs=widths),
            Free("window_latency", "us", 1.0, over="head_dim", xs=widths),
            Free("window_unit_time", "us", 0.01, over="head_dim", xs=widths),
            Free("memory_efficiency", "ratio", 0.85, "ratio", over="head_dim", xs=widths),
        ]
        if not inputs["windowed"].any():
            free = [f for f in free if not f.name.startswith("window_")]
        kv = 2.0 * inputs["context"] * inputs["kv_heads"] * inputs["head_dim"] * element_bytes
        parts = (("context > 512, no window", (inputs["context"] / inputs["requests"] > 512) & (inputs["windowed"] == 0)),
                 ("KV beyond L2", kv > facts["l2_cache"]), ("windowed", inputs["windowed"] == 1),
                 ("units >= 64", inputs["requests"] * inputs["kv_heads"] >= 64))
        entry, _ = fitted(
            scope(f"{tensor_format}-{kernel.replace('/', '-')}", "attention.decode", kernel, tensor_format), "attention_decode",
            chip, forms.attention_decode, table, inputs, held, free, report, clusters=geometry * 1000 + inputs["head_dim"],
            ranges=("requests", "context", "kv_heads", "head_dim"), parts=parts,
        )
        yield entry
