"""Integers of any layout, with other codes or numbers for equal values.

All are views. Only scales, zero points and biases are read to know whether values stay what they
are: products and sums are compared to the bit, of every code with the numbers of every group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any, NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.views.bits import dense
from anamnesis.schemes.views.kinds import Integers, Rows
from anamnesis.schemes.views.views import made_of, pieces

_U8 = DTYPES["U8"]
_AT_ONCE = 1 << 20  # products that are compared at a time
LEAST_POWER, _NAN = 0x00400000, 0x7FC00000  # of E8M0, as F32: 2^-127, which is subnormal there


# --- numbers ----------------------------------------------------------------------------------


def floats(raw: Any, dtype: str) -> NDArray[Any]:
    """Return bytes of F32, F16, BF16, F8_E8M0 or U8 as float32."""
    if dtype == "F8_E8M0":
        table = np.arange(256, dtype="<u4") << np.uint32(23)
        table[[0, 255]] = LEAST_POWER, _NAN
        found: NDArray[Any] = table[np.frombuffer(raw, "u1")].view("<f4")
        return found
    if dtype == "BF16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << np.uint32(16)).view("<f4")
    kind = {"F32": "<f4", "F16": "<f2", "U8": "u1"}[dtype]
    return np.frombuffer(raw, kind).astype("<f4")


def _narrowed(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return float32 as numbers of a dtype that has all of them."""
    if dtype == "BF16":
        return (values.view("<u4") >> np.uint32(16)).astype("<u2")
    with np.errstate(all="ignore"):
        return values.astype({"F32": "<f4", "F16": "<f2"}[dtype])


def _are_in(values: NDArray[Any], dtype: str) -> bool:
    """Return whether a dtype has all of some float32 numbers; a NaN is none."""
    again = floats(_narrowed(values, dtype).tobytes(), dtype)
    return bool((again.view("<u4") == values.view("<u4")).all() and not np.isnan(values).any())


def _pieces(n_codes: int, *grids: StoredTensor) -> Iterator[tuple[NDArray[Any], ...]]:
    """Yield numbers of grids of one shape as float32, some groups at a time."""
    n, at_once = grids[0].n_elements, max(_AT_ONCE // n_codes, 1)
    for start in range(0, n, at_once):
        found = []
        for grid in grids:
            item = grid.dtype.n_bytes(1)
            raw = grid.source.read(grid.offset + start * item, min(at_once, n - start) * item)
            found.append(floats(raw, grid.dtype.name))
        yield tuple(found)


def in_dtype(grid: StoredTensor, dtype: str) -> StoredTensor | None:
    """Return numbers in another dtype; None if it has not all of them."""
    if dtype in (grid.dtype.name, "F32"):
        return in_float32(grid) if dtype == "F32" else grid
    are_in = all(_are_in(values, dtype) for (values,) in _pieces(1, grid))
    return computed(lambda values: values, dtype, grid) if are_in else None


def in_float32(grid: StoredTensor) -> StoredTensor:
    """Return numbers in float32, which has all of them, NaNs too."""
    return grid if grid.dtype.name == "F32" else computed(lambda values: values, "F32", grid)


def raised(grid: StoredTensor, by: int) -> StoredTensor | None:
    """Return numbers that are more by a whole one; None if float32 has not all of the sums."""
    if not by:
        return grid
    added = np.float32(by)
    for (values,) in _pieces(1, grid):
        with np.errstate(all="ignore"):
            sums = values + added
            is_exact = (sums - added == values) & (sums == values.astype("<f8") + by)
        if not is_exact.all():
            return None
    return computed(lambda values: values + added, "F32", grid)


def computed(make: Callable[..., NDArray[Any]], dtype: str, *grids: StoredTensor) -> StoredTensor:
    """Return numbers of a dtype that are made, in float32, of those of grids of one shape."""

    def made(units: range, *lines: NDArray[Any]) -> NDArray[Any]:
        both = zip(lines, grids, strict=True)
        found = make(*(floats(line.tobytes(), grid.dtype.name) for line, grid in both))
        return found.astype(np.uint8) if dtype == "U8" else _narrowed(found, dtype)

    part = Part(grids[0].name, DTYPES[dtype], grids[0].shape)
    return made_of(part, grids, grids[0].n_elements, made)


# --- zero points ------------------------------------------------------------------------------


class _Zeros(NamedTuple):
    """What zero points are like: the least, the largest, and whether all are integers."""

    least: float
    most: float
    are_integers: bool


def _looked_at(zeros: StoredTensor) -> _Zeros:
    least, most, integers = float("inf"), float("-inf"), True
    for (values,) in _pieces(1, zeros):
        integers = integers and bool((values == np.rint(values)).all())
        least, most = min(least, float(values.min())), max(most, float(values.max()))
        if not integers:
            break
    return _Zeros(least, most, integers)


def with_zeros(view: Integers) -> Integers:
    """Return integers whose zero points are codes, and which have no biases."""
    if view.biases is not None:
        view = _of_biases(view)
    if view.zeros is None:
        return view
    found = _looked_at(view.zeros)
    if not found.are_integers or not 0 <= found.least <= found.most < 1 << view.bits:
        raise view.refused("its zero points are no codes")
    if found.least == found.most:
        return view._replace(zero=int(found.least), zeros=None)
    if view.zeros.dtype is not _U8:
        return view._replace(zeros=computed(lambda zeros: zeros, "U8", view.zeros))
    return view


def _of_biases(view: Integers) -> Integers:
    """Return codes with biases as codes with zero points, bias / -scale."""
    assert view.biases is not None

    def zero(scales: NDArray[Any], biases: NDArray[Any]) -> NDArray[Any]:
        with np.errstate(all="ignore"):
            quotients = np.nan_to_num(-biases / scales)
            found: NDArray[Any] = np.rint(np.clip(quotients, 0, (1 << view.bits) - 1))
            return found

    if view.zero or view.zeros is not None or view.unit != 1:
        raise view.refused("it has zero points and biases")
    codes = np.arange(1 << view.bits, dtype=np.float32)[:, None]
    for scales, biases in _pieces(len(codes), view.scales, view.biases):
        with np.errstate(all="ignore"):
            ours = codes * scales + biases
            theirs = (codes - zero(scales, biases)) * scales
        if not _are_same(ours, theirs):
            raise view.refused("its biases are not scales times codes, to the bit")
    return view._replace(biases=None, zeros=computed(zero, "U8", view.scales, view.biases))


def _are_same(ours: NDArray[Any], theirs: NDArray[Any]) -> bool:
    """Return whether values are equal to the bit; any NaNs are."""
    same = (ours.view("<u4") == theirs.view("<u4")) | ((ours != ours) & (theirs != theirs))
    return bool(same.all())


def centred(view: Integers, bits: int) -> Integers:
    """Return integers of so many bits whose middle code stands for 0, in every group."""
    view = with_zeros(view)
    half, least, most = 1 << bits - 1, view.zero, view.zero
    if view.zeros is not None:
        found = _looked_at(view.zeros)
        least, most = int(found.least), int(found.most)
    if half - most < 0 or half - least + (1 << view.bits) > 1 << bits:
        which = f"zero points of {least} to {most}" if least < most else f"a zero point of {least}"
        raise view.refused(f"codes of {view.bits} bits with {which} are no {bits} bits about 0")
    if view.zeros is None and view.zero == half:
        return view._replace(bits=bits, is_cast=view.is_cast or bits != view.bits)
    added = half - view.zero

    def moved(units: range, lines: NDArray[Any], *zeros: NDArray[Any]) -> NDArray[Any]:
        made = lines + np.uint8(added % 256)
        return made - _along(view, zeros[0]) if zeros else made

    inputs = [view.codes] if view.zeros is None else [view.codes, view.zeros]
    if view.zeros is not None:
        added = half
    n_rows = prod(view.shape[:-1])
    codes = made_of(Part(*view.codes[:3]), inputs, n_rows, moved)
    is_cast = view.is_cast or bits != view.bits or view.zeros is not None
    signed = view.signed if bits == view.bits == 8 and added == 0 else None
    return view._replace(
        codes=codes, bits=bits, zero=half, zeros=None, is_cast=is_cast, signed=signed
    )


def _along(view: Integers, numbers: NDArray[Any]) -> NDArray[Any]:
    """Return what rows of groups have, for each column."""
    if view.listed is not None:
        return numbers[:, np.frombuffer(view.listed.read(), "<i4")]
    return np.repeat(numbers, view.group, axis=1)[:, : view.shape[-1]]


# --- biases -----------------------------------------------------------------------------------


def with_biases(view: Integers, dtype: str | None = None) -> Integers:
    """Return integers whose code 0 stands for a bias, of one dtype with scales."""
    dtype = dtype or view.scales.dtype.name
    if view.unit != 1:
        raise view.refused("its products are divided by 127")
    scales = in_dtype(view.scales, dtype)
    if scales is None:
        raise view.refused(f"its scales are {view.scales.dtype}, of which {dtype} has not all")
    if view.biases is not None and view.zeros is not None:
        raise view.refused("it has zero points and biases")
    if view.biases is not None and not view.zero:
        biases = in_dtype(view.biases, dtype)
        if biases is None:
            raise view.refused(f"its biases are {view.biases.dtype}, of which {dtype} has not all")
        return view._replace(scales=scales, biases=biases)
    _check_sums(view, dtype)

    def bias(scales: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
        zero, given = _zero_and_bias(view, more)
        with np.errstate(all="ignore"):
            found: NDArray[Any] = -zero * scales + given
            return found

    biases = computed(bias, dtype, view.scales, view.zeros or view.biases or view.scales)
    return view._replace(scales=scales, biases=biases, zeros=None, zero=0)


def _zero_and_bias(view: Integers, more: NDArray[Any]) -> tuple[Any, Any]:
    """Return zero points and biases, of which `more` are those that are stored."""
    zero = np.float32(view.zero) if view.zeros is None else more
    return zero, np.float32(0) if view.biases is None else more


def _check_sums(view: Integers, dtype: str) -> None:
    """Refuse zero points whose products with scales cannot take their place."""
    codes = np.arange(1 << view.bits, dtype=np.float32)[:, None]
    for scales, more in _pieces(len(codes), view.scales, view.zeros or view.biases or view.scales):
        zero, given = _zero_and_bias(view, more)
        with np.errstate(all="ignore"):
            biases = -zero * scales + given
            sums, products = codes * scales + biases, (codes - zero) * scales
            products = products if view.biases is None else products + given
        if not _are_in(np.asarray(biases, "<f4"), dtype):
            raise view.refused(f"scales times zero points are beyond {dtype}")
        is_negative = view.biases is None and bool((scales < 0).any())
        if is_negative and not _are_same(sums, products):
            raise view.refused("scales are negative, with which zeros are -0, and sums have 0")
        if not _are_same(sums, products):
            raise view.refused("sums with biases are not what products were, to the bit")


# --- groups -----------------------------------------------------------------------------------


def in_groups(view: Integers, group: int) -> Integers:
    """Return integers in smaller groups, or in larger ones where all of one are alike."""
    cols = view.shape[-1]
    own = min(view.group, cols)
    if not cols:
        raise view.refused("it has no values")
    if view.listed is not None:
        raise view.refused("its groups are in act-order")
    if own == group:
        return view._replace(group=group)
    if cols % own or cols % group or (own % group and group % own):
        raise view.refused(f"groups of {own} of {cols:,} columns are no groups of {group}")

    def regrouped(grid: StoredTensor) -> StoredTensor:
        """Return the first of each few numbers, or each number a few times."""
        item, n = grid.dtype.n_bytes(1), max(group // own, 1)
        for raw in pieces(grid, _AT_ONCE // n * n * item) if n > 1 else ():
            numbers = raw.view(f"u{item}").reshape(-1, n)
            if (numbers != numbers[:, :1]).any():
                raise view.refused(f"each {own} columns have a scale, and not {group}")
        shape = (*grid.shape[:-1], grid.shape[-1] * own // group)

        def made(units: range, lines: NDArray[Any]) -> NDArray[Any]:
            return lines[:, :item] if n > 1 else np.repeat(lines[:, None], own // group, axis=1)

        return made_of(Part(grid.name, grid.dtype, shape), [grid], grid.n_elements // n, made)

    return view._replace(
        group=group,
        scales=regrouped(view.scales),
        zeros=None if view.zeros is None else regrouped(view.zeros),
        biases=None if view.biases is None else regrouped(view.biases),
    )


# --- a scale for each row ---------------------------------------------------------------------


def by_row(view: Integers, unit: float) -> tuple[StoredTensor, StoredTensor, Integers]:
    """Return I8 codes, scales [rows, 1] and what they are of, with a factor of products."""
    # Where the factor is another one, of a scale's partner and its neighbours the one is taken by
    # which all 256 products are the same; if some row has none, by which all are in BF16 and in
    # F16.
    view = in_groups(centred(view, 8), view.shape[-1])
    if view.unit != unit:
        for exact in (True, False):
            find = partial(_partners, old=view.unit, new=unit, exact=exact)
            if all(find(some)[1] for (some,) in _pieces(512, view.scales)):
                break
        else:
            why = "no scale of some row gives the same products, divided by 127 or not"
            raise view.refused(why)
        scales = computed(lambda scales: find(scales)[0], "F32", view.scales)
        view = view._replace(scales=scales, unit=unit, is_exact=exact)
    return signed(view), view.scales, view


def _partners(
    scales: NDArray[Any], old: float, new: float, exact: bool
) -> tuple[NDArray[Any], bool]:
    """Return a scale with another factor for each, and whether all products are the same then."""
    codes = np.arange(-128, 128, dtype=np.float32)[:, None]
    with np.errstate(all="ignore"):
        ours = _products(codes, scales, old)
        nearest = (scales.astype(np.float64) * old / new).astype(np.float32)
        ways = [nearest, *(np.nextafter(nearest, np.float32(end)) for end in (np.inf, -np.inf))]
        found, is_found = nearest.copy(), np.zeros(len(scales), bool)
        for way in ways:
            theirs = _products(codes, way, new)
            same = (ours.view("<u4") == theirs.view("<u4")).all(0)
            if not exact:
                pairs = zip(_rounded(ours), _rounded(theirs), strict=True)
                same = np.logical_and.reduce([(a == b).all(0) for a, b in pairs])
            found = np.where(same & ~is_found, way, found)
            is_found |= same
    return found, bool(is_found.all())


def _products(codes: NDArray[Any], scales: NDArray[Any], unit: float) -> NDArray[Any]:
    products: NDArray[Any] = codes * scales
    return products if unit == 1 else products * np.float32(unit)


def _rounded(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the bits of float32 in BF16 and in F16."""
    import ml_dtypes

    return values.astype(ml_dtypes.bfloat16).view("u2"), values.astype(np.float16).view("u2")


def signed(view: Integers) -> StoredTensor:
    """Return codes of 8 bits about 0 as I8."""
    if view.signed is not None:
        return view.signed
    part = Part(view.codes.name, DTYPES["I8"], view.shape)
    return made_of(part, [view.codes], view.codes.n_bytes, lambda _, lines: lines ^ 128)


def as_rows(view: Integers, bits: int) -> Rows:
    """Return integers in rows of so many bits; none of them is changed."""
    if view.unit != 1:
        raise view.refused("its products are divided by 127")
    return Rows(
        *(view.name, view.shape, bits, False, view.zero, view.group),
        *(dense(view.codes, bits, "U32"), view.scales, view.biases),
        view.is_cast or view.bits != bits,
    )
