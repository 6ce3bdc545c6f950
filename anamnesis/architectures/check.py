"""Whether the tensors beside a config.json have the sizes that it tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.architectures.facts import CONFIG
from anamnesis.base.errors import ParseError

if TYPE_CHECKING:
    from anamnesis.architectures.arch import Arch
    from anamnesis.schemes.core.weight import Weight

__all__ = ["check_sizes"]

_LAYER = re.compile(r"blk\.(\d+)\.")


class _Size(NamedTuple):
    """A key, the fact of config.json behind it, and the tensor and dimension that have its size."""

    key: str
    fact: str
    tensor: str
    axis: int


_SIZES = (
    _Size("embedding_length", "hidden_size", "token_embd.weight", 1),
    _Size("vocab_size", "vocab_size", "token_embd.weight", 0),
    _Size("feed_forward_length", "intermediate_size", "blk.0.ffn_down.weight", 1),
    _Size("expert_count", "the number of experts", "blk.{last}.ffn_up_exps.weight", 0),
    _Size(
        "expert_feed_forward_length", "moe_intermediate_size", "blk.{last}.ffn_up_exps.weight", 1
    ),
)


def check_sizes(arch: Arch, keys: Mapping[str, Any], weights: Mapping[str, Weight]) -> None:
    """Refuse a model whose config.json says other sizes than its tensors have.

    Parameters
    ----------
    arch : Arch
    keys : mapping
        Typed, by their whole names.
    weights : mapping
        By llama.cpp's names.

    Raises
    ------
    ParseError
        If a size differs, or a layer is missing; it names the fact.
    """
    n_layers = _value(keys, arch, "block_count")
    layers = {int(found[1]) for name in weights if (found := _LAYER.match(name)) is not None}
    for layer in range(n_layers):
        if layer not in layers:
            raise ParseError(
                f"num_hidden_layers is {n_layers:,}, and there are no tensors of layer {layer:,}",
                source=CONFIG,
            )
    if layers and max(layers) >= n_layers:
        raise ParseError(
            f"num_hidden_layers is {n_layers:,}, and there are tensors of layer {max(layers):,}",
            source=CONFIG,
        )
    for key, fact, tensor, axis in _SIZES:
        weight = weights.get(tensor.replace("{last}", str(n_layers - 1)))
        told = _value(keys, arch, key)
        if weight is None or not isinstance(told, int) or weight.shape[axis] == told:
            continue
        raise ParseError(
            f"{fact} is {told:,}, and {weight.name} has {weight.shape[axis]:,}", source=CONFIG
        )


def _value(keys: Mapping[str, Any], arch: Arch, name: str) -> Any:
    typed = keys.get(f"{arch.gguf}.{name}")
    return typed["value"] if isinstance(typed, Mapping) else typed
