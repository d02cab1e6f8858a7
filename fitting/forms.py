"""The pricing forms: inputs and coefficients -> microseconds.

Twin of `crates/blis-kernel/src/forms/`; `vectors.json` holds the same inputs on both sides. Times are
microseconds, `bandwidth` bytes per microsecond, `peak` operations per microsecond. A coefficient is a
number or a curve `(over, xs, ys)`: linear in log x between its points, flat outside. Every function takes
arrays (or numbers) and works element by element.
"""

import numpy as np


def curve(x, xs, ys):
    """Log-x linear interpolation, flat outside the points."""
    return np.interp(np.log(np.maximum(x, 1e-9)), np.log(xs), ys)


def blend(sharpness, *terms):
    """A soft maximum of terms that overlap: the largest for a large sharpness, the sum for 1."""
    top = np.maximum.reduce([np.asarray(t, dtype=float) for t in terms])
    top = np.maximum(top, 1e-12)
    return top * sum((t / top) ** sharpness for t in terms) ** (1.0 / sharpness)


class Coefficients:
    """Coefficients of one entry; a curve is read at the input it is over."""

    def __init__(self, values, inputs):
        self._values, self._inputs = values, inputs

    def __getitem__(self, name):
        value = self._values[name]
        if isinstance(value, tuple):
            over, xs, ys = value
            return curve(self._inputs[over], xs, ys)
        return value

    def get(self, name, default):
        return self[name] if name in self._values else default


TILES = ("tile_third", "tile_second", "tile_first")


def tiled(rows, values):
    """Rows that the tiles of a call have room for: of a kernel with `tile_first` rows a tile for up to so many rows, then one with
    `tile_second`, then `tile_third`, and beyond it as many tiles of `tile_rows` as are needed. Without tiles, the rows themselves."""
    rows = np.asarray(rows, dtype=float)
    tile = values.get("tile_rows", 0.0)
    held = np.ceil(rows / tile) * tile if tile > 0.0 else rows
    for name in TILES:
        held = np.where(rows <= values.get(name, 0.0), values.get(name, 0.0), held)
    return held


def matmul(x, values):
    """rows x depth times depth x columns. `latency` is what does not overlap with the body (fill, drain, the reduction of a
    split depth); the body is the longest of moving the operands, multiplying them, and one thread block's walk along `depth`. A tile
    that is partly empty is multiplied as a full one, and efficiencies are those of the rows the tiles hold."""
    x = dict(x)
    moved = x["weight_bytes"] + x["input_bytes"] * x["rows"] * x["depth"] + 2.0 * x["rows"] * x["columns"]
    x["rows"] = tiled(x["rows"], values)
    c = Coefficients(values, x)
    memory = moved / (x["bandwidth"] * c["memory_efficiency"])
    operations = 2.0 * x["rows"] * x["columns"] * x["depth"]
    compute = operations / (x["peak"] * c["compute_efficiency"])
    walk = c.get("depth_time", 0.0) * x["depth"]
    return c["latency"] + blend(c["sharpness"], memory, compute, walk)


def attention_decode(x, values):
    """One query token per request over `context` cached tokens in all (each request's context cut to the
    window), on `kv_heads` heads of this rank; `windowed` is 1 where the window cuts any request."""
    x = dict(x)
    x["mean_context"] = np.maximum(x["context"] / x["requests"], 1.0)
    c = Coefficients(values, x)
    units = x["requests"] * x["kv_heads"]
    latency = c["latency"] + x["windowed"] * c.get("window_latency", 0.0)
    per_unit = c["unit_time"] + x["windowed"] * c.get("window_unit_time", 0.0)
    bytes_read = 2.0 * x["context"] * x["kv_heads"] * x["head_dim"] * x["element_bytes"]
    memory = bytes_read / (x["bandwidth"] * c["memory_efficiency"])
    return latency + per_unit * units + memory


def attention_pairs(new, cached, window):
    """Query-key pairs of a causal row of `new` tokens over `cached` ones, cut to `window` (0 = none)."""
    new, cached, window = (np.asarray(v, dtype=float) for v in (new, cached, window))
    full = new * cached + new * (new + 1.0) / 2.0
    limit = np.where(window > 0, window, np.inf)
    short = np.clip(limit - cached, 0.0, new)          # queries that still see everything before them
    cut = short * cached + short * (short + 1.0) / 2.0 + (new - short) * np.where(window > 0, window, 0.0)
    return np.where(new + cached <= limit, full, cut)


QUERY_TILE = 128.0


def attention_prefill(x, values):
    """`rows` equal rows of `new` tokens over `cached` ones (unequal rows: sum `work`, take the largest `path`).
    A tile of 128 queries of one head costs a fixed time and its query-key products; a call can be no shorter
    than the walk of its longest tile along the keys it sees."""
    x = dict(x)
    c = Coefficients(values, x)
    group = np.where(c["packs_group"] > 0, x["query_heads"] / x["kv_heads"], 1.0)
    tiles = np.ceil(x["new"] * group / QUERY_TILE) * x["query_heads"] / group
    pairs = attention_pairs(x["new"], x["cached"], x["window"])
    operations = 4.0 * pairs * x["query_heads"] * x["head_dim"]
    cut = (x["window"] > 0) & (x["cached"] + x["new"] > x["window"])
    tile_time = c["tile_time"] + cut * c.get("window_tile_time", 0.0)
    moved = 4.0 * x["new"] * x["query_heads"] * x["head_dim"]
    moved = moved + 2.0 * (2.0 * x["new"] + x["cached"]) * x["kv_heads"] * x["head_dim"] * x["element_bytes"]
    work = tiles * tile_time + operations / (x["peak"] * c["compute_efficiency"]) + moved / (x["bandwidth"] * c["memory_efficiency"])
    seen = np.where(cut, np.minimum(x["window"] + QUERY_TILE, x["cached"] + x["new"]), x["cached"] + x["new"])
    path = c["key_time"] * seen
    return c["latency"] + blend(c["sharpness"], x["rows"] * work, path)


def latent_decode(x, values):
    """One query token per request over `context` cached latent vectors of `head_dim` elements, each read once for all `query_heads`; the
    value is the first `value_dim` elements."""
    x = dict(x)
    x["mean_context"] = np.maximum(x["context"] / x["requests"], 1.0)
    c = Coefficients(values, x)
    memory = x["context"] * x["head_dim"] * x["element_bytes"] / (x["bandwidth"] * c["memory_efficiency"])
    operations = 2.0 * x["context"] * x["query_heads"] * (x["head_dim"] + x["value_dim"])
    compute = operations / (x["peak"] * c["compute_efficiency"])
    return c["latency"] + c["unit_time"] * x["requests"] + blend(c["sharpness"], memory, compute)


def gathered(x, values):
    """`queries` rows of `requests` requests attend to, or score, `entries` vectors in all, each gathered through a list of its own: every request
    and every row has a fixed time, every entry its bytes and its operations over all heads. `comparison_time` is for a million comparisons of rows
    that rank every pair of their scores."""
    c = Coefficients(values, x)
    memory = x["entries"] * x["entry_bytes"] / (x["bandwidth"] * c["memory_efficiency"])
    compute = x["entries"] * x["entry_operations"] / (x["peak"] * c["compute_efficiency"])
    fixed = c["latency"] + c.get("request_time", 0.0) * x["requests"] + c["query_time"] * x["queries"]
    return fixed + c.get("comparison_time", 0.0) * x["comparisons"] / 1e6 + blend(c["sharpness"], memory, compute)


def moe(x, values):
    """Experts of one layer on one rank: `pairs` (token, expert) pairs land on `hit` of `experts` resident experts.
    `element_time` is for a thousand elements of the pairs' rows, gathered and summed; `width_time` for a thousand elements of the width that one tile walks along, however few
    rows there are. Reading and computing add up: tiles of a few rows neither hide the reading of their weights nor fill the matrix units."""
    x = dict(x)
    x["rows_per_expert"] = np.maximum(x["pairs"] / x["hit"], 1.0)
    c = Coefficients(values, x)
    memory = x["hit"] * x["expert_bytes"] / (x["bandwidth"] * c["memory_efficiency"])
    compute = x["pairs"] * x["pair_operations"] / (x["peak"] * c["compute_efficiency"])
    fixed = c["floor"] + c.get("expert_time", 0.0) * x["experts"] + c.get("width_time", 0.0) * x["width"] / 1e3
    moved = c["element_time"] * x["pairs"] * x["width"] / 1e3
    return fixed + moved + memory + compute


def collective(x, values):
    """Ranges of one algorithm each: (bytes up to, latency, bytes per microsecond)."""
    size = np.asarray(x["bytes"], dtype=float)
    result = np.full(size.shape, np.nan)
    for up_to, latency, bandwidth in reversed(values["ranges"]):
        inside = np.ones(size.shape, bool) if up_to is None else size <= up_to
        result = np.where(inside, latency + size / bandwidth, result)
    return result


def network(x, values):
    """A collective over several domains: what one of them does, hops over the network, and the bytes of one port beside the domain's own."""
    size = np.asarray(x["bytes"], dtype=float)
    result = np.full(size.shape, np.nan)
    fixed = values["hop_time"] * x["hops"]
    crossing = x["port_bytes"] / (x["network_bandwidth"] * values["efficiency"])
    for up_to, latency, bandwidth in reversed(values["ranges"]):
        inside = np.ones(size.shape, bool) if up_to is None else size <= up_to
        result = np.where(inside, latency + fixed + np.maximum(size / bandwidth, crossing), result)
    return result


def exchange(x, values):
    """Tokens that a rank sends to the ranks of their experts, or gets back: `token_time` for a thousand of its tokens, `megabyte_time` for a million of the
    bytes it sends, beside what even one token takes."""
    c = Coefficients(values, x)
    moved = c.get("token_time", 0.0) * x["tokens"] / 1e3 + c["megabyte_time"] * x["bytes"] / 1e6
    return blend(c["sharpness"], c["floor"] + 0.0 * moved, moved)


def stream(x, values):
    """A kernel that only reads and writes. Operands that the second-level cache holds may move faster than memory, by a gain."""
    c = Coefficients(values, x)
    return c["floor"] + x["bytes"] / (x["bandwidth"] * c["memory_efficiency"] * (1.0 + c.get("cache_gain", 0.0)))


def sampling(x, values):
    """Passes over `rows` rows of `vocabulary` logits."""
    c = Coefficients(values, x)
    moved = x["rows"] * x["vocabulary"] * c["bytes_per_logit"]
    return c["floor"] + moved / (x["bandwidth"] * c["memory_efficiency"])


def per_unit(x, values):
    """Host work, or a launch: base + what each request, token and operation adds."""
    terms = (("per_request", "requests"), ("per_token", "tokens"), ("per_operation", "operations"))
    return values["base"] + sum(values.get(name, 0.0) * x[unit] for name, unit in terms)


def stored(x, values):
    """Bytes, not time: base + what each rank of the group and each kernel of the captured graphs adds."""
    return values["base"] + values.get("per_rank", 0.0) * x["ranks"] + values.get("per_node", 0.0) * x["graph_nodes"]


def recurrence(x, values):
    """A recurrence over prompts: rows walk their tokens one after the other, all of their states at once; where there are more
    states than the chip works on together, the work of all of them counts. `states` are those of a row."""
    x = dict(x)
    c = Coefficients(values, x)
    walk = c["walk_time"] * x["new"]
    units = x["rows"] * x["states"]
    work = c["unit_time"] * units + c["token_time"] * x["tokens"] * x["states"]
    return c["latency"] + blend(c["sharpness"], walk, work)


def scan(x, values):
    """A scan over chunks of prompts: `bytes` that kernels write and read one after the other, between which the longest row passes its
    states from chunk to chunk. The gain is that of streams."""
    c = Coefficients(values, x)
    walk = c["walk_time"] * x["new"]
    moved = x["bytes"] / (x["bandwidth"] * c["memory_efficiency"] * (1.0 + c.get("cache_gain", 0.0)))
    return c["latency"] + blend(c["sharpness"], walk, moved)


def values_of(entry):
    """The numbers of a registry entry as its form reads them."""
    values = {name: leaf["value"] for name, leaf in (entry.get("coefficients") or {}).items()}
    for name, leaf in (entry.get("curves") or {}).items():
        xs, ys = np.array(leaf["points"], float).T
        values[name] = (leaf["over"], xs, ys)
    if "ranges" in entry:
        values["ranges"] = [(r["up_to"], r["latency"], r["bandwidth"]) for r in entry["ranges"]]
    return values


FORMS = {f.__name__: f for f in (matmul, attention_decode, attention_prefill, latent_decode, gathered, recurrence, moe, collective, stream, sampling, per_unit, stored, scan, network, exchange)}
