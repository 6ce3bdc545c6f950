"""4-bit floats as their own libraries decode them, run here: every code with every scale."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from gptqmodel.utils.model_dequant import dequantize_deepseek_v4_fp4_expert
from safetensors.torch import load, save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.levels import supported_levels
from anamnesis.schemes.views import transposed
from helpers.fp8_layouts import entry, quiet, raw_bytes
from helpers.handmade import safetensors_bytes

pytestmark = pytest.mark.against("compressed-tensors, transformers, GPTQModel")

Tensors = dict[str, torch.Tensor]


def remembered(tensors: Tensors, name: Any, output: Any) -> bytes:
    """The bytes of one weight, the same at all levels."""
    model = an.parse(safetensors_bytes({k: entry(v) for k, v in tensors.items()}))
    (result,) = {
        raw_bytes(load(model.remember_to_bytes(output, level=level))[name])
        for level in supported_levels()
    }
    return result


def every_code(rows: int, cols: int) -> torch.Tensor:
    """Bytes of which each row has all, in some order."""
    generator = torch.Generator().manual_seed(rows * cols)
    return torch.stack([torch.randperm(cols, generator=generator) % 256 for _ in range(rows)]).to(
        torch.uint8
    )


def every_scale(per_row: int) -> torch.Tensor:
    return torch.arange(256, dtype=torch.uint8)[:, None].expand(256, per_row).contiguous()


def decompress(name: Any, group: int, strategy: str, state: Tensors) -> torch.Tensor:
    """compressed-tensors' own answer, in float32 as it gives that to float32 scales."""
    weights = QuantizationArgs(
        num_bits=4, type="float", symmetric=True, dynamic=False, group_size=group, strategy=strategy
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    compressor = BaseCompressor.get_value_from_registry(name)
    result: torch.Tensor = compressor.decompress(state, scheme)["weight"]
    return result


@pytest.mark.parametrize("second", [2688.0, 1.0, 0.37, 3e-30, 1e30, 0.0, float("inf")])
def test_compressed_tensors_nvfp4(second: float) -> None:
    codes, scales = every_code(256, 512), every_scale(64).view(torch.float8_e4m3fn)
    state = {
        "weight_packed": codes,
        "weight_scale": scales,
        "weight_global_scale": torch.tensor([second]),
    }
    expected = decompress("nvfp4-pack-quantized", 16, "tensor_group", state)
    stored = {f"a.{name}": tensor for name, tensor in state.items()}
    assert remembered(stored, "a.weight", "bf16") == quiet(expected.bfloat16())


def test_compressed_tensors_mxfp4() -> None:
    codes, scales = every_code(256, 512), every_scale(32)
    state = {"weight_packed": codes, "weight_scale": scales}
    expected = decompress("mxfp4-pack-quantized", 32, "group", state)
    stored = {f"a.{name}": tensor for name, tensor in state.items()}
    assert remembered(stored, "a.weight", "bf16") == quiet(expected.bfloat16())


@pytest.mark.parametrize("output", [torch.bfloat16, torch.float16, torch.float32])
def test_gpt_oss(output: torch.dtype) -> None:
    """transformers' answer, [experts, in, out]: each byte of a scale, 0 and 255 too."""
    blocks = every_code(2 * 96, 16 * 16).reshape(2, 96, 16, 16)
    scales = torch.arange(2 * 96 * 16).reshape(2, 96, 16).to(torch.uint8)
    stored = {"experts.down_proj_blocks": blocks, "experts.down_proj_scales": scales}
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    if output is not torch.float16:  # which rounds what bfloat16 holds exactly
        expected = convert_moe_packed_tensors(blocks, scales, dtype=output)
    name = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}[output]
    assert remembered(stored, "experts.down_proj", name) == quiet(expected.to(output).contiguous())


@pytest.mark.parametrize("most_ahead", [0, 1 << 20], ids=["by rows", "ahead"])
def test_gpt_oss_in_bands(
    most_ahead: int, tmp_path: Path, small_bands: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Experts are turned band by band, whether they are read at once or piece by piece."""
    monkeypatch.setattr(transposed, "_MOST_AHEAD", most_ahead)
    monkeypatch.setattr(transposed, "_TILE_VALUES", 2048)
    blocks = every_code(3 * 70, 16 * 16).reshape(3, 70, 16, 16)
    scales = torch.arange(3 * 70 * 16).reshape(3, 70, 16).to(torch.uint8)
    path = tmp_path / "model.safetensors"
    save_file({"experts.down_proj_blocks": blocks, "experts.down_proj_scales": scales}, path)
    expected = convert_moe_packed_tensors(blocks, scales, dtype=torch.bfloat16)
    with an.parse(path) as model:
        weight = model["experts.down_proj"]
        assert len(weight._weight.bands(DTYPES["BF16"], 512)) > 3 * 2
        for threads in (1, 3):
            stream = io.BytesIO()
            model.remember(stream, "bf16", threads=threads)
            values = load(stream.getvalue())["experts.down_proj"]
            assert raw_bytes(values) == quiet(expected.contiguous())
            for some in (slice(0, 9), slice(101, 103), slice(30, 70)):
                found = torch.from_numpy(weight[1, some].astype(np.float32))
                assert quiet(found) == quiet(expected[1, some].float().contiguous())


@pytest.mark.parametrize("output", [torch.bfloat16, torch.float16, torch.float32])
def test_deepseek_v4(output: torch.dtype) -> None:
    codes, scales = every_code(256, 512).view(torch.int8), every_scale(32)
    exponents = scales.view(torch.float8_e8m0fnu)
    expected = dequantize_deepseek_v4_fp4_expert(codes, exponents, target_dtype=output)
    stored = {"a.weight": codes, "a.scale": exponents}
    name = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}[output]
    assert remembered(stored, "a.weight", name) == quiet(expected)
