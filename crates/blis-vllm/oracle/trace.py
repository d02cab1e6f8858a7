"""The trace writer: reads upstream's objects, writes one JSON line per call of the step function.

FORMAT.md defines the format. Nothing here changes the engine.
"""

import json

import msgspec

from vllm.distributed.kv_events import KVEventBatch
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind

HEAD = 8


def line(record: dict) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=True)


class Recorder:
    def __init__(self, core) -> None:
        self.core = core
        self.lines: list[str] = []
        self.step = -1
        self.core_index: int | None = None  # where there are several cores
        self.pending: dict | None = None  # a line of a core in lockstep, until its iteration is over
        self.in_call = False
        self.progressed = False
        self._events: list[list[str]] = []
        self._preempted: list[str] = []
        self._sched = self._waited = self._grammar = None
        self._aborted: list[str] = []
        self._published: str | None = None
        self._steps: dict[int, int] = {}
        self._orders: dict[int, list[str]] = {}
        self._started_us = 0

    # What the core and the executor report while upstream runs.

    def event(self, kind: str, request_id: str) -> None:
        self._events.append([kind, request_id])

    def preempted(self, request_id: str) -> None:
        self._preempted.append(request_id)

    def begin(self) -> None:
        self.step += 1
        self.in_call = True
        self._started_us = self.core.clock.now_us
        self._sched = self._waited = self._grammar = None
        self._aborted, self._preempted = [], []
        self._published = None

    def scheduled(self, output) -> None:
        new = [
            [r.req_id, r.num_computed_tokens, [list(ids) for ids in r.block_ids], self._was_preempted(r.req_id)]
            for r in output.scheduled_new_reqs
        ]
        cached = output.scheduled_cached_reqs
        assert not cached.resumed_req_ids, "a resumed request travels as new under Model Runner V2"
        rows = zip(cached.req_ids, cached.new_block_ids, cached.num_computed_tokens, cached.num_output_tokens)
        assert set(self._preempted) == set(output.preempted_req_ids or ())
        self._steps[id(output)] = self.step
        self._orders[self.step] = list(output.num_scheduled_tokens)
        self._sched = {
            "new": new,
            "cached": [[i, b if b is None else [list(ids) for ids in b], c, o] for i, b, c, o in rows],
            "tokens": [[i, n] for i, n in output.num_scheduled_tokens.items()],
            "preempted": [[i, self.core.scheduler.requests[i].num_stale_output_tokens] for i in self._preempted],
            "finished": sorted(output.finished_req_ids),
            **self._free(),
            **self._drafted(output),
        }

    def _drafted(self, output) -> dict:
        if not self._speculates():
            return {}
        drafts = output.scheduled_spec_decode_tokens.items()
        rows = [[i, len(tokens)] for i, tokens in drafts]
        order = list(output.num_scheduled_tokens)
        rows.sort(key=lambda row: order.index(row[0]))
        return {"drafts": rows, "next_drafts": output.num_spec_tokens_to_schedule}

    def grammar(self, output) -> None:
        """The masks of a step's requests, when its tokens are sampled."""
        if output is not None:
            ids = output.structured_output_request_ids
            rows = [[i, n] for i, n in zip(ids, output.num_acceptable_drafts, strict=True)]
            self._grammar = {"rows": len(output.grammar_bitmask), "requests": rows}

    def waited(self, step: int) -> None:
        self._waited = (step, self.core.clock.now_us)

    def published(self, batch) -> None:
        """KV events, as the publisher that sends them would encode them; the time stamp is 0."""
        assert self._published is None, "upstream publishes once per update"
        message = KVEventBatch(ts=0.0, events=batch.events, data_parallel_rank=batch.data_parallel_rank)
        self._published = msgspec.msgpack.Encoder().encode(message).hex()

    def aborted(self, request_ids: list[str]) -> None:
        self._aborted = request_ids

    def end(self, outputs: list) -> None:
        self.in_call = False
        done = self._done(outputs) if self._waited else None
        several = {} if self.core_index is None else {"core": self.core_index}
        record = {
            **several,
            "step": self.step,
            "t": self._started_us,
            "in": self._events,
            "sched": self._sched,
            "done": done,
            **self._state(),
            **({"grammar": self._grammar} if self._structured() else {}),
        }
        self.progressed = bool(self._events or (done and (done["out"] or done["aborted"])))
        self._events = []
        if hasattr(self.core, "current_wave"):
            self.pending = record
        else:
            self.lines.append(line(record))

    def flush(self, state: dict) -> None:
        """The iteration that made the pending line is over; `state` is where the core stands with the others."""
        if self.pending is not None:
            self.lines.append(line({**self.pending, "dp": state}))
            self.pending = None

    # Readers of upstream's state.

    def _speculates(self) -> bool:
        return self.core.scheduler.vllm_config.speculative_config is not None

    def _structured(self) -> bool:
        return any(request.grammar is not None for request in self.core.model_executor.scenario.requests)

    def _pool(self):
        return self.core.scheduler.kv_cache_manager.block_pool

    def _was_preempted(self, request_id: str) -> bool:
        return self.core.scheduler.requests[request_id].num_preemptions > 0

    def _free(self) -> dict:
        queue = self._pool().free_block_queue
        head, block = [], queue.fake_free_list_head.next_free_block
        while len(head) < HEAD and block is not queue.fake_free_list_tail:
            head.append(block.block_id)
            block = block.next_free_block
        return {"free": self._pool().get_num_free_blocks(), "head": head}

    def _state(self) -> dict:
        scheduler = self.core.scheduler
        running = [
            [
                r.request_id,
                r.num_computed_tokens,
                r.num_output_placeholders,
                r.num_in_flight_tokens,
                r.num_stale_output_tokens,
                r.num_output_tokens,
            ]
            for r in scheduler.running
        ]
        batches = self.core.batch_queue or ()
        return {
            **self._free(),
            "running": running,
            "waiting": [[r.request_id, r.num_stale_output_tokens, r.num_preemptions] for r in scheduler.waiting],
            "holding": [r.request_id for r in scheduler.kv_holding_waiting],
            "deferred": sorted(r.request_id for r in scheduler.deferred_waiting),
            "queue": [self._steps[id(output)] for _, output, _ in reversed(batches)],
            **self._attached(),
        }

    def _attached(self) -> dict:
        if not self._speculates():
            return {}
        requests = self.core.scheduler.running
        return {"attached": [[r.request_id, len(r.spec_token_ids)] for r in requests if r.spec_token_ids]}

    def _done(self, outputs: list) -> dict:
        # One message for each front end that has a request in the step; the first holds the statistics.
        step, at_us = self._waited
        rows = [
            [o.request_id, len(o.new_token_ids), None if o.finish_reason is None else str(o.finish_reason)]
            for output in outputs
            for o in output.outputs
        ]
        if len(outputs) > 1:
            order = self._orders[step]
            rows.sort(key=lambda row: order.index(row[0]))
        (output,) = [output for output in outputs if output.scheduler_stats is not None]
        done = {"step": step, "t": at_us, "aborted": self._aborted, "out": rows, "stats": self._stats(output)}
        return done if self._published is None else done | {"events": self._published}

    def _stats(self, output) -> dict:
        stats, pool = output.scheduler_stats, self._pool()
        total = pool.num_gpu_blocks - 1
        used = total - pool.get_num_free_blocks()
        assert stats.kv_cache_usage == 1.0 - (pool.get_num_free_blocks() / total)
        prefix = stats.prefix_cache_stats
        return {
            "running": stats.num_running_reqs,
            "waiting": stats.num_waiting_reqs,
            "deferred": stats.num_skipped_waiting_reqs,
            "kv": [used, total],
            "requests": prefix.requests,
            "queries": prefix.queries,
            "hits": prefix.hits,
            "preempted_requests": prefix.preempted_requests,
            "preempted_queries": prefix.preempted_queries,
            "preempted_hits": prefix.preempted_hits,
            **self._drafting(stats.spec_decoding_stats),
        }

    def _drafting(self, stats) -> dict:
        if not self._speculates():
            return {}
        if stats is None:
            return {"spec": None}
        return {
            "spec": {
                "drafts": stats.num_drafts,
                "tokens": stats.num_draft_tokens,
                "accepted": stats.num_accepted_tokens,
                "tokens_at": stats.num_draft_tokens_per_pos,
                "accepted_at": stats.num_accepted_tokens_per_pos,
            }
        }

    def header(self, scenario) -> None:
        core, config = self.core, self.core.vllm_config
        scheduler, manager = core.scheduler, core.scheduler.kv_cache_manager
        groups = [
            {
                "layers": list(group.layer_names),
                "type": get_kv_cache_spec_kind(group.kv_cache_spec).value,
                "block_size": group.kv_cache_spec.block_size,
                "page_bytes": group.kv_cache_spec.page_size_bytes,
                "window": getattr(group.kv_cache_spec, "sliding_window", None),
            }
            for group in scheduler.kv_cache_config.kv_cache_groups
        ]
        resolved = {
            "max_model_len": config.model_config.max_model_len,
            "max_num_batched_tokens": config.scheduler_config.max_num_batched_tokens,
            "max_num_scheduled_tokens": scheduler.max_num_scheduled_tokens,
            "max_num_seqs": config.scheduler_config.max_num_seqs,
            "block_size": config.cache_config.block_size,
            "scheduler_block_size": scheduler.block_size,
            "hash_block_size": scheduler.hash_block_size,
            "num_gpu_blocks": config.cache_config.num_gpu_blocks,
            "watermark_blocks": manager.watermark_blocks,
            "enable_prefix_caching": config.cache_config.enable_prefix_caching,
            "enable_chunked_prefill": config.scheduler_config.enable_chunked_prefill,
            "long_prefill_token_threshold": config.scheduler_config.long_prefill_token_threshold,
            "scheduler_reserve_full_isl": config.scheduler_config.scheduler_reserve_full_isl,
            "async_scheduling": config.scheduler_config.async_scheduling,
            "batch_queue_size": core.batch_queue_size,
            "policy": config.scheduler_config.policy,
            "cudagraph_mode": config.compilation_config.cudagraph_mode.name,
            "cudagraph_capture_sizes": list(config.compilation_config.cudagraph_capture_sizes or ()),
            "kv_groups": groups,
            **self._speculation(),
            **({"max_loras": config.lora_config.max_loras} if config.lora_config else {}),
        }
        assert config.use_v2_model_runner
        first = {"format": 1, "scenario": scenario.name, "scenario_sha256": scenario.sha256, "config": resolved}
        self.lines.append(line(first))

    def _speculation(self) -> dict:
        if not self._speculates():
            return {}
        scheduler = self.core.scheduler
        coordinator = scheduler.kv_cache_manager.coordinator
        speculative = scheduler.vllm_config.speculative_config
        lookup = scheduler.dynamic_sd_lookup
        return {
            "speculation": {
                "method": speculative.method,
                "tokens": scheduler.num_spec_tokens,
                "lookahead": scheduler.num_lookahead_tokens,
                "prefill_lookahead": scheduler.num_prefill_lookahead,
                "draft_slots": speculative.max_num_new_slots_for_drafting,
                "drop_groups": sorted(coordinator.eagle_group_ids),
                "by_batch": None if lookup is None else lookup[1:],
            }
        }
