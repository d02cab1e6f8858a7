"""What upstream refuses: rejections.py [--out rejections.json]

Resolves configurations, and takes in requests, that each aim at one branch of upstream's validation, and notes which branch
refused it and what it said. Beside them every `raise` in the files that validate, found in their syntax trees: what no case
reaches must be sorted by exactly one row of unreached.toml, which says why.
"""

import argparse
import ast
import fnmatch
import json
import sys
import tempfile
import tomllib
import traceback
from pathlib import Path

import engine  # first: the fake platform must be in place before any other vllm import
import mocks
import record
import scenario as scenarios
import world

from vllm.entrypoints.serve.utils.api_utils import get_max_tokens
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor

PACKAGE = Path(sys.modules["vllm"].__file__).parent
FILES = [
    "config/attention.py", "config/cache.py", "config/compilation.py", "config/device.py", "config/kernel.py", "config/model.py",
    "config/parallel.py", "config/scheduler.py", "config/utils.py", "config/vllm.py", "engine/arg_utils.py",
    "sampling_params.py", "v1/engine/input_processor.py",
]
KINDS = {"internal", "platform", "model", "setting", "environment", "request", "command line", "tested"}
GPU = "h100"
LLAMA = "tiny-llama"
CASES = [
    {"gpu_memory_utilization": 0.0}, {"gpu_memory_utilization": 1.5}, {"gpu_memory_utilization": -0.1},
    {"max_num_batched_tokens": 0}, {"max_num_batched_tokens": -1}, {"max_num_seqs": 0}, {"max_num_seqs": -3},
    {"max_num_batched_tokens": 64, "enable_chunked_prefill": False, "max_model_len": 4096},
    {"max_num_batched_tokens": 16, "max_num_seqs": 64},
    {"max_model_len": 0}, {"max_model_len": -2}, {"max_model_len": 1 << 20},
    {"long_prefill_token_threshold": -1}, {"long_prefill_token_threshold": 1 << 20},
    {"tensor_parallel_size": 0}, {"tensor_parallel_size": 3}, {"tensor_parallel_size": 8}, {"tensor_parallel_size": -1},
    {"data_parallel_size": 0}, {"pipeline_parallel_size": 0},
    {"block_size": 0}, {"block_size": 12}, {"block_size": -16},
    {"kv_cache_dtype": "int3"}, {"dtype": "int8"}, {"dtype": "float7"},
    {"prefix_caching_hash_algo": "md5"}, {"scheduling_policy": "lifo"}, {"stream_interval": 0},
    {"watermark": 1.5}, {"watermark": -0.1}, {"num_gpu_blocks_override": 0}, {"num_gpu_blocks_override": -5},
    {"kv_cache_memory_bytes": -1}, {"optimization_level": 7}, {"optimization_level": -1},
    {"compilation_config": {"cudagraph_mode": "SOMETIMES"}}, {"compilation_config": {"mode": 9}},
    {"compilation_config": {"cudagraph_capture_sizes": [1, 2], "max_cudagraph_capture_size": 64}},
    {"max_cudagraph_capture_size": -1}, {"cudagraph_capture_sizes": [0]},
    {"cudagraph_capture_sizes": [1, 2, 4], "max_cudagraph_capture_size": 8},
    {"attention_backend": "NO_SUCH"}, {"moe_backend": "no_such"}, {"linear_backend": "no_such"},
    {"quantization": "no_such"}, {"load_format": "no_such"}, {"tokenizer_mode": "no_such"},
    {"all2all_backend": "no_such"}, {"distributed_executor_backend": "no_such"}, {"performance_mode": "no_such"},
    {"prefix_cache_retention_interval": -1}, {"max_num_queued_reqs": -1}, {"max_num_queued_tokens": -1},
    {"data_parallel_size": 2, "data_parallel_backend": "no_such"},
    {"enable_expert_parallel": True, "tensor_parallel_size": 1, "enable_eplb": True},
    {"enable_eplb": True}, {"decode_context_parallel_size": 3, "tensor_parallel_size": 2},
    {"max_num_active_seqs": 0}, {"max_num_active_seqs": 4, "max_num_seqs": 8},
    {"no_such_argument": 1}, {"api_server_count": 0}, {"dcp_kv_cache_interleave_size": 3},
    {"compilation_config": {"custom_ops": ["all", "none"]}}, {"compilation_config": {"mode": "NO_SUCH"}},
    {"compilation_config": {"cudagraph_mode": 3}}, {"compilation_config": {"no_such_key": 1}},
    {"compilation_config": {"pass_config": {"no_such_key": True}}}, {"compilation_config": {"backend": "no_such"}},
    {"data_parallel_size": 2, "data_parallel_size_local": 3}, {"pipeline_parallel_size": 3},
    {"max_num_partial_prefills": 0}, {"async_scheduling": True, "pipeline_parallel_size": 0},
    {"long_prefill_token_threshold": 64, "max_model_len": 32}, {"kv_cache_dtype": "fp8", "attention_backend": "NO_SUCH"},
    {"attention_config": {"no_such_key": 1}}, {"attention_config": {"backend": "NO_SUCH"}},
    {"kernel_config": {"no_such_key": 1}}, {"kernel_config": {"moe_backend": "no_such"}},
    {"decode_context_parallel_size": 2, "tensor_parallel_size": 2}, {"prefill_context_parallel_size": 0},
    {"hf_overrides": {"num_hidden_layers": 0}}, {"prefill_schedule_interval": 0}, {"data_parallel_rank": 3},
    {"attention_config": {"backend_per_kind": {"no_such": "FLASH_ATTN"}}}, {"kv_cache_layout": "NO_SUCH"},
    {"compilation_config": {"custom_ops": ["rms_norm"]}}, {"compilation_config": {"custom_ops": ["+rms_norm", "-rms_norm"]}},
    {"compilation_config": {"mode": 3, "backend": "no_such"}}, {"compilation_config": {"compile_cache_save_format": "text"}},
    {"compilation_config": {"decoder_replay_cudagraph_capture_sizes": [0]}},
    {"compilation_config": {"cudagraph_mm_encoder": True, "encoder_cudagraph_max_vision_items_per_batch": -1}},
    {"compilation_config": {"cudagraph_mm_encoder": True, "encoder_cudagraph_max_frames_per_batch": -1}},
    {"compilation_config": {"encoder_cudagraph_token_budgets": [0]}}, {"runner": "pooling"}, {"quantization": "fp_quant"},
    {"moe_backend": "flashinfer_moe_ep_cutedsl", "all2all_backend": "deepep_low_latency"}, {"all2all_backend": "passthrough"},
    {"moe_backend": "flashinfer_moe_ep_deep_gemm"},
    {"enable_expert_parallel": True}, {"enable_hc_sp": True, "tensor_parallel_size": 2}, {"hf_overrides": {"head_dtype": "no_such"}},
    {"decode_context_parallel_size": 4, "tensor_parallel_size": 4},
    {"eplb_config": {"use_async": True, "policy": "swift"}}, {"eplb_config": {"use_async": True, "communicator": "pynccl"}},
    {"eplb_config": {"log_balancedness": True, "log_balancedness_interval": 0}}, {"enable_elastic_ep": True},
    {"nnodes": 2, "distributed_executor_backend": "ray", "tensor_parallel_size": 2},
    {"numa_bind": True, "numa_bind_nodes": [-1]}, {"numa_bind_nodes": [0]},
    {"numa_bind": True, "numa_bind_cpus": ["a"]}, {"numa_bind": True, "numa_bind_cpus": ["3-1"]},
    {"data_parallel_external_lb": True}, {"prefill_context_parallel_size": 2, "decode_context_parallel_size": 3},
    {"ray_workers_use_nsight": True}, {"enable_dbo": True, "dbo_decode_token_threshold": 1},
    {"max_num_active_seqs": 8, "max_num_seqs": 4}, {"async_scheduling": True, "distributed_executor_backend": "external_launcher"},
    {"async_scheduling": True, "speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}},
    {"async_scheduling": True, "speculative_config": {"method": "ngram_gpu", "num_speculative_tokens": 2, "prompt_lookup_max": 2, "disable_padded_drafter_batch": True}},
    {"per_request_spec_decode_metrics": "summary"}, {"attention_config": {"hisparse_config": {}}},
    {"attention_config": {"hisparse_config": {}}, "scheduler_reserve_full_isl": False},
    {"max_num_scheduled_tokens": 0, "speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}},
    {"all2all_backend": "moonep", "dtype": "float16"}, {"all2all_backend": "moonep", "quantization": "fp8"},
    {"quantization": "fp8", "dtype": "float32"}, {"enable_batch_sharded_sampling": True},
    {"profiler_config": {"profiler": "proton"}}, {"profiler_config": {"profiler": "proton", "proton_profiler_dir": "/p"}},
    {"profiler_config": {"profiler": "proton", "proton_profiler_dir": "/p", "proton_mode": "pcsampling"}},
    {"enable_return_routed_experts": True}, {"return_sampling_mask": True}, {"use_replayssm": True},
    {"data_parallel_hybrid_lb": True, "data_parallel_external_lb": True},
    {"nnodes": 2, "data_parallel_backend": "ray"}, {"nnodes": 2}, {"nnodes": 2, "tensor_parallel_size": 2, "node_rank": 5},
    {"enable_fault_tolerance": True}, {"data_parallel_size": 2, "data_parallel_rank": 0}, {"data_parallel_hybrid_lb": True, "data_parallel_size": 2},
    {"enable_lora": True, "default_mm_loras": {"image": "a"}},
    {"enable_lora": True, "max_num_batched_tokens": 16, "max_num_seqs": 16, "speculative_config": {"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 2}},
    {"attention_backend": "FLASH_ATTN", "attention_config": {"backend": "FLASH_ATTN"}},
    {"enable_flashinfer_autotune": True, "kernel_config": {"enable_flashinfer_autotune": True}},
    {"cudagraph_capture_sizes": [1], "compilation_config": {"cudagraph_capture_sizes": [1]}},
    {"max_cudagraph_capture_size": 1, "compilation_config": {"max_cudagraph_capture_size": 1}},
    {"kda_prefill_backend": "fused"}, {"spec_method": "ngram", "speculative_config": {"method": "ngram"}},
    {"mamba_block_size": 64, "enable_prefix_caching": False}, {"enable_mamba_cache_stochastic_rounding": True},
    {"kv_sharing_fast_prefill": True}, {"swap_space": 4}, {"data_parallel_size_local": 2},
    {"disable_hybrid_kv_cache_manager": False, "hf_overrides": {"attention_chunk_size": 64}},
]
# Branches that a plain dense model does not come to: model and arguments.
CASES_OF_MODELS = [
    ("tiny-gptoss", {"enable_eplb": True, "enable_expert_parallel": True}),
    ("tiny-gptoss", {"data_parallel_size": 2, "data_parallel_rank": 3}),
    ("tiny-gptoss", {"data_parallel_size": 2, "data_parallel_external_lb": True}),
    ("tiny-gptoss", {"data_parallel_size": 2, "data_parallel_rank": 0, "data_parallel_size_local": 2}),
    ("tiny-gptoss", {"data_parallel_size": 2, "nnodes": 3, "data_parallel_external_lb": True}),
    ("tiny-gptoss", {"eplb_config": {"num_redundant_experts": 2}}),
    ("tiny-mla", {"kv_cache_dtype": "nvfp4"}),
    ("tiny-gptoss", {"decode_context_parallel_size": 3, "tensor_parallel_size": 2}),
    ({"preset": "tiny-llama", "num_attention_heads": 16}, {"tensor_parallel_size": 16}),
    ({"preset": "tiny-llama", "num_attention_heads": 16}, {"pipeline_parallel_size": 16}),
    ({"preset": "tiny-llama", "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic"}}, {"quantization": "awq"}),
    ("tiny-mamba2", {"mamba_block_size": 64, "enable_prefix_caching": False}),
    ("tiny-mamba2", {"enable_mamba_cache_stochastic_rounding": True}),
    ("tiny-delta", {"enable_prefix_caching": True, "mamba_cache_mode": "no_such"}),
    ("tiny-dsa", {"attention_config": {"hisparse_config": {}}, "pipeline_parallel_size": 2}),
]
# Requests, under a longest sequence of 64 tokens; `max_tokens` null where the client states none.
REQUESTS = [
    {"prompt": 0, "max_tokens": 4}, {"prompt": 0, "max_tokens": None}, {"prompt": 0, "max_tokens": 0}, {"prompt": 1, "max_tokens": 0},
    {"prompt": 1, "max_tokens": 1}, {"prompt": 63, "max_tokens": 1}, {"prompt": 63, "max_tokens": 99}, {"prompt": 63, "max_tokens": None},
    {"prompt": 64, "max_tokens": 1}, {"prompt": 64, "max_tokens": 0}, {"prompt": 65, "max_tokens": 1}, {"prompt": 65, "max_tokens": 0},
    {"prompt": 4096, "max_tokens": 1},
]


def branches() -> dict[str, str]:
    """Every `raise` of the files, by place: file, function and line, with the start of the statement."""
    found = {}
    for name in FILES:
        path = PACKAGE / name
        if not path.exists():
            continue
        source = path.read_text()

        def visit(node, where):
            for child in ast.iter_child_nodes(node):
                inner = [*where, child.name] if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else where
                if isinstance(child, ast.Raise) and child.exc is not None:
                    for line in range(child.lineno, child.end_lineno + 1):
                        found[f"{name}:{line}"] = f"{name}::{'.'.join(where)}:{child.lineno}"
                visit(child, inner)

        visit(ast.parse(source), [])
    return found


def resolved(model, arguments: dict):
    chosen = scenarios.MODELS[model] if isinstance(model, str) else {**scenarios.MODELS[model["preset"]], **model}
    return engine.resolve({key: value for key, value in chosen.items() if key != "preset"}, arguments, world.GPUS[GPU])


def taken_in(request: dict) -> None:
    """What a front end does with a request whose prompt is tokens already: by its server, and by its engine alone."""
    with tempfile.TemporaryDirectory() as directory:
        files = {"config.json": json.dumps(scenarios.MODELS[LLAMA])}
        config = engine.resolve_in(Path(directory), files, {"max_model_len": 64}, world.GPUS[GPU])
        processor = InputProcessor(config)
    stated = request["max_tokens"]
    if request["by_server"]:
        stated = get_max_tokens(64, stated, request["prompt"], {})
    params = SamplingParams(max_tokens=stated)
    processor.process_inputs("a", {"type": "token", "prompt_token_ids": [7] * request["prompt"]}, params, ("generate",))


def refusal(act, *about) -> dict:
    """Which branch refuses what is asked, and the first line of what it says; `null` where none does."""
    try:
        act(*about)
    except (ValueError, TypeError, AssertionError, NotImplementedError, KeyError, VLLMValidationError) as error:
        told = [line.strip() for line in str(error).splitlines() if line.strip() and "validation error" not in line]
        cause = error
        places = []
        while cause is not None:
            for frame in traceback.extract_tb(cause.__traceback__):
                if frame.filename.startswith(str(PACKAGE)):
                    places.append(f"{Path(frame.filename).relative_to(PACKAGE)}:{frame.lineno}")
            cause = cause.__cause__ or cause.__context__
        errors = getattr(error, "errors", None)
        for row in errors() if errors else ():
            inner = row.get("ctx", {}).get("error")
            for frame in traceback.extract_tb(getattr(inner, "__traceback__", None)):
                if frame.filename.startswith(str(PACKAGE)):
                    places.append(f"{Path(frame.filename).relative_to(PACKAGE)}:{frame.lineno}")
        kind = errors()[0]["type"] if errors else type(error).__name__
        return {"said": " ".join(told[:2])[:200].split(" [type=")[0], "kind": kind, "places": places}
    return {"said": None, "kind": None, "places": []}


def main() -> None:
    parser = argparse.ArgumentParser(description="record what upstream refuses")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("rejections.json"))
    options = parser.parse_args()
    print(f"{mocks.verify_wheel()} upstream files are as released", flush=True)
    mocks.audit()
    known, rows, reached = branches(), [], set()
    cases = [(LLAMA, arguments) for arguments in CASES] + CASES_OF_MODELS
    for model, arguments in cases:
        about = {"model": model} if model != LLAMA else {}
        rows.append({"args": arguments, **about, **judged(record.apart(refusal, resolved, model, arguments), known, reached)})
    requests = []
    for request in REQUESTS:
        for by_server in (False, True):
            asked = {**request, "by_server": by_server}
            requests.append({**asked, **judged(record.apart(refusal, taken_in, asked), known, reached)})
    left = sorted_out(sorted(set(known.values()) - reached))
    lists = {"cases": rows, "requests": requests, "not_reached": left}
    body = ",\n".join(f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]" for name, rows in lists.items())
    options.out.write_text(f'{{"model": "{LLAMA}", "gpu": "{GPU}", {body}}}\n')
    refused = sum(row["kind"] is not None for row in rows + requests)
    print(f"{len(rows)} cases, {len(requests)} requests, {refused} refused; {len(reached)} of {len(set(known.values()))} branches reached")


def judged(answer: dict, known: dict[str, str], reached: set[str]) -> dict:
    hit = sorted({known[place] for place in answer.pop("places") if place in known})
    reached |= set(hit)
    return {**answer, "branches": hit}


def sorted_out(left: list[str]) -> list[dict]:
    """Why no case reaches each branch: the one row of unreached.toml that names it."""
    groups = tomllib.loads(Path(__file__).with_name("unreached.toml").read_text())["group"]
    crate = Path(__file__).resolve().parents[1]
    sources = [path.read_text() for folder in ("src", "tests") for path in (crate / folder).rglob("*.rs")]
    why = {}
    for group in groups:
        if group["kind"] not in KINDS:
            sys.exit(f"unreached.toml: kind {group['kind']}; expected one of {', '.join(sorted(KINDS))}")
        if ("test" in group) != (group["kind"] == "tested") or not any(f"fn {group.get('test', '')}" in text for text in sources):
            sys.exit(f"unreached.toml: {group['branches']} names a test that there is not, or none")
        for pattern in group["branches"]:
            hit = [branch for branch in left if fnmatch.fnmatchcase(branch, pattern)]
            if not hit or any(branch in why for branch in hit):
                sys.exit(f"unreached.toml: {pattern} names no branch that is left, or one that another row names: {hit}")
            why |= dict.fromkeys(hit, group)
    if missing := [branch for branch in left if branch not in why]:
        sys.exit("no case reaches, and unreached.toml does not sort:\n" + "\n".join(missing))
    told = ("kind", "setting", "value", "test", "reason")
    return [{"branch": branch, **{key: why[branch][key] for key in told if key in why[branch]}} for branch in left]


if __name__ == "__main__":
    main()
