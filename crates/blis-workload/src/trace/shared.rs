//! How much of a trace's prompts begins as earlier prompts do: what a prefix cache without limits would find, token by token.
//!
//! Left out: text that comes again behind other text, which no prefix cache finds.

use std::collections::BTreeMap;

use super::Trace;
use super::pieces::{Source, pieces};

/// The share of all prompt tokens that earlier prompts begin with too, from 0 to 1.
pub(crate) fn share_of_known(trace: &Trace) -> f64 {
    let lengths: BTreeMap<u64, (u32, u32)> = trace.rows.iter().map(|row| (row.id, (row.prompt.own, row.output_tokens))).collect();
    let mut seen = Seen::default();
    let (mut known, mut all) = (0u64, 0u64);
    for row in &trace.rows {
        let round = |request| Some(lengths.get(&request).copied().unwrap_or_default());
        let mut pieces = pieces(row, round).expect("every round is known, if as nothing");
        pieces.retain(|(_, length)| *length > 0);
        all += pieces.iter().map(|(_, length)| u64::from(*length)).sum::<u64>();
        known += seen.add(&pieces);
    }
    if all == 0 { 0.0 } else { known as f64 / all as f64 }
}

/// Every beginning of a prompt so far, as a tree: what stands behind a beginning, and behind each piece of it.
#[derive(Debug, Default)]
struct Seen {
    /// The most tokens of a source that were seen behind a beginning.
    longest: BTreeMap<(usize, Source), u32>,
    /// The beginning that a piece of this length makes of another.
    longer: BTreeMap<(usize, Source, u32), usize>,
}

impl Seen {
    /// Adds a prompt, and tells with how many of its tokens an earlier one begins.
    fn add(&mut self, pieces: &[(Source, u32)]) -> u64 {
        let (mut known, mut going) = (0, true);
        let mut at = 0;
        for (source, length) in pieces {
            let most = self.longest.entry((at, *source)).or_default();
            if going {
                known += u64::from((*most).min(*length));
            }
            *most = (*most).max(*length);
            let fresh = self.longer.len() + 1;
            let next = *self.longer.entry((at, *source, *length)).or_insert(fresh);
            going &= next != fresh;
            at = next;
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Part, Prompt, Row};

    fn row(id: u64, prefix: u32, parts: &[Part], own: u32) -> Row {
        let prefix = (prefix > 0).then_some((0, prefix));
        Row { id, prompt: Prompt { prefix, parts: parts.into(), own }, output_tokens: 5, ..Row::default() }
    }

    #[test]
    fn what_earlier_prompts_begin_with_is_counted_token_by_token() {
        let share = |rows: Vec<Row>| share_of_known(&Trace { rows, ..Trace::default() });
        assert_eq!(share(vec![row(0, 0, &[], 10), row(1, 0, &[], 10)]).to_bits(), 0.0f64.to_bits());
        assert_eq!(share(vec![row(0, 6, &[], 4), row(1, 6, &[], 4)]).to_bits(), 0.3f64.to_bits());
        assert_eq!(share(vec![row(0, 9, &[], 1), row(1, 6, &[], 4)]).to_bits(), 0.3f64.to_bits(), "a longer beginning holds a shorter");
        let again = [Part::Round { request: 0 }];
        assert_eq!(share(vec![row(0, 0, &[], 10), row(1, 0, &again, 5)]).to_bits(), 0.333_333_333_333_333_3f64.to_bits());
        let [one, other] = [3, 4].map(|text| Part::Shared { text, length: 5 });
        assert_eq!(share(vec![row(0, 0, &[one, other], 0), row(1, 0, &[other, one], 0)]).to_bits(), 0.0f64.to_bits());
    }
}
