"""What tuning at start-up saves of the time of TensorRT-LLM's experts, of which vLLM's and SGLang's tables were not tuned.

Untuned, FlashInfer's launcher takes the smallest of the tiles it would try: half of what the average rows of an expert round up to, so that from more than eight pairs
an expert on each expert's weights are read for two tiles. upstream: flashinfer `csrc/trtllm_fused_moe_kernel_launcher.cu::selectDefaultTileN`, and vllm
`config/vllm.py` for the levels at which it tunes. TensorRT-LLM's own rows of the kernel were tuned, and the ratio of both is read by pairs an expert.
"""

from functools import lru_cache

import numpy as np

KERNEL, TRTLLM, VLLM = "flashinfer/trtllm-gen-moe", "trtllm/1.3.0rc20", "vllm/0.24.0"
# Pairs an expert above which the untuned tile is half of the rounded average, and where the bins above that end: a tile fits worst just above a power of two.
UNTUNED = 8.0
ENDS = (12.0, 16.0, 24.0, 32.0, 64.0, 128.0, 256.0, np.inf)
# Fewer experts than this take other tiles on the same pairs.
LEAST_EXPERTS = 100
# Format -> the chips with tuned rows, their names of it, the tuned kernel and the untuned one. Formats without tuned rows stay as they were measured.
TUNED = {
    "nvfp4": (("b200", "gb200-nvl72"), "nvfp4", "moe_torch_flow_min_latency", "vllm_compressedtensorsw4a4nvfp4moe_flashinfer_trtllm"),
    "mxfp4_mxfp8": (("b300", "gb300-nvl72"), "w4a8_mxfp4_mxfp8", "moe_torch_flow", "vllm_mxfp4moe_flashinfer_trtllm_mxfp4_mxfp8"),
}
CALL = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "distribution")


def concerns(kernel, tensor_format):
    """Whether rows of a kernel in a format are to be priced as tuned."""
    return kernel == KERNEL and tensor_format in TUNED


def pairs_an_expert(table):
    return table["num_tokens"] * table["topk"] / table["num_experts"].astype(float)


def shares(wheel, tensor_format, chips=None, without=None):
    """The share of an untuned call's time that a tuned one takes, by bin of pairs an expert: median over the untuned calls whose tuned time is known on `chips` (all with tuned
    rows unless given), but for the shape (hidden and inter size, experts) `without`. A bin that none of them lies in takes the share of the bin below."""
    ratio, pairs, shape = pairings(wheel, TUNED[tensor_format][0] if chips is None else chips, tensor_format)
    used = (pairs > UNTUNED) & (True if without is None else ~np.all(shape == np.array(without), axis=1))
    bins, found = np.searchsorted(ENDS, pairs), []
    for one in range(len(ENDS)):
        within = ratio[used & (bins == one)]
        if not len(within) and not found:
            raise ValueError(f"{tensor_format}: no call of {UNTUNED:g} to {ENDS[one]:g} pairs an expert was measured tuned and untuned")
        found.append(min(1.0, float(np.median(within))) if len(within) else found[-1])
    return np.array(found)


def apply(latency, table, shares_by_bin):
    """Times of untuned calls as tuned ones take them; those of few experts stay."""
    pairs = pairs_an_expert(table)
    concerned = (pairs > UNTUNED) & (table["num_experts"] >= LEAST_EXPERTS)
    return np.where(concerned, latency * shares_by_bin[np.searchsorted(ENDS, pairs)], latency)


def check(wheel, chip, tensor_format):
    """Relative errors of untuned calls at shares that do not know the tuned ones: by part, those of this chip by the other chip's, and those of each shape by the other shapes'."""
    chips = TUNED[tensor_format][0]
    if chip not in chips:
        return
    ratio, pairs, shape = pairings(wheel, (chip,), tensor_format)
    mine = pairs > UNTUNED
    ratio, bins, shape = ratio[mine], np.searchsorted(ENDS, pairs[mine]), shape[mine]
    yield "untuned rows as tuned, by the other chip's shares", shares(wheel, tensor_format, tuple(one for one in chips if one != chip))[bins] / ratio - 1.0
    shapes = sorted(set(map(tuple, shape.tolist())))
    if len(shapes) > 1:
        errors = np.empty(len(ratio))
        for one in shapes:
            of = np.all(shape == np.array(one), axis=1)
            errors[of] = shares(wheel, tensor_format, without=one)[bins[of]] / ratio[of] - 1.0
        yield "untuned rows as tuned, by the other shapes' shares", errors


def tables(wheel, tensor_format):
    """The tuned tables that the shares of a format were read from."""
    return [wheel.table(chip, "moe", TRTLLM, "moe_perf") for chip in TUNED[tensor_format][0]]


def own_rows(wheel, chip, tensor_format):
    """The calls that were measured tuned on this chip, of more pairs than are tuned alike: none where they were not."""
    chips, dtype, tuned, _ = TUNED[tensor_format]
    if chip not in chips:
        return None
    table = rows(wheel.table(chip, "moe", TRTLLM, "moe_perf"), dtype, tuned)
    return table.where(pairs_an_expert(table) > UNTUNED)


@lru_cache(maxsize=None)
def pairings(wheel, chips, tensor_format):
    """Of each untuned call, where tuned ones were measured: the ratio of both times, its pairs an expert, and its shape (hidden and inter size, experts). The tables' token
    counts differ; between two of a shape's a tuned time is taken on the straight line."""
    _, dtype, tuned, untuned = TUNED[tensor_format]
    ratio, pairs, shape = [], [], []
    for chip in chips:
        quick, slow = (rows(wheel.table(chip, "moe", framework, "moe_perf"), dtype, kernel) for framework, kernel in ((TRTLLM, tuned), (VLLM, untuned)))
        times = {}
        for call, latency in sorted(zip(quick.keys(CALL), quick["latency_us"].tolist())):
            times.setdefault(call[1:], []).append((call[0], latency))
        for call, latency, average in zip(slow.keys(CALL), slow["latency_us"], pairs_an_expert(slow)):
            known = np.array(times.get(call[1:], [(np.inf, 0.0)]))
            if known[0, 0] <= call[0] <= known[-1, 0]:
                ratio.append(np.interp(call[0], *known.T) / latency)
                pairs.append(average)
                shape.append((call[1], call[2], call[4]))
    return np.array(ratio), np.array(pairs), np.array(shape)


def rows(table, dtype, kernel):
    """Calls under power-law routing on every expert's own rank."""
    starts = np.char.startswith(table["kernel_source"].astype(str), kernel)
    routed = np.char.startswith(table["distribution"].astype(str), "power_law")
    return table.where(starts & routed & (table["moe_dtype"] == dtype) & (table["moe_ep_size"] == 1) & (table["num_experts"] >= LEAST_EXPERTS))
