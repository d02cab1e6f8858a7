"""The caches of layers whose queries see the blocks that an indexer picks: upstream's cache specs, without weights."""

import types

import mocks

# The image processor that the model's file imports wants a library of image transforms; no image comes here.
mocks.patch("sys.modules[torchvision]", types.ModuleType("torchvision"))
mocks.patch("sys.modules[torchvision.transforms]", types.SimpleNamespace(InterpolationMode=types.SimpleNamespace(BICUBIC=None)))

from vllm.model_executor.layers.attention_layer_base import AttentionLayerBase
from vllm.models.minimax_m3.common.indexer import MiniMaxM3IndexerCache
from vllm.models.minimax_m3.common.sparse_attention import select_main_backend_and_impl_cls
from vllm.models.minimax_m3.nvidia.model import MiniMaxM3SparseAttention
from vllm.utils.torch_utils import kv_cache_dtype_str_to_dtype


class BlockSparseLayer(AttentionLayerBase):
    """Keys and values of one layer."""

    get_kv_cache_spec = MiniMaxM3SparseAttention.get_kv_cache_spec
    get_attn_backend = MiniMaxM3SparseAttention.get_attn_backend

    def __init__(self, vllm_config, sparse: dict) -> None:
        model, cache = vllm_config.model_config, vllm_config.cache_config
        self.num_kv_heads = model.get_num_kv_heads(vllm_config.parallel_config)
        self.head_dim = model.get_head_size()
        self.kv_cache_dtype = cache.cache_dtype
        self.kv_cache_torch_dtype = kv_cache_dtype_str_to_dtype(cache.cache_dtype, model)
        self.attn_backend, _ = select_main_backend_and_impl_cls(
            topk_blocks=sparse["sparse_topk_blocks"], kv_cache_dtype=cache.cache_dtype, num_kv_heads=self.num_kv_heads
        )


def register(vllm_config, plain) -> None:
    """Transcription of models/minimax_m3: which layers have an indexer, and the order in which caches register themselves."""
    config, cache = vllm_config.model_config.hf_text_config, vllm_config.cache_config
    layers = vllm_config.compilation_config.static_forward_context
    sparse = config.sparse_attention_config
    for index in range(config.num_hidden_layers):
        name = f"language_model.model.layers.{index}.self_attn.attn"
        if not sparse["sparse_attention_freq"][index]:
            layers[name] = plain(vllm_config, None, False)
            continue
        dtype = vllm_config.attention_config.resolve_indexer_kv_dtype("bf16")
        MiniMaxM3IndexerCache(sparse["sparse_index_dim"], f"{name}.index_cache", cache, dtype)
        layers[name] = BlockSparseLayer(vllm_config, sparse)
