"""Multi-head latent attention, per kernel and format: decode over the cached latent vectors, prompts over keys and values written
out for every head, and the batched products that stand for the up-projection in decode.

The attention tables are those of one kernel alone: SGLang's, where it calls the kernel the modelled engine calls, and TensorRT-LLM's where
none of SGLang's does. The whole-module tables of the modelled engine hold the same kernels with projections around them; they are read
for one thing, the kernel of the down projections for few rows, which runs up to 16 rows and no further: what a module takes more at 32 rows than at 16, beyond what its
attention does, is what that kernel is shorter than the product that takes over (`fused_a`). Heads are those of one rank, head sizes those of DeepSeek V3: 512 + 64 cached, 128 + 64 of a query head, 128 of a value head.

Held out: 32 heads (attention), 24 and 48 heads (products). Fitted on 8 to 128 heads. As for other decode attention, rows whose KV fits the
L2 cache are dropped unless their KV would take less than a microsecond from memory.
"""

import numpy as np

import compose
import forms
import source
from entry import DEVICE_GRAPH, any_kernel, fitted, scope, span, stated
from fit import Free
from writer import rounded

SGLANG, TRTLLM, VLLM = "sglang/0.5.14", "trtllm/1.3.0rc20", "vllm/0.24.0"
SAME = "the kernel alone, measured as SGLang 0.5.14 calls it; its code is not shown unchanged up to the modelled release"
FLASHMLA = ("TensorRT-LLM 1.3.0rc20's decode kernel for an fp8 cache on this chip stands in for FlashMLA's, which it derives from; its own "
            "version of it, and another release")
AMPERE = "TensorRT-LLM 1.0.0's kernel on this chip stands in for Triton's, of which no rows exist on it"
CASTS = SAME + "; includes writing queries, keys and values in 8 bits"

# format -> (framework, our kernel, reason)
BLACKWELL_DECODE = {"bf16": (SGLANG, "flashinfer/trtllm-gen-mla-decode", SAME), "fp8": (SGLANG, "flashinfer/trtllm-gen-mla-decode", SAME)}
HOPPER_DECODE = {"bf16": (SGLANG, "flash-attn/fa3-mla-decode", SAME), "fp8": (TRTLLM, "flashmla/mla-decode", FLASHMLA)}
PCIE_DECODE = {"bf16": (SGLANG, "triton/mla-decode", SAME)}
AMPERE_DECODE = {"bf16": (TRTLLM, "triton/mla-decode", AMPERE)}
BLACKWELL_PREFILL = {"bf16": (SGLANG, "flashinfer/trtllm-gen-mla-prefill", SAME), "fp8": (SGLANG, "flashinfer/trtllm-gen-mla-prefill", CASTS)}
HOPPER_PREFILL = {"bf16": (SGLANG, "flash-attn/fa3", SAME)}
PCIE_PREFILL = {"bf16": (SGLANG, "flash-attn/fa2", "SGLang 0.5.14's Triton kernel on this chip stands in for FlashAttention 2's with padded values")}
AMPERE_PREFILL = {"bf16": (TRTLLM, "flash-attn/fa2", "TensorRT-LLM 1.0.0's kernel on this chip stands in for FlashAttention 2's with padded values")}
HOPPER, PCIE = (HOPPER_DECODE, HOPPER_PREFILL), (PCIE_DECODE, PCIE_PREFILL)
BLACKWELL = (BLACKWELL_DECODE, BLACKWELL_PREFILL)
KERNELS = {"a100-sxm": (AMPERE_DECODE, AMPERE_PREFILL), "h100": HOPPER, "h200": HOPPER, "b200": BLACKWELL, "b300": BLACKWELL,
           "gb200-nvl72": BLACKWELL, "gb300-nvl72": BLACKWELL, "l40s": PCIE, "rtx-pro-6000": PCIE}

FORMATS = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0)}      # the table's name, bytes of an element
HEADS, HELD_HEADS, HELD_BATCHES = (8, 16, 32, 64, 128), (32,), (24, 48)
LATENT, ROTARY, PLAIN, VALUE = 512, 64, 128, 128
CONTEXTS = (2, 128, 512, 2048, 8192, 32768, 131072)
FEW_HEADS = (8, 16, 64, 128)
RULE = "measured under the modelled engine's own name in vLLM 0.24.0; its code is not shown unchanged up to the modelled release"


# Whole modules whose norms were timed as serving runs them, by chip; the norms of others grow with the rows by more than this kernel takes.
MODULES = {"b200": VLLM, "gb300-nvl72": "vllm/0.27.0"}
FUSED_DOWN, FUSED_ROWS, FUSED_HEADS = (2112.0, 7168.0), (16, 32), (4, 8, 16)
FUSED_REASON = (
    "what whole modules of vLLM 0.24.0 on B200 and 0.27.0 on GB300 take more at 32 rows than at 16, beyond their attention, taken off the product that "
    "runs at 32; reads its weights at the share of bandwidth of wide products of few rows, and what is left is latency"
)


def entries(chip, wheel, report):
    decode, prefill = KERNELS[chip]
    yield from families(list(attention(chip, wheel, report, decode, decode_call)))
    yield from families(list(attention(chip, wheel, report, prefill, prefill_call)))
    product = batched(chip, wheel, report)
    yield product
    yield other(product)
    yield stated(scope("beside", "moe.beside", None), "stream", {
        "floor": {"value": 0.0, "unit": "us", "interval": [0.0, 2.0]},
        "memory_efficiency": {"value": 0.8, "unit": "ratio", "interval": [0.5, 1.0]},
    }, "assumed", "shared experts on a second stream take from the routed ones the time that reading their weights needs, and hide the "
       "rest; four fifths of the bandwidth is what wide products of few rows reach on every chip")


def families(measured):
    """The entries, one for other kernels of each format, and one for whatever else (the first format's)."""
    yield from measured
    for entry in measured:
        yield other(entry, entry["format"])
    yield other(measured[0])


def other(entry, tensor_format=None):
    """The entry for kernels of the same primitive that were not measured, under a name of its own in the file."""
    carried = any_kernel(entry, tensor_format)
    return dict(carried, name=f"{entry['primitive'].replace('.', '-')}-{carried['name']}")


def attention(chip, wheel, report, kernels, call):
    for tensor_format, (framework, kernel, reason) in kernels.items():
        yield call(chip, wheel, report, tensor_format, framework, kernel, reason)


def rows_of(wheel, chip, framework, name, tensor_format):
    table = wheel.table(chip, "mla", framework, name)
    return table.where((table["kv_cache_dtype"] == FORMATS[tensor_format][0]) & np.isin(table["num_heads"], HEADS))


def decode_call(chip, wheel, report, tensor_format, framework, kernel, reason):
    facts = source.facts(chip)
    table = rows_of(wheel, chip, framework, "generation_mla_perf", tensor_format)
    inputs = decode_inputs(table, facts, tensor_format)
    kept = honest(inputs, facts["l2_cache"])
    table = table.where(kept)
    inputs = decode_inputs(table, facts, tensor_format)
    heads = inputs["query_heads"]
    free = [
        Free("latency", "us", 10.0, over="mean_context", xs=CONTEXTS, law="whole"),
        Free("unit_time", "us", 0.02),
        Free("memory_efficiency", "ratio", 0.8, "ratio"),
        Free("compute_efficiency", "ratio", 0.5, "ratio", over="query_heads", xs=FEW_HEADS),
        Free("sharpness", "ratio", 2.0, "sharpness"),
    ]
    latent = inputs["context"] * inputs["head_dim"] * inputs["element_bytes"]
    parts = (("8 and 16 heads", heads <= 16), ("64 heads and more", heads >= 64), ("KV beyond L2", latent > facts["l2_cache"]))
    head = scope(f"decode-{tensor_format}-{kernel.replace('/', '-')}", "latent.decode", kernel, tensor_format)
    entry, _ = fitted(head, "latent", chip, forms.latent_decode, table, inputs, np.isin(heads, HELD_HEADS), free, report,
                      clusters=heads * 1e6 + inputs["requests"], ranges=("requests", "context", "query_heads"), parts=parts, reason=reason)
    return entry


def decode_inputs(table, facts, tensor_format):
    n, seen = table["batch_size"].astype(float), table["step"].astype(float) + 1.0
    return {
        "requests": n, "context": n * seen, "query_heads": table["num_heads"].astype(float), "head_dim": float(LATENT + ROTARY) + 0.0 * n,
        "value_dim": float(LATENT) + 0.0 * n, "element_bytes": FORMATS[tensor_format][1], "bandwidth": facts["bandwidth"],
        "peak": facts["peak"][tensor_format],
    }


def honest(inputs, l2_bytes):
    """Rows whose KV lies beyond the L2 cache, or is too small for the cache to matter."""
    kv = inputs["context"] * inputs["head_dim"] * inputs["element_bytes"]
    return (kv > l2_bytes) | (kv / inputs["bandwidth"] < 1.0)


def prefill_call(chip, wheel, report, tensor_format, framework, kernel, reason):
    facts = source.facts(chip)
    table = rows_of(wheel, chip, framework, "context_mla_perf", tensor_format)
    table = table.where((table["isl"] >= 16) & (table["step"] == 0))   # a row of one token is decode
    n, heads = table["batch_size"].astype(float), table["num_heads"].astype(float)
    inputs = {
        "rows": n, "new": table["isl"].astype(float), "cached": 0.0 * n, "window": 0.0 * n, "query_heads": heads, "kv_heads": heads,
        "head_dim": (PLAIN + ROTARY + VALUE) / 2.0 + 0.0 * n, "element_bytes": FORMATS[tensor_format][1], "bandwidth": facts["bandwidth"],
        "peak": facts["peak"][tensor_format],
    }
    free = [
        Free("latency", "us", 12.0),
        Free("tile_time", "us", 0.03),
        Free("key_time", "us", 0.01),
        Free("compute_efficiency", "ratio", 0.6, "ratio"),
        Free("memory_efficiency", "ratio", 0.7, "ratio"),
        Free("sharpness", "ratio", 2.0, "sharpness"),
    ]
    new = inputs["new"]
    parts = (("new >= 512", new >= 512), ("new >= 512, rows = 1", (new >= 512) & (n == 1)), ("new < 512", new < 512))
    head = scope(f"prefill-{tensor_format}-{kernel.replace('/', '-')}", "latent.prefill", kernel, tensor_format)
    entry, _ = fitted(head, "latent", chip, forms.attention_prefill, table, inputs, np.isin(heads, HELD_HEADS), free, report,
                      fixed={"packs_group": 0.0}, clusters=heads * 1e6 + n, ranges=("rows", "new", "cached", "query_heads"), parts=parts,
                      reason=reason)
    return entry


def batched(chip, wheel, report):
    """Both products of decode, before and behind attention: one matrix for each head."""
    table = wheel.table(chip, "mla_bmm", VLLM, "mla_bmm_perf")
    table = table.where(table["num_heads"] >= 4)
    facts = source.facts(table.chip)
    heads, before = table["num_heads"].astype(float), table["op_name"] == "mla_gen_pre"
    depth, columns = np.where(before, float(PLAIN), float(LATENT)), np.where(before, float(LATENT), float(VALUE))
    inputs = {
        "rows": table["num_tokens"].astype(float), "columns": heads * columns, "depth": depth, "weight_bytes": 2.0 * heads * columns * depth,
        "input_bytes": 2.0 * heads, "bandwidth": facts["bandwidth"], "peak": facts["peak"]["bf16"],
    }
    free = [
        Free("latency", "us", 4.0),
        Free("memory_efficiency", "ratio", 0.7, "ratio"),
        Free("compute_efficiency", "ratio", 0.5, "ratio"),
        Free("sharpness", "ratio", 2.0, "sharpness"),
    ]
    parts = (("rows <= 256", inputs["rows"] <= 256), ("rows > 256", inputs["rows"] > 256))
    reason = RULE if table.chip == chip else f"{RULE}; at the shares of peak and bandwidth it has on {table.chip}, as no rows exist on this chip"
    entry, _ = fitted(scope("bf16-cublas-batched", "gemm.batched", "cublas/batched", "bf16"), "latent", chip, forms.matmul, table, inputs,
                      np.isin(heads, HELD_BATCHES), free, report, clusters=heads * 10 + before, ranges=("rows", "columns", "depth"),
                      parts=parts, reason=reason)
    return entry


def saved(chip, wheel):
    """Microseconds that the kernel of the down projections takes less than the product that follows it, for each measured pair of modules."""
    table, priced = wheel.table(chip, "mla", MODULES[chip], "mla_generation_module_perf"), compose.Chip(chip)
    mine = (table["gemm_type"] == "bfloat16") & (table["kv_cache_dtype"] == "fp8") & np.char.startswith(table["model"].astype(str), "deepseek")
    table = table.where(mine & np.isin(table["num_heads"], FUSED_HEADS) & (table["step"] >= 128) & (table["step"] <= 8192))
    times = dict(zip(zip(table["num_heads"].tolist(), table["step"].tolist(), table["batch_size"].tolist()), table["latency_us"]))
    few, many = FUSED_ROWS
    pairs = sorted((heads, step) for heads, step, rows in times if rows == few and (heads, step, many) in times)
    grown = lambda heads, step: decode(priced, heads, step, many) - decode(priced, heads, step, few)
    return table, np.array([times[heads, step, many] - times[heads, step, few] - grown(heads, step) for heads, step in pairs])


def decode(priced, heads, step, rows):
    """Decode attention of such a module."""
    return priced.price("latent", "decode-fp8-flashinfer-trtllm-gen-mla-decode", peak="fp8", requests=rows, context=rows * (step + 1.0),
                        query_heads=heads, head_dim=float(LATENT + ROTARY), value_dim=float(LATENT), element_bytes=1.0)


def around(priced, heads, step, rows):
    """The other pieces of such a module, each at its own entry's price."""
    product = lambda columns, depth: priced.price("latent", "bf16-cublas-batched", rows=rows, columns=heads * columns, depth=depth,
                                                  weight_bytes=2.0 * heads * columns * depth, input_bytes=2.0 * heads)
    return (priced.stream("norm", 4.0 * 1536 * rows) + priced.stream("norm", 4.0 * LATENT * rows) + priced.gemm(rows, heads * (PLAIN + ROTARY), 1536)
            + priced.stream("rope", 4.0 * (heads + 1) * ROTARY * rows) + product(float(LATENT), float(PLAIN)) + decode(priced, heads, step, rows) + product(float(VALUE), float(LATENT))
            + priced.gemm(rows, 7168, heads * VALUE))


def fused_a(chip, wheel, report, product):
    """The entry of the down projections of up to 16 rows, whole on every rank; `product` prices the kernel that follows it. Only where one was measured."""
    if KERNELS[chip] != BLACKWELL:
        return
    read = [saved(measured, wheel) for measured in MODULES]
    less = np.concatenate([times for _, times in read])
    columns, depth = FUSED_DOWN
    facts, follows = source.facts(chip), product(float(FUSED_ROWS[1]), columns, depth)
    reading = 2.0 * columns * depth / (0.8 * facts["bandwidth"])
    generator = np.random.default_rng(20240901)
    draws = np.median(less[generator.integers(len(less), size=(200, len(less)))], axis=1)
    latency = lambda off: rounded(max(follows - off - reading, 0.0))
    low, high = np.percentile(draws, [2.5, 97.5])
    report.add("gemm", chip, "bf16-vllm-csrc-dsv3-fused-a", "spread of the difference", less / follows - np.median(less) / follows)
    fixed = {name: {"value": value, "unit": "ratio", "interval": list(limits)} for name, value, limits in
             (("memory_efficiency", 0.8, (0.5, 1.0)), ("compute_efficiency", 0.5, (0.2, 1.0)), ("sharpness", 8.0, (8.0, 8.0)))}
    yield dict(
        scope("bf16-vllm-csrc-dsv3-fused-a", "gemm", "vllm-csrc/dsv3-fused-a", "bf16"), method="transferred", form=forms.matmul.__name__,
        coefficients={"latency": {"value": latency(np.median(less)), "unit": "us", "interval": [latency(high), latency(low)]}, **fixed}, curves={},
        range={"rows": [1.0, float(FUSED_ROWS[0])], "columns": span(np.array([columns])), "depth": span(np.array([depth]))},
        boundary=DEVICE_GRAPH, sources=[table.cite() for table, _ in read], reason=FUSED_REASON,
    )
