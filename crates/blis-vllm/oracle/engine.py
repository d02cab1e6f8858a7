"""Upstream's engine core with the GPU, the sockets and the clock replaced, and a recorder looking on.

The busy loop, the step functions, the scheduler and the KV cache managers are upstream's. What this file replaces is
the executor (a step ends after the scenario's step time, the sampler emits scripted tokens) and the socket thread (a
request comes when the virtual clock reaches its arrival). It decides nothing.
"""

import world  # first: the fake platform must be in place before any other vllm import
import mocks

import json
import queue
import tempfile
import types
from concurrent.futures import Future
from pathlib import Path

import torch
from vllm.config import set_current_vllm_config
from vllm.distributed.kv_events import NullEventPublisher
from vllm.distributed.utils import get_pp_indices
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.request import LoRARequest
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.chunked_local_attention import (
    ChunkedLocalAttention,
    create_chunked_local_attention_backend,
)
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.attention.mla_attention import _canonicalize_sparse_mla_kv_cache_dtype as canonical_cache_dtype
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.model_executor.layers.mamba.mamba_mixer2 import MambaMixer2
from vllm.model_executor.models import ModelRegistry
from vllm.model_executor.models.deepseek_v2 import DeepseekV32IndexerCache
from vllm.platforms import current_platform
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.usage.usage_lib import UsageContext
from vllm.utils.torch_utils import kv_cache_dtype_str_to_dtype
from vllm.v1.attention.backend import AttentionType
from vllm.v1.attention.backends.registry import AttentionBackendEnum, MambaAttentionBackendEnum
from vllm.v1.attention.selector import get_attn_backend
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.engine import EngineCoreRequest, EngineCoreRequestType
from vllm.v1.engine.core import EngineCore, EngineCoreProc, EngineShutdownState
from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
from vllm.v1.worker.worker_base import CompilationTimes, WorkerBase

import grammar
import scenario as scenarios
import trace

# A backend that fails to import is passed over in silence by upstream's choice: make sure that none of these does.
for _name in (
    "FLASH_ATTN", "FLASHINFER", "TRITON_ATTN", "FLEX_ATTENTION", "TURBOQUANT",
    "FLASHINFER_MLA", "TOKENSPEED_MLA", "FLASH_ATTN_MLA", "FLASHMLA", "TRITON_MLA",
    "FLASHINFER_MLA_SPARSE", "FLASHMLA_SPARSE", "FLASH_ATTN_MLA_SPARSE", "FLASHINFER_MLA_SPARSE_SM90",
):
    AttentionBackendEnum[_name].get_class()

# What an encoder divides pixels by, which vendors keep in a file of its own and nothing here depends on.
PIXELS = json.dumps({"image_mean": [0.5] * 3, "image_std": [0.5] * 3})

LIVELOCK_CALLS = 50
MOST_CALLS = 50_000


class EndOfScenario(BaseException):
    """No request is left and none will come."""


class AttentionLayer(AttentionLayerBase):
    """One attention layer as the model's own file would have built it; what follows from that is upstream's."""

    kv_sharing_target_layer_name = None
    attn_type = AttentionType.DECODER
    get_kv_cache_spec = Attention.get_kv_cache_spec

    def __init__(self, vllm_config, sliding_window: int | None, has_sink: bool, model=None, heads=None) -> None:
        model, cache = model or vllm_config.model_config, vllm_config.cache_config
        self.sliding_window = sliding_window
        self.num_kv_heads = model.get_num_kv_heads(vllm_config.parallel_config)
        self.head_size = self.head_size_v = model.get_head_size()
        if heads is not None:
            self.num_kv_heads, self.head_size = heads
            self.head_size_v = self.head_size
        self.kv_cache_dtype = cache.cache_dtype
        self.kv_cache_torch_dtype = kv_cache_dtype_str_to_dtype(cache.cache_dtype, model)
        self.attn_backend = get_attn_backend(
            self.head_size,
            model.dtype,
            cache.cache_dtype,
            use_mla=False,
            has_sink=has_sink,
            use_mm_prefix=model.is_mm_prefix_lm,
            attn_type=self.attn_type,
            has_sliding_window=sliding_window is not None,
        )

    def get_attn_backend(self):
        return self.attn_backend


class ChunkedLayer(AttentionLayer):
    """One layer that sees a chunk of the context, likewise."""

    get_kv_cache_spec = ChunkedLocalAttention.get_kv_cache_spec

    def __init__(self, vllm_config, chunk: int) -> None:
        super().__init__(vllm_config, None, False)
        self.attention_chunk_size = chunk
        self.attn_backend = create_chunked_local_attention_backend(self.attn_backend, chunk)


class LatentLayer(AttentionLayerBase):
    """One layer of latent attention, likewise; with an indexer where queries see what it picks."""

    get_kv_cache_spec = MLAAttention.get_kv_cache_spec

    def __init__(self, vllm_config, model=None, indexer: object | None = None) -> None:
        model, cache = model or vllm_config.model_config, vllm_config.cache_config
        sparse = indexer is not None
        config = model.hf_text_config
        self.head_size = config.kv_lora_rank + config.qk_rope_head_dim
        self.sliding_window, self.indexer = None, indexer
        self.non_causal_multi_token_decode = False
        self.kv_cache_dtype = cache.cache_dtype
        heads = model.get_num_attention_heads(vllm_config.parallel_config)
        self.attn_backend = get_attn_backend(
            self.head_size, model.dtype, cache.cache_dtype, use_mla=True, use_sparse=sparse, num_heads=heads
        )
        if sparse:
            self.kv_cache_dtype = cache.cache_dtype = canonical_cache_dtype(self.attn_backend, cache.cache_dtype)

    def get_attn_backend(self):
        return self.attn_backend


class StateLayer(MambaBase):
    """One layer that keeps a state, likewise; its shape and types are what the model's class says of its configuration."""

    def __init__(self, vllm_config, mamba_type) -> None:
        model_class, _ = ModelRegistry.resolve_model_cls(
            vllm_config.model_config.architecture, model_config=vllm_config.model_config
        )
        self._shape = tuple(model_class.get_mamba_state_shape_from_config(vllm_config))
        self._dtype = tuple(model_class.get_mamba_state_dtype_from_config(vllm_config))
        self._type = mamba_type

    @property
    def mamba_type(self):
        return self._type

    def get_state_shape(self):
        return self._shape

    def get_state_dtype(self):
        return self._dtype


class Mamba2Layer(StateLayer):
    """Mamba-2's, which adds its checkpoints."""

    def get_kv_cache_spec(self, vllm_config):
        return mamba2_spec(self, vllm_config)


def mamba2_spec(layer, vllm_config):
    """Upstream's own method, whose call of the base class is bound to upstream's class."""
    bound = types.FunctionType(
        MambaMixer2.get_kv_cache_spec.__code__,
        MambaMixer2.get_kv_cache_spec.__globals__,
        closure=(types.CellType(Mamba2Layer),),
    )
    return bound(layer, vllm_config)


class IndexerKeys(AttentionLayerBase):
    """The cache of an indexer's keys, likewise: 8 bits an element and a 32-bit scale for 128 of them."""

    get_kv_cache_spec = DeepseekV32IndexerCache.get_kv_cache_spec
    get_attn_backend = DeepseekV32IndexerCache.get_attn_backend

    def __init__(self, vllm_config) -> None:
        elements = vllm_config.model_config.hf_text_config.index_head_dim
        self.head_dim, self.dtype, self.cache_config = elements + elements // 128 * 4, torch.uint8, vllm_config.cache_config


def attention_layers(vllm_config) -> dict[str, AttentionLayer]:
    """Transcription of the model files: layer names, and which layers have a sliding window."""
    config = vllm_config.model_config.hf_text_config
    layers = {}
    for index in range(config.num_hidden_layers):
        if config.model_type == "gpt_oss":
            window = config.sliding_window if index % 2 == 0 else None
            layers[f"model.layers.{index}.attn.attn"] = AttentionLayer(vllm_config, window, True)
        elif config.model_type == "gemma4_text":
            own = config.per_layer_config[index]
            window = config.sliding_window if config.layer_types[index] == "sliding_attention" else None
            heads = own.num_key_value_heads, own.head_dim
            layers[f"model.layers.{index}.self_attn.attn"] = AttentionLayer(vllm_config, window, False, heads=heads)
        elif config.model_type == "llama4_text":
            chunked = config.no_rope_layers[index] != 0 and config.attention_chunk_size
            layer = ChunkedLayer(vllm_config, config.attention_chunk_size) if chunked else AttentionLayer(vllm_config, None, False)
            layers[f"model.layers.{index}.self_attn.attn"] = layer
        elif config.model_type in ("llama", "qwen3", "qwen3_moe", "mixtral"):
            layers[f"model.layers.{index}.self_attn.attn"] = AttentionLayer(vllm_config, None, False)
        elif config.model_type in ("deepseek_v4", "minimax_m3_text"):
            continue  # they register themselves, see compressed.py and block_sparse.py
        elif config.model_type == "deepseek_v3":
            layers[f"model.layers.{index}.self_attn.attn"] = LatentLayer(vllm_config)
        elif config.model_type == "qwen3_next":
            if config.layer_types[index] == "linear_attention":
                layers[f"model.layers.{index}.linear_attn"] = StateLayer(vllm_config, MambaAttentionBackendEnum.GDN_ATTN)
            else:
                layers[f"model.layers.{index}.self_attn.attn"] = AttentionLayer(vllm_config, None, False)
        elif config.model_type == "nemotron_h":
            if config.hybrid_override_pattern[index] == "M":
                layers[f"model.layers.{index}.mixer"] = Mamba2Layer(vllm_config, MambaAttentionBackendEnum.MAMBA2)
            else:
                layers[f"model.layers.{index}.mixer.attn"] = AttentionLayer(vllm_config, None, False)
        elif config.model_type == "deepseek_v32":
            name = f"model.layers.{index}.self_attn"
            layers[f"{name}.indexer.k_cache"] = indexer = IndexerKeys(vllm_config)
            layers[f"{name}.attn"] = LatentLayer(vllm_config, indexer=indexer)
        else:
            raise ValueError(f"model_type {config.model_type} has no transcription of its layers here")
    return layers


def draft_layers(vllm_config) -> dict[str, AttentionLayer]:
    """Transcription of the drafters' model files: the layers they register behind those of the target."""
    speculative = vllm_config.speculative_config
    if speculative is None or not speculative.uses_draft_kv_cache():
        return {}
    model = speculative.draft_model_config
    config = model.hf_text_config
    target = vllm_config.model_config.hf_text_config.num_hidden_layers
    if speculative.method == "mtp":
        if config.model_type != "deepseek_mtp":
            raise ValueError(f"model_type {config.model_type} has no transcription of its drafting layers here")
        count = config.num_nextn_predict_layers
        return {f"model.layers.{target + index}.self_attn.attn": LatentLayer(vllm_config, model) for index in range(count)}
    windows = [None] * config.num_hidden_layers
    if speculative.method == "dflash" and getattr(config, "layer_types", None):
        windows = [config.sliding_window if kind == "sliding_attention" else None for kind in config.layer_types]
    if speculative.method == "draft_model":
        names = [f"draft_model.model.layers.{index}.self_attn.attn" for index in range(config.num_hidden_layers)]
    else:
        names = [f"model.layers.{target + index}.self_attn.attn" for index in range(config.num_hidden_layers)]
    return {name: AttentionLayer(vllm_config, window, False, model) for name, window in zip(names, windows, strict=True)}


class DoneAt(Future):
    """A result that is there from `end_us` on; waiting for it moves the clock."""

    def __init__(self, executor: "ScriptedExecutor", step: int, end_us: int, output) -> None:
        super().__init__()
        self._executor, self._step, self._end_us = executor, step, end_us
        self.set_result(output)

    def result(self, timeout=None):
        self._executor.wait(self._step, self._end_us)
        return super().result(timeout)


class ScriptedExecutor(Executor):
    """The GPUs. Steps run one after another; each takes base_us + per_token_us * tokens on each pipeline stage."""

    scenario: scenarios.Scenario  # set before the engine is built
    kv_bytes: int

    def _init_executor(self) -> None:
        with set_current_vllm_config(self.vllm_config):
            layers = attention_layers(self.vllm_config) | draft_layers(self.vllm_config)
            if self.vllm_config.model_config.hf_text_config.model_type == "deepseek_v4":
                import compressed

                compressed.register(self.vllm_config)
            elif self.vllm_config.model_config.hf_text_config.model_type == "minimax_m3_text":
                import block_sparse

                block_sparse.register(self.vllm_config, AttentionLayer)
        self.vllm_config.compilation_config.static_forward_context.update(layers)
        # The single-process executor does this after loading the model.
        current_platform.update_block_size_for_backend(self.vllm_config)
        self.stages_free_us = [0] * self.vllm_config.parallel_config.pipeline_parallel_size
        self.core: OracleCore | None = None
        self._submitted = None
        self._known: dict[str, Known] = {}
        self._drafts: DraftTokenIds | None = None

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False):
        answer = {
            "get_kv_cache_spec": lambda: get_kv_cache_spec(self.vllm_config),
            "execute_dummy_batch": lambda: None,
            "get_supported_kv_cache_layouts": lambda: WorkerBase.get_supported_kv_cache_layouts(self),
            "set_kv_cache_layout": lambda *_: None,
            "determine_available_memory": lambda: self.kv_bytes,
            "initialize_from_config": lambda *_: self._resolve_graphs(),
            "update_max_model_len": lambda *_: None,
            "compile_or_warm_up_model": lambda: CompilationTimes(language_model=0.0, encoder=0.0),
            "get_supported_tasks": lambda: ("generate",),
        }[method](*args)
        stages = len(self.stages_free_us)
        if method == "get_kv_cache_spec" and stages > 1:
            return [self._of_stage(answer, stage) for stage in range(stages)]
        return [answer] * stages

    def _resolve_graphs(self) -> None:
        """Chunks allow no graphs of whole steps, which a worker finds from its layers; every other backend leaves the mode as it is."""
        layers = self.vllm_config.compilation_config.static_forward_context.values()
        builders = [layer.get_attn_backend().get_builder_cls() for layer in layers if isinstance(layer, ChunkedLayer)]
        if builders:
            support = builders[0].get_cudagraph_support(self.vllm_config, None)
            self.vllm_config.compilation_config.resolve_cudagraph_mode_and_sizes(support, builders[0].__name__, use_v2_model_runner=True)

    def _of_stage(self, specs: dict, stage: int) -> dict:
        """The layers whose modules a stage's worker would have."""
        layers = self.vllm_config.model_config.hf_text_config.num_hidden_layers
        first, beyond = get_pp_indices(layers, stage, len(self.stages_free_us))
        return {name: spec for name, spec in specs.items() if first <= int(name.split(".")[2]) < beyond}

    def wait(self, step: int, end_us: int) -> None:
        self.core.wait(step, end_us)

    def execute_model(self, scheduler_output, non_block=False):
        self.core.recorder.scheduled(scheduler_output)
        step, now = self.core.recorder.step, self.core.clock.now_us
        tokens = scheduler_output.total_num_scheduled_tokens
        self._take_in(scheduler_output)
        if tokens == 0:
            return DoneAt(self, step, now, ModelRunnerOutput([], {}))
        self._submitted = (step, self._submit(now, tokens), scheduler_output)
        future = Future()
        future.set_result(None)
        return future

    def _submit(self, now: int, tokens: int) -> int:
        """When the last pipeline stage has done a step; each stage takes the step time."""
        end = now
        for stage, free in enumerate(self.stages_free_us):
            end = max(end, free) + self.scenario.base_us + self.scenario.per_token_us * tokens
            self.stages_free_us[stage] = end
        return end

    def sample_tokens(self, grammar_output, non_block=False):
        step, end_us, output = self._submitted
        self._submitted = None
        self.core.recorder.grammar(grammar_output)
        # A step whose tokens are sampled late is done no earlier.
        future = DoneAt(self, step, max(end_us, self.core.clock.now_us), self._sample(output, grammar_output))
        return future if non_block else future.result()

    def take_draft_token_ids(self) -> DraftTokenIds | None:
        return self._drafts

    def _take_in(self, output) -> None:
        for request_id in output.finished_req_ids:
            self._known.pop(request_id, None)
        for new in output.scheduled_new_reqs:
            prompt, prefill = len(new.prompt_token_ids), len(new.prefill_token_ids)
            self._known[new.req_id] = Known(prefill, prefill - prompt, new.sampling_params.extra_args)

    def _sample(self, output, grammar_output) -> ModelRunnerOutput:
        computed = dict(zip(output.scheduled_cached_reqs.req_ids, output.scheduled_cached_reqs.num_computed_tokens))
        computed |= {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
        allowed = {}
        if grammar_output is not None:
            allowed = dict(zip(grammar_output.structured_output_request_ids, grammar_output.num_acceptable_drafts))
        ids, sampled, drafts = list(output.num_scheduled_tokens), [], []
        for request_id in ids:
            known = self._known[request_id]
            if computed[request_id] + output.num_scheduled_tokens[request_id] < known.prefill:
                sampled.append([])
                drafts.append([-1] * output.num_spec_tokens_to_schedule)
                continue
            # Placeholders of a request that has just entered stand for no drafts.
            proposed = min(len(output.scheduled_spec_decode_tokens.get(request_id, ())), known.drafted)
            accepted = self._accepted(known, proposed)
            sampled.append(known.sample(min(accepted, allowed.get(request_id, accepted)) + 1))
            known.drafted = output.num_spec_tokens_to_schedule
            drafts.append(self._propose(known, output.has_structured_output_requests))
        if self.scenario.profile is not None:
            self._drafts = DraftTokenIds(ids, drafts)
        return ModelRunnerOutput(ids, {name: i for i, name in enumerate(ids)}, sampled_token_ids=sampled)

    def _accepted(self, known: "Known", drafts: int) -> int:
        return self.scenario.profile.accepted(known.script["ordinal"], known.outputs, drafts) if drafts else 0

    def _propose(self, known: "Known", named: bool) -> list[int]:
        """Drafts that continue from the tokens sampled so far. Model Runner V2 names them where a grammar will judge them."""
        if not named or not known.drafted:
            return [-1] * known.drafted
        ordinal, profile = known.script["ordinal"], self.scenario.profile
        right = profile.accepted(ordinal, known.outputs, known.drafted)
        tokens = [scenarios.output_token(ordinal, known.outputs + position) for position in range(right)]
        tokens += [grammar.WRONG] * (known.drafted - right)
        allowed = profile.allowed(ordinal, known.outputs, known.drafted)
        if allowed < known.drafted:
            tokens[allowed] = grammar.FORBIDDEN
        return tokens


class Known:
    """What the device knows of a request: the tokens it was admitted with, those it has sampled, and its latest drafts."""

    def __init__(self, prefill: int, outputs: int, script: dict) -> None:
        self.prefill, self.outputs, self.script, self.drafted = prefill, outputs, script, 0

    def sample(self, count: int) -> list[int]:
        first, self.outputs = self.outputs, self.outputs + count
        ends_at = self.script["end_of_sequence_at"]
        return [
            scenarios.END_OF_SEQUENCE if index == ends_at else scenarios.output_token(self.script["ordinal"], index)
            for index in range(first, first + count)
        ]


class ArrivalFeed:
    """The socket thread seen from the input queue: an event is there once the clock has reached its time."""

    def __init__(self, core: "OracleCore", scenario: scenarios.Scenario) -> None:
        adds = [(r.arrival_us, 0, i, r) for i, r in enumerate(scenario.requests)]
        aborts = [(a.at_us, 1, i, a) for i, a in enumerate(scenario.aborts)]
        self.events = sorted(adds + aborts, key=lambda event: event[:3])
        self.core, self.taken, self.announced = core, 0, 0

    def announce(self) -> None:
        """Hand the aborts whose time has come to upstream's aborts queue, as its socket thread does."""
        while self.announced < len(self.events) and self.events[self.announced][0] <= self.core.clock.now_us:
            _, is_abort, _, event = self.events[self.announced]
            self.announced += 1
            if is_abort:
                self.core.aborts_queue.put_nowait([event.id])
            if self.core.front_end:
                tell(self.core.front_end, event, self.core.engine_request)

    def abort_outlives(self, request_id: str) -> bool:
        """Whether an abort that was meant for an earlier request of this name would still hit the one just taken."""
        earlier = any(kind and event.id == request_id for _, kind, _, event in self.events[: self.taken])
        return earlier and [request_id] in list(self.core.aborts_queue.queue)

    def empty(self) -> bool:
        return self.taken == len(self.events) or self.events[self.taken][0] > self.core.clock.now_us

    def get(self, block: bool = True):
        if self.taken == len(self.events):
            raise EndOfScenario
        self.core.clock.advance_to(self.events[self.taken][0])
        self.announce()
        return self.get_nowait()

    def get_nowait(self):
        if self.empty():
            raise queue.Empty
        _, is_abort, _, event = self.events[self.taken]
        self.taken += 1
        if is_abort:
            return EngineCoreRequestType.ABORT, [event.id]
        return EngineCoreRequestType.ADD, self.core.preprocess_add_request(self.core.engine_request(event))


def tell(front_end, event, engine_request) -> None:
    """An event reaches the front end that counts."""
    if isinstance(event, scenarios.Request):
        front_end.add(engine_request(event))
    else:
        front_end.abort(event.id)


class Outputs(queue.Queue):
    """The output socket of a lone core: the front end that counts reads at once."""

    def __init__(self, core: "OracleCore") -> None:
        super().__init__()
        self.core = core

    def put_nowait(self, item) -> None:
        super().put_nowait(item)
        if self.core.front_end:
            self.core.front_end.receive(item[1])


def engine_request(request: scenarios.Request, max_model_len: int) -> EngineCoreRequest:
    ends_early = request.output_length < request.max_tokens
    script = {
        "ordinal": request.ordinal,
        "end_of_sequence_at": request.output_length - 1 if ends_early else -1,
    }
    structured = None
    if request.grammar is not None:
        script["grammar_ready_us"] = request.grammar.ready_us
        structured = StructuredOutputsParams(regex=grammar.FAILS if request.grammar.fails else grammar.COMPILES)
    # The front end cuts the output limit to what the context leaves.
    most = min(request.max_tokens, max(max_model_len - len(request.prompt), 1))
    sampling = SamplingParams(max_tokens=most, extra_args=script, structured_outputs=structured)
    sampling.update_from_generation_config({}, scenarios.END_OF_SEQUENCE)
    return EngineCoreRequest(
        request_id=request.id,
        prompt_token_ids=request.prompt,
        mm_features=None,
        sampling_params=sampling,
        pooling_params=None,
        arrival_time=request.arrival_us / 1_000_000,
        lora_request=adapter(request.adapter),
        cache_salt=None,
        data_parallel_rank=None,
        priority=request.priority,
    )


def adapter(number: int | None) -> LoRARequest | None:
    return None if number is None else LoRARequest(f"adapter-{number}", number, f"adapter-{number}")


class OracleCore(EngineCoreProc):
    """EngineCoreProc without sockets; the overrides call upstream's methods and note what they see."""

    front_end = None  # who counts, where metrics are recorded

    def __init__(self, vllm_config, scenario: scenarios.Scenario, clock: world.Clock) -> None:
        self.clock = clock
        self.recorder = trace.Recorder(self)
        # Fields that EngineCoreProc.__init__ sets and the busy loop reads.
        self.engines_running = False
        self.shutdown_state = EngineShutdownState.RUNNING
        self.process_input_queue_block = True
        self.publish_dp_lb_stats = False
        self.enable_fault_tolerance = False
        self.output_queue = Outputs(self)
        EngineCore.__init__(self, vllm_config, ScriptedExecutor, log_stats=True)
        self.model_executor.core = self
        grammar.install(self.structured_output_manager, clock)
        self.input_queue = ArrivalFeed(self, scenario)
        self.quiet_calls = 0

    def wait(self, step: int, end_us: int) -> None:
        self.clock.advance_to(end_us)
        self.input_queue.announce()
        self.recorder.waited(step)

    def engine_request(self, request: scenarios.Request) -> EngineCoreRequest:
        return engine_request(request, self.scheduler.max_model_len)

    def add_request(self, request, request_wave=0):
        if request.request_id in self.scheduler.requests:
            raise ValueError(f"request {request.request_id} is added while one of that name is alive")
        if request.num_prompt_tokens >= self.scheduler.max_model_len:
            raise ValueError(f"prompt of {request.request_id} reaches max_model_len; the front end would refuse it")
        if self.input_queue.abort_outlives(request.request_id):
            raise ValueError(f"request {request.request_id} comes back while an abort of that name is still queued")
        super().add_request(request, request_wave)
        self.recorder.event("add", request.request_id)

    def abort_requests(self, request_ids):
        if self.recorder.in_call is False:
            for request_id in request_ids:
                self.recorder.event("abort", request_id)
        super().abort_requests(request_ids)

    def _process_aborts_queue(self):
        pending = [request_id for ids in self.aborts_queue.queue for request_id in ids]
        live = [request_id for request_id in dict.fromkeys(pending) if request_id in self.scheduler.requests]
        if len(live) > 1:
            raise ValueError(f"{', '.join(live)} are aborted in one batch, whose order would hang on a set")
        self.recorder.aborted(live)
        super()._process_aborts_queue()
        if len(self.scheduler.grammar_compile_error_reqs) > 1:
            raise ValueError("two grammars fail in one step, whose order would hang on a set")

    def _process_engine_step(self):
        self.input_queue.announce()
        self.recorder.begin()
        executed = super()._process_engine_step()
        outputs = []
        while not self.output_queue.empty():
            outputs.append(self.output_queue.get_nowait()[1])
        self.recorder.end(outputs)
        if self.front_end:
            self.front_end.returned(self.recorder.step + 1)
        self.input_queue.announce()
        moved = executed or self.recorder.progressed
        self.quiet_calls = 0 if moved else self.quiet_calls + 1
        if self.quiet_calls >= LIVELOCK_CALLS:
            raise RuntimeError(f"livelock: {LIVELOCK_CALLS} calls without tokens, events or output")
        if self.recorder.step >= MOST_CALLS:
            raise RuntimeError(f"no end after {MOST_CALLS} calls")
        return executed


def observe_preemptions(note) -> None:
    original = Scheduler._preempt_request

    def _preempt_request(self, request, *rest, **options):
        note(request.request_id)
        return original(self, request, *rest, **options)

    mocks.patch("vllm.v1.core.sched.scheduler.Scheduler._preempt_request", _preempt_request)


def observe_events(note) -> None:
    original = NullEventPublisher.publish

    def publish(self, events):
        note(events)
        return original(self, events)

    mocks.patch("vllm.distributed.kv_events.NullEventPublisher.publish", publish)


def resolve(model: dict, engine_args: dict, gpu: dict, usage=UsageContext.OPENAI_API_SERVER):
    """Upstream's VllmConfig for these arguments; the model is a directory holding nothing but its config.json."""
    with tempfile.TemporaryDirectory() as directory:
        files = {"config.json": json.dumps(model)}
        with_draft = dict(engine_args)
        speculative = with_draft.get("speculative_config")
        if speculative and speculative.get("model") in scenarios.DRAFTS:
            draft = Path(directory) / "draft"
            draft.mkdir()
            (draft / "config.json").write_text(json.dumps(scenarios.DRAFTS[speculative["model"]]))
            with_draft["speculative_config"] = {**speculative, "model": str(draft)}
        return resolve_in(Path(directory), files, with_draft, gpu, usage)


def resolve_in(directory: Path, files: dict[str, str], engine_args: dict, gpu: dict, usage=UsageContext.OPENAI_API_SERVER):
    """The same for a directory that the caller keeps, and the files it is to hold."""
    world.GpuPlatform.gpu = gpu
    for name, content in files.items():
        (directory / name).write_text(content)
    return EngineArgs(model=str(directory), skip_tokenizer_init=True, **engine_args).create_engine_config(usage)


def run(scenario: scenarios.Scenario, front_end=None) -> list[str]:
    """The trace of one scenario, as lines; `front_end` makes who counts, from the configuration, the number of cores and the clock."""
    gpu = world.GPUS[scenario.gpu] if isinstance(scenario.gpu, str) else scenario.gpu
    arguments = dict(scenario.engine_args)
    # The launcher's argument, one front end for each core by default; the engine's arguments do not have it.
    clients = arguments.pop("api_server_count", arguments.get("data_parallel_size", 1))
    if front_end:
        arguments["served_model_name"] = ["scenario"]
    config = resolve(scenario.model, arguments, gpu)
    ScriptedExecutor.scenario, ScriptedExecutor.kv_bytes = scenario, scenario.kv_bytes
    if config.parallel_config.data_parallel_size > 1:
        import cores

        return cores.run(scenario, config, clients, front_end)
    core = OracleCore(config, scenario, world.install_clock())
    core.front_end = front_end and front_end(config, 1, core.clock)
    observe_preemptions(core.recorder.preempted)
    observe_events(core.recorder.published)
    core.recorder.header(scenario)
    mocks.audit()
    try:
        core.run_busy_loop()
    except EndOfScenario:
        return core.recorder.lines
    raise RuntimeError("the busy loop ended by itself")
