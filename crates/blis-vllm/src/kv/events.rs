//! What the pool tells whoever listens: blocks that became findable and blocks that were forgotten, in upstream's wire format.
//!
//! upstream: vllm `distributed/kv_events.py::KVEventBatch`, `BlockStored`, `BlockRemoved`
//! upstream: vllm `v1/core/block_pool.py::BlockPool.cache_full_blocks`, `_build_block_stored_event`, `_emit_block_removed_events`
//!
//! Hashes are worked out anew from the tokens at each event: events are for traces and for whoever routes by them, not for long runs.
//! Left out: events of reused blocks and of a cleared cache, other media than the GPU, adapters, salts, sessions, several cores' ranks.

use blis_contracts::request::TokenSource;

use super::chain::{ContentChain, NodeId};
use super::hash::{BlockHash, Encoding};
use crate::config::Setting;

/// The number of each source's first token.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenIds {
    /// By shared text.
    pub shared: Vec<u32>,
    /// By text of one request's own.
    pub unique: Vec<u32>,
    /// By the request that generates.
    pub output: Vec<u32>,
}

impl TokenIds {
    fn of(&self, source: TokenSource, offset: u32) -> u32 {
        let index = |number: u64| usize::try_from(number).expect("sources are numbered from 0");
        let first = match source {
            TokenSource::Shared(text) => self.shared[text as usize],
            TokenSource::Unique(text) => self.unique[index(text)],
            TokenSource::Output(request) => self.output[index(request)],
        };
        first + offset
    }
}

/// How events name a group's cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupKind {
    /// Upstream's kind of its specification.
    pub kind: &'static str,
    /// Its window, where it has one.
    pub window: Option<u32>,
}

/// What events need to know beyond the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naming {
    /// How blocks are hashed.
    pub encoding: Encoding,
    /// The seed of the first block's parent.
    pub seed: &'static str,
    /// Tokens of a block.
    pub block_size: u32,
    /// The groups, in order.
    pub groups: Vec<GroupKind>,
    /// The numbers of tokens.
    pub tokens: TokenIds,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum KvEvent {
    Stored { hashes: Vec<u64>, parent: Option<u64>, tokens: Vec<u32>, group: usize },
    Removed { hash: u64, group: usize },
}

/// Every event so far.
#[derive(Debug)]
pub struct Journal {
    naming: Naming,
    root: BlockHash,
    events: Vec<KvEvent>,
}

impl Journal {
    /// A journal without events.
    pub fn new(naming: Naming) -> Self {
        let root = naming.encoding.root(naming.seed);
        Self { naming, root, events: Vec::new() }
    }

    /// How many events there are.
    pub fn count(&self) -> usize {
        self.events.len()
    }

    /// A request's blocks from `first` up to the one that ends with `content` were considered; those at `kept` became findable.
    pub(super) fn stored(&mut self, chain: &ContentChain, group: usize, first: u32, kept: &[u32], content: NodeId) {
        let tokens = self.tokens(chain, content);
        let hashes: Vec<u64> = self.hashes(&tokens).into_iter().map(BlockHash::published).collect();
        let parent = first.checked_sub(1).map(|before| hashes[before as usize]);
        let hashes = kept.iter().map(|block| hashes[*block as usize]).collect();
        let tokens = tokens[(first * self.naming.block_size) as usize..].to_vec();
        self.events.push(KvEvent::Stored { hashes, parent, tokens, group });
    }

    /// A block was handed out and forgot its content.
    pub(super) fn removed(&mut self, chain: &ContentChain, content: NodeId, group: usize) {
        let tokens = self.tokens(chain, content);
        let hash = self.hashes(&tokens).last().expect("a content is at least one block").published();
        self.events.push(KvEvent::Removed { hash, group });
    }

    fn tokens(&self, chain: &ContentChain, content: NodeId) -> Vec<u32> {
        let slices = chain.slices(content);
        slices
            .iter()
            .flat_map(|slice| (slice.offset..slice.offset + slice.length).map(|at| self.naming.tokens.of(slice.source, at)))
            .collect()
    }

    fn hashes(&self, tokens: &[u32]) -> Vec<BlockHash> {
        self.naming.encoding.blocks(self.root, tokens, self.naming.block_size)
    }

    /// The events from the `first` on as one message with this time stamp.
    pub fn batch(&self, first: usize, seconds: f64) -> Vec<u8> {
        let mut message = Message::default();
        message.array(3);
        message.bytes.push(0xcb);
        message.bytes.extend(seconds.to_be_bytes());
        let events = &self.events[first..];
        message.array(events.len());
        for event in events {
            match event {
                KvEvent::Stored { hashes, parent, tokens, group } => self.write_stored(&mut message, hashes, *parent, tokens, *group),
                KvEvent::Removed { hash, group } => {
                    message.map(4);
                    message.entry("type", |message| message.text("BlockRemoved"));
                    message.entry("block_hashes", |message| message.numbers(&[*hash]));
                    message.entry("medium", |message| message.text("GPU"));
                    message.entry("group_idx", |message| message.number(*group as u64));
                }
            }
        }
        // The rank among several cores, which a publisher of one core leaves open.
        message.nil();
        message.bytes
    }

    /// Fields at their default are left out, as the window of a group without one and the keys of no block.
    fn write_stored(&self, message: &mut Message, hashes: &[u64], parent: Option<u64>, tokens: &[u32], group: usize) {
        let GroupKind { kind, window } = &self.naming.groups[group];
        message.map(10 + usize::from(!hashes.is_empty()) + usize::from(window.is_some()));
        message.entry("type", |message| message.text("BlockStored"));
        message.entry("block_hashes", |message| message.numbers(hashes));
        message.entry("parent_block_hash", |message| match parent {
            Some(hash) => message.number(hash),
            None => message.nil(),
        });
        let tokens: Vec<u64> = tokens.iter().map(|token| u64::from(*token)).collect();
        message.entry("token_ids", |message| message.numbers(&tokens));
        message.entry(Setting::BlockSize.key(), |message| message.number(self.naming.block_size.into()));
        message.entry("lora_id", Message::nil);
        message.entry("medium", |message| message.text("GPU"));
        message.entry("lora_name", Message::nil);
        if !hashes.is_empty() {
            message.entry("extra_keys", |message| {
                message.array(hashes.len());
                for _ in hashes {
                    message.nil();
                }
            });
        }
        message.entry("group_idx", |message| message.number(group as u64));
        message.entry("kv_cache_spec_kind", |message| message.text(kind));
        if let Some(window) = window {
            message.entry("kv_cache_spec_sliding_window", |message| message.number((*window).into()));
        }
    }
}

/// `MessagePack`, each value in its shortest form.
#[derive(Debug, Default)]
struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn nil(&mut self) {
        self.bytes.push(0xc0);
    }

    fn number(&mut self, number: u64) {
        let big = number.to_be_bytes();
        match number {
            0..=0x7f => self.bytes.push(big[7]),
            0x80..=0xff => self.bytes.extend([0xcc, big[7]]),
            0x100..=0xffff => self.tagged(0xcd, &big[6..]),
            0x1_0000..=0xffff_ffff => self.tagged(0xce, &big[4..]),
            0x1_0000_0000.. => self.tagged(0xcf, &big),
        }
    }

    fn tagged(&mut self, tag: u8, bytes: &[u8]) {
        self.bytes.push(tag);
        self.bytes.extend(bytes);
    }

    fn numbers(&mut self, numbers: &[u64]) {
        self.array(numbers.len());
        for number in numbers {
            self.number(*number);
        }
    }

    fn array(&mut self, length: usize) {
        self.head(length, 0x90, 15, [0xdc, 0xdd]);
    }

    fn map(&mut self, length: usize) {
        self.head(length, 0x80, 15, [0xde, 0xdf]);
    }

    /// A length in the tag itself where it is small, else in two or four bytes behind it.
    fn head(&mut self, length: usize, short: u8, short_most: usize, [two, four]: [u8; 2]) {
        let length = u32::try_from(length).expect("a message is far shorter");
        let big = length.to_be_bytes();
        match length {
            _ if length as usize <= short_most => self.bytes.push(short | big[3]),
            0..=0xffff => self.tagged(two, &big[2..]),
            0x1_0000.. => self.tagged(four, &big),
        }
    }

    fn text(&mut self, text: &str) {
        let length = u8::try_from(text.len()).ok().filter(|length| *length < 32).expect("names of fields and kinds are short");
        self.bytes.push(0xa0 | length);
        self.bytes.extend(text.as_bytes());
    }

    fn entry(&mut self, name: &str, value: impl FnOnce(&mut Self)) {
        self.text(name);
        value(self);
    }
}
