"""ComfyUI's INT8 is byte for byte what its own tools write, and loads in their classes."""

from __future__ import annotations

import io

import pytest
import torch
from safetensors.torch import load, save

import anamnesis as an
from anamnesis.schemes.encodings import find, made
from helpers.blockwise import LEVELS, encode_in_bands, reopened
from helpers.comfy_tools import (
    assert_loads_as_read,
    converted,
    dequantized,
    eager,
    from_comfy_quants,
    marker,
    needs_comfy_quants,
    same,
)
from helpers.encoder_oracles import DTYPES, raw, weights

pytestmark = pytest.mark.against("comfy-kitchen, comfy-quants")

SHAPES = ((1, 1), (3, 8), (160, 2112))
LAYER = "blocks.3.attn.to_q"
NAME = f"{LAYER}.weight"
KITCHEN = {
    "comfy-int8": eager.quantize_int8_rowwise,
    "comfy-int8-tensor": eager.quantize_int8_tensorwise,
}


@pytest.mark.parametrize("to", KITCHEN)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_and_scales_of_comfy_kitchen(shape: tuple[int, int], dtype: str, to: str) -> None:
    """In float32."""
    for told, weight in weights(*shape, dtype):
        codes, scales = KITCHEN[to](weight.float())
        state = converted({NAME: weight}, to)
        assert same(state[NAME], codes), told
        assert same(state[f"{NAME}_scale"], scales), told
        assert same(state[f"{LAYER}.comfy_quant"], marker({"format": "int8_tensorwise"}))
        assert len(state) == 3


@needs_comfy_quants
@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_and_scales_of_comfy_quants(dtype: str) -> None:
    """Those that it writes for another loader, without a rotation.

    It multiplies with the reciprocal of a scale, by which comfy-kitchen divides.
    """
    export = from_comfy_quants("backends.int8_w8a8_model_export")
    for told, weight in weights(160, 2112, dtype):
        made = export._quantize_int8_per_row(weight, convrot=False, group_size=256)
        codes, scales, is_rotated = made
        assert not is_rotated
        state = converted({NAME: weight}, "comfy-int8")
        values = weight.float()
        differs = (values * (1 / scales)).round() != (values / scales).round()
        assert torch.equal(state[NAME] != codes, differs), told
        assert same(state[f"{NAME}_scale"], scales), told


def test_markers_of_another_loader_are_read() -> None:
    """They have no format: comfy-quants' `int8_w8a8_checkpoint_quant_config`."""
    state = converted({NAME: torch.randn(64, 96)}, "comfy-int8")
    told = {**state, f"{LAYER}.comfy_quant": marker({"convrot": False, "per_row": True})}
    with an.parse(save(state)) as model, an.parse(save(told)) as other:
        assert other[NAME].numpy("f32").tobytes() == model[NAME].numpy("f32").tobytes()


@needs_comfy_quants
@pytest.mark.parametrize("is_rotated", [False, True])
def test_markers_of_comfy_quants_are_read(is_rotated: bool) -> None:
    config = from_comfy_quants("formats.int8_w8a8").int8_w8a8_checkpoint_quant_config
    state = converted({NAME: torch.randn(64, 256)}, "comfy-int8")
    with an.parse(save(state)) as model:
        values = model[NAME].numpy("f32")
    state[f"{LAYER}.comfy_quant"] = marker(config(convrot=is_rotated))
    with an.parse(save(state)) as model:
        assert bool(model.problems) == is_rotated
        assert is_rotated or model[NAME].numpy("f32").tobytes() == values.tobytes()


@pytest.mark.parametrize("to", KITCHEN)
def test_it_loads_as_what_is_read_here(to: str) -> None:
    assert_loads_as_read(to)


@pytest.mark.parametrize("to", KITCHEN)
def test_bands_and_levels_give_the_same_bytes(to: str) -> None:
    row = find(to)
    assert row is not None
    encoding = made(row)
    weight = torch.randn(416, 192, generator=torch.Generator().manual_seed(2))
    want, lost = encode_in_bands(encoding, weight, 1 << 20, 1, "scalar")
    for level in LEVELS:
        outs, loss = encode_in_bands(encoding, weight, 7, 3, level)
        assert (outs, loss) == (want, lost)
    state = converted({NAME: weight}, to)
    assert [raw(state[NAME]), raw(state[f"{NAME}_scale"])] == want[:2]
    with an.parse(save(state)) as model:
        assert reopened(encoding, (416, 192), want).tobytes() == model[NAME].numpy("f32").tobytes()


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_rows_of_compressed_tensors_are_moved(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(3)
    codes = torch.randint(-128, 128, (64, 96), generator=draw).to(torch.int8)
    scales = torch.rand(64, 1, generator=draw).to(dtype)
    state = {NAME: codes, f"{NAME}_scale": scales}
    out = io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, "comfy-int8", lossless=True).repacked
        values = model[NAME].numpy("f32")
        with pytest.raises(an.UnsupportedError, match="scales of rows differ, and one is for all"):
            model.convert(io.BytesIO(), "comfy-int8-tensor", lossless=True)
    moved = load(out.getvalue())
    assert same(moved[NAME], codes)
    assert same(moved[f"{NAME}_scale"], scales.float())
    assert dequantized(moved, LAYER, (64, 96)).numpy().tobytes() == values.tobytes()


def test_one_scale_is_moved_to_rows_and_back() -> None:
    weight = torch.randn(64, 96, generator=torch.Generator().manual_seed(4))
    state = converted({NAME: weight}, "comfy-int8-tensor")
    out, back = io.BytesIO(), io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, "int8", lossless=True).repacked
    with an.parse(out.getvalue()) as model:
        assert model.convert(back, "comfy-int8-tensor", lossless=True).repacked
    made = load(back.getvalue())
    assert made.keys() == state.keys()
    assert all(same(one, state[name]) for name, one in made.items())
