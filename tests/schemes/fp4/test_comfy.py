"""ComfyUI's NVFP4 is byte for byte what its own tools write, and loads in their classes."""

from __future__ import annotations

import io
import json
from typing import Any

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

SHAPES = ((32, 64), (160, 2112), (256, 320))
LAYER = "blocks.3.attn.to_q"
NAME = f"{LAYER}.weight"
LARGEST = torch.tensor(448.0 * 6)
LEAST = 2.0**-126


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_codes_and_scales_of_comfy_kitchen(shape: tuple[int, int], dtype: str) -> None:
    """In float32; where a second scale is no normal number, comfy-kitchen divides by it."""
    for told, weight in weights(*shape, dtype):
        second = weight.float().abs().amax() / LARGEST
        if second < LEAST:
            continue
        codes, scales = eager.quantize_nvfp4(weight.float(), second)
        state = converted({NAME: weight}, "comfy-nvfp4")
        assert same(state[NAME], codes), told
        assert same(state[f"{NAME}_scale"], scales), told
        assert same(state[f"{NAME}_scale_2"], second), told
        assert same(state[f"{LAYER}.comfy_quant"], marker({"format": "nvfp4"}))
        assert len(state) == 4


@needs_comfy_quants
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_comfy_quants_writes(shape: tuple[int, int], dtype: str) -> None:
    blocked = from_comfy_quants("formats.nvfp4_blocked")
    config = from_comfy_quants("formats.nvfp4").nvfp4_checkpoint_quant_config()
    for told, weight in weights(*shape, dtype):
        codes, scales, second = blocked.quantize_nvfp4_block(weight)
        state = converted({NAME: weight}, "comfy-nvfp4")
        assert same(state[NAME], codes), told
        assert same(state[f"{NAME}_scale"], scales), told
        assert same(state[f"{NAME}_scale_2"], second), told
        assert same(state[f"{LAYER}.comfy_quant"], marker(config))


def test_it_loads_as_what_is_read_here() -> None:
    assert_loads_as_read("comfy-nvfp4")


@pytest.mark.parametrize("rows", [128, 256])
def test_bands_and_levels_give_the_same_bytes(rows: int) -> None:
    row = find("comfy-nvfp4")
    assert row is not None
    encoding = made(row).fitted(an.base.dtypes.DTYPES["F32"])
    weight = torch.randn(416, 192, generator=torch.Generator().manual_seed(2))
    weight[:, 16:32] = 0
    weight[5, 16:32] = -1e-9  # a group whose scale is 0
    want, lost = encode_in_bands(encoding, weight, 1 << 20, 1, "scalar")
    for level in LEVELS:
        outs, loss = encode_in_bands(encoding, weight, rows, 3, level)
        assert (outs, loss) == (want, lost)
    state = converted({NAME: weight}, "comfy-nvfp4")
    assert [raw(state[NAME]), raw(state[f"{NAME}_scale"])] == want[:2]
    with an.parse(save(state)) as model:
        assert reopened(encoding, (416, 192), want).tobytes() == model[NAME].numpy("f32").tobytes()


def test_long_rows_are_cut_between_tiles_of_scales() -> None:
    weight = torch.randn(160, 70016, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    state = converted({NAME: weight}, "comfy-nvfp4")
    second = weight.float().abs().amax() / LARGEST
    codes, scales = eager.quantize_nvfp4(weight.float(), second)
    assert same(state[NAME], codes)
    assert same(state[f"{NAME}_scale"], scales)


@pytest.mark.parametrize("shape", [(32, 40), (40, 32)])
def test_what_would_be_padded_is_left(shape: tuple[int, int]) -> None:
    both = {NAME: torch.ones(64, 64), "blocks.0.a.weight": torch.ones(shape)}
    assert converted(both, "comfy-nvfp4")["blocks.0.a.weight"].dtype == torch.float32


def test_it_comes_back_from_other_layouts() -> None:
    weight = torch.randn(64, 128, generator=torch.Generator().manual_seed(4))
    state = converted({NAME: weight}, "comfy-nvfp4")
    out, back = io.BytesIO(), io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, "nvfp4-modelopt").repacked
    with an.parse(out.getvalue()) as model:
        assert model.convert(back, "comfy-nvfp4").repacked
    assert all(same(one, state[name]) for name, one in load(back.getvalue()).items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("said", ["marker", "metadata", "layout"])
def test_scales_of_inputs_are_folded_where_asked(said: str, dtype: torch.dtype) -> None:
    """ComfyUI's layer multiplies its input by them, so that a plain weight has them in columns."""
    draw = torch.Generator().manual_seed(7)
    state = converted({NAME: torch.randn(96, 320, generator=draw)}, "comfy-nvfp4")
    factors = (torch.rand(320, generator=draw) + 0.5).to(dtype)
    want = dequantized(state, LAYER, (96, 320)) * factors.float()
    layout: Any = None
    metadata = None
    if said != "marker":
        told = json.loads(state.pop(f"{LAYER}.comfy_quant").numpy().tobytes())
        layout = "comfyui" if said == "layout" else None
        metadata = {"_quantization_metadata": json.dumps({"layers": {LAYER: told}})}
        metadata = None if layout else metadata
    raw_file = save({**state, f"{LAYER}.pre_quant_scale": factors}, metadata)
    with an.parse(raw_file, layout=layout) as model:
        assert list(model.problems) == [f"{LAYER}.pre_quant_scale"]
        assert "fold_pre_quant_scale=True" in str(model.problems[f"{LAYER}.pre_quant_scale"])
    with an.parse(raw_file, layout=layout, fold_pre_quant_scale=True) as model:
        assert not model.problems
        assert model[NAME].numpy("f32").tobytes() == want.numpy().tobytes()
