"""The mixing of residual lanes around a sublayer (mHC): into its input, with its norm, and out of its output.

The tables time both sites of a layer together: half is one. Mixing into the input is two kernels (the projection of all lanes, then the rest),
mixing out is one; for few rows upstream joins the last and the projection, which was not measured: it is priced as mixing in, over
the bytes of both. Held out: every third number of tokens.
"""

import numpy as np

import forms
import source
from entry import fitted, scope
from fit import Free

VLLM = "vllm/0.24.0"
RULE = "measured as a kernel of the same name in vLLM 0.24.0; its code is not shown unchanged up to the modelled release"
JOINED = "not measured: mixing in stands for the kernel that mixes out and projects at once (vLLM 0.24.0 has the two apart), over the bytes of both"
KNOTS = (1e7, 1e8, 1e9)


def moved(tokens, lanes, hidden):
    """Bytes a site moves either way: all lanes twice and the sublayer's side once, in 16 bits."""
    return (2.0 * lanes + 1.0) * hidden * 2.0 * tokens


def entries(chip, wheel, report):
    for op, name, free in (("pre", "mhc-in", "in"), ("post", "mhc-out", "out")):
        whole = wheel.table(chip, "mhc", VLLM, "mhc_module_perf")
        table = whole.where(whole["op_name"] == op)
        table.columns["latency_us"] = table["latency_us"] / table["num_sites"]
        facts = source.facts(table.chip)
        tokens = table["num_tokens"]
        inputs = {"bytes": moved(tokens.astype(float), table["hc_mult"], table["hidden_size"]), "bandwidth": facts["bandwidth"]}
        order = np.searchsorted(np.unique(tokens), tokens)
        entry, _ = fitted(
            scope(name, "norm", f"tilelang/mhc-{free}"), "elementwise", chip, forms.stream, table, inputs, order % 3 == 1,
            [Free("floor", "us", 8.0), Free("memory_efficiency", "ratio", 0.5, "ratio", over="bytes", xs=KNOTS, law="rate")], report,
            clusters=table["hidden_size"] * 1e7 + tokens, ranges=("bytes",), reason=RULE,
        )
        if table.chip != chip:
            entry["reason"] += f"; measured on the {table.chip}, at the same share of bandwidth"
        yield entry
        if op == "pre":
            yield dict(entry, name="mhc-out-in", kernel={"library": "tilelang", "variant": "mhc-out-in"}, reason=JOINED)
