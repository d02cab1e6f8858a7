"""Writes `vectors.json`: inputs and coefficients -> what `forms.py` answers, for the Rust twins to agree with.

Seeded draws, so the file changes only with a form. Numbers are rounded before they are used, so both sides read the same ones.
"""

import json

import numpy as np

import forms

CASES = 30
CURVE_POINTS = 4
PICK = {  # name -> (low, high) drawn evenly in log space; integers where both ends are
    "rows": (1, 8192), "columns": (128, 65536), "depth": (128, 32768), "weight_bytes": (1e5, 1e9), "input_bytes": (0.5, 4.0),
    "bandwidth": (1e6, 8e6), "peak": (3e8, 9e9), "requests": (1, 256), "context": (300, 500000), "kv_heads": (1, 8),
    "query_heads": (8, 64), "head_dim": (64, 128), "value_dim": (64, 512), "element_bytes": (1, 2), "new": (1, 8192), "cached": (1, 30000), "window": (64, 4096),
    "tokens": (1, 8192), "experts": (8, 256), "hit": (1, 256), "pairs": (1, 65536), "expert_bytes": (1e5, 1e8), "pair_operations": (1e5, 1e8), "width": (256, 8192),
    "bytes": (100, 1e9), "queries": (1, 16384), "entries": (1, 1e7), "comparisons": (1, 1e10), "entry_bytes": (60, 1200), "entry_operations": (1e4, 3e5), "vocabulary": (30000, 200000), "operations": (1, 500), "ranks": (1, 8), "graph_nodes": (1, 80), "states": (1, 64),
    "hops": (1, 12), "port_bytes": (100, 1e9), "network_bandwidth": (1e4, 1e5),
}
SHAPES = {  # form -> (inputs, curves as name: over, other coefficients)
    "matmul": (("rows", "columns", "depth", "weight_bytes", "input_bytes", "bandwidth", "peak"),
               {"latency": "depth", "compute_efficiency": "rows", "depth_time": "rows"}, ("memory_efficiency", "sharpness", "tile_first", "tile_second", "tile_third", "tile_rows")),
    "attention_decode": (("requests", "context", "windowed", "kv_heads", "head_dim", "element_bytes", "bandwidth"),
                         {"latency": "mean_context", "memory_efficiency": "head_dim"}, ("unit_time", "window_latency", "window_unit_time")),
    "attention_prefill": (("rows", "new", "cached", "window", "query_heads", "kv_heads", "head_dim", "element_bytes", "bandwidth", "peak"),
                          {"tile_time": "head_dim", "key_time": "head_dim", "compute_efficiency": "head_dim"},
                          ("latency", "window_tile_time", "memory_efficiency", "sharpness", "packs_group")),
    "moe": (("tokens", "experts", "pairs", "hit", "expert_bytes", "pair_operations", "width", "bandwidth", "peak"),
            {"memory_efficiency": "expert_bytes", "compute_efficiency": "rows_per_expert"}, ("floor", "expert_time", "element_time", "width_time")),
    "collective": (("bytes",), {}, ()),
    "stream": (("bytes", "bandwidth"), {"memory_efficiency": "bytes"}, ("floor",)),
    "sampling": (("rows", "vocabulary", "bandwidth"), {}, ("floor", "bytes_per_logit", "memory_efficiency")),
    "per_unit": (("requests", "tokens", "operations"), {}, ("base", "per_request", "per_token", "per_operation")),
    "stored": (("ranks", "graph_nodes"), {}, ("base", "per_rank", "per_node")),
    "latent_decode": (("requests", "context", "query_heads", "head_dim", "value_dim", "element_bytes", "bandwidth", "peak"),
                      {"latency": "mean_context", "compute_efficiency": "query_heads"}, ("memory_efficiency", "unit_time", "sharpness")),
    "recurrence": (("rows", "new", "tokens", "states"), {"token_time": "tokens"}, ("latency", "walk_time", "unit_time", "sharpness")),
    "gathered": (("requests", "queries", "entries", "comparisons", "entry_bytes", "entry_operations", "bandwidth", "peak"), {"query_time": "queries"},
                 ("latency", "request_time", "comparison_time", "memory_efficiency", "compute_efficiency", "sharpness")),
    "scan": (("new", "bytes", "bandwidth"), {"memory_efficiency": "bytes"}, ("latency", "walk_time", "cache_gain", "sharpness")),
    "network": (("bytes", "hops", "port_bytes", "network_bandwidth"), {}, ("hop_time", "efficiency")),
    "exchange": (("tokens", "bytes"), {"megabyte_time": "bytes"}, ("floor", "token_time", "sharpness")),
}
SMALL = {"query_time": 0.05, "walk_time": 0.1, "token_time": 0.002, "depth_time": 0.003, "unit_time": 0.05, "window_unit_time": 0.02, "tile_time": 0.05, "window_tile_time": 0.02, "key_time": 0.02,
         "expert_time": 0.05, "element_time": 0.005, "width_time": 3.0}
DERIVED = {"mean_context": (1, 100000), "rows_per_expert": (1, 1000)}


def log_even(generator, low, high):
    value = float(np.exp(generator.uniform(np.log(low), np.log(high))))
    return float(round(value)) if isinstance(low, int) and isinstance(high, int) else float(f"{value:.6g}")


def coefficient(generator, name):
    if name.endswith("efficiency"):
        return float(f"{generator.uniform(0.05, 1.0):.4g}")
    if name == "sharpness":
        return float(f"{generator.uniform(1.0, 9.0):.4g}")
    if name == "packs_group":
        return float(generator.integers(0, 2))
    if name.startswith("tile_") and name in (*forms.TILES, "tile_rows"):
        return float(generator.integers(0, 4) * {"tile_first": 8, "tile_second": 24, "tile_third": 64, "tile_rows": 128}[name])
    if name in SMALL:
        return float(f"{generator.uniform(0.0, SMALL[name]):.4g}")
    return float(f"{generator.uniform(0.0, 30.0):.4g}")


def case(generator, form):
    names, curves, scalars = SHAPES[form]
    x = {n: float(generator.integers(0, 2)) if n == "windowed" else log_even(generator, *PICK[n]) for n in names}
    if form == "attention_prefill":
        x["window"] = x["window"] if generator.integers(0, 2) else 0.0
        x["query_heads"] = x["kv_heads"] * float(generator.integers(1, 9))
        x["cached"] = x["cached"] if generator.integers(0, 2) else 0.0
    values, written = {}, {n: coefficient(generator, n) for n in scalars}
    values.update(written)
    if form in ("collective", "network"):
        edges = sorted({int(log_even(generator, 100.0, 1e9)) for _ in range(4)})
        ranges = [[e, coefficient(generator, "latency"), log_even(generator, 1e3, 1e6)] for e in edges]
        ranges.append([None, coefficient(generator, "latency"), log_even(generator, 1e3, 1e6)])
        values["ranges"] = ranges
        written["ranges"] = [{"up_to": a, "latency": b, "bandwidth": c} for a, b, c in ranges]
    shown = {}
    for name, over in curves.items():
        low, high = PICK[over] if over in PICK else DERIVED[over]
        xs = sorted({log_even(generator, low, high) for _ in range(CURVE_POINTS)})
        ys = [coefficient(generator, name) for _ in xs]
        values[name] = (over, np.array(xs), np.array(ys))
        shown[name] = {"over": over, "points": [[a, b] for a, b in zip(xs, ys)]}
    answer = float(forms.FORMS[form](x, values))
    return {"inputs": x, "coefficients": written, "curves": shown, "answer": answer}


def text():
    generator = np.random.default_rng(1)
    lines = []
    for form in SHAPES:
        cases = ",\n".join("    " + json.dumps(case(generator, form)) for _ in range(CASES))
        lines.append(f'  "{form}": [\n{cases}\n  ]')
    return "{\n" + ",\n".join(lines) + "\n}\n"
