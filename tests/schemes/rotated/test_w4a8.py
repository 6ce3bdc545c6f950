"""W4A8 and W6A8 are comfy-kitchen's to the byte; levels that it fits, but for roundings."""

from __future__ import annotations

import io
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

import anamnesis as an
from anamnesis.schemes.encodings import find, made
from anamnesis.schemes.families.rotated import codebook
from helpers.blockwise import LEVELS, encode_in_bands, reopened
from helpers.comfy_tools import State, converted, dequantized, eager, marker, same
from helpers.encoder_oracles import DTYPES, raw, weights

pytestmark = pytest.mark.against("comfy-kitchen")

w4a8: Any = import_module("comfy_kitchen.backends.eager.w4a8_int8")

LAYER = "blocks.3.attn.to_q"
NAME = f"{LAYER}.weight"
BITS = (4, 6)
PARTS = ("_s_channel", "_s_rel", "_codebook")


def drawn(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def with_tails(*shape: int) -> torch.Tensor:
    """Numbers that have heavy tails when they are rotated."""
    tails = np.random.default_rng(3).standard_t(1.5, shape).astype(np.float32)
    return eager.rotate_int8_convrot_weight(torch.from_numpy(tails), 256)


def theirs(weight: torch.Tensor, bits: int, group: int = 256, book: Any = None) -> State:
    codes, rel, channel, _, found = w4a8.quantize_w4a8_int8_weight(
        weight.float(), convrot_groupsize=group, bits=bits, codebook_tensor=book
    )
    said = {"format": "asym_w4a8_int8", "group_size": 16, "convrot_groupsize": group}
    state = {NAME: codes, f"{NAME}_s_rel": rel, f"{NAME}_s_channel": channel}
    state |= {f"{NAME}_codebook": found} if found is not None else {}
    return {**state, f"{LAYER}.comfy_quant": marker(said)}


def assert_same(found: State, want: State, told: object = None) -> None:
    assert found.keys() == want.keys(), told
    assert [name for name in want if not same(found[name], want[name])] == [], told


def read(state: State) -> bytes:
    with an.parse(save(state)) as model:
        assert not model.problems
        return model[NAME].numpy("f32").tobytes()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("group", [16, 256])
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_codes_and_scales_are_those_of_float32(dtype: str, bits: int, group: int) -> None:
    for told, weight in weights(24, 1024, dtype):
        to = f"comfy-convrot-w{bits}a8" + f"-{group}" * (group != 256)
        if not theirs(weight, bits, group)[f"{NAME}_s_channel"].isfinite().all():
            with pytest.raises(an.UnsupportedError, match="or values too large"):
                converted({NAME: weight}, to)
            continue
        state = converted({NAME: weight}, to)
        assert_same(state, theirs(weight, bits, group, state.get(f"{NAME}_codebook")), told)
        assert read(state) == raw(dequantized(state, LAYER, (24, 1024))), told


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [(8, 256), (64, 4096), (200, 4096), (1100, 4096)], ids=str)
@pytest.mark.parametrize("bits", BITS)
def test_whole_weights(bits: int, shape: tuple[int, int]) -> None:
    """With the levels that it takes by itself, of any number of values."""
    weight = drawn(*shape)
    assert_same(converted({NAME: weight}, f"comfy-convrot-w{bits}a8"), theirs(weight, bits))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("shape", [(48, 2048), (200, 2048), (1100, 4096)], ids=str)
def test_levels_are_fitted_to_heavy_tails(shape: tuple[int, int]) -> None:
    """Their means are torch's but for the order of sums; all else is to the byte."""
    weight = with_tails(*shape)
    state, want = converted({NAME: weight}, "comfy-convrot-w4a8"), theirs(weight, 4)
    levels, fitted = (one[f"{NAME}_codebook"] for one in (state, want))
    assert not same(levels, torch.tensor(codebook.USUAL))
    assert not same(fitted, torch.tensor(codebook.USUAL))
    torch.testing.assert_close(levels, fitted, rtol=0, atol=2e-5)
    assert_same(state, theirs(weight, 4, 256, levels))


@pytest.mark.parametrize("most", [1, 2, 3, 1024, 1365, 4096])
def test_rows_are_spread_as_torch_spreads_them(most: int) -> None:
    """But for roundings: torch counts in float32, by as many at once as the processor takes."""
    for rows in (1, 2, 5, most, most + 1, 3 * most + 7, 18_432, 151_936):
        spread = torch.from_numpy(codebook._spread_rows(rows, most))
        if rows <= most:
            assert torch.equal(spread, torch.arange(rows))
            continue
        differ = (spread - torch.linspace(0, rows - 1, most).long()).abs()
        assert differ.max() <= 1
        assert differ.sum() <= most / 100


@pytest.mark.parametrize("n", [300_001, 1 << 19, (1 << 22) - 4096, 1 << 22])
def test_values_are_picked_as_torch_picks_them(n: int) -> None:
    draw = torch.Generator().manual_seed(0)
    want = torch.randint(0, n, (300_000,), generator=draw)
    assert codebook._picked(n, 300_000).tolist() == want.tolist()


@pytest.mark.parametrize("bits", BITS)
def test_bands_and_levels_give_the_same_bytes(bits: int) -> None:
    row, weight = find(f"comfy-convrot-w{bits}a8"), with_tails(208, 512)
    assert row is not None
    encoding = made(row)
    want, lost = encode_in_bands(encoding, weight, 1 << 20, 1, "scalar")
    for level in LEVELS:
        assert encode_in_bands(encoding, weight, 7, 3, level) == (want, lost)
    state = converted({NAME: weight}, f"comfy-convrot-w{bits}a8")
    stored = [state[name] for name in (NAME, *(f"{NAME}{part}" for part in PARTS)) if name in state]
    assert [raw(one) for one in stored] == want[: len(stored)]
    assert reopened(encoding, (208, 512), want).tobytes() == read(state)


@pytest.mark.parametrize("bits", BITS)
def test_codes_are_moved_to_themselves_and_to_int8(bits: int) -> None:
    to = f"comfy-convrot-w{bits}a8"
    state = converted({NAME: drawn(64, 512)}, f"{to}-64")
    for target in (to, "comfy-int8-convrot"):
        out = io.BytesIO()
        with an.parse(save(state)) as model:
            assert model.convert(out, target, lossless=True).repacked
        again = load(out.getvalue())
        assert read(again) == read(state)
        if target == to:
            assert_same(again, state)


@pytest.mark.parametrize("other", ["comfy-convrot-w6a8", "comfy-convrot-w4a4", "int4"])
def test_levels_are_not_moved_elsewhere(other: str) -> None:
    state = converted({NAME: drawn(64, 512)}, "comfy-convrot-w4a8")
    with an.parse(save(state)) as model, pytest.raises(an.UnsupportedError, match="not moved"):
        model.convert(io.BytesIO(), other, lossless=True)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_refused(bad: float, bits: int) -> None:
    weight = drawn(64, 512)
    weight[17, 3] = bad
    with pytest.raises(an.UnsupportedError, match=f"{NAME}.*infinity or a NaN"):
        converted({NAME: weight}, f"comfy-convrot-w{bits}a8")
