"""ComfyUI's AWQ and SVDQuant are read as comfy-kitchen decodes them, to the bit."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

import anamnesis as an
from helpers import torch_order
from helpers.comfy_tools import State, dequantized, kitchen, marker
from helpers.encoder_oracles import raw

pytestmark = pytest.mark.against("comfy-kitchen")

svdquant: Any = import_module("comfy_kitchen.backends.eager.svdquant")

LAYER = "blocks.3.attn.to_q"
NAME = f"{LAYER}.weight"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
ROWS, COLS = 256, 512
SHAPE = (ROWS, COLS)
# Sums of more products than these are cut where a processor's BLAS cuts them.
RANKS = (16, 32, 128, *((200, 256, 512) if torch_order.is_ours() else ()))
OUTPUTS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def codes(*shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randint(-128, 128, shape, generator=draw).to(torch.int8)


def in_float32(state: State) -> State:
    return {name: one.float() if one.is_floating_point() else one for name, one in state.items()}


def read(state: State, dtype: Any = "f32", math: Any = "float32") -> bytes:
    with an.parse(save({name: one.contiguous() for name, one in state.items()})) as model:
        assert not model.problems
        assert list(model) == [NAME]
        return model[NAME].numpy(dtype, math=math).tobytes()


# --- AWQ ------------------------------------------------------------------------------------------


def awq(dtype: torch.dtype, group: int = 64) -> State:
    said = {"format": "awq_w4a16", **({} if group == 64 else {"group_size": group})}
    return {
        NAME: codes(ROWS, COLS // 2),
        f"{NAME}_scale": (drawn(COLS // group, ROWS) * 0.01).to(dtype),
        f"{NAME}_zeros": drawn(COLS // group, ROWS, seed=2).to(dtype),
        f"{LAYER}.comfy_quant": marker(said),
    }


@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_awq_is_read(dtype: torch.dtype, group: int, request: pytest.FixtureRequest) -> None:
    state = awq(dtype, group)
    values = dequantized(in_float32(state), LAYER, SHAPE)
    zeros = state.pop(f"{NAME}_zeros")
    of_quants = {**state, f"{NAME}_zero": zeros}
    state[f"{NAME}_zeros"] = zeros
    for output, wanted in OUTPUTS.items():
        assert read(state, output) == raw(values.to(wanted))
        assert read(of_quants, output) == raw(values.to(wanted))
    request.getfixturevalue("small_bands")
    assert read(state) == raw(values)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_awq_is_read_with_the_roundings_of_its_own(dtype: torch.dtype) -> None:
    state = awq(dtype)
    found = state[f"{NAME}_scale"], state[f"{NAME}_zeros"]
    layout = kitchen.get_layout_class("TensorCoreAWQW4A16Layout")
    params = layout.Params(scale=found[0], zeros=found[1], orig_dtype=dtype, orig_shape=SHAPE)
    values = layout.dequantize(state[NAME], params)
    for output, wanted in OUTPUTS.items():
        assert read(state, output, "reference") == raw(values.to(wanted))


@pytest.mark.parametrize("to", ["mlx-4bit-64", "mlx-8bit-64", "gguf-q4_1"])
def test_awq_is_moved_where_sums_are_exact(to: str) -> None:
    state, out = awq(torch.float16), io.BytesIO()
    state[f"{NAME}_scale"] = torch.full_like(state[f"{NAME}_scale"], 0.25)
    state[f"{NAME}_zeros"] = state[f"{NAME}_zeros"].mul(4).round().half()
    with an.parse(save(state)) as model:
        assert model.convert(out, to, lossless=True, names="keep").repacked
    if to == "gguf-q4_1":
        with an.parse(out.getvalue()) as model:
            assert model[NAME].numpy("f32").tobytes() == read(state)
    with (
        an.parse(save(awq(torch.float32))) as model,
        pytest.raises(an.UnsupportedError, match=r"sums with biases|F16 has not all"),
    ):
        model.convert(io.BytesIO(), to, lossless=True, names="keep")


# --- SVDQuant -------------------------------------------------------------------------------------


def low_rank(dtype: torch.dtype, rank: int) -> State:
    beside = {
        "proj_down": drawn(COLS, rank) * 0.1,
        "proj_up": drawn(ROWS, rank, seed=2) * 0.1,
        "smooth_factor": drawn(COLS, seed=3).abs() + 0.1,
    }
    return {
        NAME: codes(ROWS, COLS // 2),
        f"{NAME}_scale": (drawn(COLS // 64, ROWS, seed=4) * 0.01).to(dtype),
        **{f"{NAME}_{part}": one.to(dtype) for part, one in beside.items()},
        f"{LAYER}.comfy_quant": marker({"format": "svdquant_w4a4"}),
    }


def as_comfy_quants(state: State) -> State:
    """By its names, and in tiles, from which comfy-kitchen makes rows again."""
    found = {name.replace(f"{NAME}_p", f"{LAYER}.p"): one for name, one in state.items()}
    found = {name.replace(f"{NAME}_sm", f"{LAYER}.sm"): one for name, one in found.items()}
    tiles, groups, rank = ROWS // 128, COLS // 64, state[f"{NAME}_proj_up"].shape[1]
    rows = state[NAME].view(tiles, 32, 4, groups, 32).permute(0, 3, 1, 2, 4)
    found[NAME] = rows.reshape(tiles, groups, 32, 128)
    scales = state[f"{NAME}_scale"].view(groups, tiles, 128).permute(1, 0, 2)
    up = found[f"{LAYER}.proj_up"].view(tiles, 128, rank).permute(0, 2, 1)
    assert torch.equal(svdquant._tile_packed_weight_to_row_major(found[NAME]), state[NAME])
    assert torch.equal(svdquant._tile_packed_scales_to_natural(scales), state[f"{NAME}_scale"])
    said: dict[str, Any] = {"format": "svdquant_w4a4", "layout": "kitchen_tile_packed_w4a4"}
    said |= {"lowrank_branch_input_basis": "raw", "proj_down_smooth_folded": True}
    beside = {f"{NAME}_scale": scales, f"{LAYER}.proj_up": up}
    return {**found, **beside, f"{LAYER}.comfy_quant": marker(said)}


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_svdquant_is_read(dtype: torch.dtype, rank: int, request: pytest.FixtureRequest) -> None:
    state = low_rank(dtype, rank)
    values = dequantized(in_float32(state), LAYER, SHAPE)
    for output, wanted in OUTPUTS.items():
        assert read(state, output) == raw(values.to(wanted))
        assert read(as_comfy_quants(state), output) == raw(values.to(wanted))
    request.getfixturevalue("small_bands")
    assert read(as_comfy_quants(state)) == raw(values)


def test_a_smooth_factor_may_be_negative_or_large() -> None:
    state = low_rank(torch.float32, 32)
    state[f"{NAME}_smooth_factor"] = torch.exp(drawn(COLS) * 12) * drawn(COLS, seed=5).sign()
    assert read(state) == raw(dequantized(state, LAYER, SHAPE))


def test_what_is_written_of_it_is_read_again() -> None:
    state, out = low_rank(torch.bfloat16, 32), io.BytesIO()
    with an.parse(save(state)) as model:
        model.convert(out, "f32")
    assert raw(load(out.getvalue())[NAME]) == read(state)
