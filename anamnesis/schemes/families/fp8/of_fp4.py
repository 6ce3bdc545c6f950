"""4-bit floats as E4M3 with equal values, where a block has one scale for them.

    E2M1  0, 0.5, 1, 1.5, 2, 3, 4, 6   times 2^k, for 16 or 32 of a row
    E4M3  each of these times 2^(k-K)  times 2^K, for a block

E4M3 has all of them from k = K - 8, where 0.5 is its smallest but one, to k = K + 6, where 6
becomes 384. So exponents of a block may span 14, with K the largest less 6; where they span more,
its codes are read, of which few may be there: 4 has a code from K - 11 on, and 0.5 up to K + 9. Of
zeros any exponent will do. In groups of 32 with a scale each, K is k.

What decides is read before anything is written, and a byte kept for each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from math import frexp, prod
from typing import TYPE_CHECKING, Any, NamedTuple

import anamnesis._io as _io
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.layout import Unmovable, unmovable
from anamnesis.schemes.views.grid import MX_BLOCK, ScaleGrid
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.views import constant, made_of, pieces, stored_bytes

if TYPE_CHECKING:
    Bytes = NDArray[np.uint8]
    Exponents = NDArray[np.int16]

_BIAS = 127  # of E8M0
_NO_POWER = 255  # of an exponent: of zeros only
_LOW, _HIGH = -8, 6  # exponents, less that of the scale, at which E4M3 has all codes
_LEAST, _MOST = -11, 9  # at which it has some
_ANY = 1000  # more than any exponent
_MAGNITUDES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
_LARGEST = 448.0
_TOO_WIDE = "a block spans more than E4M3 beside one scale"
_READ_BYTES = 1 << 20  # of codes, at a time
_U8, _E8M0, _E4M3 = DTYPES["U8"], DTYPES["F8_E8M0"], DTYPES["F8_E4M3"]


def as_eights(view: Floats, grid: ScaleGrid) -> Floats:
    """Return E2M1 as E4M3, with E8M0 for each block of a grid."""
    wide, group = grid.block_cols, view.grid.block_cols
    if grid.kind != "tensor" and wide % group and wide < view.shape[-1]:
        raise _refused(view, f"blocks end within {group} codes that share a scale")
    cast = _Cast(view, grid)
    if not cast.is_in_groups:
        found = cast.scales()
        if found is None:
            raise _refused(view, cast.why)
        scales = constant(Part(view.name, _E8M0, (len(found),)), found.tobytes(), view.codes)
        codes = cast.codes(found)
    elif group == grid.block_cols:
        table, n = _pairs(view.has_minus_zero)[-_LEAST + 1], view.codes.n_bytes
        scales = cast.exponents._replace(dtype=_E8M0)
        codes = made_of(cast.part, [view.codes], n, lambda _, codes: table.take(codes))
    else:
        if cast.scales() is None:
            raise _refused(view, cast.why)
        scales, codes = cast.of_pairs()
    return view._replace(element="F8_E4M3", codes=codes, scales=scales, grid=grid, factors=(1.0,))


def _refused(view: Floats, why: str) -> Unmovable:
    return unmovable(view.codes, view.name, view.shape, why, is_cast=True)


# --- powers of two ----------------------------------------------------------------------------


def _exponents(view: Floats) -> StoredTensor:
    """Return the power of each scale, times its factor, as E8M0; 255 if it is none."""
    scales = view.scales
    assert scales is not None
    scales = scales._replace(dtype=_U8, shape=(scales.n_bytes,))
    if view.scales is not None and view.scales.dtype.name == "F8_E8M0":
        if any(int(some.max()) == _NO_POWER for some in pieces(scales, _READ_BYTES)):
            raise _refused(view, f"a scale is {_NO_POWER}, which is no power of two")
        return scales
    bad = np.zeros(256, bool)
    bad[127:] = True  # NaNs, and what has a sign
    if any(bad[some].any() for some in pieces(scales, _READ_BYTES)):
        raise _refused(view, "a scale is negative or a NaN")
    tables = np.array([_powers(factor) for factor in view.factors], np.uint8)
    n_matrices = len(view.factors)
    per_matrix = max(scales.n_bytes // n_matrices, 1)

    def looked_up(units: range, raw: Bytes) -> NDArray[Any]:
        matrix = np.arange(units.start, units.stop) // per_matrix if n_matrices > 1 else 0
        found: NDArray[Any] = tables[matrix, raw.reshape(-1)]
        return found

    return made_of(Part(*scales[:3]), [scales], scales.n_bytes, looked_up)


@cache
def _powers(factor: float) -> list[int]:
    """Return what each E4M3 times a power of two is as E8M0; 255 where it is no such number."""
    more = frexp(factor)[1] - 1
    found = [_NO_POWER] * 256
    for exponent in range(-9, 9):
        code = (exponent + 7) << 3 if exponent > -7 else 1 << exponent + 9
        power = exponent + more + _BIAS
        found[code] = power if 0 <= power < _NO_POWER else _NO_POWER
    return found


# --- the scale of a block ---------------------------------------------------------------------


class _Needs(NamedTuple):
    """Of each block, the least and the most that its scale may be, and its largest exponent."""

    low: Exponents
    high: Exponents
    top: Exponents

    def settled(self, most: int) -> tuple[Bytes, bool]:
        """Return scales, and whether all are right; the top exponent is at `most` if it can be."""
        wanted = np.where(self.top < 0, _BIAS, self.top - most)
        least = 0 if most == 0 else 1  # 2^-127 is no normal F32
        scale = np.clip(wanted, self.low, self.high).clip(least, _NO_POWER - 1)
        is_right = bool(((scale >= self.low) & (scale <= self.high)).all())
        return scale.astype(np.uint8), is_right


class _Cast:
    """Codes, what they are multiplied by, and which of them are to have one scale."""

    def __init__(self, view: Floats, grid: ScaleGrid) -> None:
        self.view, self.exponents = view, _exponents(view)
        self.part = Part(view.name, _E4M3, view.shape)
        self.group = view.grid.block_cols  # codes of a row that have a scale
        self.n_cols, self.n_rows = view.shape[-1] // self.group, prod(view.shape[:-1])
        # How many rows are cut into blocks at a time, and rows and groups of each that are in one.
        height = view.shape[-2]
        tall = min(grid.block_rows, height)
        self.rows = (self.n_rows if tall == 1 else height), tall
        self.per_block = min(-(-grid.block_cols // self.group), self.n_cols)
        if grid.kind == "tensor":
            self.rows, self.per_block = (self.n_rows, self.n_rows), self.n_cols
        is_block = grid.kind == "block"
        self.is_in_groups = is_block and (grid.block_rows, grid.block_cols) == MX_BLOCK  # MXFP8's
        of_powers = view.scales is not None and view.scales.dtype.name == _E8M0.name
        self.why = _TOO_WIDE if of_powers else f"a scale is no power of two, or {_TOO_WIDE}"

    def scales(self) -> Bytes | None:
        """Return the scale of each block, as E8M0; None if one has none."""
        for reads in (False, True):
            made = []
            for parts in self._parts():
                each = [self._needs(*one, reads=reads) for one in parts]
                low, high, top = zip(*each, strict=True)
                needs = _Needs(np.max(low, axis=0), np.min(high, axis=0), np.max(top, axis=0))
                scale, is_right = needs.settled(0 if self.is_in_groups else _HIGH)
                if not is_right:
                    break
                made.append(scale.reshape(-1))
            else:
                return np.concatenate(made)
        return None

    def _parts(self) -> Iterator[list[tuple[int, int, int]]]:
        """Yield rows from and to, and how many of them are in a block; parts of blocks together."""
        at_once = max(_READ_BYTES // (self.view.shape[-1] // 2), 1)
        (rows, tall), total = self.rows, self.n_rows
        for start in range(0, total, rows):
            if tall > at_once:
                for top in range(start, start + rows, tall):
                    stop = min(top + tall, start + rows)
                    cuts = [*range(top, stop, at_once), stop]
                    yield [(one, end, end - one) for one, end in pairwise(cuts)]
                continue
            whole, step = start + rows // tall * tall, at_once // tall * tall
            for one in range(start, whole, step):
                yield [(one, min(one + step, whole), tall)]
            if whole < start + rows:
                yield [(whole, start + rows, start + rows - whole)]

    def _needs(self, start: int, stop: int, tall: int, *, reads: bool) -> _Needs:
        """Return what blocks of some rows need, by exponents alone or by codes, too."""
        exponents = stored_bytes(self.exponents, start * self.n_cols, stop * self.n_cols)
        each: tuple[NDArray[Any], ...] = (exponents, exponents, exponents)
        if reads:
            row_bytes = self.view.shape[-1] // 2
            codes = stored_bytes(self.view.codes, start * row_bytes, stop * row_bytes)
            each = _needs_of(exponents, codes, self.group)
        shape = (stop - start) // tall, tall, self.n_cols
        low, high, top = (
            self._over_cols(part.reshape(shape), function)
            for part, function in zip(each, (np.maximum, np.minimum, np.maximum), strict=True)
        )
        if reads:
            return _Needs(low, high, top)
        top = top.astype(np.int16)
        low = np.where(top == _NO_POWER, _ANY, top - _HIGH)
        return _Needs(low, high.astype(np.int16) - _LOW, top)

    def _over_cols(self, found: NDArray[Any], function: np.ufunc) -> NDArray[Any]:
        """Return the least or the most of [blocks, rows, groups] for each block."""
        per_block = self.per_block
        rows = found[:, 0] if found.shape[1] == 1 else function.reduce(found, axis=1)
        if per_block == 1:
            return rows
        if per_block >= self.n_cols:
            whole: NDArray[Any] = function.reduce(rows, axis=1, keepdims=True)
            return whole
        made: NDArray[Any] = function.reduceat(rows, np.arange(0, self.n_cols, per_block), axis=1)
        return made

    def codes(self, scales: Bytes) -> StoredTensor:
        """Return codes, given the scale of each block."""
        (rows, tall), n_cols, per_block = self.rows, self.n_cols, self.per_block
        wide = -(-n_cols // per_block)
        high = -(-rows // tall)
        table = _pairs(self.view.has_minus_zero)

        def made(units: range, codes: Bytes, exponents: Bytes) -> NDArray[Any]:
            first, last = units.start // n_cols, (units.stop - 1) // n_cols + 1
            row = np.arange(first, last)
            block = row // rows * high + row % rows // tall
            own = scales.reshape(-1, wide)[block]
            of_groups = np.repeat(own, per_block, axis=1)[:, :n_cols].reshape(-1)
            begin = units.start - first * n_cols
            own = of_groups[begin : begin + len(units)]
            return _looked_up(table, codes, exponents.reshape(-1), own)

        n = self.n_rows * n_cols
        return made_of(self.part, [self.view.codes, self.exponents], n, made)

    def of_pairs(self) -> tuple[StoredTensor, StoredTensor]:
        """Return scales and codes, whose groups share a scale two by two."""
        table, n = _pairs(self.view.has_minus_zero), self.exponents.n_bytes // 2

        def scales(units: range, exponents: Bytes, codes: Bytes) -> Bytes:
            needs = _needs_of(exponents.reshape(-1), codes, self.group)
            low, high, top = (one.reshape(-1, 2) for one in needs)
            return _Needs(np.max(low, 1), np.min(high, 1), np.max(top, 1)).settled(0)[0]

        def made(units: range, exponents: Bytes, codes: Bytes) -> NDArray[Any]:
            own = np.repeat(scales(units, exponents, codes), 2)
            halves = codes.reshape(2 * len(units), -1)
            return _looked_up(table, halves, exponents.reshape(-1), own)

        given = [self.exponents, self.view.codes]
        of_pairs = made_of(Part(self.view.name, _E8M0, (n,)), given, n, scales)
        return of_pairs, made_of(self.part, given, n, made)


def _looked_up(table: NDArray[Any], codes: Bytes, exponents: Bytes, scales: Bytes) -> NDArray[Any]:
    steps = exponents.astype(np.int16) - scales - (_LEAST - 1)
    lines = steps.clip(0, len(table) - 1).astype(np.uint8)
    found = np.empty(codes.size, table.dtype)
    _io.look_up_pairs(np.ascontiguousarray(codes).data, lines.data, table.data, found.data)
    return found


def _needs_of(exponents: Bytes, codes: Bytes, group: int) -> _Needs:
    bits, least, most = _reach()
    words = bits.take(codes.reshape(-1)).view("<u8").reshape(-1, group // 16)
    seen = words[:, 0] if group == 16 else words[:, 0] | words[:, 1]
    for shift in (32, 16, 8):
        seen = seen | seen >> np.uint64(shift)
    magnitudes = (seen & np.uint64(0xFE)).astype(np.intp)  # but for zero
    own, is_zero = exponents.astype(np.int16), magnitudes == 0
    low, high = own - most.take(magnitudes), own - least.take(magnitudes)
    is_none = (exponents == _NO_POWER) & ~is_zero
    low, high = np.where(is_none, _ANY, low), np.where(is_none, -_ANY, high)
    return _Needs(
        np.where(is_zero, -_ANY, low), np.where(is_zero, _ANY, high), np.where(is_zero, -1, own)
    )


@cache
def _reach() -> tuple[Bytes, Exponents, Exponents]:
    """Return the magnitudes of a byte as bits, and how far scales may be for magnitudes in bits."""
    bits = [1 << (byte & 7) | 1 << (byte >> 4 & 7) for byte in range(256)]
    span = range(_LEAST, _MOST + 1)
    ends = [[step for step in span if _e4m3(one, step) is not None] for one in range(8)]
    kept = [[ends[one] for one in range(1, 8) if mask >> one & 1] for mask in range(256)]
    least = [max((one[0] for one in some), default=0) for some in kept]
    most = [min((one[-1] for one in some), default=0) for some in kept]
    return np.array(bits, np.uint8), np.array(least, np.int16), np.array(most, np.int16)


@cache
def _pairs(has_minus_zero: bool) -> NDArray[Any]:
    """Return two E4M3 for a byte of two E2M1, times 2^-12 to 2^10; 0 for what has none."""
    found = np.zeros((_MOST - _LEAST + 3, 16), np.uint8)
    for row, step in enumerate(range(_LEAST - 1, _MOST + 2)):
        found[row, :8] = [_e4m3(one, step) or 0 for one in range(8)]
        found[row, 8:] = found[row, :8] | 0x80
    if not has_minus_zero:
        found[:, 8] = 0
    low, high = (found[:, [byte >> at & 15 for byte in range(256)]] for at in (0, 4))
    return np.ascontiguousarray(np.stack((low, high), -1)).view("<u2")[..., 0]


def _e4m3(magnitude: int, step: int) -> int | None:
    """Return the code of one of E2M1's magnitudes times a power of two; None if there is none."""
    value = _MAGNITUDES[magnitude] * 2.0**step
    if not value:
        return 0
    exponent = max(frexp(value)[1] - 1, -6)
    mantissa = value / 2.0 ** (exponent - 3)  # 8 to 15; less if it is subnormal
    if mantissa != int(mantissa) or value > _LARGEST:
        return None
    return (exponent + 7 << 3) + int(mantissa) - 8
