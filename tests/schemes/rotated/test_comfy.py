"""ComfyUI's rotated integers are comfy-kitchen's, to the bit: read, written and moved."""

from __future__ import annotations

import io
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
from safetensors.torch import load, save

import anamnesis as an
from anamnesis.schemes.encodings import find, made
from helpers.blockwise import LEVELS, encode_in_bands, reopened
from helpers.comfy_tools import (
    State,
    converted,
    dequantized,
    eager,
    int4_rotated,
    loaded,
    marker,
    same,
)
from helpers.encoder_oracles import DTYPES, raw, weights

pytestmark = pytest.mark.against("comfy-kitchen")

w4a8: Any = import_module("comfy_kitchen.backends.eager.w4a8_int8")

LAYER = "blocks.3.attn.to_q"
NAME = f"{LAYER}.weight"
GROUPS = (4, 16, 64, 256, 1024)
OUTPUTS = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ENCODERS = {
    "comfy-int8-convrot": eager.quantize_int8_convrot_weight,
    "comfy-convrot-w4a4": int4_rotated.quantize_convrot_w4a4_weight,
}
SAID: dict[str, Any] = {
    "comfy-int8-convrot": {"format": "int8_tensorwise", "convrot": True},
    "comfy-convrot-w4a4": {"format": "convrot_w4a4"},
}
LEVELS_KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"codebook": False},
    {"group_size": 64, "scale_dtype": torch.float32},
    {"bits": 6},
    {"bits": 6, "group_size": 48, "scale_dtype": torch.float32},
)


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def any_codes(*shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(2)
    return torch.randint(-128, 128, shape, generator=draw).to(torch.int8)


def in_levels(weight: torch.Tensor, group: int = 256, **kind: Any) -> State:
    """A weight in W4A8 or W6A8, as ComfyUI stores it."""
    codes, rel, channel, added, book = w4a8.quantize_w4a8_int8_weight(
        weight, convrot_groupsize=group, **kind
    )
    size = kind.get("group_size", 16)
    said = {"format": "asym_w4a8_int8", "group_size": size, "convrot_groupsize": group}
    parts = {"s_rel": rel, "s_channel": channel, "codebook": book, "correction": added}
    beside = {f"{NAME}_{part}": one for part, one in parts.items() if one is not None}
    return {NAME: codes, **beside, f"{LAYER}.comfy_quant": marker(said)}


def read(state: State, dtype: Any = "f32") -> bytes:
    with an.parse(save(state)) as model:
        assert not model.problems
        return model[NAME].numpy(dtype).tobytes()


def in_its_class(state: State, shape: tuple[int, ...], dtype: torch.dtype) -> bytes:
    """Its values in float32, rounded once."""
    return raw(dequantized(state, LAYER, shape).to(dtype))


@pytest.mark.parametrize("dtype", OUTPUTS)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("to", ENCODERS)
def test_any_codes_and_scales_are_read(
    to: str, group: int, dtype: str, request: pytest.FixtureRequest
) -> None:
    shape, bits = (24, 2048), 8 if to == "comfy-int8-convrot" else 4
    scales = torch.exp(drawn(24, 1) * 8).reshape((24, 1) if bits == 8 else (24,))
    state = {NAME: any_codes(24, 2048 * bits // 8), f"{NAME}_scale": scales}
    state[f"{LAYER}.comfy_quant"] = marker({**SAID[to], "convrot_groupsize": group})
    want = in_its_class(state, shape, OUTPUTS[dtype])
    assert read(state, dtype) == want
    request.getfixturevalue("small_bands")  # pieces of rows
    assert read(state, dtype) == want


def test_one_scale_for_all_rows_is_read() -> None:
    state = {NAME: any_codes(24, 512), f"{NAME}_scale": torch.tensor(0.037)}
    state[f"{LAYER}.comfy_quant"] = marker({**SAID["comfy-int8-convrot"]})
    assert read(state) == in_its_class(state, (24, 512), torch.float32)
    out = io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, "comfy-int8-convrot", lossless=True).repacked
    assert read(load(out.getvalue())) == read(state)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", LEVELS_KINDS, ids=str)
@pytest.mark.parametrize("group", GROUPS[::2])
def test_levels_are_read_and_moved(
    group: int, kind: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    shape = (24, 3072)
    state, out = in_levels(drawn(*shape), group, **kind), io.BytesIO()
    want = in_its_class(state, shape, torch.float32)
    assert read(state) == want
    with an.parse(save(state)) as model:
        assert model.convert(out, "comfy-int8-convrot", lossless=True).repacked
    moved = load(out.getvalue())
    assert in_its_class(moved, shape, torch.float32) == want
    assert same(moved[NAME], w4a8._dequant_int4_grouped_to_int8(*_parts(state, kind)))
    request.getfixturevalue("small_bands")
    assert read(state) == want


def _parts(state: State, kind: dict[str, Any]) -> tuple[Any, ...]:
    book = state.get(f"{NAME}_codebook")
    return state[NAME], state[f"{NAME}_s_rel"], book, kind.get("group_size", 16)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
@pytest.mark.parametrize("kind", LEVELS_KINDS, ids=str)
@pytest.mark.parametrize("group", GROUPS)
def test_levels_are_read_with_the_roundings_of_its_own(
    group: int, kind: dict[str, Any], dtype: Any
) -> None:
    state = in_levels(drawn(24, 3072), group, **kind)
    weight = loaded(state, LAYER, (24, 3072))
    params = replace(weight._params, orig_dtype=OUTPUTS[dtype])
    want = type(weight)(weight._qdata, weight._layout_cls, params).dequantize()
    with an.parse(save(state)) as model:
        assert model[NAME].numpy(dtype, math="reference").tobytes() == raw(want)


@pytest.mark.parametrize("group", GROUPS[::2])
def test_corrected_levels_are_read(group: int, request: pytest.FixtureRequest) -> None:
    state = in_levels(drawn(24, 2048), group, symmetric=False)
    want = in_its_class(state, (24, 2048), torch.float32)
    assert read(state) == want
    request.getfixturevalue("small_bands")
    assert read(state) == want
    with an.parse(save(state)) as model, pytest.raises(an.UnsupportedError, match="not moved"):
        model.convert(io.BytesIO(), "comfy-int8-convrot", lossless=True)


@pytest.mark.parametrize("is_in_bytes", [False, True])
def test_any_scales_of_levels_are_read(is_in_bytes: bool) -> None:
    """Of every byte: NaNs too."""
    state = in_levels(drawn(32, 1024))
    rel = torch.arange(32 * 64).to(torch.uint8).reshape(32, 64)
    state[f"{NAME}_s_rel"] = rel if is_in_bytes else rel.view(torch.float8_e4m3fn)
    assert read(state) == in_its_class(state, (32, 1024), torch.float32)


@pytest.mark.parametrize("to", ENCODERS)
def test_rows_of_no_whole_groups_have_smaller_ones(to: str) -> None:
    """As convert-to-quant's `resolve_int8_convrot_group_size` has it."""
    weight = drawn(96, 320)
    codes, scales = ENCODERS[to](weight, 64)
    state = converted({NAME: weight}, to)
    assert same(state[NAME], codes)
    assert same(state[f"{NAME}_scale"], scales)
    assert same(state[f"{LAYER}.comfy_quant"], marker({**SAID[to], "convrot_groupsize": 64}))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("to", ENCODERS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_and_scales_are_those_of_float32(dtype: str, to: str, group: int) -> None:
    rows = 96 if group <= 256 else 24
    for told, weight in weights(rows, 2048, dtype):
        codes, scales = ENCODERS[to](weight.float(), group)
        state = converted({NAME: weight}, f"{to}-{group}" if group != 256 else to)
        assert same(state[NAME], codes), told
        assert same(state[f"{NAME}_scale"], scales), told
        said = {**SAID[to], "convrot_groupsize": group}
        assert same(state[f"{LAYER}.comfy_quant"], marker(said))
        assert read(state) == in_its_class(state, (rows, 2048), torch.float32), told


@pytest.mark.parametrize("to", ENCODERS)
def test_bands_and_levels_give_the_same_bytes(to: str) -> None:
    row, weight = find(to), drawn(208, 512)
    assert row is not None
    encoding = made(row)
    want, lost = encode_in_bands(encoding, weight, 1 << 20, 1, "scalar")
    for level in LEVELS:
        assert encode_in_bands(encoding, weight, 7, 3, level) == (want, lost)
    state = converted({NAME: weight}, to)
    assert [raw(state[NAME]), raw(state[f"{NAME}_scale"])] == want[:2]
    assert reopened(encoding, (208, 512), want).tobytes() == read(state)


def test_int4_is_moved_to_int8_and_no_int8_to_it() -> None:
    state, out = converted({NAME: drawn(64, 512)}, "comfy-convrot-w4a4-64"), io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, "comfy-int8-convrot", lossless=True).repacked
    moved = load(out.getvalue())
    assert in_its_class(moved, (64, 512), torch.float32) == read(state)
    for made_of, to in ((moved, "comfy-convrot-w4a4"), (moved, "int8"), (state, "comfy-int8")):
        with (
            an.parse(save(made_of)) as model,
            pytest.raises(an.UnsupportedError, match="is not moved there"),
        ):
            model.convert(io.BytesIO(), to, lossless=True)


@pytest.mark.parametrize("to", ENCODERS)
def test_codes_are_moved_to_themselves(to: str) -> None:
    state, out = converted({NAME: drawn(64, 512)}, f"{to}-64"), io.BytesIO()
    with an.parse(save(state)) as model:
        assert model.convert(out, to, lossless=True).repacked
    again = load(out.getvalue())
    assert again.keys() == state.keys()
    assert all(same(one, state[name]) for name, one in again.items())
