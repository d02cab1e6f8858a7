//! Attention within chunks of the context: to the kernel, every chunk that holds new tokens is a request of its own.
//!
//! Such a request has no tokens before its chunk, so neither kernel cuts anything off. Left out: the list of blocks that is written anew
//! for these requests, and that a piece of a single token may be taken for a decode.

use blis_contracts::step::PrefillRow;

/// The rows that a row's new tokens make up, one for each chunk they lie in; the row itself where chunks play no part.
pub(crate) fn rows(row: PrefillRow, chunk: u32) -> impl Iterator<Item = PrefillRow> {
    let whole = chunk == 0;
    let mut left = row.query;
    let mut context = if whole { row.context } else { row.context % chunk };
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let query = if whole { left } else { left.min(chunk - context) };
        let piece = PrefillRow { query, context };
        left -= query;
        context = 0;
        Some(piece)
    })
}

/// Tokens of their chunks that all decode requests attend to, their new ones included.
pub(crate) fn visible_tokens(cached: &[u32], chunk: u32) -> u64 {
    cached.iter().map(|&cached| u64::from(cached % chunk) + 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_falls_apart_at_the_ends_of_chunks() {
        let pieces = |query, context, chunk| -> Vec<_> {
            rows(PrefillRow { query, context }, chunk).map(|piece| (piece.query, piece.context)).collect()
        };
        assert_eq!(pieces(10, 7, 4), [(1, 3), (4, 0), (4, 0), (1, 0)]);
        assert_eq!(pieces(4, 2, 4), [(2, 2), (2, 0)]);
        assert_eq!(pieces(5, 4, 4), [(4, 0), (1, 0)]);
        assert_eq!(pieces(5, 1_000, 8192), [(5, 1_000)]);
        assert_eq!(pieces(10, 7, 0), [(10, 7)]);
    }

    #[test]
    fn a_decode_sees_its_chunk_up_to_itself() {
        assert_eq!(visible_tokens(&[0, 3, 4, 9], 4), 1 + 4 + 1 + 2);
    }
}
