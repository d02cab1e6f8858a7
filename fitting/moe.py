"""Experts of a mixture-of-experts layer, per kernel implementation and format.

A row runs the same experts again and again: where all that it hits fit the second-level cache, a share `saved` of the time that reading them takes is fitted and left out of
the entry. Where the framework routes in kernels of its own in front (`routing`), so is what they take: the modelled release routes within the kernel for every
model that these entries are for.

Experts that read from slots are in `slots.py`, those that only ranks with whole experts have in `resident.py`. Held out: tensor-parallel width 4 whole, and token counts 96 and 1536 at every width. Fitted on expert-parallel width 1.
How many experts a call touches is arithmetic, not a fit: exact for the tables' balanced routing, and for their
power-law routing the mean over seeded draws of the same law (`routing`).
Rows of TensorRT-LLM's kernel with 4-bit weights and tuned rows beside them were measured untuned: they are fitted as they are for launches that do not tune, and as
tuned ones would take (`tuned.py`) for those that do.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

import forms
import resident
import slots
import source
import tuned
from entry import TABLE_RULE, fitted, priced, scope, with_families
from fit import Free, Problem
from writer import rounded

VLLM, SGLANG = "vllm/0.24.0", "sglang/0.5.14"
HELD_WIDTH, HELD_TOKENS = 4, (96, 1536)
ROWS = (8, 12, 16, 32, 64, 128, 512)
EXPERT_BYTES = (1e6, 4e6, 16e6, 64e6)
BYTES = {"bf16": 2.0, "fp8": 1.0, "fp8_block": 1.0 + 4.0 / (128 * 128), "nvfp4": 0.5 + 1.0 / 16, "int4_group32": 0.5 + 2.0 / 32,
         "mxfp4": 0.5 + 1.0 / 32, "mxfp4_mxfp8": 0.5 + 1.0 / 32}
PEAK = {"bf16": "bf16", "fp8": "fp8", "fp8_block": "fp8", "nvfp4": "nvfp4", "int4_group32": "bf16", "mxfp4": "bf16", "mxfp4_mxfp8": "mxfp8"}
DRAWS = 64
# Chips of one die, the kernel and format whose fixed times they share, and which times those are.
TWINS, TWIN_KERNEL = ("h100", "h200"), ("marlin/moe", "mxfp4")
FIXED_TIMES = ("floor", "expert_time", "element_time", "width_time")
# The end of the tables' names of experts behind routing in kernels of its own; and the format whose rows of that kind are one model's, which the modelled release routes
# so too: its entry keeps what they take.
ROUTED, ROUTED_ALONE = "modular", ("mxfp4_mxfp8",)

MARLIN_RULE = (
    "no gpt-oss rows were measured on this kernel: coefficients of the same kernel on int4 and mxfp4 experts of other shapes "
    "(vLLM 0.24.0), applied to this format's stored bytes and operations"
)
MXFP8_RULE = "measured on the kernel of the same name: DeepSeek V4's experts under vLLM 0.24.0, gpt-oss's under SGLang 0.5.14, as vLLM 0.24.0 has none of that shape"
TUNED_RULE = "; calls of more than 8 pairs an expert at the share of their time that TensorRT-LLM's tuned rows take of untuned ones"
MARLIN = (("vllm_compressedtensorswna16marlinmoe_marlin_marlinexperts", "int4_wo", "int4_group32"),
          ("vllm_compressedtensorsw4a4mxfp4moe_marlin_marlinexperts", "w4a16_mxfp4", "mxfp4"))
# gpt-oss's shape, and DeepSeek V4's two.
MXFP8 = (("sglang_flashinfer_trtllm_moe", "w4a8_mxfp4_mxfp8", "mxfp4_mxfp8"),
         ("vllm_mxfp4moe_flashinfer_trtllm_mxfp4_mxfp8", "w4a8_mxfp4_mxfp8", "mxfp4_mxfp8", VLLM))
NVFP4 = (("vllm_compressedtensorsw4a4nvfp4moe_flashinfer_trtllm", "nvfp4", "nvfp4"),)
# kernel, format, framework, ((kernel_source prefix, moe_dtype, stored format, another framework), ...), multiple the kernel pads the
# intermediate size of a rank to, reason
HOPPER = (
    ("openai-triton/mxfp4", "mxfp4", VLLM, (("vllm_gptossmxfp4moe_triton", "w4a16_mxfp4", "mxfp4"),), 64, TABLE_RULE),
    ("marlin/moe", "mxfp4", VLLM, MARLIN, 64, MARLIN_RULE),
    ("marlin/moe", "int4_group32", VLLM, MARLIN[:1], 64, TABLE_RULE),
    ("triton/fused-moe", "bf16", VLLM, (("vllm_unquantizedfusedmoe_triton", "bfloat16", "bf16"),), 1, TABLE_RULE),
    ("triton/fused-moe", "fp8_block", VLLM, (("vllm_fp8moe_triton", "fp8_block", "fp8_block"),), 1, TABLE_RULE),
)
BLACKWELL = (
    ("flashinfer/trtllm-gen-moe", "mxfp4", VLLM, (("vllm_gptossmxfp4moe_flashinfer_trtllm", "w4a16_mxfp4", "mxfp4"),), 256, TABLE_RULE),
    ("flashinfer/trtllm-gen-moe", "mxfp4_mxfp8", SGLANG, MXFP8, 256, MXFP8_RULE),
    ("flashinfer/trtllm-gen-moe", "bf16", VLLM, (("vllm_unquantizedfusedmoe_flashinfer_trtllm", "bfloat16", "bf16"),), 1, TABLE_RULE),
    ("flashinfer/trtllm-gen-moe", "fp8", VLLM, (("vllm_modeloptfp8moe_flashinfer_trtllm", "fp8", "fp8"),), 1, TABLE_RULE),
    ("flashinfer/trtllm-gen-moe", "fp8_block", VLLM, (("vllm_fp8moe_flashinfer_trtllm", "fp8_block", "fp8_block"),), 1, TABLE_RULE),
    ("flashinfer/trtllm-gen-moe", "nvfp4", VLLM, NVFP4, 1, TABLE_RULE),
    ("flashinfer/trtllm-gen-moe-untuned", "mxfp4_mxfp8", SGLANG, MXFP8, 256, MXFP8_RULE),
    ("flashinfer/trtllm-gen-moe-untuned", "nvfp4", VLLM, NVFP4, 1, TABLE_RULE),
    ("marlin/moe", "mxfp4", VLLM, MARLIN, 64, MARLIN_RULE),
    ("marlin/moe", "int4_group32", VLLM, MARLIN[:1], 64, TABLE_RULE),
)
MARLIN_SGLANG = (("sglang_marlin_moe", "int4_wo", "int4_group32"),)
MARLIN_SGLANG_RULE = "the same Marlin kernel measured under SGLang 0.5.14; vLLM 0.24.0 has no rows of it on this chip"
TRITON_SGLANG_RULE = "the Triton kernel of the same origin measured under SGLang 0.5.14; vLLM 0.24.0 has no rows of it on this chip"
AMPERE_RULE = (
    "the Triton kernel of the same origin measured under SGLang 0.5.14: vLLM's own rows agree within a few percent where both have a "
    "shape, and have neither balanced routing nor most widths"
)
GPT_OSS_MARLIN = (("vllm_gptossmxfp4moe_marlin", "w4a16_mxfp4", "mxfp4"),)
AMPERE = (
    ("triton/fused-moe", "bf16", SGLANG, (("sglang_fused_moe_triton", "bfloat16", "bf16"),), 1, AMPERE_RULE),
    ("marlin/moe", "int4_group32", SGLANG, MARLIN_SGLANG, 64, MARLIN_SGLANG_RULE),
    ("marlin/moe", "mxfp4", SGLANG, MARLIN_SGLANG, 64, MARLIN_SGLANG_RULE + " and int4 experts stand for mxfp4 ones of the same stored bytes"),
)
ADA = (
    ("triton/fused-moe", "bf16", VLLM, (("vllm_unquantizedfusedmoe_triton", "bfloat16", "bf16"),), 1, TABLE_RULE),
    ("triton/fused-moe", "fp8", VLLM, (("vllm_modeloptfp8moe_triton", "fp8", "fp8"),), 1, TABLE_RULE),
    ("triton/fused-moe", "fp8_block", VLLM, (("vllm_fp8moe_triton", "fp8_block", "fp8_block"),), 1, TABLE_RULE),
    ("marlin/moe", "mxfp4", VLLM, GPT_OSS_MARLIN, 64, TABLE_RULE),
    ("marlin/moe", "int4_group32", VLLM, MARLIN[:1], 64, TABLE_RULE),
)
WORKSTATION = (
    ("flashinfer/cutlass-moe", "bf16", VLLM, (("vllm_unquantizedfusedmoe_flashinfer_cutlass", "bfloat16", "bf16"),), 1, TABLE_RULE),
    ("flashinfer/cutlass-moe", "fp8", VLLM, (("vllm_modeloptfp8moe_flashinfer_cutlass", "fp8", "fp8"),), 1, TABLE_RULE),
    ("flashinfer/cutlass-moe", "nvfp4", VLLM, (("vllm_compressedtensorsw4a4nvfp4moe_flashinfer_cutlass", "nvfp4", "nvfp4"),), 1, TABLE_RULE),
    ("triton/fused-moe", "bf16", SGLANG, (("sglang_fused_moe_triton", "bfloat16", "bf16"),), 1, TRITON_SGLANG_RULE),
    ("triton/fused-moe", "fp8_block", SGLANG, (("sglang_fused_moe_triton", "fp8_block", "fp8_block"),), 1, TRITON_SGLANG_RULE),
    ("marlin/moe", "mxfp4", VLLM, GPT_OSS_MARLIN, 64, TABLE_RULE),
    ("marlin/moe", "int4_group32", VLLM, MARLIN[:1], 64, TABLE_RULE),
)
KERNELS = {"a100-sxm": AMPERE, "h100": HOPPER, "h200": HOPPER, "b200": BLACKWELL, "b300": BLACKWELL, "gb200-nvl72": BLACKWELL,
           "gb300-nvl72": BLACKWELL, "l40s": ADA, "rtx-pro-6000": WORKSTATION}


def draw_counts(tokens, experts, topk, alpha, generator):
    """Pairs per expert under the tables' power-law routing: expert weights from a bounded power law by inversion,
    scaled to the number of pairs and rounded to it by largest remainder (which of several roundings the tables used was told
    from the memory-bound rows, where the time against balanced routing gives the number of experts hit)."""
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    u = generator.random(experts)
    e = 1.0 - alpha
    weight = ((high**e - low**e) * u + low**e) ** (1.0 / e)
    share = weight / weight.sum() * tokens * topk
    counts = np.rint(share).astype(int)
    missing = tokens * topk - counts.sum()
    order = np.argsort(counts - share, kind="stable")          # the most rounded down first
    if missing > 0:
        np.add.at(counts, order[np.arange(missing) % experts], 1)
    for expert in order[::-1]:
        if missing < 0 and counts[expert] > 1:
            counts[expert] -= 1
            missing += 1
    return counts


@lru_cache(maxsize=None)
def routing(tokens, experts, topk, distribution):
    """Expected number of distinct experts hit."""
    if distribution == "balanced":
        return float(min(experts, tokens * topk))
    generator = np.random.default_rng(7)
    alpha = float(distribution.rsplit("_", 1)[1])
    return float(np.mean([(draw_counts(tokens, experts, topk, alpha, generator) > 0).sum() for _ in range(DRAWS)]))


def padded(inter, multiple):
    return np.ceil(inter / multiple) * multiple


def inputs_of(table, facts, stored, multiple, peak):
    t = {n: table[n] for n in ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "distribution")}
    tokens, topk, experts = (t[n].astype(float) for n in ("num_tokens", "topk", "num_experts"))
    hit = np.array([routing(*key) for key in zip(t["num_tokens"].tolist(), t["num_experts"].tolist(), t["topk"].tolist(), t["distribution"].tolist())])
    inter = t["inter_size"] / t["moe_tp_size"]
    matrices = 3.0 - table["ungated"]
    elements = matrices * t["hidden_size"] * padded(inter, multiple)
    return {
        "tokens": tokens, "experts": experts, "pairs": tokens * topk, "hit": hit, "expert_bytes": stored * elements,
        "width": t["hidden_size"].astype(float),
        "pair_operations": 2.0 * elements, "bandwidth": facts["bandwidth"], "peak": facts["peak"][peak],
    }


def replayed(x, values):
    """A row of a table: the call, what routing in kernels of its own adds, and what a replay saves."""
    return forms.moe(x, values) + values.get("routing", 0.0) * x["routed"] - values["saved"] * x["replayed"]


def taken(table, read):
    """The tables of joined rows, each with the number of its rows."""
    if len(read) == 1:
        return [(read[0], len(table))]
    return [(whole, (table["framework"] == whole["framework"][0]).sum()) for whole in read]


UNGATED = ((1024, 2688), (2048, 5120), (2688, 1856), (4096, 2688), (8192, 5120))   # Nemotron-H shapes: squared ReLU, two matrices


def rows_of(wheel, chip, framework, sources):
    """The measured calls of one of our kernels, with each row's stored bytes per weight, joined; and the tables they were read from."""
    tables, wholes = [], []
    for prefix, dtype, stored, *other in sources:
        whole = wheel.table(chip, "moe", *(other or [framework]), "moe_perf")
        wholes += [] if any(whole is known for known in wholes) else [whole]
        starts = np.char.startswith(whole["kernel_source"].astype(str), prefix)
        part = whole.where(starts & (whole["moe_dtype"] == dtype) & (whole["moe_ep_size"] == 1))
        part.columns["stored"] = np.full(len(part), BYTES[stored])
        tables.append(part)
    columns = {n: np.concatenate([t[n] for t in tables]) for n in tables[0].columns if all(n in t.columns for t in tables)}
    joined = replace(wholes[0], columns=columns)
    shape = list(zip(joined["hidden_size"].tolist(), joined["inter_size"].tolist()))
    joined.columns["ungated"] = np.array([float(s in UNGATED) for s in shape])
    return joined, wholes


def row_knots(tensor_format):
    """Where the efficiency of multiplying may bend. The mxfp8 kernel turns to wide tiles between 64 and 256 rows."""
    return ROWS[:6] + (256, 512) if tensor_format == "mxfp4_mxfp8" else ROWS


def expert_knots(kernel, tensor_format, sizes):
    """Where the efficiency of reading experts may bend: at sizes the kernel was measured on, the smallest where enough rows have such experts."""
    if kernel == "marlin/moe":
        return EXPERT_BYTES[:3]
    few = 5e5 if tensor_format == "mxfp4_mxfp8" else 2.5e5
    least = (few,) if np.mean(sizes < 2.0 * few) > 0.02 else ()
    return least + ((2e6, 7e6, 14e6) if tensor_format in ("mxfp4", "mxfp4_mxfp8") else EXPERT_BYTES)


def entries(chip, wheel, report):
    yield from with_families(checked(chip, wheel, report))
    yield from resident.entries(chip, wheel, report)
    yield from slots.entries(chip, wheel, report)


def checked(chip, wheel, report):
    """The measured kernels; the error of those priced as tuned on rows that were."""
    facts = source.facts(chip)
    padding = {(kernel, tensor_format): multiple for kernel, tensor_format, _, _, multiple, _ in KERNELS[chip]}
    for entry in measured(chip, wheel, report):
        tensor_format = entry["format"]
        if tuned.concerns("/".join(entry["kernel"].values()), tensor_format) and (own := tuned.own_rows(wheel, chip, tensor_format)) is not None:
            own.columns["ungated"] = np.zeros(len(own))
            calls = inputs_of(own, facts, BYTES[tensor_format], padding[tuned.KERNEL, tensor_format], PEAK[tensor_format])
            report.add("moe", chip, entry["name"], "TensorRT-LLM's tuned rows", priced(entry, calls) / own["latency_us"] - 1.0)
            for part, error in tuned.check(wheel, chip, tensor_format):
                report.add("moe", chip, entry["name"], part, error)
        yield entry


def measured(chip, wheel, report):
    for row in KERNELS[chip]:
        kernel, tensor_format, *_, reason = row
        call = prepared(chip, wheel, row)
        shared = shared_times(chip, wheel, row)
        table, tokens = call.table, call.inputs["tokens"]
        held = held_out(table)
        parts = (("tokens <= 128", tokens <= 128), ("tokens > 128", tokens > 128), ("balanced", table["distribution"] == "balanced"),
                 ("power law", table["distribution"] != "balanced"))
        head = scope(f"{tensor_format}-{kernel.replace('/', '-')}", "moe.experts", kernel, tensor_format)
        entry, _ = fitted(
            head, "moe", chip, replayed, table, call.inputs, held, [one for one in call.free if one.name not in shared], report,
            fixed=shared, clusters=call.clusters, ranges=("tokens", "experts", "hit", "expert_bytes"),
            parts=parts, reason=reason + call.rule, sources=call.cited, nuisance=("saved", "routing"), form_name=forms.moe.__name__,
        )
        yield entry


@dataclass
class Prepared:
    """The rows of one kernel on one chip, and what is to be fitted to them."""

    table: source.Table
    inputs: dict
    free: list
    clusters: np.ndarray
    cited: list
    rule: str        # what was done to the rows


def prepared(chip, wheel, row):
    kernel, tensor_format, framework, sources, multiple, _ = row
    table, read = rows_of(wheel, chip, framework, sources)
    cited, rule = [dict(whole.cite(), rows=int(rows)) for whole, rows in taken(table, read)], ""
    if tuned.concerns(kernel, tensor_format):
        table.columns["latency_us"] = tuned.apply(table["latency_us"], table, tuned.shares(wheel, tensor_format))
        cited, rule = cited + [whole.cite() for whole in tuned.tables(wheel, tensor_format)], TUNED_RULE
    inputs = inputs_of(table, source.facts(chip), table["stored"], multiple, PEAK[tensor_format])
    inputs["replayed"] = source.replayed(chip, inputs["hit"] * inputs["expert_bytes"])
    inputs["routed"] = np.char.endswith(table["kernel_source"].astype(str), ROUTED).astype(float)
    free = [
        Free("floor", "us", 20.0),
        Free("expert_time", "us", 0.02),
        Free("element_time", "us", 1e-3),
        Free("memory_efficiency", "ratio", 0.7, "ratio", over="expert_bytes", xs=expert_knots(kernel, tensor_format, inputs["expert_bytes"])),
        Free("compute_efficiency", "ratio", 0.4, "ratio", over="rows_per_expert", xs=row_knots(tensor_format), law="rate"),
        Free("saved", "ratio", 0.5, "ratio"),
        # One width tells no walk from the floor, one kind of row nothing of routing.
        *([Free("width_time", "us", 1.0)] if len(np.unique(inputs["width"])) > 1 else []),
        *([Free("routing", "us", 5.0)] if len(np.unique(inputs["routed"])) > 1 and tensor_format not in ROUTED_ALONE else []),
    ]
    shape = table["hidden_size"] * 1e6 + table["inter_size"] + 0.01 * table["num_experts"]
    return Prepared(table, inputs, free, shape * 100 + table["moe_tp_size"], cited, rule)


def held_out(table):
    return (table["moe_tp_size"] == HELD_WIDTH) | np.isin(table["num_tokens"], HELD_TOKENS)


def shared_times(chip, wheel, row):
    """Fixed times that a kernel has in common on chips that differ in their memory alone, where rows of each leave open how they part: the mean of the fits of each, to rows
    that are not held out."""
    kernel, tensor_format, *_ = row
    if (kernel, tensor_format) != TWIN_KERNEL or chip not in TWINS:
        return {}
    found = []
    for twin in TWINS:
        call = prepared(twin, wheel, row)
        train = ~held_out(call.table)
        inputs = {name: values[train] if isinstance(values, np.ndarray) else values for name, values in call.inputs.items()}
        found.append(Problem(replayed, inputs, call.table["latency_us"][train], call.free).solve(call.clusters[train]).blocks()[0])
    return {
        name: {
            "value": rounded(float(np.mean([one[name]["value"] for one in found]))), "unit": "us",
            "interval": [min(one[name]["interval"][0] for one in found), max(one[name]["interval"][1] for one in found)],
        }
        for name in FIXED_TIMES
    }
