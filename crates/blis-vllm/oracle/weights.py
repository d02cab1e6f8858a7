"""What upstream keeps resident: weights.py --configs DIR [--out weights.json.gz] [--only MODEL]

Builds upstream's own model classes for every model of the catalog at 1, 2, 4 and 8 ranks on two GPUs, and with experts
shared whole by the ranks of one engine core, by those of two and by eight cores of one rank each, on meta tensors; writes
shape, element type and number of every parameter. DIR holds vendor configurations (the model_configs folder of the
aiconfigurator-core wheel that the fitting scripts pin).

What upstream's `process_weights_after_loading` makes of them runs kernels and is not run: LATER in the table of
tests says what the port takes to change there. A model upstream refuses to build is listed with what it says; a model whose
configuration at the source is not one that upstream reads is listed in UNREADABLE. With --only, the other models' rows stay as they are.
"""

import argparse
import gzip
import json
import re
import sys
from pathlib import Path

import meta  # first: the stand-ins must be in place before any other vllm import
import engine
import mocks
import record as recording

import yaml

CATALOG = Path(__file__).resolve().parents[3] / "catalog" / "models"
GPUS = ("h200", "b200")
RANKS = (1, 2, 4, 8)
# Ranks and engine cores that share experts whole.
WHOLE_EXPERTS = ((8, 1), (4, 2), (1, 8))
# The source holds the text part alone, under a type that neither upstream nor its dependencies know.
UNREADABLE = {"minimax-m3": "its source holds the text part alone"}


# The published vision_config of Llama 4, which the source leaves out too.
TOWERS = {
    "llama-4-": {
        "model_type": "llama4_vision_model",
        "hidden_size": 1408,
        "intermediate_size": 5632,
        "num_hidden_layers": 34,
        "num_attention_heads": 16,
        "image_size": 336,
        "patch_size": 14,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "vision_output_dim": 4096,
    }
}


def vendor_files(name: str, configs: Path) -> dict[str, str]:
    """A catalog model's files."""
    entry = yaml.safe_load((CATALOG / name / "model.yaml").read_text())
    files = {"config.json": (configs / entry["config"]).read_text(), "preprocessor_config.json": engine.PIXELS}
    for family, tower in TOWERS.items():
        if name.startswith(family):
            files["config.json"] = json.dumps({**json.loads(files["config.json"]), "vision_config": tower})
    beside = configs / entry.get("quantisation_config", "absent")
    if beside.exists():
        files["hf_quant_config.json"] = beside.read_text()
    if stated := entry.get("quantisation"):
        # Groups of 16 are what the format means; upstream wants them said.
        stated = {"group_size": 16} | {key: value for key, value in stated.items() if key != "source"}
        files["hf_quant_config.json"] = json.dumps({"producer": {"name": "modelopt"}, "quantization": stated})
    return files


def backends(module) -> set[str]:
    """What the layers of a model say will multiply by their weights."""
    found = set()
    for layer in module.modules():
        method = getattr(layer, "quant_method", None)
        for name, value in sorted(vars(method).items()) if method is not None else ():
            if name.endswith("backend") and value is not None:
                found.add(f"{type(method).__name__}.{name} = {getattr(value, 'name', value)}")
            elif type(value).__module__.startswith("vllm.model_executor.kernels."):
                found.add(f"{type(method).__name__}.{name} = {type(value).__name__}")
    return found


def tensors(module) -> list:
    """Parameters, layers merged: name, shape, element type, how many."""
    rows: dict[tuple, int] = {}
    for name, value in module.named_parameters():
        if value.device.type != "meta":
            raise ValueError(f"{name} lies on {value.device}")
        merged = re.sub(r"\.\d+(?=\.|$)", "", name)
        key = (merged, tuple(value.shape), str(value.dtype).removeprefix("torch."))
        rows[key] = rows.get(key, 0) + 1
    return [[name, list(shape), kind, count] for (name, shape, kind), count in rows.items()]


def record(name: str, files: dict[str, str], gpu: str, ranks: int, cores: int, expert_parallel: bool) -> dict:
    arguments = {"tensor_parallel_size": ranks, "data_parallel_size": cores, "enable_expert_parallel": expert_parallel}
    row = {"model": name, "gpu": gpu, "ranks": ranks, "cores": cores, "expert_parallel": expert_parallel}
    try:
        config, module = meta.build(files, arguments, gpu)
    except (ValueError, AssertionError) as error:
        told = [line.strip() for line in str(error).splitlines() if "validation error" not in line]
        return row | {"refused": told[0].split(" [type=")[0] if told else type(error).__name__}
    mocks.audit()
    size = {value: value.numel() * value.element_size() for value in module.parameters()}
    return row | {
        "bytes": sum(size.values()),
        "backends": sorted(backends(module)),
        "attention": sorted({layer.get_attn_backend().get_name() for layer in config.compilation_config.static_forward_context.values() if hasattr(layer, "get_attn_backend")}),
        "tensors": tensors(module),
    }


def cases(only: str | None, configs: Path, ranks_of: list[int]):
    for name in sorted(path.name for path in CATALOG.iterdir() if (path / "model.yaml").exists()):
        if name in UNREADABLE or (only and only not in name):
            continue
        files = vendor_files(name, configs)
        graph = yaml.safe_load((CATALOG / name / "graph.yaml").read_text())
        mixture = any("mixture_of_experts" in str(block) for block in graph["blocks"].values())
        for gpu in GPUS:
            for ranks in ranks_of:
                yield name, files, gpu, ranks, 1, False
            for ranks, cores in WHOLE_EXPERTS if mixture else ():
                yield name, files, gpu, ranks, cores, True


def main() -> int:
    parser = argparse.ArgumentParser(description="record what upstream keeps resident")
    parser.add_argument("--configs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("weights.json.gz"))
    parser.add_argument("--only", help="models whose name holds this")
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    options = parser.parse_args()
    print(f"{mocks.verify_wheel()} upstream files are as released", flush=True)
    meta.install()
    rows, failed = [], []
    for case in cases(options.only, options.configs, options.ranks):
        try:
            rows.append(recording.apart(record, *case))
        except RuntimeError as error:
            failed.append(str(error))
    recorded = len(rows)
    if options.only and options.out.exists():
        before = json.loads(gzip.decompress(options.out.read_bytes()))["rows"]
        rows = sorted([row for row in before if options.only not in row["model"]] + rows, key=lambda row: row["model"])
    content = json.dumps({"unreadable": UNREADABLE, "rows": rows}, separators=(",", ":"))
    options.out.write_bytes(gzip.compress((content + "\n").encode(), compresslevel=9, mtime=0))
    print(f"{recorded} cases recorded; {len(rows)} in all, {sum('refused' in row for row in rows)} of them refused")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
