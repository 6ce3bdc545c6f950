"""How far the values of two weights lie apart, band by band.

Equal bytes are equal at once. Bands are cut by the weights alone, a kernel adds each up in a fixed
order, and bands are added exactly: figures are the same for any number of threads.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import anamnesis._core as _core
import anamnesis._io as _io
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import AnamnesisError, Cancelled
from anamnesis.base.exact_sum import ExactSum, exact_sum
from anamnesis.base.lazy import np
from anamnesis.base.workers import run
from anamnesis.convert.compare.figures import Difference
from anamnesis.convert.compare.pairs import Pair
from anamnesis.convert.report.losses import WeightLoss
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.bands import Band, band_bytes
from anamnesis.schemes.core.codes import VALUES_SLOT
from anamnesis.schemes.core.plain import Plain, PlainMatrix
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run

_F32 = DTYPES["F32"]
_AT_ONCE = 1 << 20  # bytes of a stored tensor that are compared at a time


class Values(NamedTuple):
    """What the values of a pair are to one another: a difference, unless the bytes are the same."""

    difference: Difference | None = None
    problem: str = ""  # why they are not compared


def compare_values(pairs: Sequence[Pair], how: How) -> list[Values]:
    """Return what the values of each pair are to one another."""
    n_bytes = [pair.a.n_bytes + pair.b.n_bytes for pair in pairs]
    done = Progress(how, sum(n_bytes))
    sums = {i: _Sums() for i in sorted(_unlike_bytes(pairs, how, done))}

    def compare(scratches: tuple[Scratch, Scratch], job: tuple[int, list[Band]]) -> None:
        i, bands = job
        try:
            for band in bands:
                n = band.stop - band.start
                sums[i].add(band.start, n, _compared(pairs[i], band, scratches))
                done.add(n_bytes[i] * n // max(pairs[i].a.n_elements, 1))
        except Cancelled:
            raise
        except AnamnesisError as error:
            sums[i].problem = str(error)

    run(
        _bands(pairs, sums),
        lambda: partial(compare, (Scratch(how.level), Scratch(how.level))),
        how.threads,
    )
    return [sums[i].result(pair) if i in sums else Values() for i, pair in enumerate(pairs)]


def have_same_bytes(pairs: Sequence[Pair], how: How) -> list[bool]:
    """Return which pairs are the same encoding of the same bytes; nothing is decoded."""
    how = how._replace(progress=None)
    unlike = _unlike_bytes(pairs, how, Progress(how, 0))
    return [i not in unlike for i in range(len(pairs))]


class Progress:
    """Counts bytes of several threads, and tells of them."""

    def __init__(self, how: How, n_all: int) -> None:
        self._how, self._n_all, self._n = how, n_all, 0
        self._lock = threading.Lock()

    def add(self, n: int) -> None:
        self._how.check()
        with self._lock:
            self._n = min(self._n + n, self._n_all)
            self._how.tell(self._n, self._n_all)


# --- bytes ----------------------------------------------------------------------------------------


def _are_stored_alike(pair: Pair) -> bool:
    """Return whether equal bytes are equal values: the same encoding of the same parts."""
    a, b = pair.a, pair.b
    if type(a) is not type(b) or isinstance(a, Seen) or (a.id, a.shape) != (b.id, b.shape):
        return False
    kinds = [[(part.dtype, part.shape, part.n_bytes) for part in w.parts] for w in (a, b)]
    return kinds[0] == kinds[1]


def _unlike_bytes(pairs: Sequence[Pair], how: How, done: Progress) -> set[int]:
    """Return which pairs have other bytes, or are stored otherwise."""
    like = [i for i, pair in enumerate(pairs) if _are_stored_alike(pair)]
    unlike: set[int] = set(range(len(pairs))).difference(like)
    pieces = (
        (i, k, start, min(_AT_ONCE, part.n_bytes - start))
        for i in like
        for k, part in enumerate(pairs[i].a.parts)
        for start in range(0, part.n_bytes, _AT_ONCE)
    )

    def compare(scratch: Scratch, piece: tuple[int, int, int, int]) -> None:
        i, k, start, n = piece
        if i in unlike:
            return
        both = enumerate((pairs[i].a, pairs[i].b))
        if _io.are_equal(*[scratch.read(slot, one.parts[k], start, n) for slot, one in both]):
            done.add(2 * n)
        else:
            unlike.add(i)

    run(pieces, lambda: partial(compare, Scratch(how.level)), how.threads)
    return unlike


# --- values ---------------------------------------------------------------------------------------


class _Sums:
    """What bands of a pair come to, in any order."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n = self.differing = self.not_finite = 0
        self.first: int | None = None
        self.largest = 0.0
        self.exact = tuple(ExactSum() for _ in range(5))
        self.problem = ""

    def add(self, start: int, n: int, band: _Band) -> None:
        with self.lock:
            self.n += n
            self.differing += band.differing
            self.not_finite += band.not_finite
            self.largest = max(self.largest, band.largest)
            if band.differing and (self.first is None or start + band.first < self.first):
                self.first = start + band.first
            for exact, value in zip(self.exact, band.sums, strict=True):
                exact.add(value)

    def result(self, pair: Pair) -> Values:
        if self.problem:
            return Values(problem=self.problem)
        absolute, squared, power, power_b, product = (exact.value for exact in self.exact)
        loss = WeightLoss(self.n, absolute, self.largest, squared, power)
        first = None if self.first is None else index_of(self.first, pair.shape or ())
        return Values(
            difference=Difference(loss, self.differing, self.not_finite, power_b, product, first)
        )


def index_of(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of a value, by its place in the order that it is stored in."""
    return tuple(map(int, np.unravel_index(at, shape)))


def _bands(pairs: Sequence[Pair], sums: dict[int, _Sums]) -> Iterator[tuple[int, list[Band]]]:
    for i in sums:
        pair = pairs[i]
        n = math.prod(pair.shape or ())
        lead = pair.a if pair.a.own_dtype is None else pair.b  # codes are cut where they can be
        for bands in lead.bands(_F32, band_bytes()).runs():
            some = [Band(band.start, min(band.stop, n)) for band in bands if band.start < n]
            if some:
                yield i, some


class _Band(NamedTuple):
    """What the values of a band come to; the sums are of finite pairs."""

    differing: int
    not_finite: int
    first: int
    largest: float
    sums: tuple[float, float, float, float, float]  # |a-b|, (a-b)^2, a^2, b^2, ab


def _compared(pair: Pair, band: Band, scratches: tuple[Scratch, Scratch]) -> _Band:
    both = zip((pair.a, pair.b), scratches, strict=True)
    (a, of_a), (b, of_b) = [_values(*one, band) for one in both]
    if not {of_a.name, of_b.name} <= _core.SOURCES.keys():
        return compare_arrays(np.frombuffer(a, of_a.numpy()), np.frombuffer(b, of_b.numpy()))
    sources = _core.SOURCES[of_a.name], _core.SOURCES[of_b.name]
    found = _core.compare(a, b, scratches[0].level, *sources)
    sums = found.absolute, found.error, found.power_a, found.power_b, found.product
    first = found.first_different or 0
    return _Band(found.n_different, found.n_not_finite, first, found.largest, sums)


def _values(weight: Weight, scratch: Scratch, band: Band) -> tuple[memoryview, DType]:
    """Return the values of a band, and their dtype: as they are stored, or else decoded."""
    own = weight.own_dtype
    if own is not None and type(weight) in (Plain, PlainMatrix):
        (part,) = weight.parts
        start, stop = (part.dtype.n_bytes(n) for n in band)
        return scratch.read(0, part, start, stop - start), own
    out = scratch.room(VALUES_SLOT, _F32.n_bytes(band.stop - band.start))
    decode_run(weight, band, _F32, scratch, out)
    return out, _F32


def compare_arrays(a: Any, b: Any) -> _Band:
    """Compare arrays of any dtype, in float64 or complex128."""
    if len(a) != len(b):  # of packed values
        raise AnamnesisError(f"{len(a):,} values are not comparable with {len(b):,}")
    with np.errstate(all="ignore"):
        wide = np.complex128 if "c" in a.dtype.kind + b.dtype.kind else np.float64
        unlike = _unlike(a, b, wide)
        a, b = a.astype(wide), b.astype(wide)
        finite = np.isfinite(a) & np.isfinite(b)
        a, b = np.where(finite, a, 0), np.where(finite, b, 0)
        d = np.abs(a - b)
        sums = (d, d * d, np.abs(a) ** 2, np.abs(b) ** 2, (a * np.conj(b)).real)
    return _Band(
        int(unlike.sum()),
        int((~finite).sum()),
        int(unlike.argmax()) if unlike.any() else 0,
        float(d.max(initial=0.0)),
        tuple(map(exact_sum, sums)),  # type: ignore[arg-type]
    )


def _unlike(a: Any, b: Any, wide: Any) -> Any:
    """Return which values have other bits, where need be those of the dtype that holds both."""
    if a.dtype == b.dtype:
        return _bits_differ(a, b)
    unlike = _bits_differ(a.astype(wide), b.astype(wide))
    for one, other in ((a, b), (b, a)):
        if one.dtype.kind in "iu":  # of which a float64 rounds the largest
            unlike |= one != other.real.astype(one.dtype)
    return unlike


def _bits_differ(a: Any, b: Any) -> Any:
    return (a.view(np.uint8) != b.view(np.uint8)).reshape(len(a), -1).any(axis=1)
