//! Attention of requests with several new tokens: causal, over cached tokens too, cut to a window where there is one.
//!
//! A tile of 128 queries of one head costs a fixed time, its query-key products and its traffic; the tiles of all rows share the
//! accelerator, but the call is no shorter than the walk of its longest tile along the keys it sees. Left out: how tiles of
//! unequal rows fall onto multiprocessors.

use blis_registry::Entry;
use blis_registry::vocabulary::Input;

use super::{Parts, blend};
use crate::inputs::Inputs;
use crate::value::Value;

/// Queries of one tile.
const QUERY_TILE: f64 = 128.0;

/// Coefficients of prefill attention.
#[derive(Debug, Clone, PartialEq)]
pub struct AttentionPrefill {
    latency: Value,
    tile_time: Value,
    window_tile_time: Value,
    key_time: Value,
    memory_efficiency: Value,
    compute_efficiency: Value,
    sharpness: Value,
    packs_group: Value,
}

/// What the rows of one call have added up to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rows {
    work: f64,
    path: f64,
}

impl Rows {
    /// No rows.
    pub const NONE: Self = Self { work: 0.0, path: 0.0 };
}

impl AttentionPrefill {
    pub(super) fn read(entry: &Entry, fixed: &Inputs) -> Self {
        Self {
            latency: Value::read(entry, "latency", fixed),
            tile_time: Value::read(entry, "tile_time", fixed),
            window_tile_time: Value::read(entry, "window_tile_time", fixed),
            key_time: Value::read(entry, "key_time", fixed),
            memory_efficiency: Value::read(entry, "memory_efficiency", fixed),
            compute_efficiency: Value::read(entry, "compute_efficiency", fixed),
            sharpness: Value::read(entry, "sharpness", fixed),
            packs_group: Value::read(entry, "packs_group", fixed),
        }
    }

    /// One call of `rows` equal rows, in its parts.
    pub fn parts(&self, x: &Inputs) -> Parts {
        let mut rows = Rows::NONE;
        self.add(x, &mut rows);
        self.finish(x, rows)
    }

    /// Adds `rows` equal rows to a call.
    pub fn add(&self, x: &Inputs, rows: &mut Rows) {
        rows.work += x.get(Input::Rows) * self.work(x);
        rows.path = rows.path.max(self.path(x));
    }

    /// The call that the rows make; `x` needs only what all rows share.
    pub fn finish(&self, x: &Inputs, rows: Rows) -> Parts {
        Parts { latency: self.latency.at(x), body: blend(self.sharpness.at(x), [rows.work, rows.path]) }
    }

    /// What one row asks of the whole accelerator.
    fn work(&self, x: &Inputs) -> f64 {
        let (new, cached) = (x.get(Input::New), x.get(Input::Cached));
        let (query_heads, kv_heads, head_dim) = (x.get(Input::QueryHeads), x.get(Input::KvHeads), x.get(Input::HeadDim));
        let group = if self.packs_group.at(x) > 0.0 { query_heads / kv_heads } else { 1.0 };
        let tiles = libm::ceil(new * group / QUERY_TILE) * query_heads / group;
        let tile_time = self.tile_time.at(x) + if is_cut(x) { self.window_tile_time.at(x) } else { 0.0 };
        // Two products of head_dim multiply-adds for each pair.
        let operations = 4.0 * attention_pairs(new, cached, x.get(Input::Window)) * query_heads * head_dim;
        // Queries are read and outputs written in 16 bits; new keys and values are written, then read with the cached ones.
        let moved = 4.0 * new * query_heads * head_dim + 2.0 * (2.0 * new + cached) * kv_heads * head_dim * x.get(Input::ElementBytes);
        tiles * tile_time
            + operations / (x.get(Input::Peak) * self.compute_efficiency.at(x))
            + moved / (x.get(Input::Bandwidth) * self.memory_efficiency.at(x))
    }

    /// The walk of the longest tile of one row.
    fn path(&self, x: &Inputs) -> f64 {
        let all = x.get(Input::Cached) + x.get(Input::New);
        let seen = if is_cut(x) { all.min(x.get(Input::Window) + QUERY_TILE) } else { all };
        self.key_time.at(x) * seen
    }
}

/// Whether the window hides anything from the row's last query.
fn is_cut(x: &Inputs) -> bool {
    let window = x.get(Input::Window);
    window > 0.0 && x.get(Input::Cached) + x.get(Input::New) > window
}

/// Query-key pairs of a causal row of `new` tokens over `cached` ones; each query sees at most `window` keys (0 for no limit).
pub fn attention_pairs(new: f64, cached: f64, window: f64) -> f64 {
    if window <= 0.0 || new + cached <= window {
        return new * cached + new * (new + 1.0) / 2.0;
    }
    // Queries that still see everything before them, then queries that see a whole window.
    let short = (window - cached).clamp(0.0, new);
    short * cached + short * (short + 1.0) / 2.0 + (new - short) * window
}
