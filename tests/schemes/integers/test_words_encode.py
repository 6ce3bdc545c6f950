"""What is packed in GPTQ's and AWQ's layouts is byte for byte what their libraries pack."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import awq, gptq
from anamnesis.schemes.families.integers.layouts.gptq import BITS
from helpers.encoder_oracles import DTYPES, array_of, raw, weights
from helpers.packing_libraries import autoawq, gptqmodel

LEVELS = supported_levels()
CASES = [((32, 64), 32), ((96, 1152), 128), ((96, 2048), 1024)]


def groups_of(weight: torch.Tensor, size: int) -> torch.Tensor:
    return weight.reshape(weight.shape[0], -1, size)


def has_scales(weight: torch.Tensor, size: int, bits: int) -> bool:
    """Whether the scale of each group is finite, and not 0 in float32."""
    amax = groups_of(weight.float(), size).abs().amax(-1)
    scale = 2 * amax / (2**bits - 1)
    return bool(torch.isfinite(2 * amax).all() and ((amax == 0) | (scale > 0)).all())


@pytest.mark.against("GPTQModel")
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "group_size"), CASES, ids=str)
def test_gptqmodel(shape: tuple[int, int], group_size: int, dtype: str, bits: int) -> None:
    compared = 0
    for name, weight in weights(*shape, dtype):
        if not has_scales(weight, group_size, bits):
            continue
        want = gptqmodel(weight, group_size, bits)
        how = {"group_size": group_size, "bits": bits}
        for level in LEVELS:
            made = gptq.quantize(array_of(weight), **how, level=level)._asdict()
            for part, tensor in want.items():
                assert made[part].tobytes() == raw(tensor), (name, level, part)
                assert made[part].shape == tuple(tensor.shape)
        compared += 1
    assert compared >= 14


@pytest.mark.against("GPTQModel")
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_what_gptqmodel_packs_is_rounded_before(
    dtype: str, bits: int, rng: np.random.Generator
) -> None:
    """To a dtype whose subnormal numbers are too coarse for the codes."""
    unit = 2.0**-24 if dtype == "F16" else 2.0**-133
    for largest in (1, 2, 3, 7, 30, 200):
        whole = rng.integers(-largest, largest + 1, (32, 128))
        weight = torch.from_numpy(whole * unit).to(DTYPES[dtype])
        want = gptqmodel(weight, 32, bits)
        for level in LEVELS:
            made = gptq.quantize(array_of(weight), bits=bits, group_size=32, level=level)
            assert made.qweight.tobytes() == raw(want["qweight"]), (largest, level)


def test_scales_that_gptqmodel_cannot_have() -> None:
    weight = torch.full((32, 32), 2.0**127.5)
    weight[0, 0] = -(2.0**127.5)
    with pytest.raises(UnsupportedError, match="gptq-4bit-32 cannot encode"):
        gptq.quantize(array_of(weight), group_size=32)


def fits_half(weight: torch.Tensor, size: int) -> bool:
    """Whether the range of each group is below the largest half float."""
    groups = groups_of(weight.half(), size)
    return bool((groups.amax(-1) - groups.amin(-1) < 65504).all())


@pytest.mark.against("AutoAWQ")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "group_size"), CASES, ids=str)
def test_autoawq(shape: tuple[int, int], group_size: int, dtype: str) -> None:
    compared = 0
    for name, weight in weights(*shape, dtype):
        if not fits_half(weight, group_size):
            with pytest.raises(UnsupportedError, match="cannot encode"):
                awq.quantize(array_of(weight), group_size=group_size)
            continue
        want = autoawq(weight, group_size)
        for level in LEVELS:
            made = awq.quantize(array_of(weight), group_size=group_size, level=level)._asdict()
            for part, tensor in want.items():
                assert made[part].tobytes() == raw(tensor), (name, level, part)
                assert made[part].shape == tuple(tensor.shape)
        compared += 1
    assert compared >= 11


@pytest.mark.against("AutoAWQ")
def test_ranges_at_the_end_of_half_floats() -> None:
    for largest in (65440.0, 65472.0):
        weight = torch.zeros(32, 32)
        weight[:, 3], weight[1, 5] = largest, -1e-3
        want = autoawq(weight, 32)
        for level in LEVELS:
            made = awq.quantize(array_of(weight), group_size=32, level=level)
            assert made.qweight.tobytes() == raw(want["qweight"]), (largest, level)
    weight[0, 0] = 65504.0
    with pytest.raises(UnsupportedError):
        awq.quantize(array_of(weight), group_size=32)
