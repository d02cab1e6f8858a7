"""Latent attention to the tokens that an indexer picks (DeepSeek V3.2, GLM-5), and the scoring that picks them.

The tables hold whole modules. Their products are taken at this chip's own prices, their norms and copies as streams; what is left is
fitted as attention over at most 2,048 tokens of each row and as scores over all of them: beyond 2,048 tokens only the scores grow.
A module's own fixed time is mostly that of a dozen small kernels, which the modelled release fuses into two and which are priced
apart: it is fitted and left out. What attention and scoring keep is the fixed time of DeepSeek V4's kernels of the same libraries
(`gathered.py`), which were measured nearly alone.

Prompts were timed without graphs: rows at which the host is the slower one are dropped, and rows of 65,536 tokens and more on
Blackwell, some of which take half the time of smaller ones. Held out: 32 heads.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import compose
import forms
import source
from entry import DEVICE_GRAPH, span
from fit import Free, Problem, summary

VLLM, FAMILY = "vllm/0.24.0", "sparse_attention"
TOP_K, KEY, SCORE, LATENT, ROTARY, SCORING_DIM = 2048, 132.0, 8.0, 512.0, 64.0, 128.0
# Width of the residual stream, of the query latent; unrotated and value elements of a head; scoring heads.
MODELS = {"deepseek-ai/DeepSeek-V3.2": (7168.0, 1536.0, 128.0, 128.0, 64.0), "zai-org/GLM-5": (6144.0, 2048.0, 192.0, 256.0, 32.0)}
HEADS, HELD = (8, 16, 32, 64, 128), 32
BLACKWELL = ("b200", "b300", "gb200-nvl72", "gb300-nvl72")
HOPPER = ("h100", "h200")
# Most tokens of a prompt's step that are read, and how many times as long as the shortest row of the table a row must be.
MOST_TOKENS, ABOVE_HOST = {"hopper": 1e9, "blackwell": 65536.0 - 1.0}, 1.8
# The table, what attends, what scores, and by what kernel.
PHASES = {"decode": ("dsa_generation_module_perf", "attention.sparse_decode", "selection.decode", "paged-token-scores"),
          "prefill": ("dsa_context_module_perf", "attention.sparse_prefill", "selection.prefill", "token-scores")}
FP8, HEAD_STEPS, LEAST_CONTEXT = "flashmla/sparse-mla-fp8", (139264.0, 278528.0), 64
# TensorRT-LLM's kernel for prompts multiplies up to 32 heads by one kind of tile and 64 and more by another (operations of an entry at those two), and takes a time of its own for a row of
# either cache (bytes of an entry).
TRTLLM, TILE_STEPS, CACHES = "flashinfer/trtllm-gen-sparse-mla", (69632.0, 139264.0), (576.0, 1152.0)
# Kernels of which nothing was measured on a chip, and the one whose coefficients they get.
CARRIED_TO = {
    "hopper": [("flash-attn/fa3-sparse-mla", "flashmla/sparse-mla"), ("flashinfer/fa3-sparse-mla", "flashmla/sparse-mla")],
    "blackwell": [(FP8, FP8)],
    "rtx-pro-6000": [("flashinfer/sparse-mla-sm120", "flashmla/sparse-mla")],
}
RULE = ("what whole modules of vLLM 0.24.0 take beyond their products and streams as priced here; fixed times are those of {}; "
        "its code is not shown unchanged up to the modelled release")
CARRIED = "no row was measured on this kernel: coefficients of {} on the {}"


@dataclass(frozen=True)
class Kernel:
    """A kernel over one cache, as the tables know it."""

    source: str            # the table's word for its backend
    cache: str             # and for its cache
    entry_bytes: float
    peak: str
    padded: bool           # whether heads are padded to a multiple of 64


def kernels(chip):
    """What the tables of a chip measured, by name."""
    mla = "flashmla/sparse-mla"
    if chip in HOPPER:
        return {mla: [Kernel("FLASHMLA_SPARSE", "bfloat16", 1152.0, "bf16", True)], FP8: [Kernel("FLASHMLA_SPARSE", "fp8", 656.0, "bf16", True)]}
    return {TRTLLM: [Kernel("FLASHINFER_MLA_SPARSE", "bfloat16", 1152.0, "bf16", False),
                                                 Kernel("FLASHINFER_MLA_SPARSE", "fp8", 576.0, "fp8", False)],
            mla: [Kernel("FLASHMLA_SPARSE", "bfloat16", 1152.0, "bf16", True)]}


def summed(new, cached, most):
    """Tokens that the `new` ones after `cached` see, at most `most` each."""
    full = np.clip(most - cached, 0.0, new)
    return full * cached + full * (full + 1.0) / 2.0 + (new - full) * most


def inputs(chip, table, kernel, decodes):
    """What both calls of each module read, and what is not theirs."""
    facts, priced = source.facts(chip), compose.Chip(chip)
    n, new, cached, heads = (table[k].astype(float) for k in ("batch_size", "isl", "step", "num_heads"))
    hidden, rank, plain, value, scoring = (np.array([MODELS[m][i] for m in table["model"]]) for i in range(5))
    rows = n * new
    padded = np.ceil(heads / 64.0) * 64.0 if kernel.padded else heads
    x = {
        "fixed": fixed(priced, rows, hidden, rank, plain, value, scoring, heads), "requests": n, "queries": rows, "comparisons": 0.0 * n,
        "bandwidth": facts["bandwidth"], "attend.entries": n * summed(new, cached, TOP_K), "attend.entry_bytes": kernel.entry_bytes + 0.0 * n,
        "attend.entry_operations": 2.0 * padded * (2.0 * LATENT + ROTARY), "attend.peak": facts["peak"][kernel.peak] + 0.0 * n,
        "index.entries": n * summed(new, cached, 1e9), "index.entry_bytes": (KEY if decodes else SCORE) + 0.0 * n, "index.entry_operations": 2.0 * scoring * SCORING_DIM,
        "index.peak": facts["peak"]["fp8"] + 0.0 * n,
    }
    return x


def fixed(priced, *columns):
    """Products and streams of a module."""
    return np.array([one(priced, *row) for row in zip(*columns)])


@lru_cache(maxsize=None)
def one(priced, rows, hidden, rank, plain, value, scoring, heads):
    batched = lambda columns, depth: priced.price("latent", "bf16-cublas-batched", rows=rows, columns=heads * columns, depth=depth,
                                                  weight_bytes=2.0 * heads * columns * depth, input_bytes=2.0 * heads)
    products = (priced.gemm(rows, rank + LATENT + ROTARY, hidden) + priced.gemm(rows, SCORING_DIM + scoring, hidden)
                + priced.gemm(rows, heads * (plain + ROTARY), rank) + priced.gemm(rows, scoring * SCORING_DIM, rank)
                + batched(LATENT, plain) + batched(value, LATENT) + priced.gemm(rows, hidden, heads * value))
    moved = 8.0 * (rank + LATENT + ROTARY + SCORING_DIM) + 7.0 * scoring * SCORING_DIM + 4.0 * heads * (LATENT + ROTARY)
    return products + priced.stream("rope", rows * moved)


def total(count):
    """Each row's module: what its products take, a fixed time of its table's kernel, attention by that kernel, and scores."""
    def module(x, values):
        shared = {k: v for k, v in x.items() if "." not in k}
        part = lambda name, of: forms.gathered({**shared, **{k.removeprefix(name): v for k, v in x.items() if k.startswith(name)}},
                                               {k.removeprefix(of): v for k, v in values.items() if k.startswith(of)})
        out = x["fixed"] + part("index.", "index.")
        for i in range(count):
            out = out + np.where(x["kernel"] == i, values.get(f"latency{i}", 0.0) + part("attend.", f"attend{i}."), 0.0)
        return out
    return module


def rows_of(chip, wheel, phase, name, kernel):
    table = wheel.table(chip, FAMILY, VLLM, PHASES[phase][0])
    mine = (table["gemm_type"] == "bfloat16") & (table["kv_cache_dtype"] == kernel.cache) & (table["kernel_source"] == kernel.source)
    mine &= np.isin(table["num_heads"], HEADS)
    if phase == "decode":
        return table.where(mine & (table["step"] >= LEAST_CONTEXT))
    # From 32 heads on prompts over packed entries run the other kernel.
    table = table.where(mine & (table["isl"] >= 16) & ((name != FP8) | (table["num_heads"] < 32)))
    tokens = table["batch_size"].astype(float) * table["isl"]
    most = MOST_TOKENS["blackwell" if chip in BLACKWELL else "hopper"]
    return table.where((table["latency_us"] > ABOVE_HOST * table["latency_us"].min()) & (tokens < most))


def free(phase, names):
    """Coefficients by part. FlashMLA's kernel for 8 bits reads its list to the end, however short: a time for each row by its heads."""
    found = [Free("index.query_time", "us", 0.05), Free("index.compute_efficiency", "ratio", 0.4, "ratio")]
    for i, name in enumerate(names):
        tiled = name == TRTLLM and phase == "prefill"
        rows = dict(over="entry_operations", xs=HEAD_STEPS) if name == FP8 else dict(over="entry_bytes", xs=CACHES) if tiled else {}
        found += [Free(f"attend{i}.query_time", "us", 0.5 if name == FP8 else 0.05, **rows),
                  Free(f"attend{i}.compute_efficiency", "ratio", 0.4, "ratio", **(dict(over="entry_operations", xs=TILE_STEPS) if tiled else {}))]
        if phase == "decode":
            found += [Free(f"latency{i}", "us", 60.0), Free(f"attend{i}.memory_efficiency", "ratio", 0.6, "ratio")]
    return found + ([Free("index.memory_efficiency", "ratio", 0.6, "ratio")] if phase == "decode" else [])


def stated(phase, names):
    """What is not fitted: where prompts' entries lie in the second-level cache, memory is no bound."""
    parts = ["index."] + [f"attend{i}." for i in range(len(names))]
    known = {"latency": 0.0, "sharpness": 8.0} | ({"memory_efficiency": 1.0} if phase == "prefill" else {})
    return {part + name: value for part in parts for name, value in known.items()}


@lru_cache(maxsize=None)
def solved(chip, wheel, phase):
    """One fit of all kernels of a chip: the solution, and the rows and inputs of each."""
    known, tables, stacks, which = kernels(chip), [], [], []
    for i, (name, caches) in enumerate(known.items()):
        for kernel in caches:
            table = rows_of(chip, wheel, phase, name, kernel)
            if len(table):
                tables.append(table)
                stacks.append(inputs(chip, table, kernel, phase == "decode"))
                which.append(np.full(len(table), i))
    join = lambda arrays: np.concatenate([np.asarray(a) for a in arrays])
    x = {k: join([s[k] for s in stacks]) if isinstance(stacks[0][k], np.ndarray) else stacks[0][k] for k in stacks[0]}
    x["kernel"] = join(which)
    heads, batch = join([t["num_heads"] for t in tables]), join([t["batch_size"] for t in tables])
    observed, held, clusters = join([t["latency_us"] for t in tables]), heads == HELD, heads * 10000 + batch
    take = lambda mask: {k: v[mask] if isinstance(v, np.ndarray) else v for k, v in x.items()}
    problem = lambda rows, seen: Problem(total(len(known)), rows, seen, free(phase, known), stated(phase, known))
    trained = problem(take(~held), observed[~held]).solve(clusters[~held])
    error = trained.error(take(held), observed[held])
    return problem(x, observed).solve(clusters, trained.z), x, error, held, observed, dict(tables[0].cite(), rows=len(observed))


def entries(chip, wheel, report, fixed_times):
    """Attention by every kernel that the engine may name on a chip, and its scores. `fixed_times`: DeepSeek V4's entries by primitive."""
    on = {"rtx-pro-6000": "b200"}.get(chip, chip)
    if on not in HOPPER + BLACKWELL:
        return
    for phase in PHASES:
        yield from of_phase(chip, on, wheel, report, phase, fixed_times)


def of_phase(chip, on, wheel, report, phase, fixed_times):
    _, attends, scores, scored_by = PHASES[phase]
    solution, x, error, held, observed, cite = solved(on, wheel, phase)
    names = list(kernels(on))
    summed_up = dict(rows=len(observed), held_out=int(held.sum()), **summary(error))
    if chip == on:
        report.add("gathered", chip, f"token selection ({phase})", "held out (whole module)", error)
        for i, name in enumerate(names):
            report.add("gathered", chip, name.replace("/", "-") + f" ({phase})", "all rows, shipped fit", (solution.error(x, observed))[x["kernel"] == i])
    make = lambda kernel, primitive, part, mask, entry_of: entry(kernel, primitive, solution, part, {k: x[f"{entry_of}.entries" if k == "entries" else k][mask] for k in ("queries", "entries")},
                                                                 stated(phase, names), fixed_times[primitive], cite, summed_up)
    every = np.full(len(observed), True)
    yield make(f"deepgemm/{scored_by}", scores, "index.", every, "index")
    made = {name: make(name, attends, f"attend{i}.", x["kernel"] == i, "attend") for i, name in enumerate(names)}
    if chip == on:
        yield from made.values()
    for kernel, like in CARRIED_TO.get(chip, CARRIED_TO["hopper" if on in HOPPER else "blackwell"]):
        source_chip = on
        if like not in made:
            source_chip = "h200"
            like_names = list(kernels(source_chip))
            at = like_names.index(like)
            other, ox, oerror, oheld, oseen, ocite = solved(source_chip, wheel, phase)
            mask = ox["kernel"] == at
            made[like] = entry(like, attends, other, f"attend{at}.", {"queries": ox["queries"][mask], "entries": ox["attend.entries"][mask]}, stated(phase, like_names),
                               fixed_times[attends], ocite, dict(rows=len(oseen), held_out=int(oheld.sum()), **summary(oerror)))
        copied = {k: v for k, v in made[like].items() if k != "fit"}
        library, variant = kernel.split("/")
        yield dict(copied, name=f"{phase}-{kernel.replace('/', '-')}", kernel={"library": library, "variant": variant}, reason=CARRIED.format(like, source_chip))


def entry(kernel, primitive, solution, part, ranges, known, fixed_time, cite, summed_up):
    library, variant = kernel.split("/")
    phase = "decode" if primitive.endswith("decode") else "prefill"
    coefficients, curves = ({k.removeprefix(part): v for k, v in block.items() if k.startswith(part)} for block in solution.blocks())
    for name, value in known.items():
        if name.startswith(part) and not name.endswith("latency"):
            coefficients[name.removeprefix(part)] = {"value": value, "unit": "ratio", "interval": [value, value]}
    coefficients = {"latency": fixed_time["coefficients"]["latency"], **coefficients}
    return {"name": f"{phase}-{kernel.replace('/', '-')}", "primitive": primitive, "kernel": {"library": library, "variant": variant}, "method": "transferred",
            "form": "gathered", "coefficients": coefficients, "curves": curves, "range": {k: span(v) for k, v in ranges.items()}, "boundary": DEVICE_GRAPH,
            "sources": [cite], "fit": summed_up, "reason": RULE.format(fixed_time["name"])}
