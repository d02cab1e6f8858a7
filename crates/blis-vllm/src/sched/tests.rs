//! One small case per branch of the scheduler, as requests in and a line per step out.
//!
//! A line lists the scheduled requests with their tokens, then `<` and the preempted ones, then `>` and what the processed step gave:
//! `a` a token, `a!` a stop, `a.` a length limit.

mod features;
mod random;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

use blis_contracts::engine::FinishReason;
use blis_contracts::request::{Request, RequestId, RequestSlot, Segment, TokenSource};
use blis_contracts::units::SimTime;

use super::batch::Batch;
use super::queue::Policy;
use super::scheduler::{Barrier, Scheduler, SchedulerConfig};
use crate::kv::group::{Attention, Retention};
use crate::kv::manager::KvConfig;

struct Bench {
    scheduler: Scheduler,
    queue: VecDeque<Batch>,
    names: Vec<&'static str>,
}

#[derive(Debug, Clone, Copy)]
struct Ask {
    name: &'static str,
    prompt: u32,
    shared: u32,
    output: u32,
    max_tokens: u32,
    priority: i32,
}

/// A request with a prompt of its own that speaks to its limit.
fn ask(name: &'static str, prompt: u32, max_tokens: u32) -> Ask {
    Ask { name, prompt, shared: 0, output: max_tokens, max_tokens, priority: 0 }
}

fn scheduler_config() -> SchedulerConfig {
    SchedulerConfig {
        max_model_len: 256,
        max_num_batched_tokens: 64,
        max_num_scheduled_tokens: 64,
        max_num_active_seqs: 8,
        enable_chunked_prefill: true,
        long_prefill_token_threshold: 0,
        long_prefill_token_threshold_adaptive: false,
        scheduler_reserve_full_isl: true,
        policy: Policy::Fcfs,
        async_scheduling: true,
        max_concurrent_batches: 2,
        pipeline_stages: 1,
    }
}

fn kv_config(blocks: u32) -> KvConfig {
    KvConfig {
        groups: vec![Attention::Full.in_blocks(16)],
        block_size: 16,
        num_blocks: blocks + 1,
        enable_prefix_caching: true,
        retention: Retention::Replay,
        watermark_blocks: 0,
        max_model_len: 256,
        max_in_flight_tokens: 128,
    }
}

impl Bench {
    fn new(config: SchedulerConfig, kv: KvConfig) -> Self {
        Self { scheduler: Scheduler::new(config, kv), queue: VecDeque::new(), names: Vec::new() }
    }

    fn add(&mut self, ask: Ask) {
        let number = u32::try_from(self.names.len()).unwrap();
        self.names.push(ask.name);
        let shared = Segment { source: TokenSource::Shared(0), length: ask.shared };
        let own = Segment { source: TokenSource::Unique(u64::from(number)), length: ask.prompt };
        let arrival = SimTime::from_micros(u64::from(number));
        let request = Request::new(RequestId(u64::from(number)), RequestSlot(number), arrival, Arc::from([shared, own]), ask.output)
            .with_max_tokens(Some(ask.max_tokens))
            .with_priority(ask.priority);
        self.scheduler.add(&request).unwrap();
    }

    fn abort(&mut self, name: &str) {
        let number = self.names.iter().rposition(|known| *known == name).unwrap();
        assert!(self.scheduler.abort(RequestSlot(u32::try_from(number).unwrap())).is_some());
        self.scheduler.check_invariants();
    }

    fn step(&mut self) -> String {
        let mut batch = Batch::default();
        self.scheduler.schedule(&mut batch, false);
        self.scheduler.check_invariants();
        assert_eq!(batch.tokens, batch.rows.iter().map(|row| row.tokens).sum::<u32>(), "a batch counts the tokens of its rows");
        let name = |slot| self.names[self.scheduler.identity(slot).external.0 as usize];
        let mut line: Vec<String> = batch.rows.iter().map(|row| format!("{}:{}", name(row.slot), row.tokens)).collect();
        if !batch.preempted.is_empty() {
            line.push("<".to_owned());
            line.extend(batch.preempted.iter().map(|slot| name(*slot).to_owned()));
        }
        let blocks = batch.tokens > 0 && self.queue.len() + 1 < self.scheduler.config().max_concurrent_batches as usize;
        self.queue.push_back(batch);
        if !blocks {
            let mut outputs = Vec::new();
            self.scheduler.process(&self.queue.pop_front().unwrap(), |output| outputs.push(output));
            self.scheduler.check_invariants();
            line.push(">".to_owned());
            for output in outputs {
                let end = match output.finished {
                    None => "",
                    Some(FinishReason::Stop) => "!",
                    Some(FinishReason::Length) => ".",
                    Some(FinishReason::Abort) => "?",
                };
                line.push(format!("{}{end}", self.names[output.external.0 as usize]));
            }
        }
        line.join(" ")
    }

    fn run(&mut self) -> String {
        let mut text = String::new();
        while self.scheduler.has_requests() {
            writeln!(text, "{}", self.step()).unwrap();
            assert!(text.lines().count() < 500, "no end in sight:\n{text}");
        }
        let pool = self.scheduler.kv().pool();
        assert_eq!(pool.free_blocks(), pool.usable_blocks(), "every block has come back");
        assert_eq!(self.scheduler.requests.zombies(), 0, "every slot has come back");
        text
    }
}

fn check(found: &str, expected: &str) {
    let lines: Vec<_> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(found.lines().collect::<Vec<_>>(), lines, "found:\n{found}");
}

#[test]
fn a_prompt_is_computed_in_parts_and_others_join_in_what_is_left() {
    cov_mark::check!(token_budget_spent);
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(ask("a", 100, 3));
    bench.add(ask("b", 40, 2));
    check(
        &bench.run(),
        "a:64
         a:36 b:28 >
         a:1 b:12 > a
         a:1 b:1 > a b
         > a. b.
         >",
    );
}

/// Whether each row of the next step works through known tokens.
fn prefills(bench: &mut Bench) -> Vec<bool> {
    bench.step();
    bench.queue.back().map(|batch| batch.rows.iter().map(|row| row.prefill).collect()).unwrap_or_default()
}

#[test]
fn the_parts_of_a_prompt_count_as_prefill_and_the_tokens_after_it_do_not() {
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(ask("a", 100, 9));
    bench.add(ask("b", 65, 9));
    assert_eq!(prefills(&mut bench), [true]);
    assert_eq!(prefills(&mut bench), [true, true], "the rest of one prompt, a part of the other");
    assert_eq!(prefills(&mut bench), [false, true], "a decode beside the end of a prompt");
    assert_eq!(prefills(&mut bench), [false, false]);
}

#[test]
fn the_last_token_of_a_prompt_counts_as_prefill_even_alone() {
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(ask("a", 65, 9));
    assert_eq!(prefills(&mut bench), [true]);
    check(&bench.step(), "a:1 >");
    assert!(bench.queue[0].rows[0].prefill);
    assert_eq!(prefills(&mut bench), [false]);
}

#[test]
fn outputs_that_a_resumed_request_computes_again_count_as_prefill() {
    let config = SchedulerConfig { max_num_batched_tokens: 20, max_num_scheduled_tokens: 20, ..scheduler_config() };
    let mut bench = Bench::new(config, KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 16, 30));
    bench.add(ask("b", 16, 30));
    let resumed = (0..200).find(|_| {
        bench.step();
        bench.queue.back().is_some_and(|batch| batch.rows.iter().any(|row| row.admission == Some(super::batch::Entry::Resumed)))
    });
    assert!(resumed.is_some(), "a pool of five blocks preempts one of the two");
    assert_eq!(prefills(&mut bench), [true], "its second part begins behind its prompt");
    assert!(bench.queue[0].rows[0].context >= 16 && bench.queue[0].rows[0].tokens > 1);
}

#[test]
fn what_a_resumed_request_computes_again_counts_as_prefill() {
    let mut bench = Bench::new(scheduler_config(), KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 32, 3));
    bench.add(ask("b", 32, 3));
    assert_eq!(prefills(&mut bench), [true, true]);
    check(&bench.step(), "a:1 < b > a b");
    bench.step();
    bench.step();
    let resumed = prefills(&mut bench);
    assert_eq!(resumed, [true], "b comes back with its prompt and its first token");
}

#[test]
fn a_preemption_is_counted_and_holds_the_queue_for_want_of_blocks() {
    let mut bench = Bench::new(scheduler_config(), KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 32, 3));
    bench.add(ask("b", 32, 3));
    bench.step();
    assert_eq!((bench.scheduler.preemptions(), bench.scheduler.barrier()), (0, None));
    check(&bench.step(), "a:1 < b > a b");
    assert_eq!((bench.scheduler.preemptions(), bench.scheduler.barrier()), (1, Some(Barrier::KvBlocks)));
    bench.run();
    assert_eq!((bench.scheduler.preemptions(), bench.scheduler.barrier()), (1, None));
}

#[test]
fn a_request_whose_output_is_in_flight_is_counted_as_deferred() {
    let config = SchedulerConfig { max_concurrent_batches: 3, ..scheduler_config() };
    let mut bench = Bench::new(config, KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 32, 2));
    bench.add(ask("b", 32, 2));
    bench.step();
    check(&bench.step(), "a:1 < b");
    assert_eq!(bench.scheduler.deferred_count(), 0);
    bench.step();
    assert_eq!(bench.scheduler.deferred_count(), 1);
    bench.run();
    assert_eq!(bench.scheduler.deferred_count(), 0);
}

#[test]
fn what_the_first_admission_found_in_the_cache_is_told_with_the_output() {
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(Ask { shared: 32, ..ask("a", 10, 1) });
    bench.add(Ask { shared: 32, ..ask("b", 10, 1) });
    let mut batch = Batch::default();
    bench.scheduler.schedule(&mut batch, false);
    let mut outputs = Vec::new();
    bench.scheduler.process(&batch, |output| outputs.push(output));
    assert_eq!(outputs.iter().map(|output| output.cached_prompt).collect::<Vec<_>>(), [0, 32]);
}

#[test]
fn no_step_is_scheduled_beyond_the_output_limit() {
    cov_mark::check!(no_step_beyond_max_tokens);
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(ask("a", 10, 1));
    check(&bench.run(), "a:10\n > a.\n >");
}

#[test]
fn a_stop_comes_one_step_too_late_to_save_the_next() {
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(Ask { output: 2, ..ask("a", 10, 9) });
    check(&bench.run(), "a:10\n a:1 > a\n a:1 > a!\n >");
}

#[test]
fn a_decode_waits_until_the_last_stage_has_done_with_the_one_before() {
    cov_mark::check!(decode_still_in_the_pipeline);
    let config = SchedulerConfig { pipeline_stages: 3, max_concurrent_batches: 4, ..scheduler_config() };
    let mut bench = Bench::new(config, kv_config(40));
    bench.add(ask("a", 10, 3));
    bench.add(ask("b", 100, 1));
    check(
        &bench.run(),
        "a:10 b:54
         b:46
         > a
         a:1
         > b.
         >
         a:1 > a
         >
         >
         > a.
         >",
    );
}

#[test]
fn a_throttled_step_leaves_prompts_to_the_next_unless_too_many_were_left_before() {
    cov_mark::check!(prompt_left_for_a_later_step);
    let mut scheduler = Bench::new(scheduler_config(), kv_config(40));
    let tokens = |bench: &mut Bench, throttled| {
        let mut batch = Batch::default();
        bench.scheduler.schedule(&mut batch, throttled);
        batch.rows.iter().map(|row| row.tokens).collect::<Vec<_>>()
    };
    scheduler.add(ask("a", 10, 9));
    assert_eq!(tokens(&mut scheduler, false), [10]);
    scheduler.add(ask("b", 100, 9));
    assert_eq!(tokens(&mut scheduler, true), [1]);
    assert_eq!(tokens(&mut scheduler, false), [1, 63]);
    assert_eq!(tokens(&mut scheduler, true), [1]);
    scheduler.add(ask("c", 200, 9));
    scheduler.add(ask("d", 20, 9));
    // The last step that took prompts leaves one behind, so the next takes prompts too.
    assert_eq!(tokens(&mut scheduler, false), [1, 37, 26]);
    assert_eq!(tokens(&mut scheduler, true), [1, 1, 62]);
}

#[test]
fn the_cap_on_running_requests_holds_the_queue() {
    cov_mark::check!(running_cap_reached);
    let mut bench = Bench::new(SchedulerConfig { max_num_active_seqs: 1, ..scheduler_config() }, kv_config(40));
    bench.add(ask("a", 10, 1));
    bench.add(ask("b", 10, 1));
    check(&bench.run(), "a:10\n > a.\n b:10 >\n > b.\n >");
}

#[test]
fn a_prompt_that_may_not_be_split_waits_for_a_whole_budget() {
    cov_mark::check!(prompt_not_chunked);
    let config =
        SchedulerConfig { enable_chunked_prefill: false, async_scheduling: false, max_concurrent_batches: 1, ..scheduler_config() };
    let mut bench = Bench::new(config, kv_config(40));
    bench.add(ask("a", 40, 1));
    bench.add(ask("b", 40, 1));
    check(&bench.run(), "a:40 > a.\n b:40 > b.\n >");
}

#[test]
fn a_long_prompt_is_held_back_only_while_others_want_to_run() {
    let mut bench = Bench::new(SchedulerConfig { long_prefill_token_threshold: 20, ..scheduler_config() }, kv_config(40));
    bench.add(ask("a", 60, 1));
    check(&bench.step(), "a:60");
    bench.add(ask("b", 60, 1));
    check(&bench.run(), "b:20 > a.\n b:40 >\n > b.\n >");
}

#[test]
fn an_adaptive_limit_never_falls_below_a_fair_share() {
    let config = SchedulerConfig { long_prefill_token_threshold: 20, long_prefill_token_threshold_adaptive: true, ..scheduler_config() };
    let mut bench = Bench::new(config, kv_config(40));
    bench.add(ask("a", 60, 1));
    bench.add(ask("b", 60, 1));
    check(&bench.step(), "a:32 b:32");
}

#[test]
fn a_request_is_admitted_only_when_its_whole_prompt_fits() {
    cov_mark::check!(no_blocks_for_admission);
    let mut bench = Bench::new(scheduler_config(), kv_config(8));
    bench.add(ask("a", 60, 2));
    bench.add(ask("b", 80, 1));
    check(&bench.run(), "a:60\n a:1 > a\n > a.\n b:64 >\n b:16 >\n > b.\n >");
}

#[test]
fn without_that_reservation_a_part_is_enough() {
    let mut bench = Bench::new(SchedulerConfig { scheduler_reserve_full_isl: false, ..scheduler_config() }, kv_config(8));
    bench.add(ask("a", 60, 2));
    bench.add(ask("b", 80, 1));
    check(&bench.step(), "a:60 b:4");
}

#[test]
fn the_watermark_counts_only_beside_others() {
    let kv = KvConfig { watermark_blocks: 4, ..kv_config(8) };
    let mut bench = Bench::new(scheduler_config(), kv);
    bench.add(ask("a", 33, 1));
    bench.add(ask("b", 17, 1));
    check(&bench.step(), "a:33");
}

#[test]
fn the_last_admitted_is_preempted_first_and_resumes_with_its_output() {
    cov_mark::check!(preemption);
    let config = SchedulerConfig { async_scheduling: false, max_concurrent_batches: 1, ..scheduler_config() };
    let mut bench = Bench::new(config, KvConfig { enable_prefix_caching: false, ..kv_config(4) });
    bench.add(ask("a", 30, 4));
    bench.add(ask("b", 32, 4));
    check(
        &bench.run(),
        "a:30 b:32 > a b
         a:1 < b > a
         a:1 > a
         a:1 > a.
         b:33 > b
         b:1 > b
         b:1 > b.
         >",
    );
}

#[test]
fn output_in_flight_at_a_preemption_is_delivered_before_the_request_resumes() {
    cov_mark::check!(stale_output_delivered);
    let mut bench = Bench::new(scheduler_config(), KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 32, 5));
    bench.add(ask("b", 32, 5));
    let text = bench.run();
    check(
        &text,
        "a:32 b:32
         a:1 < b > a b
         a:1 > a
         a:1 > a
         a:1 > a
         > a.
         b:33 >
         b:1 > b
         b:1 > b
         b:1 > b
         > b.
         >",
    );
}

#[test]
fn a_request_whose_output_is_still_in_flight_is_skipped_and_keeps_its_place() {
    cov_mark::check!(stale_output_in_flight);
    // With two batches in flight the output always arrives before the next look at the queue; a third one makes the skip visible.
    let config = SchedulerConfig { max_concurrent_batches: 3, ..scheduler_config() };
    let mut bench = Bench::new(config, KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 32, 2));
    bench.add(ask("b", 32, 2));
    check(&bench.step(), "a:32 b:32");
    check(&bench.step(), "a:1 < b");
    bench.add(ask("c", 10, 1));
    check(&bench.step(), "a:1 c:10 > a b");
    check(&bench.run(), "> a.\n b:33 > c.\n >\n > b.\n >");
}

#[test]
fn a_request_may_end_while_it_waits_to_resume() {
    cov_mark::check!(end_while_preempted);
    let mut bench = Bench::new(scheduler_config(), KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 32, 3));
    bench.add(Ask { output: 1, ..ask("b", 32, 5) });
    check(&bench.run(), "a:32 b:32\n a:1 < b > a b!\n a:1 > a\n > a.\n >");
}

#[test]
fn the_least_urgent_gives_way_even_when_it_was_scheduled_already() {
    cov_mark::check!(preemption_of_a_request_already_scheduled);
    let config = SchedulerConfig { policy: Policy::Priority, async_scheduling: false, max_concurrent_batches: 1, ..scheduler_config() };
    let mut bench = Bench::new(config, KvConfig { enable_prefix_caching: false, ..kv_config(4) });
    bench.add(Ask { priority: 5, ..ask("a", 20, 4) });
    check(&bench.step(), "a:20 > a");
    bench.add(Ask { priority: 1, ..ask("b", 32, 3) });
    check(
        &bench.run(),
        "a:1 b:32 > a b
         b:1 < a > b
         b:1 > b.
         a:22 > a
         a:1 > a.
         >",
    );
}

#[test]
fn the_urgent_are_admitted_first_and_equals_in_order_of_arrival() {
    let mut bench = Bench::new(SchedulerConfig { policy: Policy::Priority, ..scheduler_config() }, kv_config(40));
    bench.add(Ask { priority: 2, ..ask("a", 10, 1) });
    bench.add(Ask { priority: 1, ..ask("b", 10, 1) });
    bench.add(Ask { priority: 1, ..ask("c", 10, 1) });
    check(&bench.step(), "b:10 c:10 a:10");
}

#[test]
fn a_prefix_is_hit_in_the_very_step_that_computes_it() {
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(Ask { shared: 32, ..ask("a", 10, 1) });
    bench.add(Ask { shared: 32, ..ask("b", 10, 1) });
    check(&bench.step(), "a:42 b:10");
    let stats = bench.scheduler.kv().stats();
    assert_eq!((stats.queries, stats.hits), (84, 32));
}

#[test]
fn a_fully_cached_prompt_computes_its_last_block_again() {
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(Ask { shared: 32, ..ask("a", 0, 1) });
    bench.add(Ask { shared: 32, ..ask("b", 0, 1) });
    check(&bench.step(), "a:32 b:16");
}

#[test]
fn a_running_request_can_be_aborted_while_its_step_is_in_flight() {
    cov_mark::check!(abort_of_a_running_request);
    let mut bench = Bench::new(scheduler_config(), kv_config(40));
    bench.add(ask("a", 10, 9));
    bench.add(ask("b", 10, 1));
    check(&bench.step(), "a:10 b:10");
    bench.abort("a");
    check(&bench.run(), "> b.\n >");
}

#[test]
fn a_waiting_request_can_be_aborted() {
    cov_mark::check!(abort_of_a_waiting_request);
    let mut bench = Bench::new(SchedulerConfig { max_num_active_seqs: 1, ..scheduler_config() }, kv_config(40));
    bench.add(ask("a", 10, 1));
    bench.add(ask("b", 10, 1));
    check(&bench.step(), "a:10");
    bench.abort("b");
    check(&bench.run(), "> a.\n >");
}

#[test]
fn a_preempted_request_can_be_aborted_while_its_output_is_in_flight() {
    let mut bench = Bench::new(scheduler_config(), KvConfig { enable_prefix_caching: false, ..kv_config(5) });
    bench.add(ask("a", 32, 3));
    bench.add(ask("b", 32, 3));
    check(&bench.step(), "a:32 b:32");
    check(&bench.step(), "a:1 < b > a b");
    bench.abort("b");
    check(&bench.run(), "a:1 > a\n > a.\n >");
}

#[test]
fn blocks_behind_the_window_come_back_while_the_request_runs() {
    let kv =
        KvConfig { groups: vec![Attention::Full.in_blocks(16), Attention::SlidingWindow { window: 32 }.in_blocks(16)], ..kv_config(40) };
    let mut bench = Bench::new(scheduler_config(), kv);
    bench.add(ask("a", 100, 20));
    for _ in 0..6 {
        bench.step();
    }
    let slot = bench.scheduler.running()[0];
    let nulls = |group| bench.scheduler.kv().table(group, slot).iter().filter(|block| block.is_null()).count();
    assert_eq!((nulls(0), nulls(1)), (0, 4));
    bench.run();
}
