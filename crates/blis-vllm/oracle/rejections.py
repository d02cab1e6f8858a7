"""What upstream refuses: rejections.py [--out rejections.json]

Resolves configurations that each aim at one branch of upstream's validation, and notes which branch refused it and what
it said. Beside them every `raise` in the configuration files that the port models, found in their syntax trees, with
whether some case reaches it; what none reaches is listed by name, so that the list says what is left.
"""

import argparse
import ast
import json
import sys
import traceback
from pathlib import Path

import engine  # first: the fake platform must be in place before any other vllm import
import mocks
import record
import scenario as scenarios
import world

PACKAGE = Path(sys.modules["vllm"].__file__).parent
FILES = [
    "config/attention.py", "config/cache.py", "config/compilation.py", "config/device.py", "config/kernel.py", "config/model.py",
    "config/parallel.py", "config/scheduler.py", "config/utils.py", "config/vllm.py", "engine/arg_utils.py",
]
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


def refusal(arguments: dict) -> dict:
    """Which branch refuses the arguments, and the first line of what it says; `null` where none does."""
    try:
        engine.resolve(scenarios.MODELS[LLAMA], arguments, world.GPUS[GPU])
    except (ValueError, TypeError, AssertionError, NotImplementedError, KeyError) as error:
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
    for arguments in CASES:
        answer = record.apart(refusal, arguments)
        hit = sorted({known[place] for place in answer.pop("places") if place in known})
        reached |= set(hit)
        rows.append({"args": arguments, **answer, "branches": hit})
    every = set(known.values())
    body = ",\n".join(json.dumps(row) for row in rows)
    left = ",\n".join(json.dumps(place) for place in sorted(every - reached))
    options.out.write_text(f'{{"model": "{LLAMA}", "gpu": "{GPU}", "cases": [\n{body}\n], "not_reached": [\n{left}\n]}}\n')
    print(f"{len(rows)} cases, {sum(row['kind'] is not None for row in rows)} refused; {len(reached)} of {len(every)} branches reached")


if __name__ == "__main__":
    main()
