"""Tokens sent to the ranks that hold their experts and back: DeepEP's kernels within one domain of links, and NCCL's all-to-all for any other.

A rank sends a token once to each of its experts in the low-latency kernels (eight bits with a scale for 128 elements out, unless the experts take 16; 16 bits back),
and once to each rank that holds one of them in the others, whose bytes are those of 16 bits and of evenly drawn experts. The rows of the former are what the kernels
alone take, as graphs replay them; of the latter vLLM's own, on whose calls the host waits to learn how many tokens come. No group is stated, though rows are of one (eight ranks, four on trays):
of fewer ranks more stays on the chip, so that they are priced too long.

Held out: streams of 4,096 elements (low latency) and 6,144.
"""

import numpy as np

import forms
from entry import DEVICE_GRAPH, any_kernel, fitted, scope
from fit import Free

SERVED = ("h100", "h200", "b200", "b300", "gb200-nvl72", "gb300-nvl72")
FEW_EXPERTS = 128            # fewer leave the kernels' warps, which share experts out among them, idle
HELD = {"ll": 4096, "ht": 6144}
SCALED, HEADER = 128.0, 16.0
LOW_RULE = (
    "SGLang 0.5.12's rows of the same kernels of DeepEP, whose release is not stated, on one group of ranks; tokens go out in eight bits, and in 16 take what their bytes do. "
    "vLLM 0.24.0's rows of them are longer, by 40 to 60 us at few tokens and by about 150 us at 256, which a launch does not explain"
)
HIGH_RULE = (
    "vLLM 0.24.0's own rows of the same kernels on one group of ranks, DeepEP 73b6ea4 with vLLM's settings; neither is shown unchanged up to the modelled release; sent in 16 bits"
)
NCCL_RULE = "NCCL 2.29.2 rows of all-to-all, for kernels of which nothing was measured on this chip"


def entries(chip, wheel, report):
    if chip in SERVED:
        for phase in ("dispatch", "combine"):
            yield low_latency(chip, wheel, report, phase)
            yield high_throughput(chip, wheel, report, phase)
    yield from other(chip, wheel, report)


def free(floor):
    return [Free("floor", "us", floor), Free("token_time", "us", 10.0), Free("megabyte_time", "us", 3.0), Free("sharpness", "ratio", 2.0, "sharpness")]


def low_latency(chip, wheel, report, phase):
    table = wheel.table(chip, "comm", "sglang/0.5.12", "wideep_deepep_ll_perf", time=f"{phase}_avg_t_us")
    table = table.where(table["num_experts"] >= FEW_EXPERTS)
    hidden, picks, tokens = (table[name].astype(float) for name in ("hidden_size", "num_topk", "num_token"))
    row = hidden + 4.0 * hidden / SCALED + HEADER if phase == "dispatch" else 2.0 * hidden
    inputs = {"tokens": tokens, "bytes": tokens * picks * row}
    held = table["hidden_size"] == HELD["ll"]
    head = scope(f"deepep-low-latency-{phase}", "collective.all_to_all", f"deepep/low-latency-{phase}")
    entry, _ = fitted(head, "collective", chip, forms.exchange, table, inputs, held, free(10.0), report, clusters=hidden * 1e4 + picks * 1e3 + table["num_experts"],
                      ranges=("tokens", "bytes"), reason=LOW_RULE)
    return entry


def high_throughput(chip, wheel, report, phase):
    table = wheel.table(chip, "comm", "vllm/0.24.0", "moe_a2a_perf", time="latency")
    table = table.where((table["comm_backend"] == "deepep_ht") & (table["phase"] == phase))
    hidden, picks, tokens, ranks = (table[name].astype(float) for name in ("hidden_size", "topk", "num_tokens", "ep_size"))
    inputs = {"tokens": tokens, "bytes": tokens * reached(ranks, picks) * 2.0 * hidden}
    held = table["hidden_size"] == HELD["ht"]
    head = scope(f"deepep-{phase}", "collective.all_to_all", f"deepep/{phase}")
    entry, _ = fitted(head, "collective", chip, forms.exchange, table, inputs, held, free(200.0), report, clusters=hidden * 1e4 + picks * 1e3 + table["num_experts"],
                      ranges=("tokens", "bytes"), reason=HIGH_RULE)
    return dict(entry, boundary={"clock": "device", "launch": "eager"})


def reached(ranks, picks):
    """Ranks that hold any of a token's experts, drawn evenly."""
    return ranks * (1.0 - (1.0 - 1.0 / ranks) ** picks)


def other(chip, wheel, report):
    """Of the widest group; every third size held out."""
    table = wheel.table(chip, "comm", "nccl/2.29.2", "nccl_perf")
    table = table.where((table["op_name"] == "alltoall") & (table["nccl_dtype"] == "half"))
    table = table.where(table["num_gpus"] == table["num_gpus"].max())
    inputs = {"tokens": np.zeros(len(table)), "bytes": 2.0 * table["message_size"].astype(float)}
    held = np.argsort(np.argsort(table["message_size"])) % 3 == 1
    unbiased = [term for term in free(10.0) if term.name != "token_time"]
    head = scope("nccl-all-to-all", "collective.all_to_all", None)
    entry, _ = fitted(head, "collective", chip, forms.exchange, table, inputs, held, unbiased, report, clusters=table["message_size"], ranges=("bytes",), reason=NCCL_RULE)
    carried = dict(any_kernel(entry), name="any-all-to-all", boundary=DEVICE_GRAPH)
    yield dict(carried, reason=table.reason(NCCL_RULE))
