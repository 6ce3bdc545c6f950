"""Codes and scales of 4-bit floats as rows of bytes, the low nibble first: views."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.views.nibbles import swapped
from anamnesis.schemes.views.tiles import cropped
from anamnesis.schemes.views.views import Undone, made_from, made_of, retyped
from anamnesis.sources.strided import shared_strips


def in_rows(
    parts: Sequence[StoredTensor],
    shape: tuple[int, ...],
    stored_cols: int,
    group: int,
    *,
    high_first: bool,
) -> tuple[StoredTensor, StoredTensor]:
    """Return codes, U8 [..., rows, cols / 2], and scales, U8 [..., rows, groups]."""
    n_rows = prod(shape[:-1])
    codes, scales = (
        _matrix(part, -(-stored_cols // n)) for part, n in zip(parts[:2], (2, group), strict=True)
    )
    codes = cropped(codes, n_rows, shape[-1] // 2, shared_strips())
    scales = cropped(scales, n_rows, -(-shape[-1] // group), shared_strips())
    if high_first:
        codes = nibbles_swapped(codes)
    return (
        codes._replace(shape=(*shape[:-1], codes.shape[-1])),
        scales._replace(shape=(*shape[:-1], scales.shape[-1])),
    )


def _matrix(part: StoredTensor, row_bytes: int) -> StoredTensor:
    return retyped(part, part.name, "U8", (part.n_bytes // max(row_bytes, 1), row_bytes))


def nibbles_swapped(codes: StoredTensor) -> StoredTensor:
    """Return bytes with their nibbles in the other order."""
    was = made_from(codes)
    if was and was.way is nibbles_swapped:
        return codes._replace(source=was.stored.source, offset=was.stored.offset)
    undone = Undone(nibbles_swapped, codes)
    n = codes.n_bytes
    return made_of(Part(*codes[:3]), [codes], n, lambda _, lines: swapped(lines), undone=undone)
