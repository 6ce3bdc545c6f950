"""The `quantization_config` of compressed-tensors, as its own version writes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anamnesis.schemes.libraries.linear import with_head

_VERSION = "0.20.0"  # whose config it is


def config_of(
    weights: dict[str, Any], inputs: dict[str, Any] | None, layout: str, plain: Sequence[str]
) -> dict[str, Any]:
    """Return the config of one group of linear layers: `ModelCompressor.update_config`."""
    group = {
        "targets": ["Linear"],
        "weights": weights,
        "input_activations": inputs,
        "output_activations": None,
        "format": layout,
    }
    return {
        "version": _VERSION,
        "quant_method": "compressed-tensors",
        "sparsity_config": {},
        "transform_config": {},
        "config_groups": {"group_0": group},
        "kv_cache_scheme": None,
        "format": layout,
        "quantization_status": "compressed",
        "global_compression_ratio": None,
        "ignore": with_head(plain),
        "moe_sparsity_config": None,
    }


def weight_arguments(num_bits: int, type: str, strategy: str, **more: Any) -> dict[str, Any]:
    """Return the arguments of one quantisation, as compressed-tensors lists them."""
    settings = {"symmetric": True, "group_size": None, **more}
    return {"num_bits": num_bits, "type": type, **settings, "strategy": strategy, "dynamic": False}


def input_arguments(type: str, strategy: str, group_size: int | None = None) -> dict[str, Any]:
    """Return the arguments of activations, which are quantised as they come."""
    return {**weight_arguments(8, type, strategy, group_size=group_size), "dynamic": True}
