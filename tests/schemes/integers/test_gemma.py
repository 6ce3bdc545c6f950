"""Gemma's integers: what says how many bits they have, and what does not."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from helpers.claims import Tensors, described, empty

M, E = "model.layers.0.mlp.up_proj", "model.embed_tokens"
ONES = ("F32", (2, 1), struct.pack("<2f", 1, 1))


def layer(dtype: Any = "U8", **more: Any) -> Tensors:
    return {f"{M}.weight": (dtype, (2, 4), bytes(range(8))), f"{M}.weight_scale": ONES, **more}


def embedding(dtype: str = "U8") -> Tensors:
    codes = (dtype, (2, 4), bytes(range(8)))
    return {f"{E}.embedding_quantized": codes, f"{E}.embedding_scale": ONES}


def config(**said: Any) -> dict[str, Any]:
    return {"model_type": "gemma4", "quantization_config": {"quant_method": "gemma", **said}}


READ: dict[str, tuple[dict[str, Any], Tensors, tuple[int, int]]] = {
    "4 bits by default": (config(), layer(), (2, 8)),
    "2 bits": (config(num_bits=2), layer(), (2, 16)),
    "by a pattern": (config(module_quant_configs={"up_proj": {"num_bits": 2}}), layer(), (2, 16)),
    "a pattern of no module": (
        config(module_quant_configs={"vision": {"num_bits": 2}}),
        layer(),
        (2, 8),
    ),
    "patterns that agree": (
        config(num_bits=2, module_quant_configs={"layers.[0-5]": {"num_bits": 2}}),
        layer(),
        (2, 16),
    ),
    "bytes of 8 bits": (config(num_bits=8), layer("I8"), (2, 4)),
    "an embedding": (config(num_bits=2), embedding(), (2, 16)),
    "8 bits without a config": ({}, embedding("I8"), (2, 4)),
    "scales of activations": (
        config(),
        layer(
            **{f"{M}.{side}_activation_scale": empty("F32") for side in ("input", "output")},
            **{f"model.layers.0.mlp.{one}_cache_scale": empty("F32") for one in "kv"},
        ),
        (2, 8),
    ),
}


@pytest.mark.parametrize("case", READ)
def test_is_read(case: str, tmp_path: Path) -> None:
    said, tensors, shape = READ[case]
    with an.parse(described(tmp_path / "a.safetensors", said, tensors).parent) as model:
        assert not model.problems
        (name,) = model
        assert (name.rpartition(".")[2], model[name].numpy().shape) == ("weight", shape)


REFUSED: dict[str, tuple[dict[str, Any], Tensors, str]] = {
    "no config": ({}, embedding(), "holds codes of 2 or 4 bits, and the config says nothing of it"),
    "8 bits in U8": (config(num_bits=8), layer(), "and the config says 8 of it"),
    "4 bits in I8": (config(), layer("I8"), "but num_bits of the config says 4-bit ints"),
    "two patterns": (
        config(module_quant_configs={"mlp": {"num_bits": 2}, "up_proj": {"num_bits": 4}}),
        layer(),
        "and the config says 2, 4 of it",
    ),
    "a pattern that is not understood": (
        config(module_quant_configs={"layers.[0-5].mlp": {"num_bits": 2}, "up": {"num_bits": 4}}),
        layer(),
        "and the config says 2, 4 of it",
    ),
    "no scale": (
        {},
        {f"{E}.embedding_quantized": empty("U8", 2, 4)},
        "integers of 2, 4 or 8 bits (Gemma) cannot be decoded yet",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_is_refused(case: str, tmp_path: Path) -> None:
    said, tensors, words = REFUSED[case]
    with (
        an.parse(described(tmp_path / "a.safetensors", said, tensors).parent) as model,
        pytest.raises(an.AnamnesisError) as caught,
    ):
        model.remember(lambda *_: None)
    assert words in str(caught.value)
