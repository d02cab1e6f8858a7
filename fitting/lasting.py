"""What long products lose: a chip whose tensor cores stay busy draws more power than it may, and its clocks fall.

vLLM's rows of products hold none of it, as the same kernels' rows in other tables show: equal at short calls, longer the longer a call takes (`NOTES.md`, products that last).
A step of thousands of tokens keeps the tensor cores busy for as long as it takes to set in, or follows steps that did.
"""

import numpy as np

from entry import priced
from writer import rounded

SGLANG, TRTLLM, VLLM = "sglang/0.5.14", "trtllm/1.3.0rc20", "vllm/0.24.0"
# Format -> its name in the tables, and that of its kernel under SGLang; the same kernel as under vLLM.
SAME_KERNEL = {"bf16": ("bfloat16", "sglang_torch_linear"), "nvfp4": ("nvfp4", "sglang_flashinfer_cut")}
# A format whose kernels differ between the tables loses what another does: clocks are the chip's.
LIKE = {"fp8": "bf16"}
# Chips on which TensorRT-LLM's rows agree. A100's tables have no such calls, GB200's rows under vLLM are as long as any others, and on L40S and RTX PRO 6000 they disagree.
AGREED = ("h100", "h200", "b200", "b300", "gb300-nvl72")
SHORT_US, LONG_US = (50.0, 400.0), 3200.0
LEAST_ROWS, LEAST_SIDE = 1024, 2048
FULL_ROWS = 4096.0         # rows from which all is lost; nothing at the knot below
CALL = ("m", "n", "k")


def loss(wheel, chip, tensor_format):
    """How many times as long a product takes where products last, 1 or more, with the 10th and 90th percentile of it among calls; none where nothing says it."""
    own = LIKE.get(tensor_format, tensor_format)
    if chip not in AGREED or own not in SAME_KERNEL:
        return None
    dtype, kernel = SAME_KERNEL[own]
    here = large(wheel.table(chip, "gemm", VLLM, "gemm_perf"), dtype)
    other = large(wheel.table(chip, "gemm", SGLANG, "gemm_perf"), dtype)
    other = other.where(np.char.startswith(other["kernel_source"].astype(str), kernel))
    times = dict(zip(calls(other), other["latency_us"]))
    both = np.array([(time, times[call] / time) for call, time in zip(calls(here), here["latency_us"]) if call in times])
    short = np.median(both[(both[:, 0] >= SHORT_US[0]) & (both[:, 0] <= SHORT_US[1]), 1])
    long = both[both[:, 0] >= LONG_US, 1] / short
    return tuple(max(1.0, float(value)) for value in (np.median(long), *np.percentile(long, (10, 90))))


def served(entries, chip, wheel, report, inputs_of):
    """Entries of short products as a step of thousands of tokens finds them, and the error of both on long calls of other tables. `inputs_of` a table and a format."""
    for entry in entries:
        slower = with_loss(entry, chip, wheel)
        if slower is not entry and entry["format"] == "bf16":
            for framework in (SGLANG, TRTLLM):
                long = lasting(wheel, chip, framework, SAME_KERNEL["bf16"][0])
                for part, one in (("fitted", entry), ("served", slower)):
                    error = priced(one, inputs_of(long, "bf16")) / long["latency_us"] - 1.0
                    report.add("gemm", chip, entry["name"], f"{framework.split('/')[0]}'s long calls, as {part}", error)
        yield slower


def with_loss(entry, chip, wheel):
    lost = loss(wheel, chip, entry["format"])
    if lost is None:
        return entry
    value, least, most = lost
    cited = wheel.table(chip, "gemm", SGLANG, "gemm_perf").cite()
    curve = entry["curves"]["compute_efficiency"]
    held = [x >= FULL_ROWS for x, _ in curve["points"]]
    slower = dict(
        curve,
        points=[[x, rounded(y / value) if late else y] for (x, y), late in zip(curve["points"], held)],
        intervals=[[rounded(low / most), rounded(high / least)] if late else [low, high] for (low, high), late in zip(curve["intervals"], held)],
    )
    reason = f"{entry['reason']}; from {FULL_ROWS:,.0f} rows on {value:.2f} times as long, as products that last are in other tables"
    return dict(entry, curves=dict(entry["curves"], compute_efficiency=slower), sources=entry["sources"] + [cited], reason=reason)


def large(table, dtype):
    return table.where((table["gemm_dtype"] == dtype) & (table["m"] >= LEAST_ROWS) & (table["n"] >= LEAST_SIDE) & (table["k"] >= LEAST_SIDE))


def lasting(wheel, chip, framework, dtype):
    """Rows of another table from the full loss on, long enough to show it."""
    table = large(wheel.table(chip, "gemm", framework, "gemm_perf"), dtype)
    return table.where((table["m"] >= FULL_ROWS) & (table["latency_us"] >= LONG_US))


def calls(table):
    return list(zip(*(table[name].tolist() for name in CALL)))
