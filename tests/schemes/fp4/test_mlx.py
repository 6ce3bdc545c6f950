"""MLX's floats in groups are byte for byte those of `mx.quantize` on a CPU, run here."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import mlx
from helpers.encoder_oracles import DTYPES, NUMPY, array_of, weights

pytestmark = pytest.mark.against("MLX")

LEVELS = supported_levels()
MODES = {"mxfp4": (32, 6), "nvfp4": (16, 6), "mxfp8": (32, 448)}  # group, largest code


def to_mlx(array: NDArray[Any]) -> mx.array:
    """The same bits."""
    if array.dtype.name == "bfloat16":
        return mx.array(array.view(np.uint16)).view(mx.bfloat16)
    return mx.array(array)


def quantized(array: NDArray[Any], mode: str) -> list[bytes]:
    """What MLX makes of it."""
    with mx.stream(mx.cpu):
        return [np.array(part).tobytes() for part in mx.quantize(to_mlx(array), mode=mode)]


def with_scales(array: NDArray[Any], mode: str) -> NDArray[Any]:
    """Groups with a scale that MLX's byte can say are left as they are, others become zeros."""
    group, largest = MODES[mode]
    groups = array.reshape(-1, group)
    amax = np.abs(groups.astype(np.float32)).max(axis=1)
    scale = (amax / np.float32(largest)).astype(array.dtype).astype(np.float32)
    lost = (scale > 0) & (scale <= 2.0**-128) if mode != "nvfp4" else np.zeros(amax.shape, bool)
    return np.where(lost[:, None], np.zeros_like(groups), groups).reshape(array.shape)


def check(array: NDArray[Any], mode: str, what: object = "") -> None:
    want = quantized(array, mode)
    for level in LEVELS:
        made = mlx.quantize(array, mode=mode, level=level)
        assert isinstance(made, mlx.Floats)
        assert [made.weight.tobytes(), made.scales.tobytes()] == want, (what, level)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 32), (3, 64), (9, 1536), (130, 224), (2, 3, 5, 96)], ids=str)
def test_bytes(shape: tuple[int, ...], dtype: str, mode: str) -> None:
    for name, weight in weights(int(np.prod(shape[:-1])), shape[-1], dtype):
        check(with_scales(array_of(weight).reshape(shape), mode), mode, name)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_scale(dtype: str, mode: str) -> None:
    """Groups with every largest magnitude, or those around where its exponent is rounded."""
    if dtype == "F32":
        tops = np.array([0, 0x200000, 0x400000, 0x600000], np.uint32)[:, None]
        near = (tops + np.arange(-40, 41).astype(np.uint32)).reshape(-1) & 0x7FFFFF
        bits = (np.arange(255, dtype=np.uint32)[:, None] << 23 | near).reshape(-1)
        largest = bits.view(np.float32)
    else:
        largest = np.arange(0x7F80 if dtype == "BF16" else 0x7C00, dtype=np.uint16)
        largest = largest.view(NUMPY[dtype])
    array = np.zeros((largest.size, 32), NUMPY[dtype])
    array[:, 3], array[:, 17], array[:, 30] = largest, -largest, -np.zeros_like(largest)
    shares = largest.astype(np.float32)[:, None] * np.linspace(-1, 1, 8, dtype=np.float32)
    array[:, 5:13] = shares.astype(array.dtype)
    check(with_scales(array, mode), mode)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_ties_and_what_is_next_to_them(dtype: str, mode: str) -> None:
    ties = np.array([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5], NUMPY[dtype])
    bits = ties.view(np.uint32 if dtype == "F32" else np.uint16)
    near = np.concatenate([ties, (bits - 1).view(ties.dtype), (bits + 1).view(ties.dtype)])
    rest = np.array([0, -0.0, 6, -6, 1e-7, -1e-7], ties.dtype)
    row = np.concatenate([near, -near, rest])
    for step in (1, 3, 2**-5, 2**7):
        array = np.full((row.size, 32), MODES[mode][1] * step).astype(ties.dtype)
        array[:, 7] = array[:, 12] = (row.astype(np.float32) * np.float32(step)).astype(ties.dtype)
        array[:, 12] *= -1
        check(array, mode, step)


@pytest.mark.parametrize("mode", ["mxfp4", "mxfp8"])
@pytest.mark.parametrize("dtype", ["F32", "BF16"])
def test_scales_that_wrap_around_in_mlx_are_refused(dtype: str, mode: str) -> None:
    largest = MODES[mode][1]
    for exponent, is_held in ((-127, True), (-128, False), (-130, False)):
        array = np.zeros((3, 64), NUMPY[dtype])
        array[1, 40] = -largest * 2.0**exponent
        if is_held:
            check(array, mode)
            continue
        assert quantized(array, mode)[1][3] == 127 + exponent + 256  # as a byte
        for level in LEVELS:
            with pytest.raises(UnsupportedError, match=r"is below 2\^-127, which mlx-mxfp. cannot"):
                mlx.quantize(array, mode=mode, level=level)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused(value: float, mode: str) -> None:
    array = np.zeros((32, 128), np.float32)
    array[7, 77] = value
    with pytest.raises(UnsupportedError, match="an infinity or a NaN is in it"):
        mlx.quantize(array, mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_dequantize(mode: str, rng: np.random.Generator) -> None:
    array = rng.standard_normal((2, 9, 256)).astype(np.float32)
    made = mlx.quantize(array, mode=mode, threads=2)
    with mx.stream(mx.cpu):
        codes, scales = mx.array(made.weight), mx.array(made.scales)
        want = np.array(mx.dequantize(codes, scales, mode=mode, dtype=mx.float32))
    for level in LEVELS:
        found = mlx.dequantize(*made, mode=mode, dtype="f32", level=level)
        assert found.tobytes() == want.tobytes()


def test_what_arrays_and_settings_must_be() -> None:
    array = np.zeros((32, 96), np.float32)
    with pytest.raises(ValueError, match=r"mode must be one of affine, mxfp4, nvfp4, mxfp8"):
        mlx.quantize(array, mode="mxfp6")
    with pytest.raises(ValueError, match="nvfp4 has 4 bits in groups of 16"):
        mlx.quantize(array, mode="nvfp4", group_size=32)
    with pytest.raises(ValueError, match="40 columns are not a whole number of groups of 32"):
        mlx.quantize(array[:, :40], mode="mxfp8")
    with pytest.raises(ValueError, match=r"must be matrices that are not empty"):
        mlx.quantize(array[0], mode="mxfp4")
    made = mlx.quantize(array, mode="mxfp4")
    with pytest.raises(ValueError, match="mxfp4 has no biases"):
        mlx.dequantize(made.weight, made.scales, made.scales, mode="mxfp4")
    with pytest.raises(ValueError, match="affine has biases, which are missing"):
        mlx.dequantize(made.weight, made.scales)
