"""Blockwise encoders, run beside their oracles, in bands, and read again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import anamnesis as an
from anamnesis import _core
from anamnesis.base.dtypes import DTYPES as OURS
from anamnesis.base.levels import LevelName, supported_levels
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import run
from anamnesis.schemes.core import arrays
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Loss, Task
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.sources.memory import BufferSource
from helpers.encoder_oracles import Stored, array_of, raw, weights

LEVELS = supported_levels()

CT = "compressed-tensors"


def assert_stored(
    made: tuple[NDArray[Any] | None, ...], want: list[torch.Tensor], told: object
) -> None:
    assert len(made) == len(want), told
    for ours, theirs in zip(made, want, strict=True):
        assert ours is not None
        assert ours.tobytes() == raw(theirs), told


def makes_nans(stored: list[torch.Tensor]) -> bool:
    """Whether codes are NaNs; all weights here are finite."""
    codes = stored[0]
    return codes.is_floating_point() and bool(codes.float().isnan().any())


def least(weight: torch.Tensor) -> torch.Tensor:
    """The least magnitude that a dtype has beside zero."""
    info = torch.finfo(weight.dtype)
    return torch.tensor(info.smallest_normal * info.eps, dtype=weight.dtype)


def check(
    shape: tuple[int, int],
    dtype: str,
    encode: Callable[[NDArray[Any], LevelName], tuple[NDArray[Any], ...]],
    oracle: Callable[[torch.Tensor], list[torch.Tensor]],
) -> None:
    for name, weight in weights(*shape, dtype):
        want = oracle(weight)
        if makes_nans(want):
            for level in LEVELS:
                with pytest.raises(an.UnsupportedError, match="has zeros, and beside them only"):
                    encode(array_of(weight), level)
            weight = torch.where(weight == 0, least(weight), weight)
            want = oracle(weight)
            assert not makes_nans(want)
        for level in LEVELS:
            assert_stored(encode(array_of(weight), level), want, (name, shape, dtype, level))


def cropped(stored: Stored, shape: tuple[int, int], scale: str) -> list[torch.Tensor]:
    return [stored["q.weight"][: shape[0], : shape[1]], stored[scale]]


def encode_in_bands(
    encoding: Encoding, weight: torch.Tensor, rows: int, threads: int, level: LevelName
) -> tuple[list[bytes], Loss]:
    """All parts, encoded in bands of about so many rows by any threads; and what was lost."""
    shape = tuple(weight.shape)
    return encode_values(encoding, memoryview(raw(weight)), shape, rows * shape[1], threads, level)


def encode_values(
    encoding: Encoding,
    values: memoryview,
    shape: tuple[int, ...],
    n: int,
    threads: int,
    level: LevelName,
) -> tuple[list[bytes], Loss]:
    """All parts, encoded in bands of about so many values by any threads; and what was lost."""
    item, grain, level_id = (
        encoding.values.n_bytes(1),
        encoding.encoder.grain(shape),
        _core.LEVELS[level],
    )
    step, total = max(n // grain, 1) * grain, int(np.prod(shape))
    bands = [Band(start, min(start + step, total)) for start in range(0, total, step)]
    survey = encoding.encoder.survey(shape)
    assert list(encoding.laid_out("q.weight", shape)[1]) == list(  # as they are planned
        encoding.laid_out("q.weight", shape, np.float32(0.05).tobytes())[1]
    )
    if survey is not None:
        for band in reversed(bands):
            survey.see(values[band.start * item : band.stop * item], band, level_id)
    found = b"" if survey is None else survey.found()
    outs = [bytearray(b"\xa5" * part.n_bytes) for part in encoding.parts("q.weight", shape, found)]
    losses: list[Loss] = []

    def encode(band: Band) -> None:
        extents = encoding.extents(shape, band)
        places = [
            memoryview(out)[e.offset : e.offset + e.n_bytes]
            for out, e in zip(outs, extents, strict=True)
        ]
        part = values[band.start * item : band.stop * item]
        losses.append(encoding.encode(part, Task(band, shape, found, level_id, True), places))

    run(iter(bands), lambda: encode, threads)
    for place, data in encoding.laid_out("q.weight", shape, found)[1].items():
        outs[place][:] = data
    sums = [
        sum(getattr(loss, name) for loss in losses)
        for name in ("n", "absolute", "squared", "power")
    ]
    largest = max(loss.largest for loss in losses)
    return [bytes(out) for out in outs], Loss(0, sums[0], sums[1], largest, *sums[2:])


def reopened(encoding: Encoding, shape: tuple[int, int], outs: list[bytes]) -> NDArray[np.float32]:
    stored = tuple(
        StoredTensor(p.name, p.dtype, p.shape, len(out), 0, BufferSource(memoryview(out), ""))
        for p, out in zip(encoding.parts("q.weight", shape), outs, strict=True)
    )
    weight = encoding.layout.weight("q.weight", shape, stored)
    return arrays.decode(weight, OURS["F32"], None, 1, _core.LEVELS[LEVELS[-1]])
