"""Codes, scales and biases are byte for byte those of `mx.quantize` on a CPU, run here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import mlx
from helpers.encoder_oracles import DTYPES, array_of, weights

pytestmark = pytest.mark.against("MLX")

ROOT = os.environ.get("ANAMNESIS_REAL")
LEVELS = supported_levels()
BITS = (2, 3, 4, 5, 6, 8)


def to_mlx(array: NDArray[Any]) -> mx.array:
    """The same bits."""
    if array.dtype.name == "bfloat16":
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array)


def raw(array: mx.array) -> bytes:
    """Its bytes."""
    whole = {2: mx.uint16, 4: mx.uint32}[array.dtype.size]
    return np.array(array.view(whole)).tobytes()


def quantized(array: NDArray[Any], bits: int, group_size: int) -> list[bytes]:
    """What MLX makes of it."""
    with mx.stream(mx.cpu):
        return [raw(part) for part in mx.quantize(to_mlx(array), group_size, bits)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    ("shape", "group_size"), [((3, 32), 32), ((5, 8256), 64), ((7, 384), 128)], ids=str
)
def test_quantize(shape: tuple[int, int], group_size: int, bits: int, dtype: str) -> None:
    for name, weight in weights(*shape, dtype):
        array = array_of(weight)
        want = quantized(array, bits, group_size)
        for level in LEVELS:
            made = mlx.quantize(array, bits, group_size=group_size, level=level)
            assert [part.tobytes() for part in made] == want, (name, level)


@pytest.mark.parametrize("dtype", DTYPES)
def test_groups_of_every_range(dtype: str, rng: np.random.Generator) -> None:
    """Above 0, below it, around it and constant, of every magnitude; with values that tie."""
    magnitudes = np.exp2(rng.integers(-150, 127, (64, 16, 1)).astype(np.float64))
    offsets = rng.choice([-9.0, -1.0, -0.5, 0.0, 0.5, 1.0, 9.0], (64, 16, 1))
    for steps in (0, 1, 7, 15, 510):
        whole = rng.integers(-steps, steps + 1, (64, 16, 32)) / max(steps, 1)
        with np.errstate(over="ignore"):
            wide = ((whole + offsets) * magnitudes).astype(np.float32)
        values = np.where(np.abs(wide) < 6e4 if dtype == "F16" else np.isfinite(wide), wide, 1)
        weight = values.reshape(64, 512).astype(np.float32)
        array = array_of(next(weights(1, 1, dtype))[1]).dtype
        for bits in BITS:
            want = quantized(weight.astype(array), bits, 32)
            for level in LEVELS:
                made = mlx.quantize(weight.astype(array), bits, group_size=32, level=level)
                assert [part.tobytes() for part in made] == want, (steps, bits, level)


@pytest.mark.parametrize("bits", BITS)
def test_dequantize(bits: int, rng: np.random.Generator) -> None:
    """With float32 scales, in which MLX computes then."""
    array = rng.standard_normal((9, 256)).astype(np.float32)
    made = mlx.quantize(array, bits, group_size=64)
    with mx.stream(mx.cpu):
        codes, scales, biases = map(mx.array, made)
        want = raw(mx.dequantize(codes, scales, biases, 64, bits))
    for level in LEVELS:
        found = mlx.dequantize(*made, bits, group_size=64, dtype="f32", level=level)
        assert found.tobytes() == want


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("bits", BITS)
def test_what_mlx_wrote_is_encoded_again_as_mlx_does(bits: int) -> None:
    compared = 0
    for folder in sorted((Path(ROOT or "") / "modern").glob(f"mlx_affine_{bits}bit*")):
        if not folder.is_dir():
            continue
        with an.parse(folder) as model:
            for name in model:
                if not model[name].is_quantized:
                    continue
                values = model[name].numpy("f32")
                for group_size in (size for size in (32, 64, 128) if values.shape[1] % size == 0):
                    made = mlx.quantize(values, bits, group_size=group_size)
                    want = quantized(values, bits, group_size)
                    assert [part.tobytes() for part in made] == want, (folder.name, name)
                    compared += 1
    assert compared
