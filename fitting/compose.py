"""Composes decode steps from the registry as written, by primitive: a look at whether the parts add up.

`python fitting/compose.py` prints milliseconds of one decode step at 1,536 tokens of context for a mixture of experts of gpt-oss-120b's
shape and a dense model of Llama-3.1-70B's, kernel by kernel as the modelled engine would select them by default.
"""

from pathlib import Path

import numpy as np
import yaml

import forms
import moe as moe_family
import source

REGISTRY = Path(__file__).resolve().parent.parent / "registry"
CONTEXT = 1536


class Chip:
    """The registry of one chip, priced by entry name."""

    def __init__(self, name):
        self.name = name
        facts = source.facts(name)
        self.bandwidth, self.peak = facts["bandwidth"], facts["peak"]
        self.entries = {}
        for path in sorted((REGISTRY / name).glob("*.yaml")):
            document = yaml.safe_load(path.read_text())
            self.entries.update({(document["family"], e["name"]): e for e in document["entries"]})

    def price(self, family, entry, peak="bf16", **inputs):
        e = self.entries[family, entry]
        x = {k: np.float64(v) for k, v in inputs.items()}
        return float(forms.FORMS[e["form"]](dict(x, bandwidth=self.bandwidth, peak=self.peak[peak]), forms.values_of(e)))

    def gemm(self, rows, columns, depth, label="bf16-cublas-linear"):
        tensor_format = label.split("-")[0]
        stored, activation = {"bf16": (2, 2), "fp8": (1, 1), "nvfp4": (0.5625, 0.5625)}[tensor_format]
        return self.price("gemm", label, peak={"bf16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}[tensor_format], rows=rows, columns=columns,
                          depth=depth, weight_bytes=stored * columns * depth, input_bytes=activation)

    def decode(self, batch, tp, query, kv, dim, window=0, kv_format="bf16"):
        kernel = "flashinfer-trtllm-gen-decode" if self.name == "b200" else "flash-attn-fa3"
        seen = min(CONTEXT, window) if window else CONTEXT
        return self.price("attention_decode", f"{kv_format}-{kernel}", requests=batch, context=batch * seen, windowed=float(seen < CONTEXT),
                          kv_heads=max(kv // tp, 1), head_dim=dim, element_bytes=2 if kv_format == "bf16" else 1)

    def reduce(self, batch, tp, hidden, kernel="vllm-csrc-custom-all-reduce"):
        return self.price("collective", f"{kernel}-{tp}", bytes=batch * hidden * 2) if tp > 1 else 0.0

    def stream(self, name, moved):
        return self.price("elementwise", name, bytes=moved)


def mixture(chip, tp, batch, kernel, multiple, peak="bf16", kv_format="bf16", fused=False, distribution="power_law_1.2"):
    """One decode step of 36 layers, 128 experts of which each token takes 4, hidden and intermediate 2,880."""
    h, layers, inter = 2880, 36, 2880 / tp
    hit = moe_family.routing(batch, 128, 4, distribution)
    experts = chip.price("moe", kernel, peak=peak, tokens=batch, width=h, experts=128, pairs=4 * batch, hit=hit,
                         expert_bytes=3 * h * float(moe_family.padded(inter, multiple)) * 0.53125, pair_operations=6 * h * inter)
    attention = 18 * (chip.decode(batch, tp, 64, 8, 64, kv_format=kv_format) + chip.decode(batch, tp, 64, 8, 64, 128, kv_format=kv_format))
    moved = batch * h * 2
    reduce = chip.reduce(batch, tp, h, "flashinfer-fused-all-reduce-norm" if fused else "vllm-csrc-custom-all-reduce")
    norm = 0.0 if fused else 2 * layers * chip.stream("norm", 4 * moved)
    return {
        "moe": layers * experts, "attention": attention,
        "qkv+o": layers * (chip.gemm(batch, 5120 / tp, h) + chip.gemm(batch, h, 4096 / tp)), "router": layers * chip.gemm(batch, 128, h),
        "logits": chip.gemm(batch, 201088 / tp, h), "norm": norm, "rope": layers * chip.stream("rope", 2 * batch * 5120 / tp * 2),
        "reduce": 2 * layers * reduce, "sampling": chip.price("sampling", "sampler", rows=batch, vocabulary=201088),
    }


def dense(chip, tp, batch, label, kv_format="bf16", quantised="fp8-quantise", fused=False):
    """One decode step of 80 layers, hidden 8,192, intermediate 28,672, 64 query and 8 KV heads of 128."""
    h, layers, inter = 8192, 80, 28672 / tp
    reduce = chip.reduce(batch, tp, h, "flashinfer-fused-all-reduce-norm" if fused else "vllm-csrc-custom-all-reduce")
    quantise = chip.stream(quantised, 3 * batch * h) * 2 + chip.stream(quantised, 3 * batch * inter) + chip.stream(quantised, 3 * batch * h / tp)
    return {
        "ffn": layers * (chip.gemm(batch, 2 * inter, h, label) + chip.gemm(batch, h, inter, label)), "attention": layers * chip.decode(batch, tp, 64, 8, 128, kv_format=kv_format),
        "qkv+o": layers * (chip.gemm(batch, 10240 / tp, h, label) + chip.gemm(batch, h, h / tp, label)), "quantise": layers * quantise,
        "logits": chip.gemm(batch, 128256 / tp, h), "norm": 0.0 if fused else 2 * layers * chip.stream("norm", 4 * batch * h * 2),
        "act+rope": layers * (chip.stream("activation", 3 * batch * inter * 2) + chip.stream("rope", 2 * batch * 10240 / tp * 2)),
        "reduce": 2 * layers * reduce, "sampling": chip.price("sampling", "sampler", rows=batch, vocabulary=128256),
    }


def show(title, parts):
    print(f"{title:34s} {sum(parts.values()) / 1e3:7.2f} ms  " + "  ".join(f"{k} {v / 1e3:.2f}" for k, v in parts.items()))


def main():
    h100, h200, b200 = Chip("h100"), Chip("h200"), Chip("b200")
    for chip, tp, batch in ((h200, 1, 4), (h200, 1, 64), (h200, 2, 16), (h200, 4, 16), (h200, 4, 64), (h200, 8, 4), (h200, 8, 64), (h100, 4, 16)):
        show(f"mixture {chip.name} tp{tp} b{batch} triton", mixture(chip, tp, batch, "mxfp4-openai-triton-mxfp4", 64))
    for chip, tp, batch in ((h200, 1, 4), (h200, 4, 16), (h200, 4, 64), (h200, 8, 4), (h200, 8, 64), (h100, 4, 16)):
        show(f"mixture {chip.name} tp{tp} b{batch} marlin", mixture(chip, tp, batch, "mxfp4-marlin-moe", 64))
    for tp, batch in ((8, 4), (8, 64), (1, 64), (4, 64)):
        show(f"mixture b200 tp{tp} b{batch} bf16", mixture(b200, tp, batch, "mxfp4-flashinfer-trtllm-gen-moe", 256))
        show(f"mixture b200 tp{tp} b{batch} mxfp8 fused", mixture(b200, tp, batch, "mxfp4_mxfp8-flashinfer-trtllm-gen-moe", 256, "mxfp8", "fp8", True))
    for chip, tp, batch in ((h100, 4, 16), (h200, 4, 16), (h200, 8, 4), (h200, 2, 64), (b200, 4, 16)):
        show(f"dense {chip.name} tp{tp} b{batch} fp8", dense(chip, tp, batch, "fp8-cutlass-scaled-mm-fp8"))
    show("dense b200 tp4 b16 nvfp4 fused", dense(b200, 4, 16, "nvfp4-flashinfer-cutedsl-nvfp4", quantised="nvfp4-quantise", fused=True))


if __name__ == "__main__":
    main()
