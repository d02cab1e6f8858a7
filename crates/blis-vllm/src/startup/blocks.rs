//! Whether the blocks that a line states are what keeps the pool too small: the line is resolved again with others.

use crate::config::Resolved;
use crate::kv_sizing::Remedy;

/// The most of the halves of a stated block with which the pool is large enough, else the size in force where none is stated.
///
/// `with_blocks` resolves the line with another size or none, where that is not refused; `fits` says whether the pool is then large enough.
pub(crate) fn shorter(
    resolved: &Resolved,
    with_blocks: impl Fn(Option<u32>) -> Option<Resolved>,
    fits: impl Fn(&Resolved) -> bool,
) -> Option<Remedy> {
    let stated = resolved.cache.block_size;
    if !resolved.cache.block_size_stated {
        return None;
    }
    let in_force = |tokens| {
        let other = with_blocks(tokens).filter(|other| other.cache.block_size < stated && fits(other))?;
        Some(other.cache.block_size)
    };
    let mut halves = std::iter::successors(Some(stated / 2), |tokens| Some(tokens / 2)).take_while(|tokens| *tokens > 0);
    let default = in_force(None);
    let enough = halves.find_map(|tokens| in_force(Some(tokens))).or(default)?;
    Some(Remedy::ShorterBlocks { stated, enough, default_fits: default.is_some() })
}
