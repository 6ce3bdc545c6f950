"""Packed integers are the same however a weight is cut, and the loss is that of what is read."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.levels import LevelName, supported_levels
from anamnesis.base.stored import StoredTensor
from anamnesis.convert.request import targets
from anamnesis.schemes import awq, gptq, mlx
from anamnesis.schemes.core import arrays
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Loss, Task
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.families.integers.layouts.mlx import WIDTHS
from anamnesis.sources.memory import BufferSource

SHAPE = (352, 384)
NAMES = [f"mlx-{bits}bit" for bits in WIDTHS]
NAMES += ["mlx-4bit-32", "gptq-4bit", "gptq-4bit-32", "awq-4bit", "awq-4bit-64"]
NAMES += ["gptq-8bit", "gptq-8bit-32"]
ENCODINGS = [targets.encoding(name) for name in NAMES]
LEVELS = supported_levels()


def encode_in_bands(
    encoding: Encoding, values: NDArray[np.float32], rows: int, level: LevelName
) -> tuple[list[bytes], Loss]:
    """All parts, encoded in bands of so many rows, the last one first; and what was lost."""
    data = memoryview(values.tobytes())
    parts = encoding.parts("q.weight", SHAPE)
    outs = [bytearray(b"\xa5" * part.n_bytes) for part in parts]
    losses = []
    for first in reversed(range(0, SHAPE[0], rows)):
        last = min(first + rows, SHAPE[0])
        band = Band(first * SHAPE[1], last * SHAPE[1])
        extents = encoding.extents(SHAPE, band)
        rooms = [bytearray(e.n_bytes * e.pieces) for e in extents]
        some = data[4 * band.start : 4 * band.stop]
        places = [memoryview(room) for room in rooms]
        number = _core.LEVELS[level]
        losses.append(encoding.encode(some, Task(band, SHAPE, b"", number, True), places))
        for out, extent, room in zip(outs, extents, rooms, strict=True):
            for i in range(extent.pieces):
                at, n = extent.offset + i * extent.stride, extent.n_bytes
                out[at : at + n] = room[i * n : (i + 1) * n]
    for place, constant in encoding.laid_out("q.weight", SHAPE)[1].items():
        outs[place][:] = constant
    n, absolute, squared, power = (
        sum(getattr(loss, name) for loss in losses)
        for name in ("n", "absolute", "squared", "power")
    )
    largest = max(loss.largest for loss in losses)
    return [bytes(out) for out in outs], Loss(0, n, absolute, largest, squared, power)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.id)
def test_any_bands(encoding: Encoding, rng: np.random.Generator) -> None:
    encoding = encoding.fitted(DTYPES["F32"])
    values = rng.standard_normal(SHAPE).astype(np.float32)
    whole, loss = encode_in_bands(encoding, values, SHAPE[0], "scalar")
    for level in LEVELS:
        for rows in (8, 64, 72, 352):
            assert encode_in_bands(encoding, values, rows, level) == (whole, loss), (level, rows)
    stored = tuple(
        StoredTensor(p.name, p.dtype, p.shape, len(out), 0, BufferSource(memoryview(out), ""))
        for p, out in zip(encoding.parts("q.weight", SHAPE), whole, strict=True)
    )
    weight = encoding.layout.weight("q.weight", SHAPE, stored)
    decoded = arrays.decode(weight, DTYPES["F32"], None, 1, _core.LEVELS[LEVELS[-1]])
    error = np.abs(decoded - values)
    assert loss.n == values.size
    assert loss.largest == error.max()
    wide = values.astype(np.float64)
    wanted = (error.sum(dtype=np.float64), (error.astype(np.float64) ** 2).sum(), (wide**2).sum())
    np.testing.assert_allclose((loss.absolute, loss.squared, loss.power), wanted, rtol=2e-6)


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.id)
def test_bands_of_a_whole_weight_hold_some_megabytes(encoding: Encoding) -> None:
    for shape in ((28672, 8192), (4096, 28672), (128, 1 << 20)):
        grain = encoding.encoder.grain(shape)
        assert grain * encoding.values.n_bytes(1) <= 128 << 20
        assert grain % shape[1] == 0
        rows = grain // shape[1]
        assert encoding.id.startswith("mlx") or rows % 64 == 0


def test_threads_make_no_difference(rng: np.random.Generator) -> None:
    values = rng.standard_normal((4096, 1024)).astype(ml_dtypes.bfloat16)
    for one, more in (
        (mlx.quantize(values), mlx.quantize(values, threads=3)),
        (gptq.quantize(values), gptq.quantize(values, threads=3)),
        (awq.quantize(values), awq.quantize(values, threads=3)),
    ):
        assert [part.tobytes() for part in one] == [part.tobytes() for part in more]


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_what_is_not_finite_is_refused(value: float) -> None:
    values = np.zeros((32, 128), np.float32)
    values[7, 77] = value
    for encode in (mlx.quantize, gptq.quantize, awq.quantize):
        with pytest.raises(UnsupportedError, match="an infinity or a NaN is in it"):
            encode(values)


def test_what_arrays_must_be() -> None:
    values = np.zeros((32, 96), np.float32)
    for encode in (mlx.quantize, gptq.quantize, awq.quantize):
        with pytest.raises(ValueError, match="whole"):
            encode(values)
        with pytest.raises(ValueError, match="group_size must be one of 32, 64, 128"):
            encode(values, group_size=48)
        with pytest.raises(TypeError, match="float64"):
            encode(values.astype(np.float64))
    for encode in (gptq.quantize, awq.quantize):
        with pytest.raises(
            ValueError, match=r"array of shape \[.*\]: features are no multiple of 32"
        ):
            encode(values[:24], group_size=32)
    with pytest.raises(ValueError, match="bits must be one of"):
        mlx.quantize(values, 7, group_size=32)
    with pytest.raises(ValueError, match="bits must be one of 2, 4, 8; got 3"):
        gptq.quantize(values, bits=3, group_size=32)
    made = mlx.quantize(values, 4, group_size=32)
    with pytest.raises(ValueError, match="not of 8 bits"):
        mlx.dequantize(*made, 8, group_size=32)
    with pytest.raises(ValueError, match="does not fit"):
        mlx.dequantize(made.weight, made.scales, made.biases[:, :1], 4, group_size=32)
    with pytest.raises(TypeError, match="uint32"):
        mlx.dequantize(made.weight.view(np.int32), made.scales, made.biases, group_size=32)
