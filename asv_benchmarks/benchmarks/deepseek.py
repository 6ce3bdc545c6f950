"""DeepSeek-V3's tensors: its names, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

from .models import Stored
from .sparse import write_directory

SHARD_BYTES = 4_300_000_000
BLOCK = 128

_HIDDEN, _DENSE, _EXPERT, _VOCABULARY = 7168, 18432, 2048, 129280
_LAYERS, _DENSE_LAYERS, _EXPERTS = 61, 3, 256
_ITEM = {"F8_E4M3": 1, "BF16": 2, "F32": 4}


def _plain(name: str, *shape: int, dtype: str = "BF16") -> Iterator[Stored]:
    yield name, dtype, shape, prod(shape) * _ITEM[dtype]


def _fp8(name: str, rows: int, cols: int) -> Iterator[Stored]:
    yield from _plain(f"{name}.weight", rows, cols, dtype="F8_E4M3")
    grid = (-(-rows // BLOCK), -(-cols // BLOCK))
    yield from _plain(f"{name}.weight_scale_inv", *grid, dtype="F32")


def _gated(name: str, width: int) -> Iterator[Stored]:
    yield from _fp8(f"{name}.gate_proj", width, _HIDDEN)
    yield from _fp8(f"{name}.up_proj", width, _HIDDEN)
    yield from _fp8(f"{name}.down_proj", _HIDDEN, width)


def _attention(name: str) -> Iterator[Stored]:
    yield from _fp8(f"{name}.q_a_proj", 1536, _HIDDEN)
    yield from _plain(f"{name}.q_a_layernorm.weight", 1536)
    yield from _fp8(f"{name}.q_b_proj", 24576, 1536)
    yield from _fp8(f"{name}.kv_a_proj_with_mqa", 576, _HIDDEN)
    yield from _plain(f"{name}.kv_a_layernorm.weight", 512)
    yield from _fp8(f"{name}.kv_b_proj", 32768, 512)
    yield from _fp8(f"{name}.o_proj", _HIDDEN, 16384)


def _layer(number: int) -> Iterator[Stored]:
    name = f"model.layers.{number}"
    yield from _attention(f"{name}.self_attn")
    if number < _DENSE_LAYERS:
        yield from _gated(f"{name}.mlp", _DENSE)
    else:
        yield from _plain(f"{name}.mlp.gate.weight", _EXPERTS, _HIDDEN)
        yield from _plain(f"{name}.mlp.gate.e_score_correction_bias", _EXPERTS, dtype="F32")
        yield from _gated(f"{name}.mlp.shared_experts", _EXPERT)
        for expert in range(_EXPERTS):
            yield from _gated(f"{name}.mlp.experts.{expert}", _EXPERT)
    yield from _plain(f"{name}.input_layernorm.weight", _HIDDEN)
    yield from _plain(f"{name}.post_attention_layernorm.weight", _HIDDEN)


def tensors() -> Iterator[Stored]:
    """Yield the stored tensors of the main model, 90,427 of them."""
    yield from _plain("model.embed_tokens.weight", _VOCABULARY, _HIDDEN)
    for number in range(_LAYERS):
        yield from _layer(number)
    yield from _plain("model.norm.weight", _HIDDEN)
    yield from _plain("lm_head.weight", _VOCABULARY, _HIDDEN)


def write_sparse(folder: Path) -> None:
    """Write shards without data, their index and config.json: 670 GB by their length."""
    quantization = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [BLOCK, BLOCK]}
    config = {"model_type": "deepseek_v3", "quantization_config": quantization}
    write_directory(folder, tensors(), SHARD_BYTES, config)
