"""MXFP4 as NVFP4, and back: codes stay, and scales for equal values are found.

    MXFP4  2^k for 32 codes                      E8M0
    NVFP4  2^(k - m) for 16 of them, times 2^m   E4M3, and the second scale

E4M3 has the powers from 2^-9 to 2^8. With m = k_max - 8 there is one for each k that is at most 17
below the largest. A group of nothing but zeros takes any scale; of the smallest power if its own
is smaller, which is what ModelOpt's cast gives. Back, both halves of each 32 codes must have one
power, unless one of them is zeros.

Scales are read before anything is written: codes only where scales leave open whether it can be.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from math import ldexp, prod
from typing import TYPE_CHECKING, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.families.fp4.equal_scales import same_scales
from anamnesis.schemes.families.fp4.formats import GROUPS, LARGEST_NVFP4, Fp4Format
from anamnesis.schemes.families.fp4.view import Fp4Codes
from anamnesis.schemes.views.views import made_of, pieces, stored_bytes

if TYPE_CHECKING:
    Bytes = NDArray[np.uint8]

_F32 = struct.Struct("<f")
_U8 = DTYPES["U8"]
_BIAS, _NO_POWER = 127, 255  # of E8M0
_LEAST, _MOST = -9, 8  # powers that E4M3 has
_LEAST_CODE, _MOST_CODE = 0x01, 0x78  # the same in E4M3
_LEAST_SECOND = -126  # a power that float32 has a normal reciprocal of
_SPAN = _MOST - _LEAST
_ZEROS, _NOTHING = -1, -2  # what no scale stands for: unless codes are zeros, and in any case
_PIECE = 1 << 20  # scales that are read at once
_FINE = 1 << 14  # the same where codes are read beside them
_CODE_BYTES = GROUPS["MXFP4"] // 2  # of a group
_MAGNITUDES = 0x7777777777777777  # of 16 codes: all but their signs


class Cast(NamedTuple):
    """Codes with scales for the same values."""

    view: Fp4Codes
    second: bytes


# --- to NVFP4 ---------------------------------------------------------------------------------


def to_nvfp4(views: Sequence[Fp4Codes], new: Fp4Format) -> list[Cast]:
    """Return MXFP4 as NVFP4, with one second scale for all of these weights."""
    for view in views:
        _check(view)
    low, high = _joint([_span(pieces(view.scales, _PIECE)) for view in views])
    if high - low > _SPAN:
        low, high = _joint([_span_of_nonzero(view, high - _SPAN) for view in views])
    if high == _NO_POWER:
        raise views[0].refused(f"a scale is {_NO_POWER}, which is no power of two in {new.words}")
    if high - low > _SPAN:
        whose = "" if len(views) == 1 else " of layers that share a second scale"
        raise views[0].refused(f"exponents of scales{whose} span more than {_SPAN}")
    for second in _seconds(low - _BIAS, high - _BIAS, new):
        alike = [same_scales(view.format, b"", new, second) for view in views]
        if all(None not in table[low : high + 1] for table in alike):
            return [
                _with_halves(view, new, table, second, low, high)
                for view, table in zip(views, alike, strict=True)
            ]
    raise views[0].refused(f"no second scale of {new.words} gives scales of 2^{high - _BIAS}")


def _check(view: Fp4Codes) -> None:
    whole = GROUPS["MXFP4"]
    if view.shape[-1] % whole:
        raise view.refused(f"rows of {view.shape[-1]:,} codes end within a group of {whole}")


def _joint(spans: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the least and the largest of all; of none, what stands for 1."""
    found = [span for span in spans if span[0] <= span[1]]
    if not found:
        return _BIAS, _BIAS
    return min(low for low, _ in found), max(high for _, high in found)


def _seconds(low: int, high: int, new: Fp4Format) -> Iterator[bytes]:
    """Yield second scales that may do, given the least and the largest exponent; the best first."""
    if not new.needs_second and low >= _LEAST and high <= _MOST:
        yield b""
    power = max(high - _MOST, _LEAST_SECOND)
    number = {"divide": ldexp(1.0, -power), "mlx": ldexp(LARGEST_NVFP4, power)}
    try:
        yield _F32.pack(number.get(new.second, ldexp(1.0, power)))
    except OverflowError:  # of MLX's, which is 2,688 times as large
        return


def _with_halves(
    view: Fp4Codes,
    new: Fp4Format,
    alike: Sequence[int | None],
    second: bytes,
    low: int,
    high: int,
) -> Cast:
    """Return codes with two scales for each one; those that only zeros have are the next best."""
    known = [alike[min(max(byte, low), high)] or 0 for byte in range(256)]
    known[:low] = [_LEAST_CODE] * low
    known[high + 1 :] = [_MOST_CODE] * (255 - high)
    table = np.repeat(np.array(known, np.uint8), 2).view(np.uint16)
    shape = (*view.shape[:-1], view.shape[-1] // GROUPS["NVFP4"])
    part, n = Part(view.scales.name, _U8, shape), view.scales.n_bytes
    scales = made_of(part, [view.scales], n, lambda _, raw: table.take(raw.reshape(-1)))
    return Cast(_as(view, new, scales), second)


def _as(view: Fp4Codes, new: Fp4Format, scales: StoredTensor) -> Fp4Codes:
    return view._replace(format=new, group=GROUPS[new.kind], scales=scales, second=None)


# --- to MXFP4 ---------------------------------------------------------------------------------


def to_mxfp4(view: Fp4Codes, seconds: Sequence[bytes], new: Fp4Format) -> Cast:
    """Return NVFP4 as MXFP4, given its second scale, or that of each matrix."""
    _check(view)
    rule = _Halves(view, new, [_known(view.format, second, new) for second in seconds])
    agree = True
    for units, some in rule.pieces(_PIECE):
        agree = rule.agreed(units, some)[1]
        if not agree:
            break
    if not agree:
        for units, some in rule.pieces(_FINE):
            codes = stored_bytes(view.codes, *(n * _CODE_BYTES for n in (units.start, units.stop)))
            if not rule.settled(units, some, codes)[1]:
                why = f"scales of {GROUPS['MXFP4']} codes are no power of two, or more than one"
                raise view.refused(why)
    inputs = [view.scales] if agree else [view.scales, view.codes]
    shape = (*view.shape[:-1], view.shape[-1] // GROUPS["MXFP4"])
    part = Part(view.scales.name, _U8, shape)
    made = rule.agreed if agree else rule.settled
    scales = made_of(part, inputs, part.n_bytes, lambda units, *given: made(units, *given)[0])
    return Cast(_as(view, new, scales), b"")


def _known(old: Fp4Format, second: bytes, new: Fp4Format) -> NDArray[np.int16]:
    """Return what stands for each scale; -1 if that is only for zeros, -2 if nothing does."""
    alike = same_scales(old, second, new, b"")
    found = np.array([_ZEROS if byte is None else byte for byte in alike], np.int16)
    numbers = np.frombuffer(old.scales(second).table, "<f4")
    found[~np.isfinite(numbers) | np.signbit(numbers)] = _NOTHING
    return found


class _Halves(NamedTuple):
    """How scales of parts of a group become one."""

    view: Fp4Codes
    new: Fp4Format
    tables: Sequence[NDArray[np.int16]]

    def pieces(self, at_once: int) -> Iterator[tuple[range, Bytes]]:
        n = GROUPS["MXFP4"] // self.view.group
        start = 0
        for some in pieces(self.view.scales, n * at_once):
            yield range(start, start + len(some) // n), some
            start += len(some) // n

    def agreed(self, units: range, scales: Bytes) -> tuple[Bytes, bool]:
        """Return the scales of groups; and whether all of each group's are the same power."""
        known = self._known(units, scales)
        first = known[:, 0]
        is_right = bool((first >= 0).all() and (known == known[:, :1]).all())
        return first.astype(np.uint8), is_right

    def settled(self, units: range, scales: Bytes, codes: Bytes) -> tuple[Bytes, bool]:
        """Return the scales of groups by those of their parts that are not zeros."""
        # And whether these are the same power.
        known = self._known(units, scales)
        counts = _nonzero(codes, self.view.group // 16).reshape(known.shape)
        largest = np.where(counts, known, -1).max(1)
        is_lone = ~counts | ((known == largest[:, None]) & (known >= 0))
        is_right = not np.any(~is_lone | (known == _NOTHING))
        made = np.where(largest < 0, known.max(1), largest)
        return made.clip(0).astype(np.uint8), is_right

    def _known(self, units: range, scales: Bytes) -> NDArray[np.int16]:
        """Return what stands for each scale of some groups; one row for each group."""
        per_group = GROUPS["MXFP4"] // self.view.group
        flat = scales.reshape(-1)
        if len(self.tables) == 1:
            return self.tables[0].take(flat).reshape(-1, per_group)
        per_matrix = prod(self.view.shape[-2:]) // GROUPS["MXFP4"]
        matrix = np.arange(units.start, units.stop) // per_matrix
        return np.stack(self.tables)[matrix[:, None], flat.reshape(-1, per_group)]


# --- which exponents there are ----------------------------------------------------------------


def _span(scales: Iterable[Bytes]) -> tuple[int, int]:
    """Return the least and the largest byte of scales; of none, 255 and 0."""
    low, high = 255, 0
    for some in scales:
        if len(some):
            low, high = min(low, int(some.min())), max(high, int(some.max()))
    return low, high


def _span_of_nonzero(view: Fp4Codes, least: int) -> tuple[int, int]:
    """Return the least and the largest byte of scales of groups that are not all zeros."""
    # Codes are read where scales are less than a byte; of all, if one of these is not of zeros, and
    # all of those with the largest scale are. 255, which may be infinity, is never that of zeros.
    low, high = _span(_of_nonzero(view, range(min(least, _NO_POWER))))
    if low >= least or any(
        (some == high).any() for some in _of_nonzero(view, range(high, high + 1))
    ):
        return low, high
    return _span(_of_nonzero(view, range(_NO_POWER)))


def _of_nonzero(view: Fp4Codes, asked: range) -> Iterator[Bytes]:
    """Yield scales, without those in a range whose codes are nothing but zeros."""
    start = 0
    for some in pieces(view.scales, _FINE):
        is_zero = (some >= asked.start) & (some < asked.stop)
        if is_zero.any():
            codes = stored_bytes(view.codes, start * _CODE_BYTES, (start + len(some)) * _CODE_BYTES)
            is_zero &= ~_nonzero(codes, 2)
        yield some[~is_zero]
        start += len(some)


def _nonzero(codes: Bytes, words: int) -> NDArray[np.bool_]:
    """Tell of groups of so many times 16 codes whether one is not zero."""
    given = np.ascontiguousarray(codes).view("<u8").reshape(-1, words)
    joined = given[:, 0]
    for i in range(1, words):
        joined = joined | given[:, i]
    found: NDArray[np.bool_] = (joined & np.uint64(_MAGNITUDES)) != 0
    return found
