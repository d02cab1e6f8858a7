//! The scheduler's state, and how requests enter and leave it.
//!
//! upstream: vllm `v1/core/sched/scheduler.py::Scheduler.add_request`, `finish_requests`, `_free_request`, `has_requests`

use blis_contracts::engine::FinishReason;
use blis_contracts::request::{Request, RequestId, RequestSlot, TokenSource};
use blis_contracts::units::SimTime;

use super::batch::Batch;
use super::features::Features;
use super::queue::{Policy, WaitingQueue};
use super::speculation::DraftStats;
use crate::kv::events::Naming;
use crate::kv::mamba::{AlignedSplit, Chunk};
use crate::kv::manager::{Drafting, KvConfig, KvManager};
use crate::request::{Identity, Progress, Refusal, Requests, Slot, Status};

/// The resolved scheduler settings, under upstream's names.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is an independent switch of upstream's scheduler")]
pub struct SchedulerConfig {
    /// Longest sequence.
    pub max_model_len: u32,
    /// Rows a step's inputs have room for.
    pub max_num_batched_tokens: u32,
    /// Tokens a step may schedule.
    pub max_num_scheduled_tokens: u32,
    /// Requests that may run at once: `max_num_active_seqs`, or `max_num_seqs` where that is unset.
    pub max_num_active_seqs: u32,
    /// Whether a prompt may be computed in parts.
    pub enable_chunked_prefill: bool,
    /// Most tokens of one request in a step while others want to run; 0 for no limit.
    pub long_prefill_token_threshold: u32,
    /// Whether that limit never falls below an equal share of the step.
    pub long_prefill_token_threshold_adaptive: bool,
    /// Whether a request is admitted only when its whole known sequence fits.
    pub scheduler_reserve_full_isl: bool,
    /// Order of admission and preemption.
    pub policy: Policy,
    /// Whether the next step is scheduled before the last one's output is known.
    pub async_scheduling: bool,
    /// Steps that may be in flight: one per pipeline stage, and one more under asynchronous scheduling.
    pub max_concurrent_batches: u32,
    /// Stages that each step passes through, one after the other.
    pub pipeline_stages: u32,
}

/// What stopped the last look at the waiting queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Barrier {
    /// The cap on running requests.
    RunningCap,
    /// A token budget, or a prompt larger than what was left of it.
    TokenBudget,
    /// Free KV blocks.
    KvBlocks,
    /// A step that has to end first: the loop is elsewhere, or the request's own earlier output is still in flight.
    Step,
}

/// One request's outcome of a processed step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Output {
    /// The index the simulator knows the request by.
    pub external: RequestSlot,
    /// The request's number.
    pub id: RequestId,
    /// Tokens the step gave it.
    pub gained: u32,
    /// Whether it ended, and why.
    pub finished: Option<FinishReason>,
    /// It ended because its grammar does not compile.
    pub failed: bool,
    /// Tokens of its prompt.
    pub prompt: u32,
    /// Output tokens it has by now.
    pub outputs: u32,
    /// Prompt tokens found in the cache at its first admission.
    pub cached_prompt: u32,
}

/// The scheduler.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) config: SchedulerConfig,
    pub(super) requests: Requests,
    pub(super) kv: KvManager,
    pub(super) waiting: WaitingQueue,
    pub(super) running: Vec<Slot>,
    pub(super) deferred: u32,
    pub(super) finished: Vec<RequestId>,
    pub(super) skipped: Vec<Slot>,
    pub(super) barrier: Option<Barrier>,
    pub(super) preemptions: u64,
    pub(super) steps: u32,
    /// The last look at the waiting queue that could take prompts left some behind.
    pub(super) prompts_held_up: bool,
    /// What only some engines and requests have.
    pub(super) features: Features,
    /// What the drafts of the last processed step came to.
    pub(super) draft_stats: DraftStats,
    /// The time of the step being formed.
    pub(crate) now: SimTime,
    /// Requests whose grammar has failed and that have not been ended for it.
    pub(super) failed: Vec<Slot>,
    /// Where prompts are cut; absent where no layer's states are cached.
    split: Option<AlignedSplit>,
}

impl Scheduler {
    /// A scheduler without requests.
    pub fn new(config: SchedulerConfig, kv: KvConfig) -> Self {
        let waiting = WaitingQueue::new(config.policy);
        let split = AlignedSplit::of(kv.groups.iter().map(|group| (group.attention, group.block_size)));
        Self {
            config,
            requests: Requests::default(),
            kv: KvManager::new(kv),
            waiting,
            running: Vec::new(),
            deferred: 0,
            finished: Vec::new(),
            skipped: Vec::new(),
            barrier: None,
            preemptions: 0,
            steps: 0,
            prompts_held_up: false,
            features: Features::default(),
            draft_stats: DraftStats::default(),
            now: SimTime::ZERO,
            failed: Vec::new(),
            split,
        }
    }

    /// Gives it drafts, adapters or grammars, before the first request.
    pub fn set_features(&mut self, features: Features) {
        if let Some(speculation) = &features.speculation {
            let tail = speculation.prefill_lookahead.saturating_sub(1);
            self.kv.set_drafting(&Drafting { lookahead: speculation.lookahead, tail, drops: &speculation.drops });
        }
        self.features = features;
    }

    /// Queues a request, or says why it is refused.
    pub fn add(&mut self, request: &Request) -> Result<Slot, Refusal> {
        let slot = self.requests.add(request, self.config.max_model_len)?;
        self.kv.register(slot, request.prompt.clone(), TokenSource::Output(request.id.0));
        self.waiting.push(slot, self.requests.identity(slot));
        self.defer_for_grammar(slot);
        Ok(slot)
    }

    /// Ends a request at its client's wish, whatever it is doing. `None` when there is no such request any more.
    pub fn abort(&mut self, external: RequestSlot) -> Option<Output> {
        let slot = self.requests.find(external)?;
        match self.requests.progress(slot).status {
            Status::Running => {
                cov_mark::hit!(abort_of_a_running_request);
                self.running.retain(|running| *running != slot);
            }
            Status::Waiting | Status::Preempted => {
                cov_mark::hit!(abort_of_a_waiting_request);
                self.waiting.remove(slot, self.requests.identity(slot));
                self.set_deferred(slot, false);
            }
            Status::Finished => unreachable!("a finished request has left the index"),
        }
        let output = self.output(slot, 0, Some(FinishReason::Abort));
        self.failed.retain(|failed| *failed != slot);
        self.free(slot);
        self.requests.recycle_if_unnamed(slot);
        Some(output)
    }

    /// Whether a step is worth scheduling: requests live, or workers have an end to learn of.
    pub fn has_requests(&self) -> bool {
        !self.running.is_empty() || !self.waiting.is_empty() || !self.finished.is_empty()
    }

    /// Steps formed so far.
    pub const fn steps(&self) -> u32 {
        self.steps
    }

    /// Forms the next step into `batch`.
    ///
    /// upstream: vllm `v1/core/sched/scheduler.py::Scheduler.schedule`
    ///
    /// `throttled`: cores in lockstep leave prompts for a later step, unless there were too many of them at the last one that took any.
    pub fn schedule(&mut self, batch: &mut Batch, throttled: bool) {
        batch.clear();
        self.kv.new_step_starts();
        self.steps += 1;
        let decoding = |slot: &Slot| !self.requests.progress(*slot).prefilling;
        let only_decodes = throttled && !self.prompts_held_up && self.running.iter().any(decoding);
        let mut budgets = self.schedule_running(self.budgets(only_decodes), batch);
        if batch.preempted.is_empty() {
            self.admit_waiting(&mut budgets, batch);
        } else {
            self.barrier = (!self.waiting.is_empty()).then_some(Barrier::KvBlocks);
        }
        if batch.preempted.is_empty() && !only_decodes {
            self.prompts_held_up = self.waiting.len() > self.deferred as usize;
        }
        batch.tokens = self.config.max_num_scheduled_tokens - budgets.tokens;
        self.note_scheduled(batch);
        std::mem::swap(&mut batch.finished, &mut self.finished);
    }

    /// Moves the counters of the scheduled requests; the decisions above saw them as they were.
    ///
    /// upstream: vllm `v1/core/sched/async_scheduler.py::AsyncScheduler._update_after_schedule`
    fn note_scheduled(&mut self, batch: &mut Batch) {
        let next = self.features.speculation.as_ref().map_or(0, |speculation| speculation.next_drafts(batch.rows.len()));
        batch.next_drafts = next;
        let grammars = !self.features.requests.is_empty();
        // A decode comes back to the first stage when the last has done with it.
        let not_before = self.steps + self.config.pipeline_stages;
        let (mut prefill_tokens, mut sampled, mut prefill_rows) = (0, 0, 0);
        for row in &mut batch.rows {
            let mut progress = self.requests.progress_mut(row.slot);
            progress.computed += row.tokens;
            progress.in_flight += row.tokens;
            progress.batches += 1;
            let known = progress.tokens + progress.placeholders;
            row.prefill = row.context < progress.prompt || row.context + 1 < known;
            prefill_tokens += if row.prefill { row.tokens } else { 0 };
            progress.prefilling = progress.computed < known;
            row.samples = !progress.prefilling;
            sampled += u32::from(row.samples);
            prefill_rows += u32::from(!row.is_decode());
            if grammars {
                self.note_grammar(*row, self.requests.progress(row.slot), &mut batch.waits_for_tokens, &mut batch.masks);
                progress = self.requests.progress_mut(row.slot);
            }
            if row.samples && self.config.async_scheduling {
                progress.placeholders += 1 + u32::from(row.drafts);
                progress.drafts = next;
                progress.not_before = not_before;
            }
        }
        batch.prefill_tokens = prefill_tokens;
        batch.sampled = sampled;
        batch.prefill_rows = prefill_rows;
    }

    /// Cuts a chunk so that it ends at a state worth caching, where layers keep states; none where it must wait for a larger one.
    pub(super) fn cut_at_states(&self, progress: &Progress, start: u32, tokens: u32) -> u32 {
        let Some(split) = self.split else { return tokens };
        let threshold = self.config.long_prefill_token_threshold;
        let most = if threshold > 0 { threshold.min(self.config.max_num_scheduled_tokens) } else { self.config.max_num_scheduled_tokens };
        split.cut(Chunk { start, tokens, prompt: progress.prompt, known: progress.tokens, junction: progress.junction, most })
    }

    pub(super) fn output(&self, slot: Slot, gained: u32, finished: Option<FinishReason>) -> Output {
        let Identity { id, external, cached_prompt, .. } = *self.requests.identity(slot);
        let progress = self.requests.progress(slot);
        Output { external, id, gained, finished, failed: false, prompt: progress.prompt, outputs: progress.outputs(), cached_prompt }
    }

    /// Gives back everything a request holds. It has left the queues.
    pub(super) fn free(&mut self, slot: Slot) {
        self.kv.free(slot, self.requests.progress_mut(slot));
        self.kv.forget(slot);
        self.finished.push(self.requests.identity(slot).id);
        self.requests.finish(slot);
    }

    pub(super) fn set_deferred(&mut self, slot: Slot, deferred: bool) {
        let progress = self.requests.progress_mut(slot);
        match (progress.deferred, deferred) {
            (false, true) => self.deferred += 1,
            (true, false) => self.deferred -= 1,
            (false, false) | (true, true) => {}
        }
        progress.deferred = deferred;
    }

    /// The settings.
    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }

    /// Begins a journal of the KV cache's events.
    pub fn record_kv_events(&mut self, naming: Naming) {
        self.kv.record_events(naming);
    }

    /// The KV cache.
    pub fn kv(&self) -> &KvManager {
        &self.kv
    }

    /// The running requests, in order.
    pub fn running(&self) -> &[Slot] {
        &self.running
    }

    /// The waiting requests, in order.
    pub fn waiting(&self) -> impl Iterator<Item = Slot> + '_ {
        self.waiting.in_order()
    }

    /// Number of waiting requests.
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }

    /// Waiting requests that the last look skipped.
    pub fn deferred_count(&self) -> u32 {
        self.deferred
    }

    /// What stopped the last look at the waiting queue, where something still waited then.
    pub fn barrier(&self) -> Option<Barrier> {
        self.barrier
    }

    /// Preemptions since the start.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// How it drafts, if it does, and what the drafts of the last processed step came to.
    pub fn draft_stats(&self) -> Option<&DraftStats> {
        self.features.speculation.is_some().then_some(&self.draft_stats)
    }

    /// A request's counters.
    pub fn progress(&self, slot: Slot) -> &Progress {
        self.requests.progress(slot)
    }

    /// A request's identity.
    pub fn identity(&self, slot: Slot) -> &Identity {
        self.requests.identity(slot)
    }

    /// Panics when queues, requests and blocks disagree.
    pub fn check_invariants(&self) {
        self.requests.check_invariants();
        let with = |status| self.requests.live().filter(move |(_, progress)| progress.status == status).count();
        assert_eq!(with(Status::Running), self.running.len(), "running requests are in the running list");
        assert!(self.running.iter().all(|slot| self.progress(*slot).status == Status::Running), "the running list holds running requests");
        assert_eq!(with(Status::Waiting) + with(Status::Preempted), self.waiting.len(), "waiting requests are in the queue");
        let deferred = self.waiting().filter(|slot| self.progress(*slot).deferred).count();
        assert_eq!(deferred, self.deferred as usize, "deferred requests are counted");
        assert!(self.running.len() <= self.config.max_num_active_seqs as usize, "the cap on running requests holds");
        for (slot, progress) in self.requests.live() {
            assert!(progress.stale <= progress.in_flight, "stale tokens are in flight");
            let running = progress.status == Status::Running;
            assert!(running || progress.computed == 0 && progress.placeholders == 0, "a waiting request has nothing computed");
            assert!(
                running || (0..self.kv.group_count()).all(|group| self.kv.table(group, slot).is_empty()),
                "a waiting request holds no block"
            );
        }
        self.kv.check_invariants(self.requests.live());
    }
}
