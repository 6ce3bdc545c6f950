"""Integers as layouts take them: words or rows."""

from __future__ import annotations

from math import prod

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import Part
from anamnesis.schemes.views.bits import dense, stacked
from anamnesis.schemes.views.integer_casts import centred, with_zeros
from anamnesis.schemes.views.kinds import Integers, Rows, Words
from anamnesis.schemes.views.views import repeated

_U8 = DTYPES["U8"]


def as_words(view: Integers, bits: int) -> Words:
    """Return integers in words of so many bits, in rows; without zero points where they can be."""
    view = with_zeros(view)
    is_kept = view.bits == bits and view.zeros is not None
    has_other = view.bits == bits and view.zero != 1 << bits - 1
    if not is_kept and not has_other:
        view = centred(view, bits)
    zeros = None
    rows, in_word = prod(view.shape[:-1]), 32 // bits
    if view.unit != 1:
        raise view.refused("its products are divided by 127")
    if is_kept or has_other:
        if len(view.shape) != 2 or rows % in_word:
            raise view.refused(f"out features must be a multiple of {in_word}")
        grid = view.zeros
        if grid is None:
            part = Part("", _U8, view.scales.shape)
            grid = repeated(part, bytes([view.zero]), view.codes)
        zeros = stacked(grid, bits)
    codes, is_symmetric = dense(view.codes, bits, "I32"), zeros is None
    return Words(
        *(view.name, view.shape, "rows", codes, view.scales, zeros, False),
        *(view.listed, view.group, is_symmetric),
        bits=bits,
        is_cast=view.is_cast,
    )


def as_rows(view: Integers, bits: int) -> Rows:
    """Return integers in rows of so many bits; none of them is changed."""
    if view.unit != 1:
        raise view.refused("its products are divided by 127")
    return Rows(
        *(view.name, view.shape, bits, False, view.zero, view.group),
        *(dense(view.codes, bits, "U32"), view.scales, view.biases),
        view.is_cast or view.bits != bits,
    )
