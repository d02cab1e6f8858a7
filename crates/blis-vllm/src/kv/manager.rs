//! May a request have the slots it needs, and which blocks give them.
//!
//! upstream: vllm `v1/core/kv_cache_manager.py::KVCacheManager`; `v1/core/kv_cache_coordinator.py::KVCacheCoordinator`
//!
//! Upstream's one `allocate_slots` is two functions here, since a request either enters with its cached prefix ([`KvManager::admit`])
//! or already has a table ([`KvManager::grow`]). A decode rarely needs anything: each request carries the token counts at which a
//! block must be taken, given back or considered for the cache, and `grow` compares three numbers otherwise.
//!
//! Left out: connectors, encoder tokens, reservations for loads in flight, copies, zeroing.

use std::sync::Arc;

use blis_contracts::request::{Segment, TokenSource};

use super::BlockId;
use super::chain::{NodeId, Slice};
use super::events::Naming;
use super::group::{CachePolicy, Group, GroupConfig, Retention, Span};
use super::lookup::{Hit, Lookup};
use super::pool::BlockPool;
use crate::divisors::greatest_common_divisor;
use crate::request::{Progress, Slot, Status};

/// The resolved KV cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvConfig {
    /// The groups, in upstream's group order.
    pub groups: Vec<GroupConfig>,
    /// Tokens that every group's blocks divide: hits and what is cached end at multiples of it.
    pub block_size: u32,
    /// Blocks of the pool, the placeholder included.
    pub num_blocks: u32,
    /// Whether prompts are looked up in, and remembered by, the cache.
    pub enable_prefix_caching: bool,
    /// What sliding-window groups remember.
    pub retention: Retention,
    /// Blocks kept free when a request is admitted beside others: `int(watermark x num_blocks)`.
    pub watermark_blocks: u32,
    /// Longest sequence.
    pub max_model_len: u32,
    /// Most tokens scheduled but not yet processed.
    pub max_in_flight_tokens: u32,
}

/// What drafting asks of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drafting<'a> {
    /// Slots beyond the tokens of a step that the drafter writes.
    pub lookahead: u32,
    /// Last known tokens whose entries the drafter may write again.
    pub tail: u32,
    /// Whether each group leaves the last block of a hit to be computed again.
    pub drops: &'a [bool],
}

/// Token counts at which a request needs more than a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edges {
    /// Tokens every group has slots for.
    capacity: u32,
    /// Tokens at which the next full block may be cached.
    cache_at: u32,
    /// Processed tokens at which some group gives a block back.
    skip_at: u32,
}

impl Edges {
    /// Of a request without blocks: anything it does needs a look.
    pub const NOTHING: Self = Self { capacity: 0, cache_at: 0, skip_at: 0 };
}

/// Prefix-cache look-ups that led to an admission, since the start.
///
/// upstream: vllm `v1/metrics/stats.py::PrefixCacheStats`
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PrefixStats {
    /// Requests admitted for the first time.
    pub requests: u64,
    /// Their tokens.
    pub queries: u64,
    /// Of these, found in the cache.
    pub hits: u64,
    /// Admissions after a preemption.
    pub preempted_requests: u64,
    /// Their tokens.
    pub preempted_queries: u64,
    /// Of these, found in the cache.
    pub preempted_hits: u64,
}

/// What a request's tokens are, as far as the cache needs to know.
#[derive(Debug, Clone)]
struct Contents {
    prompt: Arc<[Segment]>,
    output: TokenSource,
    /// One node per full stretch of known tokens. The request holds the last one.
    nodes: Vec<NodeId>,
}

/// Block tables, pool and prefix cache of one engine.
#[derive(Debug)]
pub struct KvManager {
    config: KvConfig,
    hash_block_size: u32,
    pool: BlockPool,
    groups: Vec<Group>,
    lookup: Lookup,
    contents: Vec<Contents>,
    no_prompt: Arc<[Segment]>,
    hit: Hit,
    stats: PrefixStats,
    lookahead: u32,
}

impl KvConfig {
    /// Tokens of the stretches that contents are named by: what divides every group's block.
    ///
    /// upstream: vllm `v1/core/kv_cache_utils.py::resolve_kv_cache_block_sizes`
    pub fn hash_block_size(&self) -> u32 {
        let sizes = self.groups.iter().map(|group| group.block_size);
        if self.enable_prefix_caching { sizes.fold(self.block_size, greatest_common_divisor) } else { self.block_size }
    }
}

impl KvManager {
    /// An empty cache.
    pub fn new(config: KvConfig) -> Self {
        let groups: Vec<_> =
            config.groups.iter().map(|group| Group::new(*group, config.max_in_flight_tokens, config.max_model_len)).collect();
        let hash_block_size = config.hash_block_size();
        let lookup = Lookup::new(&groups, config.block_size, hash_block_size);
        let pool = BlockPool::new(config.num_blocks, groups.len(), config.enable_prefix_caching);
        Self {
            config,
            hash_block_size,
            pool,
            groups,
            lookup,
            contents: Vec::new(),
            no_prompt: Arc::from([]),
            hit: Hit::default(),
            stats: PrefixStats::default(),
            lookahead: 0,
        }
    }

    /// Makes room for a drafter, before the first request.
    pub fn set_drafting(&mut self, drafting: &Drafting<'_>) {
        self.lookahead = drafting.lookahead;
        let single = self.groups.len() == 1;
        for (group, drops) in self.groups.iter_mut().zip(drafting.drops) {
            group.set_drafting(*drops, if single || *drops { drafting.tail } else { 0 });
        }
        self.lookup = Lookup::new(&self.groups, self.config.block_size, self.hash_block_size);
    }

    /// The configuration.
    pub fn config(&self) -> &KvConfig {
        &self.config
    }

    /// The pool.
    pub fn pool(&self) -> &BlockPool {
        &self.pool
    }

    /// Begins a journal of what becomes findable and what is forgotten.
    pub fn record_events(&mut self, naming: Naming) {
        self.pool.record_events(naming);
    }

    /// Look-ups so far.
    pub fn stats(&self) -> PrefixStats {
        self.stats
    }

    /// Number of groups.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// A request's blocks in one group, in token order.
    pub fn table(&self, group: usize, slot: Slot) -> &[BlockId] {
        self.groups[group].table(slot)
    }

    /// Learns a new request's prompt.
    pub fn register(&mut self, slot: Slot, prompt: Arc<[Segment]>, output: TokenSource) {
        self.groups.iter_mut().for_each(|group| group.reserve(slot));
        if !self.pool.caching() {
            return;
        }
        if slot.index() >= self.contents.len() {
            let vacant = Contents { prompt: Arc::clone(&self.no_prompt), output, nodes: Vec::new() };
            self.contents.resize(slot.index() + 1, vacant);
        }
        let contents = &mut self.contents[slot.index()];
        debug_assert!(contents.nodes.is_empty(), "a recycled slot has been forgotten");
        contents.prompt = prompt;
        contents.output = output;
    }

    /// Names the full blocks of a prompt. Done at the first look-up, not at arrival, so that a long queue holds prompts and no names.
    fn name_prompt(&mut self, slot: Slot) {
        let contents = &mut self.contents[slot.index()];
        let block_size = self.hash_block_size;
        let mut node = NodeId::ROOT;
        let mut filled = 0;
        for segment in contents.prompt.iter() {
            let mut offset = 0;
            while offset < segment.length {
                let length = (block_size - filled).min(segment.length - offset);
                node = self.pool.chain.extend(node, Slice { source: segment.source, offset, length });
                offset += length;
                filled += length;
                if filled == block_size {
                    contents.nodes.push(node);
                    filled = 0;
                }
            }
        }
        // Tokens after the last full block have no block to name yet: fall back to the last full one.
        if let Some(last) = contents.nodes.last() {
            if *last != node {
                self.pool.chain.hold(*last);
                self.pool.chain.release(node);
            }
        } else {
            self.pool.chain.release(node);
        }
    }

    /// Learns that a request has reached `progress.tokens` known tokens, which fill a block.
    #[cold]
    fn learn_block(&mut self, slot: Slot, progress: &Progress) {
        let block_size = self.hash_block_size;
        let contents = &mut self.contents[slot.index()];
        let start = progress.tokens - block_size;
        let mut node = contents.nodes.last().copied().unwrap_or(NodeId::ROOT);
        let mut position = 0;
        if start < progress.prompt {
            for segment in contents.prompt.iter() {
                let end = position + segment.length;
                if end > start && segment.length > 0 {
                    let offset = start.saturating_sub(position);
                    let slice = Slice { source: segment.source, offset, length: segment.length - offset };
                    node = self.pool.chain.extend(node, slice);
                }
                position = end;
            }
        }
        let first = start.max(progress.prompt);
        let slice = Slice { source: contents.output, offset: first - progress.prompt, length: progress.tokens - first };
        node = self.pool.chain.extend(node, slice);
        contents.nodes.push(node);
    }

    /// Notes that a token was appended to a request.
    #[inline]
    pub fn token_appended(&mut self, slot: Slot, progress: &Progress) {
        if self.pool.caching() && progress.tokens.is_multiple_of(self.hash_block_size) {
            self.learn_block(slot, progress);
        }
    }

    /// Looks a waiting request up; the result is kept for [`Self::admit`]. At least one token is always left to compute.
    ///
    /// upstream: vllm `v1/core/kv_cache_manager.py::KVCacheManager.get_computed_blocks`
    pub fn look_up(&mut self, slot: Slot, progress: &mut Progress) -> u32 {
        self.hit.clear(self.groups.len());
        if self.pool.caching() {
            if self.contents[slot.index()].nodes.is_empty() && progress.tokens >= self.hash_block_size {
                self.name_prompt(slot);
            }
            let contents = &self.contents[slot.index()];
            self.lookup.find(&self.pool, &contents.nodes, progress.tokens - 1, &mut self.hit);
        }
        progress.junction = self.hit.junction;
        self.hit.tokens
    }

    /// Gives the request looked up last its cached prefix and slots for `new_tokens` more, or changes nothing and answers `false`.
    pub fn admit(&mut self, slot: Slot, progress: &mut Progress, new_tokens: u32, gate: Admission) -> bool {
        let hit = self.hit.tokens;
        let watermark = if gate.beside_others { self.config.watermark_blocks } else { 0 };
        if gate.full_sequence_must_fit {
            let full = progress.tokens.min(self.config.max_model_len);
            if self.blocks_to_admit(self.span(progress, hit, full), true) + watermark > self.pool.free_blocks() {
                return false;
            }
        }
        let tokens = (hit + new_tokens + self.lookahead).min(self.config.max_model_len);
        let span = self.span(progress, hit, tokens);
        if self.blocks_to_admit(span, false) + watermark > self.pool.free_blocks() {
            return false;
        }
        if hit > 0 {
            for (group, blocks) in self.groups.iter_mut().zip(&self.hit.blocks) {
                group.adopt(&mut self.pool, slot, blocks, hit);
            }
        }
        for group in &mut self.groups {
            group.extend(&mut self.pool, slot, span);
        }
        self.cache(slot, progress, (hit + new_tokens).min(progress.tokens));
        self.refresh_edges(slot, progress, hit);
        self.record(progress, hit);
        true
    }

    /// Gives a running request slots for `new_tokens` more, or answers `false`. Blocks it no longer needs are given back either way.
    #[inline]
    pub fn grow(&mut self, slot: Slot, progress: &mut Progress, new_tokens: u32) -> bool {
        let tokens = progress.computed + new_tokens;
        let processed = progress.computed - progress.in_flight;
        let edges = progress.edges;
        if tokens + self.lookahead <= edges.capacity && tokens.min(progress.tokens) < edges.cache_at && processed < edges.skip_at {
            return true;
        }
        self.grow_across_an_edge(slot, progress, tokens, processed)
    }

    fn grow_across_an_edge(&mut self, slot: Slot, progress: &mut Progress, tokens: u32, processed: u32) -> bool {
        if processed >= progress.edges.skip_at {
            for group in &mut self.groups {
                group.remove_skipped(&mut self.pool, slot, processed);
            }
        }
        let slots = (tokens + self.lookahead).min(self.config.max_model_len);
        let span = self.span(progress, progress.computed, slots);
        let needed: u32 = self.groups.iter().map(|group| group.blocks_to_grow(slot, span)).sum();
        let fits = needed <= self.pool.free_blocks();
        if fits {
            for group in &mut self.groups {
                group.extend(&mut self.pool, slot, span);
            }
            self.cache(slot, progress, tokens.min(progress.tokens));
        }
        self.refresh_edges(slot, progress, processed);
        fits
    }

    /// Makes the full blocks among the first `tokens` findable, once their tokens are known.
    #[inline]
    pub fn cache_processed(&mut self, slot: Slot, progress: &mut Progress, tokens: u32) {
        if tokens >= progress.edges.cache_at {
            self.cache(slot, progress, tokens);
            progress.edges.cache_at = self.cache_at(slot);
        }
    }

    /// Gives back everything a request holds. Its contents stay known, for a resumption.
    pub fn free(&mut self, slot: Slot, progress: &mut Progress) {
        for group in &mut self.groups {
            group.free(&mut self.pool, slot);
        }
        progress.edges = Edges::NOTHING;
    }

    /// Forgets a request that ended.
    pub fn forget(&mut self, slot: Slot) {
        if let Some(contents) = self.contents.get_mut(slot.index()) {
            if let Some(last) = contents.nodes.last() {
                self.pool.chain.release(*last);
            }
            contents.nodes.clear();
            contents.prompt = Arc::clone(&self.no_prompt);
        }
    }

    /// A step begins: what was cached before it can be read in it.
    pub fn new_step_starts(&mut self) {
        self.groups.iter_mut().for_each(|group| group.cached_now.clear());
    }

    /// Where every chunk's state is retained, every chunk is worth a checkpoint; else only the one that ends the prompt.
    fn span(&self, progress: &Progress, computed: u32, tokens: u32) -> Span {
        let prefill_end = match self.config.retention {
            Retention::Replay => progress.prompt.max(progress.tokens - 1),
            Retention::Dense | Retention::Interval(_) => 0,
        };
        Span { computed, tokens, prefill_end }
    }

    fn blocks_to_admit(&self, span: Span, capped: bool) -> u32 {
        let need = |(group, hits): (&Group, &Vec<BlockId>)| group.blocks_to_admit(&self.pool, span, hits, capped);
        self.groups.iter().zip(&self.hit.blocks).map(need).sum()
    }

    fn cache(&mut self, slot: Slot, progress: &Progress, tokens: u32) {
        if !self.pool.caching() {
            return;
        }
        let [resend, longer] = self.replay_boundaries(progress.prompt);
        let policy = CachePolicy {
            contents: &self.contents[slot.index()].nodes,
            retention: self.config.retention,
            alignment: self.config.block_size,
            hash_block_size: self.hash_block_size,
            boundaries: [resend, longer, Some(progress.junction).filter(|junction| *junction > 0)],
        };
        for (index, group) in self.groups.iter_mut().enumerate() {
            group.cache(&mut self.pool, index, slot, tokens, &policy);
        }
    }

    /// Token counts from which a request with the same prompt, or a longer one, can resume.
    ///
    /// upstream: vllm `v1/core/kv_cache_coordinator.py::replay_boundaries`
    fn replay_boundaries(&self, prompt: u32) -> [Option<u32>; 2] {
        if !self.groups.iter().any(Group::drops) {
            return [Some(prompt - 1), None];
        }
        let block = self.config.block_size;
        let before = |tokens: u32| Some((tokens / block * block).saturating_sub(block));
        [before(prompt - 1), before(prompt)]
    }

    fn cache_at(&self, slot: Slot) -> u32 {
        if !self.pool.caching() {
            return u32::MAX;
        }
        self.groups.iter().map(|group| group.next_cache_at(slot)).min().unwrap_or(u32::MAX)
    }

    fn refresh_edges(&self, slot: Slot, progress: &mut Progress, processed: u32) {
        // While a request holds the state its prompt's end is found by, each of its steps matters to others.
        let noted = self.pool.caching() && self.groups.iter().any(|group| group.holds_prompt_end(slot, progress.prompt - 1));
        let capacity = self.groups.iter().map(|group| group.capacity(slot)).min().unwrap_or(u32::MAX);
        progress.edges = Edges {
            capacity: if noted { 0 } else { capacity },
            cache_at: self.cache_at(slot),
            skip_at: self.groups.iter().map(|group| group.next_skip_at(processed)).min().unwrap_or(u32::MAX),
        };
    }

    fn record(&mut self, progress: &Progress, hit: u32) {
        if !self.pool.caching() {
            return;
        }
        let stats = &mut self.stats;
        let (requests, queries, hits) = if progress.preemptions > 0 {
            (&mut stats.preempted_requests, &mut stats.preempted_queries, &mut stats.preempted_hits)
        } else {
            (&mut stats.requests, &mut stats.queries, &mut stats.hits)
        };
        *requests += 1;
        *queries += u64::from(progress.tokens);
        *hits += u64::from(hit);
    }

    /// Panics when tables, pool and contents disagree about the live requests.
    pub fn check_invariants<'a>(&self, live: impl Iterator<Item = (Slot, &'a Progress)>) {
        let mut request_nodes = 0;
        for (slot, progress) in live {
            for group in &self.groups {
                let table = group.table(slot);
                assert!(table.len() as u64 * u64::from(group.block_size()) >= u64::from(progress.computed), "computed tokens have blocks");
            }
            if self.pool.caching() {
                let known = &self.contents[slot.index()].nodes;
                let full = (progress.tokens / self.hash_block_size) as usize;
                let unseen = progress.status == Status::Waiting && known.is_empty();
                assert!(unseen || known.len() == full, "every full block of known tokens has a content, once it was looked up");
                request_nodes += usize::from(!known.is_empty());
            }
        }
        self.pool.check_invariants(self.groups.iter().flat_map(Group::held_blocks), request_nodes);
    }
}

/// What an admission must respect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admission {
    /// The whole known sequence must fit now, although only a part of it is allocated.
    pub full_sequence_must_fit: bool,
    /// Other requests are running, so the watermark applies.
    pub beside_others: bool,
}

#[cfg(test)]
mod tests;
