//! A step in the words of the command line, such as `decode=16@1000,prefill=512@0`.
//!
//! Padding and launch mode are not written: the engine's own rule gives them.

use std::fmt;
use std::str::FromStr;

use blis_contracts::step::{PrefillRow, StepShape};
use blis_contracts::strict::did_you_mean;
use blis_report::quantity::count;
use blis_sim::Prepared;
use blis_vllm::config::Setting;
use blis_vllm::sched::scheduler::SchedulerConfig;

/// The most requests one part may state, and the most tokens of a request.
const MAX: u32 = 10_000_000;

/// The requests of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StepText {
    text: String,
    decode: Vec<u32>,
    prefill: Vec<PrefillRow>,
}

impl StepText {
    /// The step as this engine launches it.
    pub(crate) fn launched(&self, prepared: &Prepared) -> StepShape {
        prepared.launched(&self.decode, &self.prefill)
    }

    /// Why an engine with this scheduler never forms the step; none where it may.
    pub(crate) fn beyond(&self, scheduler: &SchedulerConfig) -> Option<String> {
        let requests = (self.decode.len() + self.prefill.len()) as u64;
        let tokens = self.decode.len() as u64 + self.prefill.iter().map(|row| u64::from(row.query)).sum::<u64>();
        let decoded = self.decode.iter().map(|context| u64::from(*context) + 1);
        let longest = decoded.chain(self.prefill.iter().map(|row| u64::from(row.context) + u64::from(row.query))).max();
        let limits = [
            (requests, "requests", scheduler.max_num_active_seqs, Setting::MaxNumActiveSeqs),
            (tokens, "tokens", scheduler.max_num_scheduled_tokens, Setting::MaxNumScheduledTokens),
            (longest.unwrap_or(0), "tokens in one request", scheduler.max_model_len, Setting::MaxModelLen),
        ];
        let (amount, what, limit, setting) = limits.into_iter().find(|(amount, _, limit, _)| *amount > u64::from(*limit))?;
        let (amount, limit) = (count(amount), count(limit.into()));
        Some(format!("This engine never forms the step: it has {amount} {what}, and {} is {limit}.\n", setting.key()))
    }
}

impl fmt::Display for StepText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for StepText {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const KINDS: [&str; 2] = ["decode", "prefill"];
        let mut step = Self { text: text.to_owned(), decode: Vec::new(), prefill: Vec::new() };
        for part in text.split(',') {
            let malformed = || format!("`{part}` is not a part of a step; write `decode=16@1000` or `prefill=512@0`");
            let (kind, amounts) = part.trim().split_once('=').ok_or_else(malformed)?;
            let (first, context) = amounts.split_once('@').ok_or_else(malformed)?;
            let number = |text: &str, least: u32| match text.parse::<u32>() {
                Ok(number) if (least..=MAX).contains(&number) => Ok(number),
                Ok(_) | Err(_) => Err(format!("`{text}` in `{part}` must be an integer from {least} to {MAX}")),
            };
            match kind {
                "decode" => step.decode.extend(vec![number(context, 1)?; number(first, 1)? as usize]),
                "prefill" => step.prefill.push(PrefillRow { query: number(first, 1)?, context: number(context, 0)? }),
                other => return Err(format!("`{other}` is no kind of request; {}", did_you_mean(other, &KINDS).unwrap_or_default())),
            }
        }
        let tokens = step.decode.len() as u64 + step.prefill.iter().map(|row| u64::from(row.query)).sum::<u64>();
        if tokens > u64::from(MAX) {
            return Err(format!("a step of {tokens} tokens; at most {MAX}"));
        }
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_a_list_of_requests() {
        let step: StepText = "decode=3@1000,prefill=512@0, prefill=64@128".parse().unwrap();
        assert_eq!(step.decode, [1000; 3]);
        assert_eq!(step.prefill, [PrefillRow { query: 512, context: 0 }, PrefillRow { query: 64, context: 128 }]);
    }

    #[test]
    fn a_malformed_step_says_what_would_be_right() {
        let refusal = |text: &str| text.parse::<StepText>().unwrap_err();
        assert_eq!(refusal("decode=16"), "`decode=16` is not a part of a step; write `decode=16@1000` or `prefill=512@0`");
        assert_eq!(refusal("decoder=16@1"), "`decoder` is no kind of request; did you mean `decode`?");
        assert_eq!(refusal("decode=16@0"), "`0` in `decode=16@0` must be an integer from 1 to 10000000");
        assert_eq!(refusal("prefill=-1@0"), "`-1` in `prefill=-1@0` must be an integer from 1 to 10000000");
        assert_eq!(refusal("prefill=9000000@0,prefill=9000000@0"), "a step of 18000000 tokens; at most 10000000");
    }
}
