//! Drafts, adapters and grammars, a small case for each branch.

use super::*;
use crate::sched::features::{Features, Grammar, RequestFeatures};
use crate::sched::speculation::{Profile, Speculation};

/// Drafts that are all right, or all wrong.
fn drafting(tokens: u8, right: bool) -> Speculation {
    Speculation {
        tokens,
        lookahead: 0,
        prefill_lookahead: 0,
        draft_slots: 0,
        drops: vec![false],
        by_batch: None,
        profile: Profile { seed: 0, accepted_permille: vec![if right { 1000 } else { 0 }], forbidden_permille: 0 },
    }
}

fn bench(config: SchedulerConfig, blocks: u32, features: Features) -> Bench {
    let mut bench = Bench::new(config, kv_config(blocks));
    bench.scheduler.set_features(features);
    bench
}

fn drafts(speculation: Speculation) -> Features {
    Features { speculation: Some(speculation), ..Features::default() }
}

fn one_at_a_time() -> SchedulerConfig {
    SchedulerConfig { async_scheduling: false, max_concurrent_batches: 1, ..scheduler_config() }
}

#[test]
fn right_drafts_save_steps_and_the_limit_cuts_the_last_run_short() {
    let mut all = bench(one_at_a_time(), 40, drafts(drafting(3, true)));
    all.add(ask("a", 20, 7));
    check(&all.run(), "a:20 > a\n a:4 > a\n a:4 > a.\n >");
    assert_eq!(all.scheduler.draft_stats().map(|stats| (stats.drafts, stats.accepted)), Some((0, 0)), "the last step had none");
}

#[test]
fn wrong_drafts_are_taken_back() {
    let mut none = bench(one_at_a_time(), 40, drafts(drafting(3, false)));
    none.add(ask("a", 20, 4));
    for _ in 0..3 {
        none.step();
    }
    let progress = *none.scheduler.progress(none.scheduler.running()[0]);
    assert_eq!((progress.tokens, progress.computed, progress.drafts), (23, 22, 3));
    check(&none.run(), "a:4 > a.\n >");
}

#[test]
fn a_step_in_flight_counts_on_its_drafts_until_it_is_processed() {
    let mut bench = bench(scheduler_config(), 40, drafts(drafting(3, false)));
    bench.add(ask("a", 20, 3));
    check(&bench.step(), "a:20");
    check(&bench.step(), "a:4 > a");
    let progress = *bench.scheduler.progress(bench.scheduler.running()[0]);
    assert_eq!((progress.computed, progress.placeholders), (24, 4));
    check(&bench.step(), "a:4 > a");
    check(&bench.run(), "> a.\n >");
}

#[test]
fn a_new_decode_is_as_wide_as_those_beside_it() {
    cov_mark::check!(new_decode_widened);
    let mut bench = bench(one_at_a_time(), 40, drafts(drafting(3, false)));
    bench.add(ask("a", 20, 9));
    check(&bench.step(), "a:20 > a");
    bench.add(ask("b", 1, 2));
    check(&bench.step(), "a:4 b:4 > a b");
    check(&bench.step(), "a:4 b:4 > a b.");
}

#[test]
fn a_new_decode_without_room_for_its_width_waits() {
    let config = SchedulerConfig { max_num_batched_tokens: 20, max_num_scheduled_tokens: 20, ..one_at_a_time() };
    let mut bench = bench(config, 40, drafts(drafting(9, false)));
    bench.add(ask("a", 20, 3));
    bench.add(ask("b", 20, 3));
    for _ in 0..2 {
        bench.step();
    }
    bench.add(ask("c", 1, 1));
    check(&bench.step(), "a:10 b:10 > a. b");
    assert_eq!(bench.scheduler.barrier(), Some(Barrier::TokenBudget));
}

#[test]
fn no_chunk_ends_where_the_drafter_could_not_read_on() {
    cov_mark::check!(chunk_kept_off_the_end);
    let speculation = Speculation { prefill_lookahead: 4, ..drafting(4, false) };
    let mut bench = bench(one_at_a_time(), 40, drafts(speculation));
    bench.add(ask("a", 66, 1));
    check(&bench.run(), "a:62 >\n a:4 > a.\n >");
}

#[test]
fn the_last_block_of_a_hit_is_computed_again_and_slots_are_kept_for_the_drafter() {
    let speculation = Speculation { lookahead: 3, drops: vec![true], ..drafting(3, true) };
    let mut bench = bench(one_at_a_time(), 40, drafts(speculation));
    bench.add(Ask { shared: 48, ..ask("a", 14, 1) });
    check(&bench.step(), "a:62 > a.");
    bench.add(Ask { shared: 48, ..ask("b", 14, 9) });
    check(&bench.step(), "b:30 > b");
    assert_eq!(bench.scheduler.kv().table(0, bench.scheduler.running()[0]).len(), 5, "62 tokens and 3 for the drafter");
    bench.run();
}

#[test]
fn drafts_follow_the_number_of_requests() {
    let speculation = Speculation { by_batch: Some(vec![3, 1, 0, 0, 0, 0, 0, 0]), ..drafting(3, false) };
    let mut bench = bench(one_at_a_time(), 40, drafts(speculation));
    bench.add(ask("a", 10, 9));
    check(&bench.step(), "a:10 > a");
    check(&bench.step(), "a:4 > a");
    bench.add(ask("b", 10, 9));
    check(&bench.step(), "a:4 b:10 > a b");
    check(&bench.step(), "a:2 b:2 > a b");
}

fn with_adapters(adapters: &[Option<u32>]) -> Features {
    let request = |adapter: &Option<u32>| RequestFeatures { adapter: *adapter, ..RequestFeatures::default() };
    Features { max_loras: Some(1), requests: adapters.iter().map(request).collect(), ..Features::default() }
}

#[test]
fn a_request_with_one_adapter_too_many_lets_others_pass() {
    let mut bench = bench(one_at_a_time(), 40, with_adapters(&[Some(1), Some(2), None, Some(1)]));
    for name in ["a", "b", "c", "d"] {
        bench.add(ask(name, 10, 2));
    }
    check(&bench.step(), "a:10 c:10 d:10 > a c d");
    assert_eq!(bench.scheduler.deferred_count(), 1);
    check(&bench.run(), "a:1 c:1 d:1 > a. c. d.\n b:10 > b\n b:1 > b.\n >");
}

fn with_grammar(ready: u64, fails: bool) -> Features {
    let grammar = Some(Grammar { ready: SimTime::from_micros(ready), fails });
    Features { requests: vec![RequestFeatures { grammar, ..RequestFeatures::default() }], ..Features::default() }
}

#[test]
fn a_request_waits_for_its_grammar() {
    cov_mark::check!(grammar_not_compiled_yet);
    let mut bench = bench(one_at_a_time(), 40, with_grammar(5, false));
    bench.add(ask("a", 10, 1));
    bench.add(ask("b", 10, 1));
    check(&bench.step(), "b:10 > b.");
    bench.scheduler.now = SimTime::from_micros(5);
    check(&bench.run(), "a:10 > a.\n >");
}

#[test]
fn a_request_whose_grammar_fails_ends_with_the_step() {
    cov_mark::check!(grammar_fails);
    let mut bench = bench(one_at_a_time(), 40, with_grammar(0, true));
    bench.add(ask("a", 10, 1));
    let mut outputs = Vec::new();
    let mut batch = Batch::default();
    bench.scheduler.schedule(&mut batch, false);
    let failed = bench.scheduler.process(&batch, |output| outputs.push(output));
    outputs.extend(failed);
    assert!(outputs.len() == 1 && outputs[0].failed && outputs[0].gained == 0);
    check(&bench.run(), ">");
}

#[test]
fn a_failed_grammar_is_forgotten_with_its_request() {
    let mut bench = bench(one_at_a_time(), 40, with_grammar(0, true));
    bench.add(ask("a", 10, 1));
    let mut batch = Batch::default();
    bench.scheduler.schedule(&mut batch, false);
    bench.abort("a");
    bench.add(ask("b", 10, 1));
    let mut outputs = Vec::new();
    let failed = bench.scheduler.process(&batch, |output| outputs.push(output));
    outputs.extend(failed);
    assert!(outputs.is_empty(), "the next bearer of the slot does not end for it");
}
