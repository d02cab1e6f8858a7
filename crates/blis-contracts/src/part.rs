//! Which requests of a step a piece of work serves, where short prompts attend to all of their context and the rest to picked tokens.
//!
//! A step whose prompts all end early enough attends in two ways at once: its prompts densely, its other requests to picked tokens. The
//! plan states the rule, and each piece of work the part of a step that it serves.

use crate::step::{Launch, PrefillRow, RankStep};

/// Which prompts attend to all of their context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DensePrompts {
    /// New tokens up to which a request is served as one that generates.
    pub generates_to: u32,
    /// Tokens, cached ones included, within which every prompt of a step must end; else none of them attends densely.
    pub ends_within: u32,
}

/// The part of a step that a piece of work serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Part {
    /// Every request.
    #[default]
    Whole,
    /// Every request that attends to picked tokens.
    Picking,
    /// Every request, unless none of them attends to picked tokens.
    Scored,
    /// Every request, where picking is readied for all: no prompt attends densely, or a graph was captured that way.
    Readied,
    /// Every request, where picking is readied for none before attention begins.
    Unreadied,
    /// Every request of a step whose prompts attend densely.
    Mixed,
    /// The prompts that attend densely.
    DensePrompts,
    /// The other requests of a step whose prompts attend densely.
    BesideDense,
}

impl Part {
    /// Whether only steps whose prompts attend densely have it, so that no graph holds its work.
    pub const fn needs_dense_prompts(self) -> bool {
        match self {
            Self::Whole | Self::Picking | Self::Scored | Self::Readied => false,
            Self::Unreadied | Self::Mixed | Self::DensePrompts | Self::BesideDense => true,
        }
    }
}

/// A step's requests, apart by how they attend; the buffers are reused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parted {
    /// Nothing where no prompt attends densely.
    prompts: RankStep,
    others: RankStep,
}

impl Parted {
    /// One rank's step by the plan's rule; everything is one part where there is none.
    pub fn of(step: &RankStep, rule: Option<DensePrompts>) -> Self {
        let mut parted = Self::default();
        parted.part(step, rule);
        parted
    }

    /// Parts another step.
    pub fn part(&mut self, step: &RankStep, rule: Option<DensePrompts>) {
        self.prompts.clear();
        self.others.clear();
        let Some(rule) = rule else { return };
        let prompt = |row: &&PrefillRow| row.query > rule.generates_to;
        if step.prefill.iter().filter(prompt).any(|row| u64::from(row.query) + u64::from(row.context) > rule.ends_within.into()) {
            return;
        }
        self.prompts.prefill.extend(step.prefill.iter().filter(prompt));
        if self.prompts.prefill.is_empty() {
            return;
        }
        self.others.decode.extend(&step.decode);
        self.others.prefill.extend(step.prefill.iter().filter(|row| !prompt(row)));
        for part in [&mut self.prompts, &mut self.others] {
            part.padded_tokens = u32::try_from(part.tokens()).expect("a part has no more tokens than its step");
        }
    }

    /// A part of the step that was parted; nothing where it has no such part.
    pub fn get<'a>(&'a self, part: Part, whole: &'a RankStep) -> Option<&'a RankStep> {
        let (dense, replayed) = (!self.prompts.prefill.is_empty(), whole.launch != Launch::Eager);
        let others = || Some(&self.others).filter(|others| others.requests() > 0);
        let when = |holds: bool| holds.then_some(whole);
        match part {
            Part::Whole => Some(whole),
            Part::Picking => {
                if dense {
                    others()
                } else {
                    Some(whole)
                }
            }
            Part::Scored => when(!dense || self.others.requests() > 0),
            Part::Readied => when(!dense || replayed),
            Part::Unreadied => when(dense && !replayed),
            Part::Mixed => when(dense),
            Part::DensePrompts => Some(&self.prompts).filter(|_| dense),
            Part::BesideDense => others(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: DensePrompts = DensePrompts { generates_to: 128, ends_within: 2048 };

    /// The parts of a step as requests and tokens launched, in the order of the enum.
    fn parts(decode: &[u32], prefill: &[(u32, u32)], launch: Launch) -> [Option<(usize, u32)>; 8] {
        let prefill: Vec<_> = prefill.iter().map(|&(query, context)| PrefillRow { query, context }).collect();
        let mut step = RankStep { decode: decode.to_vec(), prefill, launch, ..RankStep::default() };
        step.padded_tokens = u32::try_from(step.tokens()).unwrap() + 8;
        let parted = Parted::of(&step, Some(RULE));
        let all =
            [Part::Whole, Part::Picking, Part::Scored, Part::Readied, Part::Unreadied, Part::Mixed, Part::DensePrompts, Part::BesideDense];
        all.map(|part| parted.get(part, &step).map(|found| (found.requests(), found.padded_tokens)))
    }

    #[test]
    fn prompts_that_end_within_the_rule_attend_densely_and_the_others_pick() {
        let whole = Some((4, 1012));
        let found = parts(&[900, 40], &[(1000, 1048), (2, 500)], Launch::Eager);
        assert_eq!(found, [whole, Some((3, 4)), whole, None, whole, whole, Some((1, 1000)), Some((3, 4))]);
        let replayed = parts(&[900, 40], &[(1000, 1048), (2, 500)], Launch::Piecewise);
        assert_eq!((replayed[3], replayed[4]), (whole, None), "a graph readies picking whoever picks");
    }

    #[test]
    fn nothing_is_scored_where_every_request_is_a_dense_prompt() {
        let whole = Some((2, 808));
        assert_eq!(parts(&[], &[(300, 0), (500, 0)], Launch::Eager), [whole, None, None, None, whole, whole, Some((2, 800)), None]);
    }

    #[test]
    fn one_prompt_that_ends_later_makes_all_of_them_pick() {
        let whole = Some((3, 1810));
        assert_eq!(parts(&[9], &[(300, 0), (1501, 548)], Launch::Eager), [whole, whole, whole, whole, None, None, None, None]);
    }

    #[test]
    fn prompts_of_few_new_tokens_and_steps_without_a_rule_pick() {
        let whole = Some((2, 137));
        assert_eq!(parts(&[9], &[(128, 0)], Launch::Full), [whole, whole, whole, whole, None, None, None, None]);
        let step = RankStep { prefill: vec![PrefillRow { query: 300, context: 0 }], ..RankStep::default() };
        assert_eq!(Parted::of(&step, None).get(Part::Picking, &step), Some(&step));
    }
}
