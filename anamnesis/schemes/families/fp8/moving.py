"""Scales of 8-bit floats, of other blocks or in another dtype, for another layout.

Nothing but scales is ever read, and these only where their values decide: whether those of several
blocks are equal, or all are powers of two.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.views.grid import ScaleGrid
from anamnesis.schemes.views.integer_casts import LEAST_POWER, in_float32
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.views import made_of, pieces, reordered, repeated

_E8M0 = "F8_E8M0"
_ONES = {"F32": b"\x00\x00\x80\x3f", "F16": b"\x00\x3c", "BF16": b"\x80\x3f", _E8M0: b"\x7f"}
_READ_BYTES = 1 << 20  # at a time

Sizes = tuple[int, int, int]


class _Blocks(NamedTuple):
    """Which values share a scale: matrices, rows and columns of a weight in blocks."""

    sizes: Sizes
    each: Sizes

    @property
    def counts(self) -> list[int]:
        return [-(-n // one) for n, one in zip(self.sizes, self.each, strict=True)]

    def __str__(self) -> str:
        if self.each[1:] == self.sizes[1:]:
            return "all" if prod(self.counts) == 1 else "each matrix"
        if self.each == (1, 1, self.sizes[2]):
            return "each row"
        return f"{self.each[1]}x{self.each[2]} values"


def scales_as(view: Floats, grid: ScaleGrid, dtypes: tuple[str, ...]) -> StoredTensor:
    """Return the scales of codes for other blocks, of one of some dtypes."""
    lead, (rows, cols) = view.shape[:-2], view.shape[-2:]
    shape: tuple[int, ...] = (*lead, grid.grid_rows, grid.grid_cols)
    each = (1, min(grid.block_rows, rows), min(grid.block_cols, cols))
    if grid.kind == "tensor":
        shape, each = (), (prod(lead), rows, cols)
    if view.scales is None:
        part = Part(f"{view.name}_scale", DTYPES[dtypes[0]], shape)
        return repeated(part, _ONES[dtypes[0]], view.codes)
    own = _blocks(view)
    asked = _Blocks(own.sizes, each)
    scales = _rearranged(view.scales, own, asked)
    if scales is None:
        raise view.refused(f"its scales are for {own}, which are not whole in {asked}")
    is_joined = any(wide > narrow for wide, narrow in zip(asked.each, own.each, strict=True))
    if is_joined and not _are_equal(view.scales, _rearranged(scales, asked, own)):
        raise view.refused(f"its scales for {own} differ where one is for {asked}")
    return _in_dtype(view, scales._replace(shape=shape), dtypes)


def _are_equal(first: StoredTensor, second: StoredTensor | None) -> bool:
    """Return whether the bytes of two tensors are the same."""
    if second is None:
        return False
    both = zip(pieces(first, _READ_BYTES), pieces(second, _READ_BYTES), strict=True)
    return all(np.array_equal(one, other) for one, other in both)


def _blocks(view: Floats) -> _Blocks:
    """Return which values of a weight share a scale."""
    grid, (rows, cols), n = view.grid, view.shape[-2:], prod(view.shape[:-2])
    sizes = (n, rows, cols)
    if grid.kind == "tensor":
        return _Blocks(sizes, sizes)
    is_of_matrices = grid.cols == cols and grid.batch * grid.rows == n * rows
    if is_of_matrices and (grid.rows == rows or grid.block_rows == 1):
        return _Blocks(sizes, (1, min(grid.block_rows, rows), min(grid.block_cols, cols)))
    if grid.kind == "channel" and n % grid.rows == 0:
        return _Blocks(sizes, (n // grid.rows, rows, cols))
    raise view.refused(f"scales of {list(view.shape)} are not of matrices, rows and columns")


def _rearranged(scales: StoredTensor, own: _Blocks, asked: _Blocks) -> StoredTensor | None:
    """Return scales for other blocks: of each the first that there is for a part of it."""
    # None if the blocks of a dimension neither are whole in those that are asked, nor have these
    # whole in them.
    dims: list[tuple[int, int]] = []
    padded: list[int] = []
    stride = prod(own.counts)
    for axis, (count, wanted) in enumerate(zip(own.counts, asked.counts, strict=True)):
        stride //= count
        found = _steps(count, wanted, own.each[axis], asked.each[axis])
        if found is None:
            return None
        dims += [(n, step * stride) for n, step in found]
        padded.append(prod([n for n, _ in found]))
    if own.counts == asked.counts:
        return scales
    item = scales.dtype.bits // 8
    made = reordered(scales, [n for n, _ in dims], [step for _, step in dims], item)
    if padded == asked.counts:
        return made
    return reordered(made, asked.counts, (padded[1] * padded[2], padded[2], 1), item)


def _steps(count: int, wanted: int, own: int, asked: int) -> list[tuple[int, int]] | None:
    """Return numbers and steps that take a dimension's blocks to those of another size."""
    # They may lead to more than are wanted; None if no steps do.
    if count == 1:
        return [(wanted, 0)]
    if wanted == 1:
        return [(1, 0)]
    if own % asked == 0:
        return [(count, 1), (own // asked, 0)]
    return [(wanted, asked // own)] if asked % own == 0 else None


def _in_dtype(view: Floats, scales: StoredTensor, dtypes: tuple[str, ...]) -> StoredTensor:
    """Return scales in the first of some dtypes, unless they are in one already."""
    own, first = scales.dtype.name, dtypes[0]
    if own in dtypes:
        return scales
    if own not in _ONES or first not in ("F32", _E8M0):
        raise view.refused(f"its scales are {own}, which does not become {first}")
    wide = in_float32(scales)
    if first == "F32":
        return wide
    assert view.scales is not None
    for piece in pieces(in_float32(view.scales), _READ_BYTES):
        bits = piece.view("<u4")
        is_normal = (bits & 0x7FFFFF == 0) & (bits >= 0x800000) & (bits < 0x7F800000)
        if not (is_normal | (bits == LEAST_POWER)).all():
            raise view.refused("its scales are not all powers of two")
    part = Part(wide.name, DTYPES[_E8M0], wide.shape)
    return made_of(
        part, [wide], wide.n_elements, lambda _, raw: (raw.view("<u4") >> 23).astype("u1")
    )
