"""Every preset of compressed-tensors: a layer that it compresses is read back as it does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import compress_module, decompress_module
from compressed_tensors.compressors.format import infer_model_format
from compressed_tensors.quantization import (
    QuantizationConfig,
    apply_quantization_config,
    preset_name_to_scheme,
)
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
from safetensors.torch import save_file

import anamnesis as an
from helpers.fp8_layouts import quiet, raw_bytes

pytestmark = pytest.mark.against("compressed-tensors")

NAMES = ("up_proj", "down_proj")


def extremes(weight: torch.Tensor, args: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The least and the largest of what shares a scale, as a min-max observer finds them."""
    rows, cols = weight.shape
    match args.strategy:
        case "tensor":
            return weight.amin().reshape(1), weight.amax().reshape(1)
        case "channel":
            return weight.amin(1, keepdim=True), weight.amax(1, keepdim=True)
        case "block":
            tall, wide = args.block_structure
            blocks = weight.reshape(rows // tall, tall, cols // wide, wide)
            return blocks.amin((1, 3)), blocks.amax((1, 3))
    groups = weight.reshape(rows, -1, args.group_size)
    return groups.amin(2), groups.amax(2)


def observe(layer: Any) -> None:
    """Give a layer its scales and zero points."""
    args, weight, second = layer.quantization_scheme.weights, layer.weight.data, None
    if args.strategy == "tensor_group":
        second = generate_gparam(weight.amin().reshape(1), weight.amax().reshape(1))
        layer.weight_global_scale.data = second
    scale, zero = calculate_qparams(*extremes(weight, args), args, global_scale=second)
    layer.weight_scale.data = scale.to(layer.weight_scale.dtype)
    if getattr(layer, "weight_zero_point", None) is not None:
        layer.weight_zero_point.data = zero.to(layer.weight_zero_point.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("preset", PRESET_SCHEMES)
def test_is_read_back(preset: str, dtype: torch.dtype, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.ModuleDict(
        {name: torch.nn.Linear(256, 128, bias=False, dtype=dtype) for name in NAMES}
    )
    scheme = preset_name_to_scheme(preset, ["Linear"])
    config = QuantizationConfig(config_groups={"a": scheme}, quantization_status="compressed")
    apply_quantization_config(model, config)
    layers = [layer for layer in model.values() if getattr(layer, "quantization_scheme", None)]
    config.format = scheme.format = infer_model_format(model)
    for layer in layers if scheme.weights is not None else ():
        observe(layer)
        compress_module(layer)
    state = {f"layers.0.{name}": part.contiguous() for name, part in model.state_dict().items()}
    save_file(state, tmp_path / "model.safetensors")
    said = json.loads(config.model_dump_json())
    told = {"model_type": "llama", "quantization_config": said}
    (tmp_path / "config.json").write_text(json.dumps(told))
    for layer in layers if scheme.weights is not None else ():
        decompress_module(layer)
    with an.parse(tmp_path) as found:
        assert not found.problems
        assert sorted(found) == sorted(f"layers.0.{name}.weight" for name in NAMES)
        for name in NAMES:
            expected = model[name].weight.data  # of 4-bit floats BF16, whatever the layer was in
            values = found[f"layers.0.{name}.weight"].torch(expected.dtype)
            assert raw_bytes(values) == quiet(expected)
