"""The caches of layers that compress, as the model's own file would have built them: upstream's cache classes, without weights."""

import torch
from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.models.deepseek_v4.attention import DeepseekV4Attention, DeepseekV4IndexerCache, _resolve_dsv4_kv_cache_dtype
from vllm.models.deepseek_v4.compressor import CompressorStateCache
from vllm.models.deepseek_v4.nvidia.flashmla import DeepseekV4FlashMLAAttention
from vllm.v1.attention.backends.mla.sparse_swa import DeepseekV4SWACache


class CompressedLayer(AttentionLayerBase):
    """The compressed entries of one layer; a layer without compression has none."""

    get_kv_cache_spec = DeepseekV4Attention.get_kv_cache_spec
    get_attn_backend = DeepseekV4Attention.get_attn_backend
    backend_cls = DeepseekV4FlashMLAAttention.backend_cls

    def __init__(self, head_dim: int, ratio: int, dtype: tuple) -> None:
        self.head_dim, self.compress_ratio = head_dim, ratio
        self.kv_cache_dtype, self.kv_cache_torch_dtype = dtype


def register(vllm_config) -> None:
    """Transcription of models/deepseek_v4: which caches each layer has, in the order in which they register themselves."""
    config, cache = vllm_config.model_config.hf_text_config, vllm_config.cache_config
    layers = vllm_config.compilation_config.static_forward_context
    dtype = _resolve_dsv4_kv_cache_dtype(True, cache.cache_dtype, cache)
    for index in range(config.num_hidden_layers):
        name, ratio = f"model.layers.{index}.attn", max(1, config.compress_ratios[index])
        if ratio == 4:
            width = config.index_head_dim + config.index_head_dim // 128 * 4
            DeepseekV4IndexerCache(width, torch.uint8, f"{name}.indexer.k_cache", cache, ratio)
            state(config.index_head_dim, ratio, f"{name}.indexer.compressor")
        swa = DeepseekV4FlashMLAAttention.swa_backend_cls
        DeepseekV4SWACache(config.head_dim, config.sliding_window, dtype[1], f"{name}.swa_cache", cache, swa)
        layers[name] = CompressedLayer(config.head_dim, ratio, dtype)
        if ratio > 1:
            state(config.head_dim, ratio, f"{name}.compressor")


def state(head_dim: int, ratio: int, name: str) -> None:
    CompressorStateCache(2 * (1 + (ratio == 4)) * head_dim, torch.float32, ratio, f"{name}.state_cache")
