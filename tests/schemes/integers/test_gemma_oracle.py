"""Gemma's integers, beside what the layers of transformers make of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers.integrations.gemma_quant import QuantizedEmbedding, QuantizedLinear

import anamnesis as an
from helpers.fp8_layouts import quiet, raw_bytes

pytestmark = pytest.mark.against("transformers")

M = "model.layers.0.mlp.up_proj"
E = "model.embed_tokens"


def stored(codes: torch.Tensor) -> torch.Tensor:
    return torch.arange(codes.numel()).mul(37).to(codes.dtype).reshape(codes.shape)


def filled(layer: Any) -> Any:
    """Give a layer any codes, and scales of all magnitudes."""
    generator = torch.Generator().manual_seed(1)
    for name, part in layer.named_parameters():
        if part.dtype is torch.float32 and part.dim() == 2:
            part.data = torch.randn(part.shape, generator=generator) * 0.01
        elif part.dim() == 2:
            part.data = stored(part.data)
        assert name
    return layer


def check(folder: Path, layers: dict[str, Any], quantised: dict[str, Any], **sizes: int) -> None:
    state = {
        f"{m}.{n}": part for m, layer in layers.items() for n, part in layer.state_dict().items()
    }
    save_file(state, folder / "model.safetensors")
    config = {"quant_method": "gemma", **quantised}
    told = {"model_type": "gemma4", "quantization_config": config, **sizes}
    (folder / "config.json").write_text(json.dumps(told))
    with an.parse(folder) as model:
        assert sorted(model) == sorted(f"{module}.weight" for module in layers)
        for module, layer in layers.items():
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                tensor = model[f"{module}.weight"]
                assert raw_bytes(tensor.torch(dtype, math="reference")) == quiet(
                    values(layer, dtype)
                )
            exact = values(layer, torch.float32)
            assert raw_bytes(tensor.torch(torch.bfloat16)) == quiet(exact.bfloat16())


def values(layer: Any, dtype: torch.dtype) -> torch.Tensor:
    if isinstance(layer, QuantizedEmbedding):
        layer.output_dtype = dtype
        return layer.weight
    found: torch.Tensor = layer._dequantize_weights(dtype)
    return found


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_layers(bits: int, tmp_path: Path) -> None:
    layers = {
        M: filled(QuantizedLinear(96, 40, num_bits=bits)),
        E: filled(QuantizedEmbedding(50, 64, torch.float32, num_bits=bits)),
    }
    check(tmp_path, layers, {"num_bits": bits, "quantize_embeddings": True})


def test_bits_by_module(tmp_path: Path) -> None:
    down = M.replace("up", "down")
    layers = {
        M: filled(QuantizedLinear(96, 40, num_bits=2)),
        down: filled(QuantizedLinear(96, 40, num_bits=8)),
        "lm_head": filled(QuantizedLinear(96, 40, num_bits=4)),
        E: filled(QuantizedEmbedding(50, 64, torch.float32, num_bits=2)),
    }
    bits = {"up_proj": {"num_bits": 2}, r"layers\.\d+\.mlp\.down": {"num_bits": 8}}
    bits |= {"^model.embed": {"num_bits": 2}}
    check(tmp_path, layers, {"module_quant_configs": bits})


@pytest.mark.parametrize(("bits", "cols"), [(4, 35), (2, 33), (2, 34), (2, 35)])
def test_rows_that_end_within_a_byte(bits: int, cols: int, tmp_path: Path) -> None:
    layers = {M: filled(QuantizedLinear(cols, 40, num_bits=bits))}
    check(tmp_path, layers, {"num_bits": bits}, hidden_size=cols)


def test_scales_of_blocks(tmp_path: Path) -> None:
    layer = filled(QuantizedEmbedding(50, 64, torch.float32, num_bits=4))
    layer.embedding_scale.data = torch.rand(50, 4)
    check(tmp_path, {E: layer}, {})
