"""Scenario files: strict loading, token identity, and the small model configurations.

FORMAT.md describes the format. Tokens stand for (segment, offset) pairs, so two tokens are equal exactly when
their pairs are; see `prompt_tokens`.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import yaml

SEGMENT_STRIDE = 1 << 16
FIRST_TOKEN = 16
FIRST_OUTPUT_TOKEN = 1 << 29
END_OF_SEQUENCE = 2
VOCABULARY = 1 << 30

_HEADS = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
    "eos_token_id": END_OF_SEQUENCE,
}
MODELS = {
    "tiny-llama": {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, **_HEADS},
    "tiny-gptoss": {
        "architectures": ["GptOssForCausalLM"],
        "model_type": "gpt_oss",
        "num_hidden_layers": 4,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "sliding_window": 128,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        **_HEADS,
    },
    "tiny-llama4": {
        "architectures": ["Llama4ForCausalLM"],
        "model_type": "llama4_text",
        "num_hidden_layers": 8,
        "no_rope_layers": [1, 1, 1, 0] * 2,
        "attention_chunk_size": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 1,
        "intermediate_size_mlp": 128,
        **_HEADS,
    },
    "tiny-gemma4": {
        "architectures": ["Gemma4ForCausalLM"],
        "model_type": "gemma4_text",
        "num_hidden_layers": 6,
        "layer_types": (["sliding_attention"] * 2 + ["full_attention"]) * 2,
        "sliding_window": 64,
        **_HEADS,
        "global_head_dim": 128,
        "num_key_value_heads": 4,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "num_kv_shared_layers": 0,
        "hidden_size_per_layer_input": 0,
        "rope_parameters": {
            "full_attention": {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
            "sliding_attention": {"rope_theta": 10000.0, "rope_type": "default"},
        },
    },
    "tiny-qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "num_hidden_layers": 2, **_HEADS},
    "tiny-mla": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "model_type": "deepseek_v3",
        "num_hidden_layers": 3,
        "q_lora_rank": 96,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 4,
        "n_shared_experts": 1,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "moe_intermediate_size": 64,
        "n_group": 1,
        "topk_group": 1,
        **_HEADS,
        "num_key_value_heads": 4,
    },
    "tiny-delta": {
        "architectures": ["Qwen3NextForCausalLM"],
        "model_type": "qwen3_next",
        "num_hidden_layers": 8,
        "layer_types": (["linear_attention"] * 3 + ["full_attention"]) * 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "num_experts": 0,
        **_HEADS,
    },
    "tiny-mamba2": {
        "architectures": ["NemotronHForCausalLM"],
        "model_type": "nemotron_h",
        "num_hidden_layers": 5,
        "layers_block_type": ["mamba", "attention", "mamba", "mamba", "attention"],
        "mamba_num_heads": 4,
        "mamba_head_dim": 16,
        "n_groups": 2,
        "ssm_state_size": 16,
        "conv_kernel": 4,
        "chunk_size": 128,
        **_HEADS,
    },
}
MODELS["tiny-dsa"] = {
    **MODELS["tiny-mla"],
    "architectures": ["DeepseekV32ForCausalLM"],
    "model_type": "deepseek_v32",
    "index_n_heads": 64,
    "index_head_dim": 128,
    "index_topk": 2048,
}


MODELS["tiny-dsv4"] = {
    **_HEADS,
    "architectures": ["DeepseekV4ForCausalLM"],
    "model_type": "deepseek_v4",
    "num_hidden_layers": 6,
    "compress_ratios": [0, 0, 4, 128, 4, 128],
    "head_dim": 512,
    "qk_rope_head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 1,
    "q_lora_rank": 96,
    "o_lora_rank": 96,
    "o_groups": 8,
    "sliding_window": 128,
    "index_head_dim": 128,
    "index_n_heads": 64,
    "index_topk": 512,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "hc_mult": 4,
    "num_nextn_predict_layers": 0,
}
MODELS["tiny-m3"] = {
    "architectures": ["MiniMaxM3SparseForConditionalGeneration"],
    "model_type": "minimax_m3_vl",
    "torch_dtype": "bfloat16",
    "eos_token_id": END_OF_SEQUENCE,
    "text_config": {
        **_HEADS,
        "model_type": "minimax_m3_text",
        "architectures": ["MiniMaxM3SparseForCausalLM"],
        "num_hidden_layers": 5,
        "num_attention_heads": 8,
        "head_dim": 128,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "moe_layer_freq": [0, 0, 1, 1, 1],
        "sparse_attention_config": {
            "use_sparse_attention": True,
            "sparse_index_dim": 128,
            "sparse_num_index_heads": 2,
            "sparse_topk_blocks": 16,
            "sparse_block_size": 128,
            "sparse_attention_freq": [0, 0, 1, 1, 1],
        },
    },
}
# Models that draft for another one; a scenario names them in `speculative_config.model`.
DRAFTS = {
    "tiny-draft": {**MODELS["tiny-llama"], "num_hidden_layers": 1},
    "tiny-dflash": {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "dflash_config": {"mask_token_id": 5, "target_layer_ids": [0, 1]},
        **_HEADS,
    },
    "tiny-dflash-window": {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"],
        "sliding_window": 40,
        "use_sliding_window": True,
        "dflash_config": {"mask_token_id": 5, "target_layer_ids": [0, 1]},
        **_HEADS,
    },
    "tiny-dspark": {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "block_size": 4,
        "dspark_noise_token_id": 5,
        "target_layer_ids": [0, 1],
        **_HEADS,
    },
    "tiny-dspark-fill": {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "num_hidden_layers": 1,
        "block_size": 4,
        "dspark_noise_token_id": 5,
        "target_layer_ids": [0, 1],
        "sample_from_anchor": False,
        **_HEADS,
    },
}


@dataclass(frozen=True)
class Profile:
    """Which drafts are accepted, and which a grammar forbids: a rule of the request, the output token and the position."""

    seed: int
    accepted_permille: list[int]
    forbidden_permille: int = 0

    def accepted(self, ordinal: int, output: int, drafts: int) -> int:
        """Leading drafts accepted, of those that continue from output token number `output` of a request."""
        for position in range(drafts):
            rate = self.accepted_permille[min(position, len(self.accepted_permille) - 1)]
            if draw(self.seed, ordinal, output, position) >= rate:
                return position
        return drafts

    def allowed(self, ordinal: int, output: int, drafts: int) -> int:
        """Leading drafts that the request's grammar allows: every accepted one, then up to the first forbidden one."""
        for position in range(self.accepted(ordinal, output, drafts), drafts):
            if draw(self.seed, ordinal, output, 128 + position) < self.forbidden_permille:
                return position
        return drafts


def draw(seed: int, ordinal: int, output: int, position: int) -> int:
    """A number below 1000 for each place: the last step of SplitMix64 over the place."""
    mask = (1 << 64) - 1
    word = ((seed << 52) ^ (ordinal << 36) ^ (output << 8) ^ position) + 0x9E3779B97F4A7C15 & mask
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & mask
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & mask
    return (word ^ (word >> 31)) % 1000


@dataclass(frozen=True)
class Grammar:
    """What a request's structured output needs before it can be scheduled."""

    ready_us: int
    fails: bool


@dataclass(frozen=True)
class Request:
    id: str
    arrival_us: int
    prompt: list[int]
    max_tokens: int
    output_length: int
    priority: int
    ordinal: int
    adapter: int | None = None
    grammar: Grammar | None = None


@dataclass(frozen=True)
class Abort:
    id: str
    at_us: int


@dataclass(frozen=True)
class Scenario:
    name: str
    sha256: str
    engine_args: dict
    gpu: dict | str
    model: dict
    kv_bytes: int
    base_us: int
    per_token_us: int
    requests: list[Request]
    aborts: list[Abort] = field(default_factory=list)
    profile: Profile | None = None


def _only(mapping: dict, required: set[str], optional: set[str], where: str) -> dict:
    if not isinstance(mapping, dict):
        raise ValueError(f"{where}: expected a mapping, found {mapping!r}")
    if missing := required - mapping.keys():
        raise ValueError(f"{where}: missing {', '.join(sorted(missing))}")
    if unknown := mapping.keys() - required - optional:
        raise ValueError(f"{where}: unknown {', '.join(sorted(map(str, unknown)))}")
    return mapping


def _count(value: object, least: int, where: str) -> int:
    if type(value) is not int or value < least:
        raise ValueError(f"{where}: expected an integer of at least {least}, found {value!r}")
    return value


class _Segments:
    """Numbers segments in order of first appearance; every unique piece is a segment of its own."""

    def __init__(self) -> None:
        self.used = 0
        self.shared: dict[str, int] = {}

    def _fresh(self) -> int:
        self.used += 1
        return self.used - 1

    def tokens(self, piece: dict, where: str) -> list[int]:
        if "unique" in piece:
            _only(piece, {"unique"}, set(), where)
            number, length = self._fresh(), piece["unique"]
        else:
            _only(piece, {"shared", "length"}, set(), where)
            name, length = piece["shared"], piece["length"]
            if name not in self.shared:
                self.shared[name] = self._fresh()
            number = self.shared[name]
        if _count(length, 1, where) > SEGMENT_STRIDE:
            raise ValueError(f"{where}: a segment has at most {SEGMENT_STRIDE} tokens, found {length}")
        first = FIRST_TOKEN + SEGMENT_STRIDE * number
        if first + length > FIRST_OUTPUT_TOKEN:
            raise ValueError(f"{where}: too many segments in one scenario")
        return list(range(first, first + length))


def output_token(ordinal: int, index: int) -> int:
    return FIRST_OUTPUT_TOKEN + SEGMENT_STRIDE * ordinal + index


def _model(given: dict | str) -> dict:
    if isinstance(given, str):
        given = {"preset": given}
    given = dict(given)
    preset = given.pop("preset", None)
    if preset is not None and preset not in MODELS:
        raise ValueError(f"model: unknown preset {preset!r}; known are {', '.join(MODELS)}")
    return {**(MODELS[preset] if preset else {}), **given}


def _grammar(row: dict, arrival: int, where: str) -> Grammar:
    _only(row, {"compile_us"}, {"fails"}, where)
    return Grammar(arrival + _count(row["compile_us"], 0, f"{where}.compile_us"), row.get("fails", False))


def _profile(document: dict, where: str) -> Profile | None:
    speculative = "speculative_config" in document.get("engine_args", {})
    if speculative != ("speculation" in document):
        raise ValueError(f"{where}: speculation stands beside engine_args.speculative_config, and only there")
    if not speculative:
        return None
    row = _only(document["speculation"], {"accepted_permille"}, {"forbidden_permille"}, where)
    rates = [_count(rate, 0, f"{where}.accepted_permille") for rate in row["accepted_permille"]]
    return Profile(document["seed"], rates, _count(row.get("forbidden_permille", 0), 0, f"{where}.forbidden_permille"))


def load(path: Path) -> Scenario:
    content = path.read_bytes()
    document = _only(
        yaml.safe_load(content),
        {"name", "seed", "model", "gpu", "step_time", "requests"},
        {"engine_args", "kv_bytes", "aborts", "speculation"},
        path.name,
    )
    if document["name"] != path.stem:
        raise ValueError(f"{path.name}: name is {document['name']!r}, the file's is {path.stem!r}")
    segments, requests = _Segments(), []
    for ordinal, row in enumerate(document["requests"]):
        where = f"{path.name}: requests[{ordinal}]"
        _only(row, {"id", "arrival_us", "prompt", "max_tokens"}, {"output_length", "priority", "adapter", "grammar"}, where)
        most = _count(row["max_tokens"], 1, f"{where}.max_tokens")
        length = _count(row.get("output_length", most), 1, f"{where}.output_length")
        if length > most:
            raise ValueError(f"{where}: output_length {length} exceeds max_tokens {most}")
        prompt = [token for piece in row["prompt"] for token in segments.tokens(piece, f"{where}.prompt")]
        arrival = _count(row["arrival_us"], 0, f"{where}.arrival_us")
        adapter = None if "adapter" not in row else _count(row["adapter"], 1, f"{where}.adapter")
        grammar = _grammar(row["grammar"], arrival, f"{where}.grammar") if "grammar" in row else None
        priority = row.get("priority", 0)
        requests.append(Request(str(row["id"]), arrival, prompt, most, length, priority, ordinal, adapter, grammar))
    aborts = []
    for index, row in enumerate(document.get("aborts", [])):
        where = f"{path.name}: aborts[{index}]"
        _only(row, {"id", "at_us"}, set(), where)
        aborts.append(Abort(str(row["id"]), _count(row["at_us"], 0, where)))
    step = _only(document["step_time"], {"base_us", "per_token_us"}, set(), f"{path.name}: step_time")
    return Scenario(
        name=document["name"],
        sha256=hashlib.sha256(content).hexdigest(),
        engine_args={"seed": document["seed"], **document.get("engine_args", {})},
        gpu=document["gpu"],
        model=_model(document["model"]),
        kv_bytes=_count(document.get("kv_bytes", 1 << 30), 1, f"{path.name}: kv_bytes"),
        base_us=_count(step["base_us"], 1, "step_time.base_us"),
        per_token_us=_count(step["per_token_us"], 0, "step_time.per_token_us"),
        requests=requests,
        aborts=aborts,
        profile=_profile(document, f"{path.name}: speculation"),
    )
