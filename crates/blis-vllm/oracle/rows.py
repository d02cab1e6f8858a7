"""What a forward pass multiplies: rows.py --configs DIR [--out rows.json]

Runs upstream's own forward functions of thirteen models on meta tensors, for steps of 16 decodes and one piece of a prompt,
padded to a captured size, and notes every call of a linear layer and of a mixture of experts: rows, outputs, inputs, and how
many layers call alike; where the ranks of an engine core divide its tokens, also what they gather and scatter. The layers' own
arithmetic is not run; what each hands back is a tensor of the shape it would. OPAQUE says how calls are counted that hide
products of their own.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path

# Steps run as written: nothing is compiled, and the mode changes no product.
os.environ["TORCHDYNAMO_DISABLE"] = "1"

import meta  # first: the stand-ins must be in place before any other vllm import
import mocks
import record as recording
import weights

import torch
from torch.overrides import TorchFunctionMode

from vllm.config import set_current_vllm_config
from vllm.forward_context import set_forward_context
from vllm.model_executor.custom_op import CustomOp
from vllm.model_executor.layers.attention.attention import Attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.layers.linear import LinearBase
from vllm.model_executor.layers.logits_processor import LogitsProcessor

CASES = [
    ("llama-3.1-8b-instruct", "h200", 2),
    ("qwen3-32b-fp8", "h200", 4),
    ("qwen3-30b-a3b", "h200", 4),
    ("mixtral-8x7b", "b200", 2),
    ("gpt-oss-20b", "h200", 2),
    ("deepseek-v3", "h200", 8),
    ("minimax-m2.5", "h200", 4),
    ("llama-4-scout", "h200", 8),
    ("nemotron-3-nano-30b-a3b", "h200", 2),
    ("nemotron-3-super-120b-a12b", "b200", 8),
    ("gemma-4-26b-a4b", "h200", 4),
    ("gemma-4-31b-it-nvfp4", "b200", 2),
]
# Four ranks in each of two engine cores that share experts whole; those of Gemma 4 keep every token.
DIVIDED = [
    ("deepseek-v3", "h200"),
    ("kimi-k2.5", "h200"),
    ("qwen3-30b-a3b", "h200"),
    ("llama-4-scout", "h200"),
    ("nemotron-3-super-120b-a12b", "b200"),
    ("gemma-4-26b-a4b", "h200"),
]
# 16 decodes and 200 or 496 tokens of a prompt, padded to the next captured size; one row of each request is sampled. Where four ranks divide
# the tokens, four times as many.
TOKENS, SAMPLED = (224, 512), 17
OPAQUE = {
    "shared experts": "called beside the others as any network; up to 256 rows on a stream of their own",
    "experts": "rows are tokens of every engine core times experts per token, whichever rank holds them; two products, gate and up projections as one",
    "attention": "no product with weights",
    "latent attention": "the up-projection of keys and values runs inside: for a prompt over its tokens and those cached before them, "
    "for decodes as two batched products over heads",
    "state space": "convolution and states, no product with weights",
}
# Operations that fill a tensor they are given, beside the compiled ones.
FILLS = ("vllm::mamba_mixer2",)


class Unrun(TorchFunctionMode):
    """Operations that fill a tensor they are given; the tensor is there already."""

    def __torch_function__(self, function, kinds, args=(), options=None):
        if isinstance(function, torch._ops.OpOverloadPacket):
            if function._qualified_op_name in FILLS:
                return None
            if function._qualified_op_name.startswith("_C::") and not getattr(function, function.overloads()[0])._schema.returns:
                return None
        return function(*args, **(options or {}))


class Count:
    """Puts itself in front of the layers of a built model and notes what they are called with."""

    def __init__(self, module) -> None:
        self.rows: list[list] = []
        for name, layer in module.named_modules():
            if isinstance(layer, LinearBase):
                layer.forward = self._linear(name, layer)
            elif isinstance(layer, MoERunner):
                layer.forward = self._experts(name, layer)
            elif isinstance(layer, (Attention, MLAAttention)):
                layer.forward = self._attention(layer)
            elif isinstance(layer, LogitsProcessor):
                layer.forward = self._logits
            elif isinstance(layer, CustomOp):
                layer._forward_method = layer.forward_native

    def _note(self, name: str, rows: int, outputs: int, inputs: int) -> None:
        self.rows.append([name, rows, outputs, inputs])

    def hear(self, name: str, rows: int, width: int) -> None:
        """A collective over rows: what this rank gives or keeps."""
        self._note(name, rows, width, 0)

    def _linear(self, name, layer):
        def forward(x, *rest):
            outputs = getattr(layer, "output_size_per_partition", layer.output_size)
            self._note(name, x.numel() // x.shape[-1], outputs, x.shape[-1])
            made = x.new_empty((*x.shape[:-1], outputs), dtype=layer.params_dtype)
            return (made, None) if layer.return_bias else made

        return forward

    def _experts(self, name, layer):
        def forward(hidden_states, router_logits=None, *rest, **more):
            if layer.gate is not None:
                layer.gate(hidden_states)
            if layer.shared_experts is not None:
                layer.shared_experts._layer(hidden_states)
            if layer.routed_input_transform is not None:
                hidden_states = layer.routed_input_transform(hidden_states)[0]
            config = layer.moe_config
            pairs = hidden_states.shape[0] * config.dp_size * config.sp_size * config.experts_per_token
            gated = 2 if config.is_act_and_mul else 1
            width = config.intermediate_size_per_partition
            self._note(f"{name}.up", pairs, gated * width, config.hidden_dim)
            self._note(f"{name}.down", pairs, config.hidden_dim, width)
            if layer.routed_output_transform is not None:
                return layer.routed_output_transform(hidden_states)[0]
            return torch.empty_like(hidden_states)

        return forward

    def _attention(self, layer):
        def forward(query, *rest, output_shape=None, **more):
            if output_shape is not None:
                return query.new_empty(output_shape)
            width = layer.num_heads * getattr(layer, "head_size_v", layer.head_size)
            return query.new_empty((query.shape[0], width))

        return forward

    def _logits(self, head, hidden_states, *rest):
        outputs = head.num_embeddings_per_partition
        self._note("lm_head", hidden_states.shape[0], outputs, hidden_states.shape[-1])
        return hidden_states.new_empty((hidden_states.shape[0], outputs))


def record(name: str, gpu: str, ranks: int, cores: int, tokens: int, configs: Path) -> dict:
    arguments = {"tensor_parallel_size": ranks, "data_parallel_size": cores, "enable_expert_parallel": cores > 1, "enforce_eager": True}
    config, module = meta.build(weights.vendor_files(name, configs), arguments, gpu)
    count = Count(module)
    meta.Group.listener = count.hear
    with set_current_vllm_config(config), set_forward_context(None, config), torch.device("meta"), meta.ToMeta(), Unrun():
        ids = torch.empty(tokens, dtype=torch.int64)
        hidden = module(ids, ids.clone())
        module.compute_logits(hidden[:SAMPLED])
    mocks.audit()
    merged: dict[tuple, int] = {}
    for layer, *product in count.rows:
        key = (re.sub(r"\.\d+(?=\.|$)", "", layer), *product)
        merged[key] = merged.get(key, 0) + 1
    return {"model": name, "gpu": gpu, "ranks": ranks, "cores": cores, "tokens": tokens, "rows": [[*key, calls] for key, calls in merged.items()]}


def main() -> int:
    parser = argparse.ArgumentParser(description="record what a forward pass multiplies")
    parser.add_argument("--configs", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("rows.json"))
    options = parser.parse_args()
    print(f"{mocks.verify_wheel()} upstream files are as released", flush=True)
    meta.install()
    cases, failed = [], []
    whole = [(*case, 1, tokens) for case in CASES for tokens in TOKENS]
    for case in whole + [(*case, 4, 2, 4 * tokens) for case in DIVIDED for tokens in TOKENS]:
        try:
            cases.append(recording.apart(record, *case, options.configs))
        except RuntimeError as error:
            failed.append(str(error))
    body = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    options.out.write_text(f'{{"sampled": {SAMPLED}, "opaque": {json.dumps(OPAQUE)}, "cases": [\n{body}\n]}}\n')
    print(f"{len(cases)} passes, {sum(row[-1] for case in cases for row in case['rows'])} products")
    for line in failed:
        print(line, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
