"""Integers of every layout seen alike: a byte each, and numbers for each group.

Codes that are dense in rows are spread, of others the kernels that decode them are asked, with a
scale of 1 and no zero point. Zero points in words are what code 0 is less than 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.bands import Band, Run
from anamnesis.schemes.core.weight import Scratch, decode_run
from anamnesis.schemes.families.integers.moving import rows, settled
from anamnesis.schemes.views.bits import spread, unstacked
from anamnesis.schemes.views.integer_casts import computed, raised
from anamnesis.schemes.views.kinds import Integers, Words
from anamnesis.schemes.views.views import made_of, repeated
from anamnesis.sources.strided import transposed

if TYPE_CHECKING:
    from anamnesis.schemes.families.integers.weight import IntegerWeight
    from anamnesis.schemes.families.integers.words import PackedWeight

_F32, _U8 = DTYPES["F32"], DTYPES["U8"]
_ONE, _LESS = b"\0\0\x80\x3f", b"\0\0\x80\xbf"  # 1 and -1 in float32


# --- rows -------------------------------------------------------------------------------------


def of_rows(weight: IntegerWeight) -> Integers:
    """Return integers of rows."""
    kernel, shape, bits = weight.kernel, weight.shape, weight.bits
    codes = weight.parts[0]
    half = 1 << bits - 1 if kernel.startswith("INT") else 0
    made = Integers(weight.name, shape, bits, codes, 0, weight.parts[1])
    grid = _Grid(weight, made)
    zeros = None if weight.zeros is None else _zeros(weight, grid, half)
    biases, zero = weight.biases, weight.constant + half
    if biases is not None:
        biases = grid.of(_biases(weight, biases))
    is_bytes = kernel == "INT8" and weight.planes is None
    stored = codes._replace(dtype=DTYPES["I8"], shape=shape) if is_bytes else None
    scales = grid.scales()
    listed = weight.groups
    return made._replace(
        codes=_codes(weight, bits, half),
        group=grid.group,
        scales=scales,
        zero=zero,
        zeros=zeros,
        biases=biases,
        listed=listed,
        signed=stored if zeros is biases is None and zero == half else None,
    )


def _biases(weight: IntegerWeight, biases: StoredTensor) -> StoredTensor:
    """Return what code 0 stands for, if codes have a zero point beside biases."""
    if not weight.constant:
        return biases

    def shifted(biases: NDArray[Any], scales: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            return biases + np.float32(weight.constant) * scales

    return computed(shifted, "F32", biases, weight.parts[1])


class _Grid:
    """Where the numbers of a weight's groups are, seen as groups of its rows."""

    def __init__(self, weight: IntegerWeight, view: Integers) -> None:
        self._weight, self.view = weight, view
        *_, n_rows, width = weight.matrix or weight.shape
        *lead, cols = weight.shape
        block_rows, block_cols = weight.block
        index: Callable[[Any], Any] | None = None
        self._places = weight.places
        if weight.groups is not None:
            n_groups = weight.places
            self.group = -(-cols // max(n_groups, 1))
        elif width == cols:
            self.group, n_groups = min(block_cols, cols), -(-cols // block_cols)
            tall = -(-n_rows // block_rows)
            if block_rows > 1:
                index = lambda row: row // n_rows * tall + row % n_rows // block_rows  # noqa: E731
        elif block_rows == 1 and block_cols >= width and cols % width == 0:
            self.group, n_groups = width, cols // width
            self._places = n_groups
        elif block_rows == 1 and block_cols >= width and width % cols == 0:
            self.group, n_groups = cols, 1
            index = lambda row: row * cols // width  # noqa: E731
        else:
            raise view.refused("its groups are no runs of a row")
        self._index, self.n_groups = index, n_groups
        self.n_rows, self.shape = prod(lead), (*lead, n_groups)

    def scales(self) -> StoredTensor:
        weight, stored = self._weight, self._weight.parts[1]
        if weight.is_in_order:
            return self.of(stored)
        kind = f"u{stored.dtype.n_bytes(1)}"

        def made(units: range, *_: NDArray[Any]) -> NDArray[Any]:
            n = len(units) * self._places
            raw = weight.scale_items(units.start * self._places, n, Scratch())
            return np.frombuffer(raw, kind).reshape(len(units), -1)[:, : self.n_groups]

        part = Part(stored.name, stored.dtype, self.shape)
        return made_of(part, [], self.n_rows, made, stored.source)

    def of(self, stored: StoredTensor) -> StoredTensor:
        """Return numbers that lie as scales do, row by row."""
        index, line = self._index, self._places * stored.dtype.n_bytes(1)
        if index is None:
            return stored._replace(shape=self.shape)

        def made(units: range, *_: NDArray[Any]) -> NDArray[Any]:
            at = index(np.arange(units.start, units.stop))
            first, n = int(at[0]), int(at[-1] - at[0]) + 1
            raw = stored.source.read(stored.offset + first * line, n * line)
            lines: NDArray[Any] = np.frombuffer(raw, np.uint8).reshape(n, line)[at - first]
            return lines

        part = Part(stored.name, stored.dtype, self.shape)
        return made_of(part, [], self.n_rows, made, stored.source)


def _each_run(units: range, length: int) -> Iterator[Run]:
    """Yield rows, none in more than one part of some length."""
    start = units.start
    while start < units.stop:
        stop = min(units.stop, (start // length + 1) * length)
        yield Run(start, stop)
        start = stop


def _codes(weight: IntegerWeight, bits: int, half: int) -> StoredTensor:
    stored, kernel = weight.parts[0], weight.kernel
    *lead, cols = weight.matrix or weight.shape
    n = prod(lead)
    is_dense = not kernel.startswith("PADDED") or 8 % bits == 0
    if weight.planes is None and is_dense and weight.has_codes_in_rows:
        lines = stored._replace(shape=(n, stored.n_bytes // max(n, 1)))
        return spread(lines, bits, cols, half)._replace(shape=weight.shape)

    def made(units: range, *_: NDArray[Any]) -> NDArray[Any]:
        found, scratch = np.empty((len(units), cols), np.uint8), Scratch()
        for some in _each_run(units, weight.lines):
            lines = weight.decode_codes(some, scratch) + np.float32(half)
            found[some.start - units.start :][: some.n] = lines
        return found

    return made_of(Part(stored.name, _U8, weight.shape), [], n, made, stored.source)


def _zeros(weight: IntegerWeight, grid: _Grid, half: int) -> StoredTensor:
    """Return zero points: bytes, or floats."""
    stored = weight.zeros
    assert stored is not None
    if weight.is_in_order and stored.dtype.kind == "float":
        sums = raised(grid.of(stored), half)
        if sums is None:
            raise grid.view.refused(f"its zero points and {half} have no sums in float32")
        return sums
    if weight.is_in_order and stored.dtype.name == "I8":
        seen = grid.of(stored)
        part = Part(seen.name, _U8, seen.shape)
        return made_of(part, [seen], seen.n_bytes, lambda _, lines: lines + lines.dtype.type(half))
    n_rows = (weight.matrix or weight.shape)[-2]

    def made(units: range, *_: NDArray[Any]) -> NDArray[Any]:
        found, scratch = np.empty((len(units), grid.n_groups), np.uint8), Scratch()
        for some in _each_run(units, n_rows):
            zeros = weight.decode_zeros(some, scratch)
            found[some.start - units.start :][: some.n] = zeros[:, : grid.n_groups]
        return found

    return made_of(Part(stored.name, _U8, grid.shape), [], grid.n_rows, made, stored.source)


# --- words ------------------------------------------------------------------------------------


def of_words(words: Words) -> Integers:
    """Return words, whatever their order."""
    words = settled(words)
    found = rows(words)
    bits, (n_out, n_in) = words.bits, words.shape[-2:]
    zeros = found.get("zeros")
    if zeros is not None:
        n_groups, in_word = found["scales"].shape[-1], 32 // bits
        if n_out % in_word:
            raise words.refused(f"out features must be a multiple of {in_word}")
        n_words = prod(words.shape[:-1]) // in_word
        zeros = unstacked(zeros._replace(shape=(n_words, n_groups)), bits)
        zeros = zeros._replace(shape=(*words.shape[:-1], n_groups))
    codes, half = spread(found["codes"], bits, n_in), 1 << bits - 1
    return Integers(
        *(words.name, words.shape, bits, codes, words.group, found["scales"], half, zeros),
        listed=found.get("groups"),
    )


def of_packed(weight: PackedWeight) -> Integers:
    """Return words of bits that no other layout has: 3 bits, and those in planes."""
    codes, zeros, scales = weight.parts[:3]
    (n_out, n_in), n_groups, packing = weight.shape, weight.n_groups, weight.packing
    listed = weight.parts[3] if len(weight.parts) > 3 else None
    none, across = packing.words(n_out), DTYPES["I32"]

    def numbers(value: bytes, n: int) -> StoredTensor:
        return repeated(Part("", _F32, (n, n_out)), value, codes)

    without = repeated(Part("", across, (1, none)), b"\0\0\0\0", codes)
    plain = replace(
        weight,
        parts=(codes, without, numbers(_ONE, 1)),
        zeros_less_one=False,
        group_size=n_in,
    )
    wide = 1 if n_groups % packing.step == 0 else packing.step  # columns are of whole words
    n_cols = n_groups * wide
    empty = repeated(Part("", across, (packing.words(n_cols), n_out)), b"\0\0\0\0", codes)
    negative = replace(
        weight,
        shape=(n_out, n_cols),
        parts=(empty, zeros, numbers(_LESS, n_groups)),
        group_size=wide,
    )
    size = weight.group_size
    return Integers(
        *(weight.name, weight.shape, packing.bits, _decoded(plain, n_in)),
        *(size or -(-n_in // max(n_groups, 1)), transposed(scales), 0),
        *(_decoded(negative, n_cols, wide), None, listed),
    )


def _decoded(weight: PackedWeight, cols: int, step: int = 1) -> StoredTensor:
    """Return values that are integers, as bytes; of each few columns the first."""
    part = Part(weight.parts[0].name, _U8, (weight.shape[0], cols // step))

    def made(units: range, *_: NDArray[Any]) -> NDArray[Any]:
        band = Band(units.start * cols, units.stop * cols)
        values = np.empty((len(units), cols), np.float32)
        decode_run(weight, band, _F32, Scratch(), values.reshape(-1).view(np.uint8).data)
        return values[:, ::step].astype(np.uint8)

    return made_of(part, [], weight.shape[0], made, weight.parts[0].source)
