"""Some elements of a weight, decoded without the rest: `tensor[3:5]`.

An index takes a box of a weight's elements. Where these are consecutive they are decoded straight
into the result, the bands at their edges as far as the encoding lets them be cut; where they lie
near each other they are decoded with what is between, a piece at a time, and picked out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from anamnesis.base.dtypes import DType
from anamnesis.base.indexing import Box
from anamnesis.base.workers import run
from anamnesis.schemes.core.arrays import empty, usual_threads
from anamnesis.schemes.core.band_sizes import band_bytes
from anamnesis.schemes.core.bands import Band, Bands
from anamnesis.schemes.core.weight import Scratch, Weight

_SPARSE = 1 << 14  # elements that are decoded with what is between, at a time, where most is that
_DENSE = 1 << 18  # where at least a quarter is wanted


def decode_box(
    weight: Weight, dtype: DType, box: Box, threads: int | None, level: int
) -> NDArray[Any]:
    """Decode a box of a weight into an array of its counts; elements are of whole bytes."""
    out = empty(box.counts, dtype)
    if threads is None:
        threads = usual_threads(weight, out.nbytes)
    cutting = _Cutting(weight, dtype, weight.bands(dtype, band_bytes()), weight.bands(dtype, 1))
    view = _View(box, weight.shape)
    jobs = (job for piece in view.pieces() for job in cutting.jobs(piece))
    flat = out.reshape(-1)

    def worker() -> Callable[[list[_Piece]], None]:
        scratch = Scratch()

        def do(job: list[_Piece]) -> None:
            scratch.reads_ahead = cutting.fills_stripe(job)
            for piece in job:
                if piece.axis is None:
                    place = flat[piece.at : piece.at + piece.n]
                    cutting.decode(piece, place, scratch, level)
                    continue
                values = np.empty(piece.stop - piece.start, out.dtype)
                cutting.decode(piece, values, scratch, level)
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


@dataclass(frozen=True, slots=True)
class _Cutting:
    """How a weight's elements may be cut into bands."""

    weight: Weight
    dtype: DType
    usual: Bands
    least: Bands

    def jobs(self, piece: _Piece) -> Iterator[list[_Piece]]:
        """Yield a piece as bands, in runs that one thread had better decode."""
        if piece.axis is not None:
            yield [piece]
            return
        per_stripe = self.usual.stripe * self.usual.cols
        job: list[_Piece] = []
        for start, stop in _cut(self.usual, Band(piece.start, piece.stop)):
            if job and not (per_stripe and start // per_stripe == job[-1].start // per_stripe):
                yield job
                job = []
            job.append(_Piece(start, stop, piece.at + start - piece.start, stop - start))
        yield job

    def fills_stripe(self, job: list[_Piece]) -> bool:
        n = sum(piece.stop - piece.start for piece in job)
        return 2 * n >= self.usual.stripe * self.usual.cols

    def decode(self, piece: _Piece, out: NDArray[Any], scratch: Scratch, level: int) -> None:
        """Decode a piece into a contiguous array."""
        place = out.view(np.uint8).data
        for wanted in _cut(self.usual, Band(piece.start, piece.stop)):
            band = _widened(self.least, wanted)
            begin, end = (self.dtype.n_bytes(n - piece.start) for n in wanted)
            if band == wanted:
                self.weight.decode(band, self.dtype, scratch, place[begin:end], level)
                continue
            room = memoryview(bytearray(self.dtype.n_bytes(band.stop - band.start)))
            self.weight.decode(band, self.dtype, scratch, room, level)
            skipped = self.dtype.n_bytes(wanted.start - band.start)
            place[begin:end] = room[skipped : skipped + end - begin]


def _cut(bands: Bands, wanted: Band) -> Iterator[Band]:
    """Yield some elements band by band; of each band some whole rows, or a piece of one row."""
    cols = bands.cols
    start, stop = wanted
    while start < stop:
        (matrix, row), col = divmod(start // cols, bands.rows), start % cols
        if bands.band_cols < cols:
            end = start - col + min(cols, (col // bands.band_cols + 1) * bands.band_cols)
        else:
            top = row - row % (bands.stripe or bands.rows)
            below = row + bands.band_rows - (row - top) % bands.band_rows
            below = min(below, top + (bands.stripe or bands.rows), bands.rows)
            end = (matrix * bands.rows + below) * cols
        end = min(end, stop)
        if col:
            end = min(end, start - col + cols)
        elif end - start > cols:
            end -= end % cols
        yield Band(start, end)
        start = end


def _widened(least: Bands, wanted: Band) -> Band:
    """Return the smallest band that has `wanted` in it."""
    cols = least.cols
    if least.band_cols < cols:
        col, line = wanted.start % cols, wanted.stop - 1 - (wanted.stop - 1) % cols
        end = ((wanted.stop - 1 - line) // least.band_cols + 1) * least.band_cols
        return Band(wanted.start - col % least.band_cols, line + min(end, cols))
    matrix, row = divmod(wanted.start // cols, least.rows)
    last = (wanted.stop - 1) // cols - matrix * least.rows
    below = min(last - last % least.band_rows + least.band_rows, least.rows)
    top = row - row % least.band_rows
    return Band((matrix * least.rows + top) * cols, (matrix * least.rows + below) * cols)
