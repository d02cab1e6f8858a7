//! Requests that got less than they asked for: turned away, given up by their client, or cut where the engine's longest request ends.
//!
//! Latencies say nothing of an answer that never came, so that a run in which many do not looks better than what its clients met; and a cut
//! answer takes less time than the one that was asked for. Left out: requests that were on their way when the run stopped.

use blis_contracts::fate::Fate;
use blis_vllm::config::Setting;

use crate::tally::Tally;

/// Share of the requests sent without a whole answer, from which a Result warns.
const LEAST_SHARE: f64 = 0.05;

/// Answers that ended before what their request asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Cut {
    /// Requests.
    requests: u64,
    /// Tokens they asked for and did not get.
    tokens: u64,
}

impl Cut {
    /// A request that asked for so many tokens has completed with so many.
    pub(crate) fn completed(&mut self, asked: u64, got: u64) {
        if got < asked {
            self.requests += 1;
            self.tokens += asked - got;
        }
    }
}

/// What a Result says of requests that got less than they asked for, from a model that has so many positions.
pub(crate) fn warnings(tally: &Tally, max_model_len: u32, positions: impl FnOnce() -> u64) -> impl Iterator<Item = String> {
    [unanswered(tally), cut(tally.cut, max_model_len, positions)].into_iter().flatten()
}

fn unanswered(tally: &Tally) -> Option<String> {
    let of = |fate| tally.fates.get(&fate).copied().unwrap_or(0);
    let sent = tally.total() - of(Fate::NotStarted);
    let unanswered = [Fate::TimedOut, Fate::Refused].map(|fate| (fate, of(fate)));
    let share = unanswered.iter().map(|(_, requests)| requests).sum::<u64>() as f64 / sent.max(1) as f64;
    if share < LEAST_SHARE {
        return None;
    }
    let named = unanswered.iter().filter(|(_, requests)| *requests > 0);
    let named: Vec<String> = named.map(|(fate, requests)| format!("{requests} {}", fate.as_str().replace('_', " "))).collect();
    Some(format!(
        "{:.0}% of the {sent} requests sent got no whole answer ({}); latencies leave out what never came, so that clients met worse",
        share * 1e2,
        named.join(", ")
    ))
}

fn cut(Cut { requests, tokens }: Cut, max_model_len: u32, positions: impl FnOnce() -> u64) -> Option<String> {
    (requests > 0).then(|| {
        let raisable = u64::from(max_model_len) < positions();
        let advice = if raisable { "raise it, or ask for less" } else { "the model has no more positions, so ask for less" };
        format!(
            "{requests} of the answers ended at {} ({max_model_len}), {tokens} tokens before what their requests asked for in all; {advice}",
            Setting::MaxModelLen.key()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(fates: &[(Fate, u64)]) -> Option<String> {
        unanswered(&Tally { fates: fates.iter().copied().collect(), ..Tally::default() })
    }

    #[test]
    fn answers_that_never_came_are_told_from_a_twentieth_of_the_requests_on() {
        let most = told(&[(Fate::Completed, 29), (Fate::TimedOut, 40), (Fate::Refused, 31), (Fate::NotStarted, 900)]).unwrap();
        assert!(most.starts_with("71% of the 100 requests sent got no whole answer (40 timed out, 31 refused);"), "{most}");
        let all = told(&[(Fate::Refused, 3)]).unwrap();
        assert!(all.starts_with("100% of the 3 requests sent got no whole answer (3 refused);"), "{all}");
        assert_eq!(told(&[(Fate::Completed, 96), (Fate::TimedOut, 2), (Fate::Refused, 2)]), None);
        assert_eq!(told(&[(Fate::Completed, 10), (Fate::InFlightAtHorizon, 50), (Fate::QueuedAtHorizon, 40)]), None);
    }

    #[test]
    fn an_answer_as_long_as_asked_for_is_not_cut() {
        let mut seen = Cut::default();
        seen.completed(50, 50);
        assert_eq!(cut(seen, 4096, || 8192), None);
        seen.completed(50, 30);
        seen.completed(9, 8);
        assert_eq!(seen, Cut { requests: 2, tokens: 21 });
        let told = cut(seen, 4096, || 8192).unwrap();
        assert!(told.starts_with("2 of the answers ended at max_model_len (4096), 21 tokens before"), "{told}");
        assert!(told.ends_with("; raise it, or ask for less"), "{told}");
        let told = cut(seen, 8192, || 8192).unwrap();
        assert!(told.ends_with("; the model has no more positions, so ask for less"), "{told}");
    }
}
