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
}


@dataclass(frozen=True)
class Request:
    id: str
    arrival_us: int
    prompt: list[int]
    max_tokens: int
    output_length: int
    priority: int
    ordinal: int


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


def load(path: Path) -> Scenario:
    content = path.read_bytes()
    document = _only(
        yaml.safe_load(content),
        {"name", "seed", "model", "gpu", "step_time", "requests"},
        {"engine_args", "kv_bytes", "aborts"},
        path.name,
    )
    if document["name"] != path.stem:
        raise ValueError(f"{path.name}: name is {document['name']!r}, the file's is {path.stem!r}")
    segments, requests = _Segments(), []
    for ordinal, row in enumerate(document["requests"]):
        where = f"{path.name}: requests[{ordinal}]"
        _only(row, {"id", "arrival_us", "prompt", "max_tokens"}, {"output_length", "priority"}, where)
        most = _count(row["max_tokens"], 1, f"{where}.max_tokens")
        length = _count(row.get("output_length", most), 1, f"{where}.output_length")
        if length > most:
            raise ValueError(f"{where}: output_length {length} exceeds max_tokens {most}")
        prompt = [token for piece in row["prompt"] for token in segments.tokens(piece, f"{where}.prompt")]
        arrival = _count(row["arrival_us"], 0, f"{where}.arrival_us")
        requests.append(Request(str(row["id"]), arrival, prompt, most, length, row.get("priority", 0), ordinal))
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
    )
