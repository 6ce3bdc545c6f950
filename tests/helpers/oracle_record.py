"""Which kernels ran, at which level, which encodings, and what their results were compared with.

A test with the mark `against("…")` compares with that. Where ANAMNESIS_RECORD names a file, each
kernel and each encoding that ran in such a test is noted there when the test has passed, one JSON
object a line, for `.ci/check_oracles.py` to read.

With ANAMNESIS_FLIP as well, such a test runs twice more: as it is, and with one bit of what a
kernel gave flipped. If it fails then, that too is noted: the comparison sees a wrong bit.
"""

from __future__ import annotations

import inspect
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, NamedTuple

import pytest

from anamnesis import _core
from anamnesis.convert.loaders.verdicts import listed_name
from anamnesis.schemes import encodings
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.encodings import ENCODINGS, TAKING

__all__ = [
    "RECORD",
    "Flip",
    "Ran",
    "encoding_row",
    "note",
    "prove",
    "watched",
    "watched_encodings",
]

RECORD = os.environ.get("ANAMNESIS_RECORD")
FLIPS = bool(RECORD and os.environ.get("ANAMNESIS_FLIP"))


class Ran(NamedTuple):
    """A row of the tables whose code ran; of an encoding, at whatever level."""

    family: str
    name: str
    level: str


def encoding_row(name: str) -> Ran:
    """Return the row of what can be asked for by name."""
    return Ran("encoding", name, "")


# A call, its family, the one that writes 16 bits without float32 between, and of which outputs.
CALLS = {
    "dequantize_scaled": ("scaled", "scaled_bf16", ("BF16",)),
    "dequantize_absmax": ("absmax", "absmax_16", ("BF16", "F16")),
    "dequantize_packed": ("packed", "packed_16", ("BF16", "F16")),
    "dequantize_integers": ("integers", "integers_16", ("BF16", "F16")),
    "dequantize_trellis": ("trellis", "", ()),
    "dequantize_blocks": ("block", "block_bf16", ("BF16",)),
    "convert": ("convert", "", ()),
}
ENCODERS = ("quantize", "amax", "pack", "encode_blocks")
_noted: set[tuple[str, Ran]] = set()


@cache
def _ids() -> dict[str, dict[int, str]]:
    tables = {"absmax": _core.ABSMAX, "packed": _core.PACKINGS, "block": _core.BLOCKS}
    tables |= {"scaled": _core.CODES, "convert": _core.FLOATS, "output": _core.OUTPUTS}
    tables |= {"scale": _core.SCALES, "integers": _core.INTEGERS, "trellis": _core.TRELLISES}
    tables |= {"source": _core.SOURCES, "quantize": _core.QUANTIZERS}
    tables |= {"pack": _core.PACKERS, "encode": _core.ENCODERS}
    return {table: {i: name for name, i in ids.items()} for table, ids in tables.items()}


@cache
def _native() -> dict[tuple[str, str], tuple[str, ...]]:
    return {(kernel.family, kernel.name): kernel.native for kernel in _core.kernels()}


def _rows(call: str, told: dict[str, Any]) -> Iterator[Ran]:
    """Yield the rows that a call goes through, its arguments told by name."""
    level = told.get("level")
    chosen = _core.supported_levels()[-1 if level is None else level]
    if call == "encode_blocks":
        yield Ran("amax", "F32", chosen)
        yield Ran("encode", _ids()["encode"][told["type"]], chosen)
        return
    if call in ENCODERS:
        source = _ids()["source"][told["source"]]
        if call == "pack":
            yield Ran("amax", source, chosen)
            yield Ran("range", source, chosen)
            yield Ran("pack", _ids()["pack"][told["code"]], chosen)
            return
        is_range = told.get("rule") == _core.RULES["asymmetric"]
        yield Ran("range" if is_range else "amax", source, chosen)
        if call == "quantize":
            yield Ran("quantize", _ids()["quantize"][told["code"]], chosen)
        return
    family, direct, outs = CALLS[call]
    first, second, *_ = told.values()
    name, out = _ids()[family][first], _ids()["output"][second]
    is_direct = out in outs and chosen in _native()[direct, name]
    yield Ran(direct if is_direct else family, name, chosen)
    yield Ran("output", out, chosen)
    if "scale" in told:
        scale = _ids()["scale"][told["scale"]]
        yield Ran("convert" if scale in _core.FLOATS else "scale", scale, chosen)


def _written(encoding: Encoding, result: object) -> Iterator[Ran]:
    """Yield what an encoding is asked for by, if it has encoded or moved something."""
    name = listed_name(encoding.id)
    if name and result != {}:
        yield encoding_row(name)


@cache
def _encodings() -> tuple[type[Encoding], ...]:
    """Return the classes of all encodings, and those that they inherit from."""
    kinds = {type(encodings.made(row)) for row in (*ENCODINGS.values(), *TAKING.values())}
    return tuple({base for kind in kinds for base in kind.mro() if issubclass(base, Encoding)})


@contextmanager
def watched_encodings() -> Iterator[set[Ran]]:
    """Collect what is written, by values or by codes; a call that raises wrote nothing."""
    found: set[Ran] = set()

    def watching(call: Callable[..., object]) -> Callable[..., object]:
        @wraps(call)
        def watcher(self: Encoding, *args: Any, **more: Any) -> object:
            result = call(self, *args, **more)
            found.update(_written(self, result))
            return result

        return watcher

    verbs = [
        (kind, verb, call)
        for kind in _encodings()
        for verb in ("encode", "take", "repacks")
        if (call := vars(kind).get(verb))
    ]
    for kind, verb, call in verbs:
        setattr(kind, verb, watching(call))
    try:
        yield found
    finally:
        for kind, verb, call in verbs:
            setattr(kind, verb, call)


class Flip:
    """One bit of what the n-th call gives that goes through a row."""

    # What a call is asked to fill, the first that it has.
    FILLED = ("dst", "codes")

    def __init__(self, row: Ran, nth: int) -> None:
        self.row = row
        self.calls_before = nth
        self.rows: set[Ran] = set()  # of the call

    def of(self, rows: set[Ran], told: dict[str, Any], result: Any) -> Any:
        """Return the result of a call, changed if it is its turn and there is no other."""
        if self.row not in rows or self.rows:
            return result
        filled = [told[name] for name in self.FILLED if name in told and len(told[name])]
        if not filled and not isinstance(result, float):
            return result
        if self.calls_before:
            self.calls_before -= 1
            return result
        self.rows = rows
        if not filled:
            return math.nextafter(result, math.inf)
        view = memoryview(filled[0]).cast("B")
        view[0] ^= 1
        return result


@contextmanager
def watched(flip: Flip | None = None) -> Iterator[set[Ran]]:
    """Collect which kernels run, and flip a bit if asked to; a call that raises ran nothing."""
    found: set[Ran] = set()

    def watching(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(call)

        @wraps(call)
        def watcher(*args: Any, **more: Any) -> Any:
            result = call(*args, **more)
            told = signature.bind(*args, **more).arguments
            rows = set(_rows(name, told))
            found.update(rows)
            return flip.of(rows, told, result) if flip else result

        return watcher

    calls = {name: getattr(_core, name) for name in (*CALLS, *ENCODERS)}
    for name, call in calls.items():
        setattr(_core, name, watching(name, call))
    try:
        yield found
    finally:
        for name, call in calls.items():
            setattr(_core, name, call)


def _write(lines: list[dict[str, object]]) -> None:
    """Add to the record, in one write: other workers do as well."""
    assert RECORD is not None
    with open(RECORD, "a", encoding="utf-8") as file:
        file.write("".join(f"{json.dumps(line)}\n" for line in lines))


def note(oracle: str, ran: set[Ran]) -> None:
    """Add to the record what ran; what this process has noted before is left out."""
    new = {(oracle, row) for row in ran} - _noted
    if RECORD and new:
        _noted.update(new)
        _write([{"oracle": oracle, **row._asdict()} for oracle, row in sorted(new)])


# ---- that a comparison fails ----

_SECONDS = 5.0  # a test that takes longer is not run again
_NTHS = (0, 1, 4)  # of the calls, one after another
_TRIES = 4  # of tests of one function, for one row
_proven: set[tuple[bool, Ran]] = set()
_tried: Counter[tuple[str, Ran]] = Counter()


def _needed(oracle: str, ran: set[Ran]) -> set[Ran]:
    """Return the rows that no comparison of this kind is known to fail for."""
    return {row for row in ran if row.level and (oracle == "scalar", row) not in _proven}


def _passes(rerun: Callable[[], object], flip: Flip | None = None) -> bool:
    try:
        with watched(flip):
            rerun()
    except (Exception, pytest.fail.Exception):
        return False
    return True


def prove(
    test: str, oracle: str, ran: set[Ran], seconds: float, rerun: Callable[[], object]
) -> None:
    """Run a test that has passed with a bit flipped, for rows that need it, and note if it fails.

    One that does not pass a second time as it is proves nothing.
    """
    needed = {row for row in _needed(oracle, ran) if _tried[test, row] < _TRIES}
    if not FLIPS or not needed or seconds > _SECONDS or not _passes(rerun):
        return
    for row in sorted(needed):
        _tried[test, row] += 1
        for nth in _NTHS:
            flip = Flip(row, nth)
            if row not in _needed(oracle, ran) or _passes(rerun, flip):
                continue
            if flip.rows:
                _proven.update((oracle == "scalar", one) for one in flip.rows)
                _write(
                    [
                        {"oracle": oracle, "fails": True, **one._asdict()}
                        for one in sorted(flip.rows)
                    ]
                )
