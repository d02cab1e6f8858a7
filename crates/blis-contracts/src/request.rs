//! A request as it reaches an engine.

use std::fmt;
use std::sync::Arc;

use crate::units::SimTime;

/// A request's number in the run, in order of generation. It prints zero-padded, so that text order is numeric order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012}", self.0)
    }
}

/// A dense, recycled index of a live request, given by whoever delivers it and handed back in every effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestSlot(pub u32);

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// Its number in the run.
    pub id: RequestId,
    /// The index effects name it by while it lives.
    pub slot: RequestSlot,
    /// When the engine's front end received it.
    pub arrival: SimTime,
    /// The prompt, in order.
    pub prompt: Arc<[Segment]>,
    /// The most tokens it may generate, where the client stated a limit.
    pub max_tokens: Option<u32>,
    /// Scheduling priority; lower runs first where the engine looks at it.
    pub priority: i32,
    /// How many tokens it will generate. Only the stop check may look.
    output_length: u32,
}

impl Request {
    /// A request that will generate `output_length` tokens unless a limit ends it sooner.
    pub fn new(id: RequestId, slot: RequestSlot, arrival: SimTime, prompt: Arc<[Segment]>, output_length: u32) -> Self {
        Self { id, slot, arrival, prompt, max_tokens: None, priority: 0, output_length }
    }

    /// The same with a limit on generated tokens.
    #[must_use]
    pub fn with_max_tokens(self, max_tokens: Option<u32>) -> Self {
        Self { max_tokens, ..self }
    }

    /// The same with a priority.
    #[must_use]
    pub fn with_priority(self, priority: i32) -> Self {
        Self { priority, ..self }
    }

    /// Tokens of the prompt.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt.iter().map(|segment| u64::from(segment.length)).sum()
    }

    /// The sampled output length, for an engine's stop check alone.
    pub fn output_length_for_stop_check(&self) -> u32 {
        self.output_length
    }
}

/// A run of prompt tokens that come from one source, starting at the source's first token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Segment {
    /// Where the tokens come from.
    pub source: TokenSource,
    /// How many.
    pub length: u32,
}

/// Where tokens come from. A token is identified by its source and its offset there: equal pairs are equal tokens, unequal pairs
/// differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenSource {
    /// Text shared by every request that names the group.
    Shared(u32),
    /// Text of one request's own.
    Unique(u64),
    /// The tokens a request generated.
    Output(u64),
}
