"""What adapters add to a weight, band by band: scale * (left @ right)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import prod
from typing import Any

import anamnesis._core as _core
from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.base.lazy import np
from anamnesis.base.source import DerivedSource
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, band_bytes
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run
from anamnesis.schemes.views.low_rank import panels
from anamnesis.sources.strided import shared_strips, strided

Matrix = Callable[[], Any]  # of float32
Factors = tuple[Any, Any]
_F32 = OUTPUT_DTYPES["f32"]
_KEPT = 3  # deltas whose factors are in memory: bands are asked for weight after weight


def as_matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a shape as rows and columns: its first dimension, and all others as one."""
    return (shape[0] if shape else 1), prod(shape[1:])


def matrix(stored: StoredTensor, *, is_turned: bool = False) -> StoredTensor:
    """Return a factor, seen as a matrix."""
    rows, cols = as_matrix(stored.shape)
    if is_turned:
        return picked(stored, 0, (cols, rows), (1, cols))
    return stored._replace(shape=(rows, cols))


def picked(
    of: StoredTensor, first: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> StoredTensor:
    """Return some values of a factor."""
    item = of.dtype.n_bytes(1)
    at = of.offset + first * item
    source, at = strided(of.source, at, shape, strides, item, shared_strips())
    return of._replace(shape=shape, n_bytes=item * prod(shape), offset=at, source=source)


def values_of(stored: StoredTensor) -> Any:
    """Return the values of a factor, in float32."""
    values = stored.numpy().astype(np.float32)
    stored.source.base.check_unchanged()
    return values


@dataclass(eq=False)
class Delta:
    """What is added to some rows of a weight, seen as a matrix."""

    left: Matrix  # rows x rank
    right: Matrix  # rank x columns
    scale: float
    rows: range
    cols: int
    is_rounded: bool = False  # to the weight's own dtype, before it is added
    magnitude: Matrix | None = None  # norms that rows or columns of the sum are scaled to (DoRA)
    of_columns: bool = False
    ratios: Any = field(default=None, repr=False)  # of magnitudes to norms, once known

    @classmethod
    def of(cls, left: StoredTensor, right: StoredTensor, scale: float, rows: range) -> Delta:
        made = partial(values_of, left), partial(values_of, right)
        return cls(*made, scale, rows, right.shape[1])

    def add(self, values: Any, at: int, factors: Factors, level: int) -> None:
        """Add to values of the flat weight from `at` on, all of which are within its rows."""
        left, right = factors
        done, cols = 0, self.cols
        while done < len(values):
            row, col = divmod(at + done, cols)
            whole = (len(values) - done) // cols * cols
            n = whole if col == 0 and whole else min(cols - col, len(values) - done)
            width, row = min(n, cols), row - self.rows.start
            part = values[done : done + n]
            rows = left[row : row + max(n // cols, 1)].reshape(-1)
            args = (self.scale, width, left.shape[1], col, level)
            _core.add_product(part, rows, right, *args)
            done += n


class Shelf:
    """The factors of a few deltas of one merge, those that were asked for last."""

    def __init__(self) -> None:
        self._held = lru_cache(_KEPT)(_Held)

    def factors(self, delta: Delta) -> Factors:
        return self._held(delta).factors()


class _Held:
    """The factors of a delta, once they are made."""

    def __init__(self, delta: Delta) -> None:
        self._delta, self._lock = delta, threading.Lock()
        self._made: Factors | None = None

    def factors(self) -> Factors:
        """Return both factors, the right one in the kernel's panels."""
        with self._lock:
            if self._made is None:
                self._made = self._delta.left(), panels(self._delta.right())
            return self._made


def rounded(values: Any, dtype: DType | None, scratch: Scratch) -> Any:
    """Return float32 values rounded to a dtype; as they are if it is None."""
    if dtype is None or dtype is _F32:
        return values
    half, out = bytearray(dtype.n_bytes(len(values))), np.empty(len(values), np.float32)
    scratch.convert(values.view(np.uint8), dtype, half)
    scratch.convert(half, _F32, out.view(np.uint8), of=dtype.name)
    return out


class MergedSource(DerivedSource):
    """The float32 values of a weight with what adapters add, each of which is rounded in turn."""

    def __init__(self, weight: Weight, deltas: list[Delta], shelf: Shelf) -> None:
        super().__init__(weight.parts[0].source)
        self._weight, self._deltas, self._shelf = weight, deltas, shelf
        self._scratch = threading.local()
        self._norms = threading.Lock()
        self.size = 4 * weight.n_elements

    def _read_some(self, offset: int, view: memoryview) -> int:
        n = min(len(view), self.size - offset) // 4 * 4
        if n > 0:
            with np.errstate(all="ignore"):  # norms may overflow, or be none
                self._fill(offset // 4, view[:n])
        return max(n, 0)

    def _fill(self, first: int, view: memoryview, *, is_scaled: bool = True) -> None:
        if not hasattr(self._scratch, "value"):
            self._scratch.value = Scratch()
        scratch: Scratch = self._scratch.value
        decode_run(self._weight, Band(first, first + len(view) // 4), _F32, scratch, view)
        values = np.frombuffer(view, np.float32)
        for delta in self._deltas:
            self._add(values, first, delta, scratch)
            if is_scaled and delta.magnitude is not None:
                self._scale(values, first, delta)
            if delta is not self._deltas[-1]:
                values[:] = rounded(values, self._weight.own_dtype, scratch)

    def _add(self, values: Any, first: int, delta: Delta, scratch: Scratch) -> None:
        """Add what values from `first` on get, as far as the delta has their rows."""
        begin = max(first, delta.rows.start * delta.cols)
        end = min(first + len(values), delta.rows.stop * delta.cols)
        if begin >= end:
            return
        part, factors = values[begin - first : end - first], self._shelf.factors(delta)
        change = np.zeros_like(part) if delta.is_rounded else part
        delta.add(change, begin, factors, scratch.level)
        if delta.is_rounded:
            part += rounded(change, self._weight.own_dtype, scratch)

    def _scale(self, values: Any, first: int, delta: Delta) -> None:
        """Multiply by magnitude / norm, of each row or column."""
        with self._norms:
            if delta.ratios is None:
                delta.ratios = self._ratios(delta)
        at = np.arange(first, first + len(values))
        values *= delta.ratios[at % delta.cols if delta.of_columns else at // delta.cols]

    def _ratios(self, delta: Delta) -> Any:
        """Return magnitude / norm, of sums of squares over all of the weight."""
        assert delta.magnitude is not None
        n_rows, cols = len(delta.rows), delta.cols
        sums = np.zeros(cols if delta.of_columns else n_rows, np.float32)
        at_once = max(1, band_bytes() // (4 * cols))
        for row in range(0, n_rows, at_once):
            n = min(at_once, n_rows - row)
            squares = np.empty((n, cols), np.float32)
            view = squares.reshape(-1).view(np.uint8).data
            self._fill(row * cols, view, is_scaled=False)
            squares *= squares
            if delta.of_columns:
                squares[0] += sums
                sums = squares.sum(axis=0)
            else:
                sums[row : row + n] = _sums_of_rows(squares)
        return delta.magnitude().reshape(-1) / np.sqrt(sums)


_LANES = 8  # of torch's linalg.norm, whose order of additions is that of AVX2 on all x86


def _sums_of_rows(values: Any) -> Any:
    """Add up each row as torch does: each eighth value, the eight sums in turn, and the rest."""
    whole = values.shape[1] // _LANES * _LANES
    # The first axis is added up in order, others are not.
    lanes = values[:, :whole].reshape(len(values), -1, _LANES).transpose(1, 0, 2).copy()
    parts = np.concatenate([lanes.sum(axis=0), values[:, whole:]], axis=1)
    sums = parts[:, 0].copy()
    for part in parts.T[1:]:
        sums += part
    return sums
