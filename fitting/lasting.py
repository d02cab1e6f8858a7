"""What long products lose: a chip whose tensor cores stay busy draws more power than it may, and its clocks fall.

vLLM's rows of a few thousand rows hold none of it, as the same kernels' rows in other tables show: alike at short calls, longer the longer a call takes; those of tens of thousands
of rows hold it themselves (`NOTES.md`, products that last). A step of thousands of tokens keeps the tensor cores busy for as long as it takes to set in, or follows steps that did.
"""

import numpy as np

from entry import priced
from writer import rounded

SGLANG, TRTLLM, VLLM = "sglang/0.5.14", "trtllm/1.3.0rc20", "vllm/0.24.0"
# Format -> its name in the tables, and the tables that have the same kernel as vLLM's: of several, the smallest loss is what all of them show.
SAME_KERNEL = {"bf16": ("bfloat16", (SGLANG, TRTLLM)), "nvfp4": ("nvfp4", (SGLANG,))}
# A format whose kernels differ between the tables loses what another does: clocks are the chip's.
LIKE = {"fp8": "bf16"}
OTHER_RELEASES = ("a100-sxm",)       # whose tables do not hold these kernels under these names
SHORT_US, LONG_US = (50.0, 400.0), 3200.0
LEAST_ROWS, LEAST_SIDE = 1024, 2048
KNOTS = (4096.0, 32768.0)            # of the efficiency over rows; below them steps are too short to lose anything
CALL = ("m", "n", "k")


def served(entries, chip, wheel, report, inputs_of):
    """Entries of short products as a step of thousands of tokens finds them, and the error of both on long calls of other tables. `inputs_of` a table and a format."""
    for entry in entries:
        slower = with_loss(entry, chip, wheel)
        if slower is not entry and entry["format"] == "bf16":
            dtype, frameworks = SAME_KERNEL["bf16"]
            for framework in frameworks:
                ratio, time, rows = against(wheel, chip, framework, dtype)
                long = near(large(wheel.table(chip, "gemm", framework, "gemm_perf"), dtype), KNOTS[0])
                observed = long["latency_us"] / np.median(ratio[short_of(time)])
                for part, one in (("fitted", entry), ("served", slower)):
                    error = priced(one, inputs_of(long, "bf16")) / observed - 1.0
                    report.add("gemm", chip, entry["name"], f"{framework.split('/')[0]}'s long calls, as {part}", error)
        yield slower


def with_loss(entry, chip, wheel):
    lost = losses(wheel, chip, entry["format"])
    if all(value == 1.0 for value in lost.values()):
        return entry
    curve = entry["curves"]["compute_efficiency"]
    slower = dict(
        curve,
        points=[[x, rounded(y / lost.get(x, 1.0))] for x, y in curve["points"]],
        intervals=[[rounded(low / (2.0 * lost.get(x, 1.0) - 1.0)), high] for (x, _), (low, high) in zip(curve["points"], curve["intervals"])],
    )
    _, frameworks = SAME_KERNEL[LIKE.get(entry["format"], entry["format"])]
    cited = [wheel.table(chip, "gemm", framework, "gemm_perf").cite() for framework in frameworks]
    told = ", ".join(f"{value:.2f} times as long at {x:,.0f} rows" for x, value in lost.items() if value > 1.0)
    return dict(entry, curves=dict(entry["curves"], compute_efficiency=slower), sources=entry["sources"] + cited, reason=f"{entry['reason']}; {told}, as long calls of other tables")


def losses(wheel, chip, tensor_format):
    """By knot, how many times as long a product takes where products last, 1 or more: long calls over short ones, by the table that shows least."""
    own = LIKE.get(tensor_format, tensor_format)
    if chip in OTHER_RELEASES or own not in SAME_KERNEL:
        return {}
    dtype, frameworks = SAME_KERNEL[own]
    found = {knot: [] for knot in KNOTS}
    for framework in frameworks:
        ratio, time, rows = against(wheel, chip, framework, dtype)
        usual = np.median(ratio[short_of(time)])
        for knot in KNOTS:
            found[knot].append(float(np.median(ratio[(time >= LONG_US) & about(rows, knot)]) / usual))
    return {knot: max(1.0, round(min(each), 2)) for knot, each in found.items()}


def against(wheel, chip, framework, dtype):
    """Of the calls that both tables have: the other's time over vLLM's, vLLM's, and the rows."""
    here, other = (large(wheel.table(chip, "gemm", one, "gemm_perf"), dtype) for one in (VLLM, framework))
    times = dict(zip(other.keys(CALL), other["latency_us"]))
    both = [(times[call] / time, time, call[0]) for call, time in zip(here.keys(CALL), here["latency_us"]) if call in times]
    return np.array(both, float).T


def short_of(time):
    return (time >= SHORT_US[0]) & (time <= SHORT_US[1])


def about(rows, knot):
    return (rows >= knot / np.sqrt(2.0)) & (rows <= knot * np.sqrt(2.0))


def near(table, knot):
    return table.where(about(table["m"], knot) & (table["latency_us"] >= LONG_US))


def large(table, dtype):
    return table.where((table["gemm_dtype"] == dtype) & (table["m"] >= LEAST_ROWS) & (table["n"] >= LEAST_SIDE) & (table["k"] >= LEAST_SIDE))
