"""All-reduce, all-gather and reduce-scatter inside one domain of links, by ranks of the group and range of message size; `network.py` adds
those that leave it, `exchange.py` those that send each token to its own experts.

A library switches algorithm with size (one shot, two shots, then the copy engine's or NCCL's), so a group's times are a few
straight lines `latency + bytes/bandwidth`, each over one range. The number of ranges is what the data need: a further range
must take at least `GAIN` off the largest error. Where vLLM's dispatch states the size from which another kernel runs, a range ends right before it; elsewhere it ends at a
measured size. Held out: every third size, each predicted from lines fitted to the others.

Tables count bf16 elements of the larger side (what is summed, what is concatenated); sizes here are its bytes. Only rows replayed from a graph are read: eager rows show host time.
The vLLM rows are what its all-reduce dispatch runs at each size, so the entry named custom-all-reduce covers the sizes at which
that dispatch falls back to other algorithms too. Its kernels for parts are priced by another library's rows (`NOTES.md`).
"""

import numpy as np

import exchange
import forms
import network
from entry import DEVICE_GRAPH, TABLE_RULE, any_kernel, scope, span
from fit import summary
from source import facts
from writer import rounded

GROUPS = (2, 4, 8, 16)
SWITCHED = ("h100", "h200", "b200", "b300", "gb200-nvl72", "gb300-nvl72")     # symmetric memory and FlashInfer serve these alone
MULTICAST_SUMS = SWITCHED[2:]             # chips on which vLLM sums parts within the switch
# The chip whose rows stand for groups a chip's own tables lack: the same NVLink domain with the same links.
SAME_DOMAIN = {"gb200-nvl72": "gb300-nvl72"}
EVERYWHERE = ("vllm-csrc/custom-all-reduce", "nccl/all-reduce", "nccl/all-gather", "nccl/reduce-scatter")
PLAIN = ("nccl-all-reduce", "nccl-all-gather", "nccl-reduce-scatter")
VLLM_DISPATCH = ("vllm-csrc/custom-all-reduce", "torch/symmetric-memory")
TRTLLM_SUMS = ("flashinfer/fused-all-reduce-norm", "flashinfer/all-reduce")
MAX_RANGES, GAIN = 7, 0.015
LONE = 1e12                    # bytes a microsecond of a range that one size is known of
FUSED_RULE = (
    "FlashInfer's fused kernel, of which there are two: TensorRT-LLM's one- and two-shot all-reduce with the norm in its epilogue, by TensorRT-LLM 1.3.0rc20's all-reduce rows, "
    "the norm's arithmetic taken as hidden behind the exchange; and the MNNVL kernel that the modelled release takes by itself, which no table times and the same rows stand for (upstream "
    "says of it 3% to 5% more throughput of 4 and 8 ranks)"
)
MINIMAX_RULE = (
    "the kernel is TensorRT-LLM's one-shot exchange with a norm of queries and keys around it: TensorRT-LLM 1.3.0rc20's all-reduce "
    "rows at the size exchanged, the reading and writing of queries and keys taken as hidden behind the exchange"
)
SYMMETRIC_RULE = (
    "rows of vLLM 0.24.0's all-reduce dispatch, which runs symmetric memory in part of the sizes; at the others the time of what it ran instead"
)
FLASHINFER_RULE = "TensorRT-LLM 1.3.0rc20's rows of the one- and two-shot all-reduce that FlashInfer ships; they stand for its MNNVL kernel too, which no table times"
NCCL_SYMMETRIC_RULE = "NCCL 2.29.2 rows of the ordinary all-reduce, an upper bound for the one over symmetric memory"
PARTS_RULE = (
    "no table times it: over N ranks it receives what TensorRT-LLM's one-shot all-reduce of an Nth of its bytes does, by the same exchange; TensorRT-LLM 1.3.0rc20's "
    "rows of that one{bound}"
)
MULTIMEM_RULE = "NCCL 2.29.2 rows, an upper bound for a kernel that sums within the switch"
NCCL_RULE = "NCCL 2.29.2 rows taken under TensorRT-LLM; the modelled release ships another NCCL 2.2x"
# One shot of an all-reduce ends where it takes less than its links need, and, of more than two ranks (whose two shots move as much), where twice the bytes
# add less than this share of the rate before, among sizes that take so many times the shortest.
PARTS = {"vllm-csrc/lamport-all-gather": ", an upper bound, since a switch copies what is sent once", "vllm-csrc/lamport-reduce-scatter": ""}
MOST_PARTS, LEAST_RATE, COUNTED = 16 * 2**20, 0.8, 1.35
KIB = 2**10
# Bytes from which vLLM's all-reduce takes two shots, by ranks, where all reach each other. upstream: vllm `csrc/custom_all_reduce.cuh::CustomAllreduce::allreduce`
TWO_SHOTS = {4: 512 * KIB, 8: 256 * KIB}
# Bytes from which the dispatch leaves it for symmetric memory, by chip and ranks, within its buffer of 8 MiB.
# upstream: vllm `distributed/device_communicators/all_reduce_utils.py::CUSTOM_ALL_REDUCE_MAX_SIZES`, `custom_all_reduce.py::CustomAllreduce.should_custom_ar`
BUFFER = 8192 * KIB
LEFT = {
    **dict.fromkeys(("h100", "h200"), {2: BUFFER, 4: BUFFER, 8: 256 * KIB}),
    **dict.fromkeys(("b200", "gb200-nvl72"), {2: 2048 * KIB, 4: 2048 * KIB, 8: 1024 * KIB}),
    **dict.fromkeys(("b300", "gb300-nvl72"), {2: 4096 * KIB, 4: 4096 * KIB, 8: 4096 * KIB}),
}
# Bytes up to which TensorRT-LLM's all-reduce takes one shot where vLLM launches it, by chip and ranks; its own rows turn there too.
# upstream: vllm `compilation/passes/fusion/allreduce_rms_fusion.py::_FI_ALLREDUCE_ONE_SHOT_MAX_SIZES_MB`
ONE_SHOT = {
    **dict.fromkeys(("h100", "h200"), {2: 32768 * KIB, 4: 2048 * KIB, 8: 512 * KIB}),
    **dict.fromkeys(("b200", "gb200-nvl72"), {2: 32768 * KIB, 4: 4096 * KIB, 8: 1024 * KIB}),
    **dict.fromkeys(("b300", "gb300-nvl72"), {2: 32768 * KIB, 4: 4096 * KIB, 8: 2048 * KIB}),
}
# kernel, primitive, framework, table, column=value filters, reason
TABLES = (
    ("vllm-csrc/custom-all-reduce", "collective.all_reduce", "vllm/0.24.0", "custom_allreduce_perf", {"backend": "vllm_graph"}, TABLE_RULE),
    ("flashinfer/fused-all-reduce-norm", "collective.all_reduce", "trtllm/1.3.0rc20", "custom_allreduce_perf", {}, FUSED_RULE),
    ("vllm-csrc/minimax-qk-norm-all-reduce", "collective.all_reduce", "trtllm/1.3.0rc20", "custom_allreduce_perf", {}, MINIMAX_RULE),
    ("torch/symmetric-memory", "collective.all_reduce", "vllm/0.24.0", "custom_allreduce_perf", {"backend": "vllm_graph"}, SYMMETRIC_RULE),
    ("flashinfer/all-reduce", "collective.all_reduce", "trtllm/1.3.0rc20", "custom_allreduce_perf", {}, FLASHINFER_RULE),
    ("nccl/symmetric-all-reduce", "collective.all_reduce", "nccl/2.29.2", "nccl_perf", {"op_name": "all_reduce", "nccl_dtype": "half"}, NCCL_SYMMETRIC_RULE),
    ("vllm-csrc/lamport-all-gather", "collective.all_gather", "trtllm/1.3.0rc20", "custom_allreduce_perf", {}, PARTS_RULE),
    ("vllm-csrc/lamport-reduce-scatter", "collective.reduce_scatter", "trtllm/1.3.0rc20", "custom_allreduce_perf", {}, PARTS_RULE),
    ("vllm-csrc/multimem-reduce-scatter", "collective.reduce_scatter", "nccl/2.29.2", "nccl_perf", {"op_name": "reduce_scatter", "nccl_dtype": "half"}, MULTIMEM_RULE),
    ("nccl/all-reduce", "collective.all_reduce", "nccl/2.29.2", "nccl_perf", {"op_name": "all_reduce", "nccl_dtype": "half"}, NCCL_RULE),
    ("nccl/all-gather", "collective.all_gather", "nccl/2.29.2", "nccl_perf", {"op_name": "all_gather", "nccl_dtype": "half"}, NCCL_RULE),
    ("nccl/reduce-scatter", "collective.reduce_scatter", "nccl/2.29.2", "nccl_perf", {"op_name": "reduce_scatter", "nccl_dtype": "half"}, NCCL_RULE),
)


def line(size, time):
    """latency + size/bandwidth with the least largest relative error, both terms positive."""
    if len(size) == 1:
        return time[0], LONE, 0.0
    best = None
    for i in range(len(size)):
        for j in range(i + 1, len(size)):
            slope = max((time[j] - time[i]) / (size[j] - size[i]), 1e-12)
            latency = max(time[i] - slope * size[i], 0.0)
            error = (latency + slope * size) / time
            scale = 2.0 / (error.max() + error.min())
            worst = np.max(np.abs(error * scale - 1.0))
            if best is None or worst < best[2]:
                best = (latency * scale, 1.0 / (slope * scale), worst)
    return best


def switches_of(kernel, chip, group):
    """The sizes from which vLLM runs another kernel, ascending."""
    if kernel in TRTLLM_SUMS and (most := ONE_SHOT.get(chip, {}).get(group)) is not None:
        return (most + 1,)
    if kernel not in VLLM_DISPATCH:
        return ()
    return tuple(sorted({size for size in (TWO_SHOTS.get(group), LEFT.get(chip, {}).get(group)) if size is not None}))


def ranges_of(size, time, switches=()):
    """Ranges of the sizes below the first switch, of those up to the second, and so on."""
    ranges, starts = [], (0, *switches)
    for start, end in zip(starts, (*switches, np.inf)):
        within = (size >= start) & (size < end)
        if within.any():
            if ranges:
                ranges[-1][0] = int(start) - 1
            ranges += fewest(size[within], time[within])
    return ranges


def fewest(size, time):
    """The fewest ranges that the gain rule admits; breaks lie at measured sizes (algorithms switch at powers of two)."""
    n = len(size)
    if n < 2:
        latency, bandwidth, _ = line(size, time)
        return [[None, rounded(float(latency)), bandwidth]]
    cost = {(i, j): line(size[i:j], time[i:j]) for i in range(n) for j in range(i + 2, n + 1)}
    best = {(1, j): (cost[0, j][2], [(0, j)]) for j in range(2, n + 1)}
    for parts in range(2, MAX_RANGES + 1):
        for j in range(2 * parts, n + 1):
            options = [(max(best[parts - 1, i][0], cost[i, j][2]), best[parts - 1, i][1] + [(i, j)])
                       for i in range(2 * (parts - 1), j - 1) if (parts - 1, i) in best]
            best[parts, j] = min(options, key=lambda o: o[0])
    chosen = best[1, n]
    for parts in range(2, MAX_RANGES + 1):
        if (parts, n) in best and chosen[0] - best[parts, n][0] > GAIN:
            chosen = best[parts, n]
    ranges = []
    for i, j in chosen[1]:
        latency, bandwidth, _ = cost[i, j]
        ranges.append([int(size[j - 1]) if j < n else None, rounded(latency), rounded(bandwidth)])
    starts = [size[i] for i, _ in chosen[1][1:]]
    for before, after, start in zip(ranges, ranges[1:], starts):
        before[0] = int(meeting(before, after, start))
    return ranges


def meeting(before, after, start):
    """Where the range `before` ends. Between its last measured size and the next range's first, `start`, the next line may run below
    it; then up to where the two lines meet."""
    (end, latency, bandwidth), (_, next_latency, next_bandwidth) = before, after
    steeper = 1.0 / next_bandwidth - 1.0 / bandwidth
    meets = (latency - next_latency) / steeper if steeper > 0.0 else end
    return meets if end < meets < start else end


def one_shot(group, size, time, link):
    """The sizes, ascending, up to which an all-reduce is one of one shot."""
    rate = np.diff(time) / np.diff(size)
    impossible = list(np.flatnonzero(time < (group - 1) * size / link))
    slower = [i + 1 for i in range(1, len(rate)) if group > 2 and time[i] > COUNTED * time.min() and rate[i] < LEAST_RATE * rate[i - 1]]
    return np.arange(len(size)) < min(impossible + slower, default=len(size))


def within_link(group, ranges, most, link):
    """Ranges of an exchange of parts; beyond the measured sizes none is received faster than a link carries it."""
    _, latency, bandwidth = ranges[-1]
    bound = link * group / (group - 1)
    if bandwidth <= bound:
        return ranges
    return [*ranges[:-1], [int(most), latency, bandwidth], [None, rounded(latency + most / bandwidth - most / bound), rounded(bound)]]


def any_group(entry):
    """The family entry for other groups and algorithms: NCCL's times for the widest group measured."""
    return dict(any_kernel(entry), name=f"any-{entry['primitive'].rsplit('.', 1)[1].replace('_', '-')}")


def rows_of(chip, wheel, framework, name, filters):
    """A kernel's rows on one chip, by group."""
    whole = wheel.table(chip, "comm", framework, name)
    for column, value in filters.items():
        whole = whole.where(whole[column] == value)
    return {group: whole.where(whole["num_gpus"] == group) for group in GROUPS if (whole["num_gpus"] == group).any()}


def entries(chip, wheel, report):
    within = []
    for entry in domain_entries(chip, wheel, report):
        yield entry
        if entry.get("kernel", {}).get("library") == "nccl" and entry["name"].startswith(PLAIN):
            within.append(entry)
    yield from network.entries(chip, within)
    yield from exchange.entries(chip, wheel, report)


def domain_entries(chip, wheel, report):
    link = facts(chip)["link"]
    for kernel, primitive, framework, name, filters, reason in TABLES:
        served = MULTICAST_SUMS if kernel.endswith("/multimem-reduce-scatter") else SWITCHED
        if chip not in served and kernel not in EVERYWHERE:
            continue
        tables = rows_of(chip, wheel, framework, name, filters)
        if chip in SAME_DOMAIN:
            tables = rows_of(SAME_DOMAIN[chip], wheel, framework, name, filters) | tables
        for group, table in sorted(tables.items()):
            rule = table.reason(reason).format(bound=PARTS.get(kernel, ""))
            if table.chip != chip:
                rule += f"; measured on the {table.chip}, whose NVLink domain is the same"
            order = np.argsort(table["message_size"])
            size, time = 2.0 * table["message_size"][order], table["latency_us"][order]
            if kernel in PARTS:
                keep = one_shot(group, size, time, link) & (group * size <= MOST_PARTS)
                size, time, table = group * size[keep], time[keep], table.where(order[keep])
            held = np.arange(len(size)) % 3 == 1
            held[-1] = False
            switches = switches_of(kernel, table.chip, group)
            error = forms.collective({"bytes": size[held]}, {"ranges": ranges_of(size[~held], time[~held], switches)}) / time[held] - 1.0
            label = f"{kernel.replace('/', '-')}-{group}"
            report.add("collective", chip, label, "held out", error)
            ranges = ranges_of(size, time, switches)
            if kernel in PARTS:
                ranges = within_link(group, ranges, size[-1], link)
            own = forms.collective({"bytes": size}, {"ranges": ranges}) / time - 1.0
            report.add("collective", chip, label, "all rows, shipped fit", own)
            entry = dict(
                scope(label, primitive, kernel, None, group), method="transferred", form="collective",
                ranges=[{"up_to": a, "latency": b, "bandwidth": c} for a, b, c in ranges], range={"bytes": span(size)},
                boundary=DEVICE_GRAPH, sources=[table.cite()],
                fit=dict(rows=len(size), held_out=int(held.sum()), **summary(error)), reason=rule,
            )
            yield entry
        if kernel.startswith("nccl/") and kernel in EVERYWHERE:
            yield any_group(entry)
