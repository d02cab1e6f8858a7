"""Attention of queries to gathered entries, and the scoring that selects them: DeepSeek V4's window and compressed tokens.

Attention alone is measured on 64 query heads, which is what fewer heads are padded to, over entries of 512 elements with a ratio of 128
(`dsv4_hca_attn`): one new token per row reads 8-bit entries where they lie, several are gathered into 16 bits first. Selection (scores,
top-k, translated indices) is what a layer that selects takes longer than one that does not, both whole and on one kernel source
(`dsv4_csa` and `dsv4_hca` modules), less the difference of their projections, priced by this chip's products, and of their
attention, priced by the entries fitted here. A prompt's rows share the keys that a tile has read, so what moves for each entry is its score, written and read; a decode's rows read
keys of their own. Decodes were measured on few entries, most of whose time is the choice among them: beyond, scores go over to the rate they have in the modules that choose among
tokens (`selected.py`), which hold up to thirty million. Held out: 16 and 256 rows (attention), tensor-parallel width 4 (selection).
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import yaml

import forms
import selected
import source
from entry import any_kernel, fitted, scope
from fit import Free

VLLM, FAMILY = "vllm/0.24.0", "sparse_attention"
HEADS, HEAD_DIM, WINDOW = 64, 512, 128
STORED, WIDENED = 584, 1024                       # bytes of an entry in the cache, and as it is gathered for several new tokens
SCORING_HEADS, SCORING_DIM, SCORED = 64, 128, 132
HELD_BATCHES, HELD_WIDTH, TOP_K = (16, 256), 4, {7168: 1024, 4096: 512}
SHAPES = {"Pro": (7168, 1536), "Flash": (4096, 1024)}       # width of the residual stream, of the query latent
RANKED = 2048                                               # scores up to which a prompt's row is selected by ranking every pair
FEW, LEAST = 16, 128                                        # new tokens of a prompt's row, earlier tokens of a decode's
QUERIES = (1, 64, 512, 8192)
RULE = "measured as a kernel of the same name in vLLM 0.24.0; its code is not shown unchanged up to the modelled release"
BEYOND = "; beyond the entries measured its scores go over to the efficiency that whole modules of token selection show for the same library"
SELECTS = ("what modules that select take longer than modules that do not (vLLM 0.24.0), less projections and attention as priced here; the tables' "
           "cache of scores is 8 bits wide")
ELSEWHERE = "; the kernel does not run on this chip: measured on the {}, at the same shares of bandwidth and peak"


def entries(chip, wheel, report):
    fits = {}
    for primitive, kernel, prompts in (("attention.sparse_decode", "flashmla/sparse-decode", False),
                                       ("attention.sparse_prefill", "flashmla/sparse-prefill", True)):
        fits[primitive] = attention(chip, wheel, report, primitive, kernel, prompts)
    for primitive, kernel, prompts in (("selection.decode", "deepgemm/paged-scores", False), ("selection.prefill", "deepgemm/scores", True)):
        fits[primitive] = selection(chip, wheel, report, primitive, kernel, prompts, fits)
    for entry, _ in fits.values():
        yield entry
    yield from selected.entries(chip, wheel, report, {primitive: entry for primitive, (entry, _) in fits.items()})
    for primitive, (entry, _) in fits.items():
        yield dict(any_kernel(entry), name=f"any-{primitive.replace('.', '-').replace('_', '-')}")


def free(prompts, ranks=False, falls=False):
    """What is fitted. `falls`: the tables' own rows take less time where there are more of them, so that no law is asked."""
    own = [Free("request_time", "us", 2.0)] if prompts else []
    own += [Free("comparison_time", "us", 0.2)] if ranks else []
    return [Free("latency", "us", 12.0), *own, Free("query_time", "us", 0.05, over="queries", xs=QUERIES, law=None if falls else "each"), Free("compute_efficiency", "ratio", 0.4, "ratio")]


FIXED = {"memory_efficiency": 0.8, "sharpness": 8.0}


def attended(count, ratio, most):
    """Entries the token at position `count` (from 1) attends to: the window and, at most `most` of, the compressed ones."""
    compressed = count // ratio
    return np.minimum(count, WINDOW) + (np.minimum(compressed, most) if most else compressed)


@lru_cache(maxsize=None)
def row_entries(new, cached, ratio, most):
    return float(attended(np.arange(cached + 1, cached + new + 1), ratio, most).sum())


@lru_cache(maxsize=None)
def row_comparisons(new, cached, most):
    """Pairs of scores that prompt rows rank: rows of more than `most` scores, up to the count beyond which they are sorted by digits."""
    scores = np.arange(cached + 1, cached + new + 1) // 4
    return float((scores[(scores > most) & (scores <= RANKED)].astype(float) ** 2).sum())


def call(table, facts, per_row, entry_bytes, operations, peak, compared=None):
    batch, new = table["batch_size"].astype(float), table["isl"].astype(float)
    rows = np.array([per_row(int(n), int(c)) for n, c in zip(table["isl"], table["step"])])
    return {"comparisons": np.zeros(len(table)) if compared is None else compared * batch,
            "requests": batch, "queries": batch * new, "entries": np.maximum(batch * rows, 1.0), "entry_bytes": np.full(len(table), float(entry_bytes)),
            "entry_operations": np.full(len(table), float(operations)), "bandwidth": facts["bandwidth"], "peak": facts["peak"][peak]}


def finish(entry, chip, table):
    if table.chip != chip:
        entry["reason"] += ELSEWHERE.format(table.chip)
    return entry


def attention(chip, wheel, report, primitive, kernel, prompts):
    table = wheel.table(chip, FAMILY, VLLM, "dsv4_hca_attn_module_perf")
    new, cached = table["isl"], table["step"]
    table = table.where(new >= FEW if prompts else (new == 1) & (cached >= LEAST))
    facts = source.facts(table.chip)
    inputs = call(table, facts, lambda n, c: row_entries(n, c, 128, 0), WIDENED if prompts else STORED, 4 * HEADS * HEAD_DIM, "bf16")
    entry, solution = fitted(
        scope(kernel.replace("/", "-"), primitive, kernel), "gathered", chip, forms.gathered, table, inputs, np.isin(table["batch_size"], HELD_BATCHES),
        free(prompts, falls=not prompts), report, FIXED, clusters=table["batch_size"] * 1e6 + table["isl"], ranges=("queries", "entries"), reason=RULE,
    )
    return finish(entry, chip, table), solution


def products(chip):
    """Products as the registry prices them on a chip."""
    document = yaml.safe_load((Path(__file__).resolve().parent.parent / "registry" / chip / "gemm.yaml").read_text())
    known = {entry["name"]: entry for entry in document["entries"]}
    facts = source.facts(chip)

    def price(label, peak, rows, columns, depth, stored, moved):
        entry = known[label]
        values = {name: c["value"] for name, c in entry["coefficients"].items()}
        for name, c in (entry.get("curves") or {}).items():
            values[name] = (c["over"], *(np.array(v, float) for v in zip(*c["points"])))
        x = {"rows": rows, "columns": columns, "depth": depth, "weight_bytes": stored * columns * depth, "input_bytes": moved,
             "bandwidth": facts["bandwidth"], "peak": facts["peak"][peak]}
        return forms.matmul(x, values)

    block = next(name for name in known if name.startswith("fp8_block-deepgemm"))
    narrow = lambda rows, columns, depth: price(block, "fp8", rows, columns, depth, 1.0 + 4.0 / 128**2, 2.0 + 2.0 * (1.0 + 4.0 / 128))
    wide = lambda rows, columns, depth: price("bf16-cublas-linear", "bf16", rows, columns, depth, 2.0, 2.0)
    return narrow, wide


def selection(chip, wheel, report, primitive, kernel, prompts, fits):
    suffix = "context" if prompts else "generation"
    selecting, other = (wheel.table(chip, FAMILY, VLLM, f"dsv4_{kind}_{suffix}_module_perf") for kind in ("csa", "hca"))
    key = lambda t: list(zip(["Pro" if "Pro" in m else "Flash" for m in t["model"]], t["tp_size"].tolist(), t["batch_size"].tolist(), t["isl"].tolist(), t["step"].tolist()))
    without = dict(zip(key(other), other["latency_us"]))
    keys = key(selecting)
    scored = np.array([k in without and (k[3] + k[4]) // 4 > TOP_K[SHAPES[k[0]][0]] for k in keys]) if prompts else np.array([k in without and k[4] >= LEAST for k in keys])
    table, keys = selecting.where(scored), [k for k, s in zip(keys, scored) if s]
    facts = source.facts(table.chip)
    narrow, wide = products(table.chip)
    attends = fits["attention.sparse_prefill" if prompts else "attention.sparse_decode"][1]
    rows = table["batch_size"].astype(float) * table["isl"]
    hidden, rank = (np.array([SHAPES[k[0]][i] for k in keys], float) for i in (0, 1))
    heads = table["num_heads"].astype(float)
    more = wide(rows, 2624.0, hidden) - wide(rows, 1024.0, hidden) + narrow(rows, heads * 512 + 8192, rank) - narrow(rows, heads * 512, rank)
    of = lambda ratio, capped: np.array([row_entries(k[3], k[4], ratio, TOP_K[SHAPES[k[0]][0]] if capped else 0) for k in keys]) * table["batch_size"]
    padded = np.where(heads > HEADS, 2.0, 1.0)
    at = lambda e: forms.gathered({"comparisons": 0.0, "requests": table["batch_size"].astype(float), "queries": rows, "entries": e, "entry_bytes": float(WIDENED if prompts else STORED),
                                   "entry_operations": 4.0 * HEADS * HEAD_DIM * padded, "bandwidth": facts["bandwidth"], "peak": facts["peak"]["bf16"]}, attends.values)
    left = table["latency_us"] - np.array([without[k] for k in keys]) - more - (at(of(4, True)) - at(of(128, False)))
    kept = left > 2.0
    columns = {name: values[kept] for name, values in dict(table.columns, latency_us=left).items()}
    table = replace(table, columns=columns)
    scores = lambda n, c: float((np.arange(c + 1, c + n + 1) // 4).sum())
    keys = [k for k, stays in zip(keys, kept) if stays]
    compared = np.array([row_comparisons(k[3], k[4], TOP_K[SHAPES[k[0]][0]]) for k in keys]) if prompts else None
    inputs = call(table, facts, scores, selected.SCORE if prompts else SCORED, 2 * SCORING_HEADS * SCORING_DIM, "fp8", compared)
    entry, solution = fitted(
        scope(kernel.replace("/", "-"), primitive, kernel), "gathered", chip, forms.gathered, table, inputs, table["tp_size"] == HELD_WIDTH, free(prompts, prompts), report, FIXED,
        clusters=table["batch_size"] * 1e6 + table["isl"], ranges=("queries", "entries"), reason=SELECTS,
        sources=[selecting.cite(), other.cite()],
    )
    return finish(entry if prompts else beyond(entry, table.chip, wheel), chip, table), solution


def beyond(entry, chip, wheel):
    """The entry with the efficiency of its scores as a curve over entries: as fitted up to the most that were measured, and that of token selection so far beyond that more entries
    never take less time."""
    tokens, *_, cite = selected.solved(chip, wheel, "decode")
    far = tokens.blocks()[0]["index.compute_efficiency"]
    near = entry["coefficients"].pop("compute_efficiency")
    most = entry["range"]["entries"][1]
    times = 2.0 ** np.ceil(np.log2(np.exp(far["value"] / near["value"] - 1.0)))
    entry["curves"] = dict(entry["curves"], compute_efficiency={"over": "entries", "unit": "ratio", "points": [[most, near["value"]], [most * float(times), far["value"]]],
                                                               "intervals": [near["interval"], far["interval"]]})
    entry["sources"] = [*entry["sources"], cite]
    entry["reason"] += BEYOND
    return entry
