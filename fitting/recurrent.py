"""Layers that keep a state: the convolution in front of a gated delta rule, the rule over prompts and the rule of decodes.

Tables time each kernel alone (`gdn_perf`), heads of 128 x 128 elements, states in 32 bits. The rule over prompts is FlashInfer's on Hopper
and Blackwell, Triton's elsewhere; a row walks its chunks one after the other, so that one long prompt takes as long as several beside it until
the chip is full. Decodes and convolutions only read and write. A100 has SGLang's rows alone, of the same Triton kernels, and none of the rule over
prompts: L40S's stand in, in the same microseconds. Its convolution rows would move more than its memory can, and are not read: it has H100's
share of the bandwidth. Where others' rates exceed the memory's, their operands lie in the second-level cache, which adds a gain.
Mamba-2's kernels stand in `scan.py`.

Held out: 16 and 24 value heads of one rank.
"""

import numpy as np

import forms
import scan
import source
from entry import Report, any_kernel, fitted, scope
from fit import Free

VLLM, SGLANG = "vllm/0.24.0", "sglang/0.5.10"
HELD_HEADS = (16, 24)
STATE = 128 * 128 * 4.0                        # bytes of one head's state in the tables
RULE = "measured on the kernel of the same name in vLLM 0.24.0; its code is not shown unchanged up to the modelled release"
ELSEWHERE = RULE + "; of L40S, as no rows exist on this chip"
CARRIED = RULE + "; H100's share of the bandwidth, as this chip's rows would move more than its memory can"
AMPERE = "measured as SGLang 0.5.10 calls the Triton kernel that the modelled engine calls too; another release"
PROMPTS = {"chunk_gated_delta_rule_flashinfer": "flashinfer/gdn-prefill", "chunk_gated_delta_rule_triton": "triton/chunk-gated-delta-rule",
           "chunk_gated_delta_rule": "triton/chunk-gated-delta-rule"}
DECODES = ("fused_recurrent_gated_delta_rule_packed_decode", "fused_recurrent_gated_delta_rule", "fused_recurrent_gated_delta_rule_update",
           "fused_sigmoid_gating_delta_rule_update")
BYTES = (1e5, 3e5, 1e6, 3e6, 1e7, 1e8, 1e9)
TOKENS = (64, 1024, 16384)


def entries(chip, wheel, report):
    table, reason = (wheel.table(chip, "linear_attention", SGLANG, "gdn_perf"), AMPERE) if chip == "a100-sxm" else (
        wheel.table(chip, "linear_attention", VLLM, "gdn_perf"), RULE)
    over_prompts = (wheel.table("l40s", "linear_attention", VLLM, "gdn_perf"), ELSEWHERE) if chip == "a100-sxm" else (table, reason)
    update = decodes(chip, table, reason, report)
    convolved = (wheel.table("h100", "linear_attention", VLLM, "gdn_perf"), CARRIED, Report()) if chip == "a100-sxm" else (table, reason, report)
    made = [prompts(chip, *over_prompts, report), update, convolution(chip, *convolved, "causal_conv1d_fn", "triton/causal-conv1d-fn"),
            convolution(chip, *convolved, "causal_conv1d_update", "triton/causal-conv1d-update")]
    yield from made
    for entry in made[:3]:
        yield dict(any_kernel(entry), name=f"any-{entry['primitive'].replace('.', '-')}")
    yield from scan.entries(chip, wheel, report, update)


def only(table, kernels):
    return table.where(np.isin(table["kernel_source"], kernels))


def held(table):
    return np.isin(table["num_v_heads"], HELD_HEADS)


def clusters(table):
    return table["num_v_heads"] * 1e6 + table["batch_size"]


def prompts(chip, table, reason, report):
    table = only(table, list(PROMPTS))
    kernel = PROMPTS[str(table["kernel_source"][0])]
    table = table.where(table["batch_size"] * table["seq_len"] <= 131072)
    n, new = table["batch_size"].astype(float), table["seq_len"].astype(float)
    inputs = {"rows": n, "new": new, "tokens": n * new, "states": table["num_v_heads"].astype(float)}
    free = [Free("latency", "us", 10.0), Free("walk_time", "us", 0.05), Free("unit_time", "us", 0.08),
            Free("token_time", "us", 0.0005, over="tokens", xs=TOKENS, law="each"), Free("sharpness", "ratio", 3.0, "sharpness")]
    parts = (("one row", n == 1), ("several rows", n > 1))
    entry, _ = fitted(scope(kernel.replace("/", "-"), "recurrent.prefill", kernel), "recurrent", chip, forms.recurrence, table, inputs, held(table),
                      free, report, clusters=clusters(table), ranges=("rows", "new", "tokens", "states"), parts=parts, reason=reason)
    return entry


def stream(chip, table, inputs, head, reason, report):
    free = [Free("floor", "us", 2.0), Free("memory_efficiency", "ratio", 0.6, "ratio", over="bytes", xs=BYTES, law="rate")]
    fixed, untold = {}, ""
    if head["primitive"] == "convolution" and scan.gains(table, inputs):
        free[1:], fixed, untold = scan.cached(chip, inputs, "stream")
    entry, _ = fitted(head, "recurrent", chip, forms.stream, table, inputs, held(table), free, report, fixed, clusters=clusters(table),
                      ranges=("bytes",), reason=reason + untold)
    return entry


def decodes(chip, table, reason, report):
    table = only(table, list(DECODES)).where(table_phase(table, DECODES))
    facts = source.facts(chip)
    bandwidth = facts["bandwidth"]
    # States that fit the second-level cache are read faster than a step with its other layers reads them, unless they take no time.
    states = table["batch_size"] * table["num_v_heads"] * STATE
    table = table.where((states > facts["l2_cache"]) | (2.0 * states / bandwidth < 3.0))
    heads, keys = table["num_v_heads"].astype(float), table["num_k_heads"].astype(float)
    # The state read and written, and one token's queries, keys, values and output in 16 bits.
    row = heads * 2.0 * STATE + 2.0 * 128 * (2.0 * keys + 2.0 * heads)
    inputs = {"bytes": table["batch_size"] * row, "bandwidth": bandwidth}
    kernel = "triton/packed-recurrent-delta-rule"
    return stream(chip, table, inputs, scope("triton-packed-recurrent-delta-rule", "recurrent.decode", kernel), reason, report)


def table_phase(table, kernels):
    rows = np.isin(table["kernel_source"], list(kernels))
    return (table["phase"] == "generation")[rows]


def convolution(chip, table, reason, report, name, kernel):
    table = only(table, [name])
    tokens = table["batch_size"].astype(float) * np.where(table["phase"] == "generation", 1, table["seq_len"])
    width = 128.0 * (2.0 * table["num_k_heads"] + table["num_v_heads"])
    # Read and written in 16 bits; a decode also reads and writes what the convolution reaches back to.
    passes = 2.0 if name == "causal_conv1d_fn" else 8.0
    inputs = {"bytes": tokens * width * 2.0 * passes, "bandwidth": source.facts("h100" if reason == CARRIED else chip)["bandwidth"]}
    return stream(chip, table, inputs, scope(kernel.replace("/", "-"), "convolution", kernel), reason, report)
