//! A prompt as the texts it is made of, each from its first token on.

use super::{Part, Row};

/// What a text is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    Shared(u32),
    Input(u64),
    Output(u64),
}

/// The pieces of a prompt, with their lengths. `round` knows the lengths of a request's own text and of what it generated; none where a
/// round that it does not know is part of the prompt.
pub(super) fn pieces(row: &Row, round: impl Fn(u64) -> Option<(u32, u32)>) -> Option<Vec<(Source, u32)>> {
    let mut pieces: Vec<(Source, u32)> = row.prompt.prefix.map(|(text, length)| (Source::Shared(text), length)).into_iter().collect();
    for part in &row.prompt.parts {
        match *part {
            Part::Shared { text, length } => pieces.push((Source::Shared(text), length)),
            Part::Input { request, length } => pieces.push((Source::Input(request), length)),
            Part::Output { request, length } => pieces.push((Source::Output(request), length)),
            Part::Round { request } => {
                let (own, output) = round(request)?;
                pieces.extend([(Source::Input(request), own), (Source::Output(request), output)]);
            }
        }
    }
    if row.prompt.own > 0 {
        pieces.push((Source::Input(row.id), row.prompt.own));
    }
    Some(pieces)
}
