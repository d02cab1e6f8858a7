//! What a processed step means: tokens appended, requests ended, blocks made findable.
//!
//! upstream: vllm `v1/core/sched/scheduler.py::Scheduler.update_from_output`; `v1/core/sched/async_scheduler.py::AsyncScheduler`

use blis_contracts::engine::FinishReason;

use super::batch::{Batch, Row};
use super::scheduler::{Output, Scheduler};
use crate::request::Status;

/// What a step gave one request.
enum Gain {
    /// No token: the request is gone, or its prompt is not finished.
    Nothing,
    /// A token.
    Token,
    /// Its last token.
    LastToken(FinishReason),
}

impl Scheduler {
    /// Applies the output of `batch`, the oldest in flight, and appends what each request gained to `outputs`.
    pub fn process(&mut self, batch: &Batch, outputs: &mut Vec<Output>) {
        let mut somebody_is_gone = false;
        for row in &batch.rows {
            match self.process_row(row) {
                Gain::Nothing => {}
                Gain::Token => outputs.push(self.output(row.slot, None)),
                Gain::LastToken(reason) => outputs.push(self.output(row.slot, Some(reason))),
            }
            somebody_is_gone |= self.requests.progress(row.slot).status == Status::Finished;
        }
        if somebody_is_gone {
            self.running.retain(|slot| self.requests.progress(*slot).status == Status::Running);
            batch.rows.iter().for_each(|row| self.requests.recycle_if_unnamed(row.slot));
        }
    }

    #[inline]
    fn process_row(&mut self, row: &Row) -> Gain {
        let progress = self.requests.progress_mut(row.slot);
        progress.batches -= 1;
        progress.in_flight -= row.tokens;
        let stale = progress.stale > 0;
        if stale {
            cov_mark::hit!(stale_output_delivered);
            progress.stale -= row.tokens;
        }
        if progress.status == Status::Finished || !row.samples {
            return Gain::Nothing;
        }
        progress.tokens += 1;
        let finished = progress.check_stop(self.config.max_model_len);
        let status = progress.status;
        if self.config.async_scheduling && !stale {
            progress.placeholders -= 1;
        }
        self.kv.token_appended(row.slot, progress);
        if self.config.async_scheduling && status == Status::Running {
            let processed = progress.computed - progress.placeholders;
            self.kv.cache_processed(row.slot, progress, processed);
        }
        if let Some(reason) = finished {
            if status != Status::Running {
                cov_mark::hit!(end_while_preempted);
                self.waiting.remove(row.slot, self.requests.identity(row.slot));
                self.set_deferred(row.slot, false);
            }
            self.free(row.slot);
            return Gain::LastToken(reason);
        }
        Gain::Token
    }
}
