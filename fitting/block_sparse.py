"""Attention to blocks that an indexer picks (MiniMax M3), per kernel and format: entries of both attention families.

The tables hold whole modules: the projections in front and behind, norms with rotation, the indexer (scores and choice) and the
attention to what it chose. The projections and the norms are taken at their own entries' prices; what is left is fitted as two calls, one over
at most 2,048 tokens of each request and one over all of them, whose fixed times no row tells apart: each gets half.
A row is a graph of the same module again and again. Nothing is taken off for what lies between its kernels: entries of single kernels hold
the same (each was timed following itself), and what serving adds is `graph.node`'s. But where a module's projections fit the second-level cache, each replay finds
their weights there, which a step that walks all layers does not: `saved`, a share of the time that reading them takes at the memory's full rate, is fitted
beside the rest and left out of the entries.
An indexer keeps keys and no values, half the bytes and half the products of an attention of its head width: its entries are fitted
for half of that width, and a plan states it so. Fitted on modules in bf16; held out: 32 query heads of one rank.

The tables do not name kernels. Those of the release they were measured on are taken for those of the same name in the modelled one.
"""

import numpy as np

import compose
import forms
import source
from entry import DEVICE_GRAPH, TABLE_RULE, scope, span
from fit import Free, Problem, summary

VLLM = "vllm/0.24.0"
HIDDEN, HEAD_DIM, INDEX_DIM, GROUP, VISIBLE = 6144.0, 128.0, 128.0, 16, 2048.0
HEADS, HELD = (8, 16, 32, 64), 32
FORMATS = {"bf16": ("bfloat16", 2.0), "fp8": ("fp8", 1.0)}      # the table's name, bytes of an element
KEY_BYTES = 2.0                                                 # an indexer's keys are bf16 in every row
BLACKWELL = ("b200", "b300", "gb200-nvl72", "gb300-nvl72")
TRITON = {"decode": ("triton/msa-decode", "triton/msa-index-decode"), "prefill": ("triton/msa-prefill", "triton/msa-index-prefill")}
MSA = {"decode": ("triton/msa-decode", "cutedsl/msa-index-decode"), "prefill": ("fmha-sm100/msa-prefill", "fmha-sm100/msa-index-prefill")}
CUTLASS = "fmha-sm100/msa-decode"
TABLES = {"decode": "msa_generation_module_perf", "prefill": "msa_context_module_perf"}


def two(form):
    """What the projections take, then the attention and the indexer by one form each."""
    def total(x, values):
        part = lambda name: form({k.removeprefix(name): v for k, v in x.items() if k.startswith(name) or "." not in k},
                                 {k.removeprefix(name): v for k, v in values.items() if k.startswith(name)})
        return x["fixed"] - values["saved"] * x["replayed"] + values["latency"] + part("attend.") + part("index.")
    return total


def common(chip, table, rows):
    """Inputs both calls read, and what is not theirs."""
    facts, priced = source.facts(chip), compose.Chip(chip)
    query = table["num_heads"].astype(float)
    kv = np.maximum(1.0, query // GROUP)
    qkv = (query + 3.0 * kv + 1.0) * HEAD_DIM
    fixed = [priced.gemm(r, c, HIDDEN) + priced.gemm(r, HIDDEN, q * HEAD_DIM) + priced.stream("rope", 2.0 * r * c * 2.0)
             for r, c, q in zip(rows, qkv, query)]
    weights = 2.0 * HIDDEN * (qkv + query * HEAD_DIM)
    return query, kv, {"fixed": np.array(fixed), "replayed": source.replayed(chip, weights), "bandwidth": facts["bandwidth"], "peak": facts["peak"]["bf16"]}


def decode_inputs(chip, table, element_bytes):
    n, tokens = table["batch_size"].astype(float), table["step"].astype(float) + 1.0
    query, kv, x = common(chip, table, n)
    seen = np.minimum(tokens, VISIBLE)
    zero = 0.0 * n
    attend = {"requests": n, "context": n * seen, "windowed": zero, "query_heads": query, "kv_heads": kv, "head_dim": HEAD_DIM + zero,
              "element_bytes": element_bytes + zero}
    index = {"requests": n, "context": n * tokens, "windowed": zero, "query_heads": kv, "kv_heads": 1.0 + zero,
             "head_dim": INDEX_DIM / 2 + zero, "element_bytes": KEY_BYTES + zero}
    return dict(x, **named("attend.", attend), **named("index.", index))


def prefill_inputs(chip, table, element_bytes):
    n, new, cached = (table[k].astype(float) for k in ("batch_size", "isl", "step"))
    query, kv, x = common(chip, table, n * new)
    zero = 0.0 * n
    attend = {"rows": n, "new": new, "cached": cached, "window": VISIBLE + zero, "query_heads": query, "kv_heads": kv,
              "head_dim": HEAD_DIM + zero, "element_bytes": element_bytes + zero}
    index = {"rows": n, "new": new, "cached": cached, "window": zero, "query_heads": kv, "kv_heads": 1.0 + zero,
             "head_dim": INDEX_DIM / 2 + zero, "element_bytes": KEY_BYTES + zero}
    return dict(x, **named("attend.", attend), **named("index.", index))


def named(prefix, inputs):
    return {prefix + k: v for k, v in inputs.items()}


def fits_cache(inputs, l2_bytes, bandwidth):
    """Rows whose caches lie within the L2 cache, where a replay reads them faster than a serving step does."""
    read = sum(2.0 * inputs[p + "context"] * inputs[p + "kv_heads"] * inputs[p + "head_dim"] * inputs[p + "element_bytes"]
               for p in ("attend.", "index."))
    return (read < l2_bytes) & (read / bandwidth > 1.0)


FREE = {
    "decode": [
        Free("latency", "us", 16.0), Free("saved", "ratio", 0.8, "ratio"),
        Free("attend.unit_time", "us", 0.02), Free("attend.memory_efficiency", "ratio", 0.3, "ratio"),
        Free("index.unit_time", "us", 0.02), Free("index.memory_efficiency", "ratio", 0.8, "ratio"),
    ],
    "prefill": [
        Free("latency", "us", 30.0), Free("saved", "ratio", 0.8, "ratio"), Free("attend.tile_time", "us", 0.1), Free("attend.key_time", "us", 0.01),
        Free("attend.compute_efficiency", "ratio", 0.3, "ratio"), Free("attend.memory_efficiency", "ratio", 0.5, "ratio"),
        Free("index.tile_time", "us", 0.05), Free("index.compute_efficiency", "ratio", 0.3, "ratio"),
    ],
}
FIXED = {
    "decode": {"attend.latency": 0.0, "index.latency": 0.0},
    "prefill": {"attend.latency": 0.0, "index.latency": 0.0, "attend.packs_group": 1.0, "index.packs_group": 1.0, "attend.sharpness": 8.0,
                "index.sharpness": 8.0, "index.memory_efficiency": 0.9, "index.key_time": 0.0},
}
# What an entry states besides what was fitted.
STATED = {"decode": (), "prefill": ("packs_group", "sharpness")}


def entries(chip, wheel, report, phase):
    """Entries of one attention family: an attention and an indexer for each KV format, and what is carried over from them."""
    measured_on = source.PINS["stand_ins"].get(chip, {}).get("msa", chip)
    attend, index = (MSA if chip in BLACKWELL else TRITON)[phase]
    indexer = None
    for tensor_format in FORMATS:
        first, second = fitted(chip, measured_on, wheel, report, phase, tensor_format, attend, index)
        yield first
        if phase == "decode" and chip in BLACKWELL:
            yield carried(first, CUTLASS, tensor_format, f"no row was measured on this kernel: coefficients of {first['name']}")
        if tensor_format == "bf16":
            indexer = second
            yield second
    yield carried(indexer, index, "fp8", f"no row has 8-bit keys: coefficients of {indexer['name']}, applied to the bytes of this format")


def fitted(chip, measured_on, wheel, report, phase, tensor_format, attend, index):
    dtype, element_bytes = FORMATS[tensor_format]
    table = wheel.table(measured_on, "msa", VLLM, TABLES[phase])
    mine = (table["gemm_type"] == "bfloat16") & (table["kv_cache_dtype"] == dtype) & np.isin(table["num_heads"], HEADS)
    table = table.where(mine & ((table["isl"] >= 16) if phase == "prefill" else (table["isl"] == 1)))
    inputs = (prefill_inputs if phase == "prefill" else decode_inputs)(measured_on, table, element_bytes)
    if phase == "decode":
        facts = source.facts(measured_on)
        keep = ~fits_cache(inputs, facts["l2_cache"], facts["bandwidth"])
        table, inputs = table.where(keep), {k: v[keep] if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    observed, held = table["latency_us"], table["num_heads"] == HELD
    form = two(forms.attention_prefill if phase == "prefill" else forms.attention_decode)
    take = lambda mask: {k: v[mask] if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
    clusters = table["num_heads"].astype(int) * 1000 + table["batch_size"].astype(int)
    trained = Problem(form, take(~held), observed[~held], FREE[phase], FIXED[phase]).solve(clusters[~held])
    error = trained.error(take(held), observed[held])
    name = f"{tensor_format}-{attend.replace('/', '-')}"
    family = f"attention_{phase}"
    report.add(family, chip, name, "held out (whole module)", error)
    solution = Problem(form, inputs, observed, FREE[phase], FIXED[phase]).solve(clusters, trained.z)
    report.add(family, chip, name, "all rows, shipped fit", solution.error(inputs, observed))
    coefficients, _ = solution.blocks()
    both = coefficients.pop("latency")
    coefficients.pop("saved")
    half = dict(both, value=both["value"] / 2, interval=[v / 2 for v in both["interval"]])
    summed = dict(rows=len(observed), held_out=int(held.sum()), **summary(error))
    reason = table.reason(TABLE_RULE) + "; a share of a whole module, whose projections were taken at their own price"
    if measured_on != chip:
        reason += f"; measured on {measured_on}, carried over at the same shares of this chip's bandwidth and peak"
    ranges = ("rows", "new", "cached", "kv_heads") if phase == "prefill" else ("requests", "context", "kv_heads")
    for part, kernel, key_format in (("attend.", attend, tensor_format), ("index.", index, "bf16")):
        own = {"latency": half, **{k.removeprefix(part): v for k, v in coefficients.items() if k.startswith(part)}}
        for stated in STATED[phase] + (("memory_efficiency",) if phase == "prefill" and part == "index." else ()):
            value = FIXED[phase][part + stated]
            own[stated] = {"value": value, "unit": "ratio", "interval": [value, value]}
        yield dict(scope(f"{key_format}-{kernel.replace('/', '-')}", f"attention.{phase}", kernel, key_format), method="transferred",
                   form=family, coefficients=own, curves={}, range={r: span(inputs[part + r]) for r in ranges}, boundary=DEVICE_GRAPH,
                   sources=[table.cite()], fit=summed, reason=reason)


def carried(entry, kernel, tensor_format, reason):
    head = scope(f"{tensor_format}-{kernel.replace('/', '-')}", entry["primitive"], kernel, tensor_format)
    return dict(head, **{k: v for k, v in entry.items() if k not in ("name", "primitive", "kernel", "format", "fit", "reason")}, reason=reason)
