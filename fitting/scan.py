"""Mamba-2's scan over prompts and its update of decodes, of which no table has a row: carried from the delta rule's Triton kernels.

Both are chunked recurrences that write and read a state for every chunk, so that bytes are what they have in common. The form is fitted to
the delta rule as TensorRT-LLM calls it, by the bytes that its eight kernels move; what another chunked recurrence (`chunk_kda`) takes beside the same
coefficients says how far they carry. A scan passes states from chunk to chunk without a product, so that its walk is its own: one load and one
store for each chunk of 128 tokens, assumed. A100 has no rows: it takes H100's share of the bandwidth.

Held out: 16 and 48 value heads.
"""

import numpy as np

import forms
import source
from entry import Report, any_kernel, fitted, scope
from fit import Free
from writer import rounded

TRTLLM, SGLANG = "trtllm/1.3.0rc20", "sglang/0.5.16"
HELD_HEADS = (16, 48)
CHUNK, HEAD = 64, 128.0
PLAIN, WIDE = 2.0, 4.0                         # bytes of an element in 16 and in 32 bits
WALK = {"value": 0.008, "unit": "us", "interval": [0.004, 0.02]}
BYTES = (1e6, 1e7, 3e7, 1e8, 1e9)
# Of the second-level cache's bytes: where its gain has its knots, at the last of which nothing is found in it. What a scan's kernels hand each other stays longer.
GAIN = {"stream": (0.03, 0.1, 0.3, 0.8, 1.3, 2.0), "scan": (0.03, 0.1, 0.3, 0.8, 1.6, 4.0)}
ENOUGH = 10                                    # rows that tell a share of bandwidth
ASSUMED = {"value": 0.8, "unit": "ratio", "interval": [0.6, 0.95]}     # the share where there are fewer
UNTOLD = "; the share of bandwidth is assumed, as hardly a row lies beyond the cache"
CARRIED = ("fixed time and share of bandwidth of the delta rule's chunked Triton kernels, as TensorRT-LLM 1.3.0rc20 calls them on {chip}, over the bytes that "
           "the scan moves; the share's interval is what another chunked recurrence takes beside it; the walk, a microsecond for 128 tokens, is assumed")
UPDATE = ("floor and share of bandwidth of the delta rule's update on this chip, which reads and writes the same states; no row of this kernel exists")
KERNELS = ("triton/ssd-chunk-scan", "triton/selective-state-update")


def entries(chip, wheel, report, update):
    """The entries of one chip; `update` is its entry of the delta rule's update."""
    measured_on = "h100" if chip == "a100-sxm" else chip
    table = wheel.table(measured_on, "linear_attention", TRTLLM, "gdn_perf")
    table = table.where((table["kernel_source"] == "chunk_gated_delta_rule") & (table["batch_size"] * table["seq_len"] <= 131072))
    rows, new, heads, keys = (table[name].astype(float) for name in ("batch_size", "seq_len", "num_v_heads", "num_k_heads"))
    bandwidth = source.facts(measured_on)["bandwidth"]
    inputs = {"new": new, "bytes": moved(rows, new, heads, keys), "bandwidth": bandwidth}
    free = [Free("latency", "us", 20.0), Free("walk_time", "us", 0.04), Free("memory_efficiency", "ratio", 0.5, "ratio", over="bytes", xs=BYTES, law="rate"),
            Free("sharpness", "ratio", 2.0, "sharpness")]
    fixed, untold = {}, ""
    if gains(table, inputs):
        free[2:3], fixed, untold = cached(measured_on, inputs, "scan")
    head = scope("triton-ssd-chunk-scan", "recurrent.scan", KERNELS[0])
    entry, solution = fitted(head, "recurrent", chip, forms.scan, table, inputs, np.isin(heads, HELD_HEADS), free, report if chip == measured_on else Report(), fixed,
                             clusters=heads * 1e6 + rows, ranges=("bytes",), method="roofline")
    off = beside(wheel, measured_on, bandwidth, solution.values)
    report.add("recurrent", chip, "triton-ssd-chunk-scan", "chunk_kda, not fitted to", off)
    widened(entry, float(np.median(np.abs(off))))
    entry["coefficients"]["walk_time"] = WALK
    name = "this chip" if chip == measured_on else "H100"
    entry = dict({k: v for k, v in entry.items() if k != "fit"}, reason=CARRIED.format(chip=name) + untold)
    yield entry
    yield dict(any_kernel(entry), name="any-recurrent-scan")
    carried = {k: v for k, v in update.items() if k != "fit"}
    yield dict(carried, **scope("triton-selective-state-update", "recurrent.decode", KERNELS[1]), method="roofline", reason=UPDATE)


def moved(rows, new, heads, keys):
    """Bytes that the chunked delta rule's kernels read and write: norms of queries and keys, products of keys within a chunk and their inverse, the
    values and keys it yields, states chunk by chunk, outputs. Queries and keys once for each of their heads, whatever shares them."""
    row = PLAIN * HEAD
    inverse = WIDE * CHUNK * 2.0 + PLAIN * CHUNK * 2.0
    per_token = heads * (inverse + row * 9.0 + WIDE * 8.0) + keys * row * 9.0
    states = np.ceil(new / CHUNK) * heads * 2.0 * PLAIN * HEAD * HEAD + heads * 2.0 * WIDE * HEAD * HEAD
    return rows * (new * per_token + states)


def beside(wheel, chip, bandwidth, values):
    """Errors of the same coefficients on a chunked recurrence with a gate for each element of a key, in 32 bits."""
    table = wheel.table(chip, "kda", SGLANG, "kda_perf")
    table = table.where((table["kernel_source"] == "chunk_kda") & (table["batch_size"] * table["seq_len"] <= 131072) & (table["num_v_heads"] <= 48))
    rows, new, heads = (table[name].astype(float) for name in ("batch_size", "seq_len", "num_v_heads"))
    row, gates = PLAIN * HEAD, WIDE * HEAD
    products = PLAIN * CHUNK * 3.0 + WIDE * CHUNK * 2.0
    per_token = heads * (row * 20.0 + gates * 4.0 + products)
    states = np.ceil(new / CHUNK) * heads * 2.0 * PLAIN * HEAD * HEAD + heads * 2.0 * WIDE * HEAD * HEAD
    inputs = {"new": new, "bytes": rows * (new * per_token + states), "bandwidth": bandwidth}
    return forms.scan(inputs, values) / table["latency_us"] - 1.0


def gains(table, inputs):
    """Whether calls of a table move their bytes faster than memory can."""
    return np.quantile(inputs["bytes"] / table["latency_us"], 0.9) > inputs["bandwidth"]


def cached(chip, inputs, kind):
    """The share of bandwidth with a gain of the cache over bytes, in place of a share over bytes: what is fitted, what is not, and what the reason has to say of that. Where
    hardly a row lies beyond the cache, the share is assumed."""
    cache = source.facts(chip)["l2_cache"]
    gain = Free("cache_gain", "ratio", 1.0, over="bytes", xs=tuple(float(f"{share * cache:.3g}") for share in GAIN[kind]), law="gain")
    if np.sum(inputs["bytes"] > GAIN[kind][-1] * cache) < ENOUGH:
        return [gain], {"memory_efficiency": ASSUMED}, UNTOLD
    return [Free("memory_efficiency", "ratio", 0.6, "ratio"), gain], {}, ""


def widened(entry, share):
    """Moves the intervals of an entry's share of bandwidth out to a share of its values."""
    outwards = lambda y, low, high: [rounded(min(low, y * (1.0 - share))), rounded(max(high, min(0.99, y * (1.0 + share))))]
    if curve := entry["curves"].get("memory_efficiency"):
        curve["intervals"] = [outwards(y, *limits) for (_, y), limits in zip(curve["points"], curve["intervals"])]
    else:
        leaf = entry["coefficients"]["memory_efficiency"]
        leaf["interval"] = outwards(leaf["value"], *leaf["interval"])
