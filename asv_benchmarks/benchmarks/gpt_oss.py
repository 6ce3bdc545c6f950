"""gpt-oss-120b's tensors: its names, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path

from .models import Stored
from .sparse import write_directory

BLOCK = 32
SHARD_BYTES = 4_700_000_000

_HIDDEN, _VOCABULARY, _LAYERS, _EXPERTS = 2880, 201088, 36, 128
_QUERIES, _KEYS, _HEADS = 4096, 512, 64
_CONFIG = {
    "model_type": "gpt_oss",
    "architectures": ["GptOssForCausalLM"],
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn",
            "model.layers.*.mlp.router",
            "model.embed_tokens",
            "lm_head",
        ],
    },
}


def _plain(name: str, *shape: int) -> Stored:
    return name, "BF16", shape, 2 * prod(shape)


def _linear(name: str, rows: int, cols: int) -> Iterator[Stored]:
    yield _plain(f"{name}.weight", rows, cols)
    yield _plain(f"{name}.bias", rows)


def experts(name: str, n: int, rows: int) -> Iterator[Stored]:
    """Yield the codes and the scales of a stack of `n` matrices."""
    grid = (n, rows, _HIDDEN // BLOCK)
    yield f"{name}_blocks", "U8", (*grid, BLOCK // 2), prod(grid) * BLOCK // 2
    yield f"{name}_scales", "U8", grid, prod(grid)


def _layer(number: int) -> Iterator[Stored]:
    name = f"model.layers.{number}"
    yield _plain(f"{name}.input_layernorm.weight", _HIDDEN)
    yield from _linear(f"{name}.self_attn.q_proj", _QUERIES, _HIDDEN)
    yield from _linear(f"{name}.self_attn.k_proj", _KEYS, _HIDDEN)
    yield from _linear(f"{name}.self_attn.v_proj", _KEYS, _HIDDEN)
    yield from _linear(f"{name}.self_attn.o_proj", _HIDDEN, _QUERIES)
    yield _plain(f"{name}.self_attn.sinks", _HEADS)
    yield _plain(f"{name}.post_attention_layernorm.weight", _HIDDEN)
    yield from _linear(f"{name}.mlp.router", _EXPERTS, _HIDDEN)
    for part, rows in (("gate_up_proj", 2 * _HIDDEN), ("down_proj", _HIDDEN)):
        yield from experts(f"{name}.mlp.experts.{part}", _EXPERTS, rows)
        yield _plain(f"{name}.mlp.experts.{part}_bias", _EXPERTS, rows)


def tensors() -> Iterator[Stored]:
    """Yield the stored tensors, 687 of them."""
    yield _plain("model.embed_tokens.weight", _VOCABULARY, _HIDDEN)
    for number in range(_LAYERS):
        yield from _layer(number)
    yield _plain("model.norm.weight", _HIDDEN)
    yield _plain("lm_head.weight", _VOCABULARY, _HIDDEN)


def write_sparse(folder: Path) -> None:
    """Write shards without data, their index and config.json: 65 GB by their length."""
    write_directory(folder, tensors(), SHARD_BYTES, _CONFIG)
