"""What values of weights show: NaNs, infinities, zeros, constants, sizes."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import AnamnesisError, Cancelled
from anamnesis.base.workers import run
from anamnesis.convert.check.findings import Finding, Kind, Severity
from anamnesis.convert.compare.values import Progress, index_of
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.bands import Band, band_bytes, cut, encoded_band_bytes
from anamnesis.schemes.core.codes import VALUES_SLOT
from anamnesis.schemes.core.odd_scales import OddScales
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run

Found = dict[tuple[Severity, Kind, str], list[str]]

_F32 = DTYPES["F32"]
_HUGE = 2.0**14  # beyond what trained weights are; a damaged scale or exponent makes it


def look_at(weights: Sequence[Weight], how: How) -> dict[str, ValueCounts]:
    """Return what the values of weights come to, by their names; of integers and the like none."""
    seen = {weight.name: ValueCounts() for weight in weights if _words(weight) is not None}
    looked_at = [weight for weight in weights if weight.name in seen]
    done = Progress(how, sum(weight.n_bytes for weight in looked_at))

    def look(scratch: Scratch, job: tuple[Weight, list[Band]]) -> None:
        weight, bands = job
        counts, kind, cols = seen[weight.name], _words(weight), _matrix(weight.shape)[1]
        assert kind is not None  # of others there are no jobs
        dtype = weight.parts[0].dtype if _is_raw(weight) else _F32
        try:
            for band in bands:
                n, n_bytes = band.stop - band.start, dtype.n_bytes(1)
                if _is_raw(weight):
                    words = scratch.read(0, weight.parts[0], n_bytes * band.start, n_bytes * n)
                else:
                    words = scratch.room(VALUES_SLOT, n_bytes * n)
                    decode_run(weight, band, _F32, scratch, words)
                is_of_rows = n % cols == 0 and band.start % cols == 0
                found = _core.check_values(kind, words, cols if is_of_rows else n, scratch.level)
                counts.add(band.start, n, bytes(words[:n_bytes]), found)
                done.add(weight.n_bytes * n // max(weight.n_elements, 1))
        except Cancelled:
            raise
        except AnamnesisError as error:
            counts.problem = str(error)

    run(_bands(looked_at), lambda: partial(look, Scratch(how.level)), how.threads)
    return seen


def _bands(weights: Sequence[Weight]) -> Iterator[tuple[Weight, list[Band]]]:
    for weight in weights:
        if _is_raw(weight):
            n_bytes = weight.parts[0].dtype.n_bytes(1)
            found = cut(*_matrix(weight.shape), encoded_band_bytes() // n_bytes)
        else:
            found = weight.bands(_F32, band_bytes())
        for bands in found.runs():
            yield weight, bands


def findings_of(weights: Sequence[Weight], seen: Mapping[str, ValueCounts]) -> list[Finding]:
    """Return what is to be said of the values of weights, and of their scales; problems first."""
    found: Found = {}
    for weight in weights:
        if weight.name in seen:
            for severity, kind, text in _said(weight, seen[weight.name]):
                found.setdefault((severity, kind, text), []).append(weight.name)
    for name, counts in OddScales(weights).counts().items():
        for odd, n in counts.items():
            weighs: Severity = "note" if odd == "zero" else "problem"
            found.setdefault((weighs, "scales", f"{n:,} scales are {odd}"), []).append(name)
    return [Finding(*what[:2], tuple(names), what[2]) for what, names in found.items()]


def _is_raw(weight: Weight) -> bool:
    """Return whether the values of a weight are looked at as they are stored."""
    return isinstance(weight, Plain) and len(weight.parts) == 1


def _words(weight: Weight) -> str | None:
    """Return what the values of a weight are looked at as; None of integers and the like."""
    own = weight.own_dtype
    if _is_raw(weight):
        return own.name if own is not None and own.name in _core.FLOAT_WORDS else None
    return "F32" if own is None or own.kind == "float" else None


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    return prod(shape[:-1]), (shape[-1] if shape else 1)


class ValueCounts:
    """What the bands of a weight came to."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n = self.nans = self.infinities = self.zeros = self.zero_rows = self.largest = 0
        self.first = sys.maxsize  # value that is a NaN or an infinity
        self.is_constant = True
        self.word: bytes | None = None  # the first value of a band, which constants have in each
        self.problem = ""

    def add(self, start: int, n: int, word: bytes, found: _core.Checked) -> None:
        """Add what a band comes to."""
        odd = [at for at in (found.first_nan, found.first_infinite) if at is not None]
        with self.lock:
            self.n += n
            self.nans += found.n_nan
            self.infinities += found.n_infinite
            self.zeros += found.n_zero
            self.zero_rows += found.n_zero_rows
            self.largest = max(self.largest, found.largest)
            if odd:
                self.first = min(start + min(odd), self.first)
            self.is_constant &= found.is_constant and self.word in (None, word)
            self.word = word


def _said(weight: Weight, state: ValueCounts) -> Iterator[tuple[Severity, Kind, str]]:
    """Yield what is to be said of a weight: its severity, what it is, and in words."""
    if state.problem:
        yield "problem", "unreadable", state.problem
        return
    where = ""
    if state.nans or state.infinities:
        where = f", first at {list(index_of(state.first, weight.shape))}"
    if state.nans:
        yield "problem", "NaN", f"{state.nans:,} of {state.n:,} values are NaN{where}"
    if state.infinities:
        text = f"{state.infinities:,} of {state.n:,} values are infinite"
        yield "problem", "infinity", f"{text}{'' if state.nans else where}"
    is_matrix = len(weight.shape) > 1 and state.n > 1
    if state.n and state.zeros == state.n:
        yield ("problem" if is_matrix else "note"), "zeros", "all values are zero"
    elif is_matrix and state.is_constant:
        yield "problem", "constant", "all values are the same"
    elif state.zero_rows:
        n = _matrix(weight.shape)[0]
        yield "note", "zero rows", f"{state.zero_rows:,} of {n:,} rows are zeros"
    largest = _number(state.largest, weight)
    if is_matrix and largest > _HUGE:
        yield "problem", "size", f"values are as large as {largest:.3g}"


def _number(magnitude: int, weight: Weight) -> float:
    """Return a magnitude as the number that it is; 0 where one is never too large."""
    words = _words(weight)
    if words == "F16":
        return float(struct.unpack("<e", struct.pack("<H", magnitude))[0])
    if words not in ("BF16", "F32"):
        return 0.0
    bits = magnitude << 16 if words == "BF16" else magnitude
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])
