"""Packed integers as compressed-tensors and transformers pack and decode them, run here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.pack_quantized.helpers import pack_to_int32
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
from safetensors.torch import load, save_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import quiet, raw_bytes

pytestmark = pytest.mark.against("compressed-tensors")

Tensors = dict[str, torch.Tensor]
SCALES: dict[Any, torch.dtype] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f32": torch.float32,
}


def packed(
    bits: int, shape: tuple[int, ...], groups: int, scale: torch.dtype, *, symmetric: bool
) -> Tensors:
    """Codes of all values, scales of any bits, NaNs and infinities among them."""
    generator = torch.Generator().manual_seed(bits * shape[-1] + groups)
    half = 1 << (bits - 1)
    codes = torch.randint(-half, half, shape, generator=generator, dtype=torch.int8)
    grid = (*shape[:-1], groups)
    integers = {2: torch.int16, 4: torch.int32}[scale.itemsize]
    top = torch.iinfo(integers).max
    raw = torch.randint(-top, top, grid, generator=generator, dtype=torch.int64).to(integers)
    state = {
        "weight_packed": pack_to_int32(codes, bits),
        "weight_scale": raw.view(scale),
        "weight_shape": torch.tensor(shape),
    }
    if not symmetric:
        zeros = torch.randint(-half, half, grid, generator=generator, dtype=torch.int8)
        state["weight_zero_point"] = pack_to_int32(zeros, bits, packed_dim=0).contiguous()
    return state


def decompress(state: Tensors, bits: int, size: int, *, symmetric: bool) -> torch.Tensor:
    """The library's answer, in float32 as it gives that to float32 scales."""
    weights = QuantizationArgs(
        num_bits=bits,
        symmetric=symmetric,
        group_size=size or None,
        strategy="group" if size else "channel",
    )
    scheme = QuantizationScheme(targets=["Linear"], weights=weights)
    compressor = BaseCompressor.get_value_from_registry("pack-quantized")
    wide = {**state, "weight_scale": state["weight_scale"].float()}
    result: torch.Tensor = compressor.decompress(wide, scheme)["weight"]
    return result


def directory(root: Path, bits: int, size: int, state: Tensors) -> Path:
    weights = {"num_bits": bits, "group_size": size or None}
    config = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "version": "0.20.0",
        "config_groups": {"group_0": {"weights": weights}},
    }
    (root / "config.json").write_text(json.dumps({"quantization_config": config}))
    save_file({f"a.{k}": v for k, v in state.items()}, root / "model.safetensors")
    return root


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", range(1, 9))
def test_pack_quantized(bits: int, symmetric: bool, scale: str, tmp_path: Path) -> None:
    cases: list[tuple[tuple[int, ...], int]] = [((37, 96), 32), ((13, 77), 0), ((3, 19, 64), 32)]
    for i, (shape, size) in enumerate(cases):
        groups = shape[-1] // size if size else 1
        state = packed(bits, shape, groups, SCALES[scale], symmetric=symmetric)
        expected = decompress(state, bits, size, symmetric=symmetric)
        (tmp_path / str(i)).mkdir()
        model = an.parse(directory(tmp_path / str(i), bits, size, state))
        for output, dtype in SCALES.items():
            for level in supported_levels():
                found = load(model.remember_to_bytes(output, level=level))["a.weight"]
                assert raw_bytes(found) == quiet(expected.to(dtype)), (shape, output, level)


@pytest.mark.parametrize("bits", range(1, 9))
def test_any_run_of_a_long_row(bits: int, tmp_path: Path) -> None:
    """In bands that begin within a group, and within a word."""
    state = packed(bits, (1, 1_200_000), 12_000, torch.bfloat16, symmetric=True)
    expected = decompress(state, bits, 100, symmetric=True)
    model = an.parse(directory(tmp_path, bits, 100, state))
    assert model["a.weight"].numpy("f32").tobytes() == quiet(expected)


@pytest.mark.against("transformers")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("multiplies", [False, True])
@pytest.mark.parametrize("value", [0.37, 1e30])
def test_bitnet(multiplies: bool, value: float, tmp_path: Path) -> None:
    """In bands that hold rows of two quarters, and scales whose reciprocal is rounded."""
    from transformers.integrations.bitnet import pack_weights, unpack_weights

    shape = (4 * 130, 3000)
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(-1, 2, shape, generator=generator, dtype=torch.int8)
    scale = torch.tensor([value], dtype=torch.bfloat16)
    state = {"a.weight": pack_weights(codes.clone()), "a.weight_scale": scale}
    section = {"quant_method": "bitnet"} | ({"linear_class": "autobitlinear"} if multiplies else {})
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": section}))
    save_file(state, tmp_path / "model.safetensors")
    with torch.compiler.set_stance("force_eager"):
        ternary = unpack_weights(state["a.weight"], torch.float32)
    expected = ternary * scale.float() if multiplies else ternary / scale.float()
    for level in supported_levels():
        found = load(an.parse(tmp_path).remember_to_bytes("f32", level=level))["a.weight"]
        assert raw_bytes(found) == quiet(expected)
