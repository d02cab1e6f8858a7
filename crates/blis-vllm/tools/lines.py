"""Record what upstream makes of launch lines: lines.py CONFIGS [--out lines.json]

Run it with the interpreter that ../oracle/setup.sh builds. CONFIGS holds vendor configurations as
`ORGANISATION--MODEL_config.json` (the model_configs folder of the aiconfigurator-core wheel). Every row of ../data/lines.txt
goes through upstream's argument parser and EngineArgs.create_engine_config, in a forked child, for each model and chip below.

Replaced: the platform, as in the oracle (../oracle/world.py); and the module of the fused all-reduce pass, which needs
compiled operations to load, by its own size table read from its source. Left out: what needs a loaded model, so CUDA-graph
modes are those before the attention backend's support is known.
"""

import argparse
import ast
import importlib.util
import json
import os
import shlex
import shutil
import sys
import tempfile
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))

import world  # noqa: E402

FUSION = "vllm.compilation.passes.fusion.allreduce_rms_fusion"
SIZE_TABLE = "FI_ALLREDUCE_FUSION_MAX_SIZE_MB"
MODELS = {
    "llama": "meta-llama--Meta-Llama-3.1-70B",
    "llama_fp8": "nvidia--Llama-3.1-70B-Instruct-FP8",
    "gpt_oss": "openai--gpt-oss-120b",
}
PAIRS = [("llama", "h100"), ("llama", "a100"), ("llama_fp8", "h200"), ("llama_fp8", "b200"), ("gpt_oss", "h200"), ("gpt_oss", "b200")]


def replace_fusion_module() -> None:
    package = Path(importlib.util.find_spec("vllm").origin).parent
    source = ast.parse((package / "compilation/passes/fusion/allreduce_rms_fusion.py").read_text())
    module = types.ModuleType(FUSION)
    for node in source.body:
        if isinstance(node, ast.AnnAssign) and node.target.id == SIZE_TABLE:
            setattr(module, SIZE_TABLE, ast.literal_eval(node.value))
    sys.modules[FUSION] = module


replace_fusion_module()

from vllm.config import set_current_vllm_config  # noqa: E402
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.entrypoints.launchers.cli_args import make_arg_parser  # noqa: E402
from vllm.usage.usage_lib import UsageContext  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402
from vllm.v1.attention import selector  # noqa: E402


def answer(folder: str, model: str, line: str) -> dict:
    parser = FlexibleArgumentParser(prog="vllm")
    make_arg_parser(parser.add_subparsers(dest="subparser").add_parser("serve"))
    namespace = parser.parse_args(["serve", folder, *shlex.split(line)])
    namespace.model, namespace.skip_tokenizer_init = namespace.model_tag, True
    engine_args = AsyncEngineArgs.from_cli_args(namespace)
    config = engine_args.create_engine_config(usage_context=UsageContext.OPENAI_API_SERVER)
    scheduler, cache, compilation = config.scheduler_config, config.cache_config, config.compilation_config
    passes, ranks = compilation.pass_config, config.parallel_config.tensor_parallel_size
    selector._cached_get_attn_backend.cache_clear()
    with set_current_vllm_config(config):
        backend = selector.get_attn_backend(
            config.model_config.get_head_size(),
            config.model_config.dtype,
            cache.cache_dtype,
            has_sink=model == "gpt_oss",
            num_heads=64 // ranks,
        )
        preferred = backend.get_preferred_block_size(cache.DEFAULT_BLOCK_SIZE)
    fused_bytes = passes.flashinfer_max_size(ranks) if passes.fuse_allreduce_rms else None
    return {
        "max_model_len": config.model_config.max_model_len,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "quantization": config.model_config.quantization,
        "tensor_parallel_size": ranks,
        "max_num_batched_tokens": scheduler.max_num_batched_tokens,
        "max_num_scheduled_tokens": scheduler.max_num_scheduled_tokens or scheduler.max_num_batched_tokens,
        "max_num_seqs": scheduler.max_num_seqs,
        "max_num_active_seqs": scheduler.max_num_active_seqs or scheduler.max_num_seqs,
        "long_prefill_token_threshold": scheduler.long_prefill_token_threshold,
        "policy": scheduler.policy,
        "enable_chunked_prefill": scheduler.enable_chunked_prefill,
        "scheduler_reserve_full_isl": scheduler.scheduler_reserve_full_isl,
        "watermark": scheduler.watermark,
        "async_scheduling": scheduler.async_scheduling,
        "max_concurrent_batches": config.max_concurrent_batches,
        "stream_interval": scheduler.stream_interval,
        "disable_hybrid_kv_cache_manager": scheduler.disable_hybrid_kv_cache_manager,
        "gpu_memory_utilization": cache.gpu_memory_utilization,
        "cache_dtype": cache.cache_dtype,
        "kv_cache_memory_bytes": cache.kv_cache_memory_bytes,
        "num_gpu_blocks_override": cache.num_gpu_blocks_override,
        "enable_prefix_caching": cache.enable_prefix_caching,
        "prefix_caching_hash_algo": cache.prefix_caching_hash_algo,
        "prefix_cache_retention_interval": cache.prefix_cache_retention_interval,
        "block_size": cache.block_size if cache.user_specified_block_size else preferred,
        "attention_backend": backend.get_name(),
        "mode": compilation.mode.name,
        "cudagraph_mode_before_support": compilation.cudagraph_mode.name,
        "cudagraph_capture_sizes": list(compilation.cudagraph_capture_sizes),
        "max_cudagraph_capture_size": compilation.max_cudagraph_capture_size,
        "custom_ops": list(compilation.custom_ops),
        "splits_at_attention": bool(compilation.splitting_ops_contain_attention()),
        "fuse_norm_quant": bool(passes.fuse_norm_quant),
        "fuse_act_quant": bool(passes.fuse_act_quant),
        "fuse_attn_quant": bool(passes.fuse_attn_quant),
        "fuse_allreduce_rms": bool(passes.fuse_allreduce_rms),
        "enable_qk_norm_rope_fusion": bool(passes.enable_qk_norm_rope_fusion),
        "allreduce_fusion_max_tokens": fused_bytes and fused_bytes // (config.model_config.get_hidden_size() * 2),
        "moe_backend": config.kernel_config.moe_backend,
        "linear_backend": config.kernel_config.linear_backend,
        "enable_flashinfer_autotune": config.kernel_config.enable_flashinfer_autotune,
    }


def answer_apart(folder: str, model: str, line: str) -> dict:
    """The answer of a child, so that no cache of one line reaches the next."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            said = {"gives": answer(folder, model, line)}
        except BaseException as error:  # a refusal is an answer too, and argparse exits
            said = {"refuses": type(error).__name__}
        os.write(send, json.dumps(said).encode())
        os._exit(0)
    os.close(send)
    with os.fdopen(receive, "rb") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said)


def record(configs: Path, model: str, chip: str, lines: list[str]) -> list[dict]:
    world.GpuPlatform.gpu = world.GPUS[chip]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for part in ("config", "hf_quant_config"):
            source = configs / f"{MODELS[model]}_{part}.json"
            if source.exists():
                shutil.copy(source, Path(folder) / f"{part}.json")
        base = answer(folder, model, "")
        rows.append({"model": model, "chip": chip, "args": "", "gives": base})
        for line in lines:
            said = answer_apart(folder, model, line)
            if "gives" in said:
                said = {"gives": {k: v for k, v in said["gives"].items() if v != base[k]}}
            rows.append({"model": model, "chip": chip, "args": line} | said)
    return rows


def record_apart(configs: Path, model: str, chip: str, lines: list[str]) -> list[dict]:
    """Each chip in a process of its own: upstream caches what it knows about the platform."""
    with tempfile.NamedTemporaryFile("r") as out:
        child = os.fork()
        if child == 0:
            Path(out.name).write_text(json.dumps(record(configs, model, chip, lines)))
            os._exit(0)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
            sys.exit(f"{model} on {chip} does not resolve")
        return json.loads(out.read())


def main() -> None:
    parser = argparse.ArgumentParser(description="record upstream's answers to launch lines")
    parser.add_argument("configs", type=Path)
    parser.add_argument("--out", type=Path, default=HERE.parent / "data" / "lines.json")
    options = parser.parse_args()
    text = (HERE.parent / "data" / "lines.txt").read_text()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    rows = [row for model, chip in PAIRS for row in record_apart(options.configs, model, chip, lines)]
    body = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    options.out.write_text(f'{{"rows":[\n{body}\n]}}\n')
    print(f"{len(rows)} answers, {sum('refuses' in row for row in rows)} of them refusals")


if __name__ == "__main__":
    main()
