"""Some elements of a weight, decoded without the rest: `tensor[3:5]`.

An index takes a box of a weight's elements. Where these are consecutive they are decoded straight
into the result, the bands at their edges as far as the encoding lets them be cut; where they lie
near each other they are decoded with what is between, a piece at a time, and picked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anamnesis.base.dtypes import DType
from anamnesis.base.indexing import Box
from anamnesis.base.workers import run
from anamnesis.schemes.core.arrays import empty, usual_threads
from anamnesis.schemes.core.bands import Band, Bands, band_bytes
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run

_SPARSE = 1 << 14  # elements that are decoded with what is between, at a time, where most is that
_DENSE = 1 << 18  # where at least a quarter is wanted


def decode_box(
    weight: Weight, dtype: DType, box: Box, threads: int | None, level: int
) -> NDArray[Any]:
    """Decode a box of a weight into an array of its counts; elements are of whole bytes."""
    out = empty(box.counts, dtype)
    if threads is None:
        threads = usual_threads(weight, out.nbytes)
    usual, view = weight.bands(dtype, band_bytes()), _View(box, weight.shape)
    jobs = (job for piece in view.pieces() for job in _jobs(piece, usual))
    flat = out.reshape(-1)

    def worker() -> Callable[[list[_Piece]], None]:
        scratch = Scratch(level)

        def do(job: list[_Piece]) -> None:
            n = sum(piece.stop - piece.start for piece in job)
            scratch.reads_ahead = 2 * n >= usual.stripe * usual.cols
            for piece in job:
                if piece.axis is None:
                    values = flat[piece.at : piece.at + piece.n]
                else:
                    values = np.empty(piece.stop - piece.start, out.dtype)
                band, place = Band(piece.start, piece.stop), values.view(np.uint8).data
                decode_run(weight, band, dtype, scratch, place)
                if piece.axis is not None:
                    picked = view.pick(values, piece)
                    flat[piece.at : piece.at + picked.size] = picked.reshape(-1)

        return do

    if out.size:
        run(jobs, worker, threads)
    return out


class _Piece(NamedTuple):
    """Elements `start` to `stop` of a weight."""

    start: int
    stop: int
    at: int
    n: int
    axis: int | None = None


class _View:
    """A box as runs of elements of the row-major weight."""

    def __init__(self, box: Box, shape: tuple[int, ...]) -> None:
        self._starts, self._counts, self._steps = box.starts, box.counts, box.steps
        self._shape = shape
        self._strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]

    def pieces(self, axis: int = 0, base: int = 0, at: int = 0) -> Iterator[_Piece]:
        """Yield them in order, from `axis` on, whose first element is `base`."""
        if axis == len(self._shape):
            yield _Piece(base, base + 1, at, 1)
            return
        n, step, stride = self._counts[axis], self._steps[axis], self._strides[axis]
        first = base + self._starts[axis] * stride
        inner = self._counts[axis + 1 :]
        if (n == 1 or step == 1) and inner == self._shape[axis + 1 :]:
            yield _Piece(first, first + n * stride, at, n * stride)
            return
        each = prod(inner)
        at_once = (_DENSE if 4 * each >= step * stride else _SPARSE) // (step * stride)
        for i in range(0, n, at_once or 1):
            begin = first + i * step * stride
            if at_once:
                yield self._with_between(axis, begin, at + i * each, min(at_once, n - i))
            else:
                yield from self.pieces(axis + 1, begin, at + i * each)

    def _with_between(self, axis: int, base: int, at: int, n: int) -> _Piece:
        """Return all from the first to the last that is wanted of `n` indices along an axis."""
        inner = range(axis + 1, len(self._shape))
        start = base + sum(self._starts[i] * self._strides[i] for i in inner)
        last = start + (n - 1) * self._steps[axis] * self._strides[axis]
        last += sum((self._counts[i] - 1) * self._steps[i] * self._strides[i] for i in inner)
        return _Piece(start, last + 1, at, n, axis)

    def pick(self, values: NDArray[Any], piece: _Piece) -> NDArray[Any]:
        """Return what is wanted of a piece's elements."""
        assert piece.axis is not None
        strides = [
            step * stride * values.itemsize
            for step, stride in zip(self._steps, self._strides, strict=True)
        ]
        shape = (piece.n, *self._counts[piece.axis + 1 :])
        return np.lib.stride_tricks.as_strided(values, shape, strides[piece.axis :])


def _jobs(piece: _Piece, bands: Bands) -> Iterator[list[_Piece]]:
    """Yield a piece as bands, in runs that one thread had better decode."""
    if piece.axis is not None:
        yield [piece]
        return
    per_stripe = bands.stripe * bands.cols
    job: list[_Piece] = []
    for band in bands.touching(piece.start, piece.stop):
        start, stop = max(band.start, piece.start), min(band.stop, piece.stop)
        if job and not (per_stripe and start // per_stripe == job[-1].start // per_stripe):
            yield job
            job = []
        job.append(_Piece(start, stop, piece.at + start - piece.start, stop - start))
    yield job
