"""What upstream's defaults come to: resolve.py --configs DIR [--out resolution.json]

DIR holds vendor configurations as `ORGANISATION--MODEL_config.json` (the model_configs folder of the aiconfigurator-core
wheel that the fitting scripts pin). Each combination of GPU, usage context and model resolves in a forked child. The KV
groups come from upstream's start-up sequence with a stated number of bytes; no weights are loaded, so memory profiling
is left out.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import meta  # first: what upstream makes of images looks for packages that the lock leaves out
import engine
import record
import world

from vllm.usage.usage_lib import UsageContext
from vllm.v1.core.kv_cache_utils import resolve_kv_cache_block_sizes
from vllm.v1.engine.core import EngineCore
from vllm.v1.kv_cache_interface import get_kv_cache_spec_kind

MODELS = [
    "meta-llama--Meta-Llama-3.1-8B",
    "meta-llama--Meta-Llama-3.1-70B",
    "openai--gpt-oss-20b",
    "openai--gpt-oss-120b",
    "Qwen--Qwen3-8B",
    "Qwen--Qwen3-32B",
    "Qwen--Qwen3-32B-FP8",
    "Qwen--Qwen3-30B-A3B",
    "meta-llama--Meta-Llama-3.1-405B",
    "Qwen--Qwen3-0.6B",
    "Qwen--Qwen3-235B-A22B",
    "mistralai--Mixtral-8x7B-v0.1",
    "google--gemma-4-26B-A4B",
    "nvidia--Gemma-4-31B-IT-NVFP4",
]
GPUS = ["a100", "h100", "h200", "b200", "b300", "l4", "l40s", "rtx5090"]
CONTEXTS = [UsageContext.OPENAI_API_SERVER, UsageContext.LLM_CLASS]
KV_BYTES = 64 << 30
PLAIN = (int, float, str, bool, type(None))


def plain(config: object) -> dict:
    """The fields of a configuration whose values are numbers, strings, booleans, null, or lists of them."""
    kept = {}
    for name in sorted(config.__dataclass_fields__):
        value = getattr(config, name, None)
        if isinstance(value, (list, tuple)) and all(isinstance(item, PLAIN) for item in value):
            kept[name] = list(value)
        elif isinstance(value, PLAIN):
            kept[name] = value
    return kept


def resolve(model: Path, gpu: str, context: UsageContext) -> dict:
    with tempfile.TemporaryDirectory() as directory:
        files = {"config.json": model.read_text(), "preprocessor_config.json": engine.PIXELS}
        return resolved(engine.resolve_in(Path(directory), files, {}, world.GPUS[gpu], context))


def resolved(config) -> dict:
    before = config.cache_config.block_size
    engine.ScriptedExecutor.kv_bytes = KV_BYTES
    executor = engine.ScriptedExecutor(config)
    core = SimpleNamespace(model_executor=executor, collective_rpc=executor.collective_rpc)
    kv = EngineCore._initialize_kv_caches(core, config)
    scheduler_block, hash_block = resolve_kv_cache_block_sizes(kv, config)
    layers = config.compilation_config.static_forward_context.values()
    return {
        "attention_backends": sorted({layer.get_attn_backend().get_name() for layer in layers}),
        "block_size_before_backend": before,
        "scheduler_block_size": scheduler_block,
        "hash_block_size": hash_block,
        "num_blocks": kv.num_blocks,
        "kv_groups": [
            {
                "layers": len(group.layer_names),
                "first": group.layer_names[0],
                "type": get_kv_cache_spec_kind(group.kv_cache_spec).value,
                "block_size": group.kv_cache_spec.block_size,
                "page_bytes": group.kv_cache_spec.page_size_bytes,
                "window": getattr(group.kv_cache_spec, "sliding_window", None),
            }
            for group in kv.kv_cache_groups
        ],
        "model_runner": "v2" if config.use_v2_model_runner else "v1",
        "max_concurrent_batches": config.max_concurrent_batches,
        "max_in_flight_tokens": config.max_in_flight_tokens,
        "optimization_level": int(config.optimization_level),
        "cudagraph_mode": config.compilation_config.cudagraph_mode.name,
        "cudagraph_capture_sizes": list(config.compilation_config.cudagraph_capture_sizes),
        "max_cudagraph_capture_size": config.compilation_config.max_cudagraph_capture_size,
        "compilation_mode": config.compilation_config.mode.name,
        "max_model_len": config.model_config.max_model_len,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "quantization": config.model_config.quantization,
        "scheduler": plain(config.scheduler_config),
        "cache": plain(config.cache_config),
        "parallel": {
            name: getattr(config.parallel_config, name)
            for name in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel")
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="dump upstream's resolved defaults")
    parser.add_argument("--configs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("resolution.json"))
    options = parser.parse_args()
    meta.install()
    rows, failed = [], []
    for model in MODELS:
        for gpu in GPUS:
            for context in CONTEXTS:
                key = {"model": model.replace("--", "/"), "gpu": gpu, "context": context.name}
                try:
                    rows.append(key | record.apart(resolve, options.configs / f"{model}_config.json", gpu, context))
                except RuntimeError:
                    failed.append(f"{model} on {gpu} for {context.name} does not resolve")
    body = ",\n".join(json.dumps(row) for row in rows)
    gpus = json.dumps({name: world.GPUS[name] for name in GPUS})
    options.out.write_text(f'{{"kv_bytes": {KV_BYTES}, "gpus": {gpus}, "rows": [\n{body}\n]}}\n')
    print(f"{len(rows)} combinations resolved")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
