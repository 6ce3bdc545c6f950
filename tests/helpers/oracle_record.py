"""Which kernels ran, at which level, which encodings, and what their results were compared with.

A test with the mark `against("…")` compares with that. Where ANAMNESIS_RECORD names a file, each
kernel and each encoding that ran in such a test is noted there when the test has passed, one JSON
object a line, for `.ci/check_oracles.py` to read.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, NamedTuple

from anamnesis import _core
from anamnesis.convert.loaders.facts import listed_name
from anamnesis.schemes import encodings
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.encodings import ENCODINGS, TAKING

__all__ = ["RECORD", "Ran", "encoding_row", "note", "watched", "watched_encodings"]

RECORD = os.environ.get("ANAMNESIS_RECORD")


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


@contextmanager
def watched() -> Iterator[set[Ran]]:
    """Collect which kernels run; a call that raises ran nothing."""
    found: set[Ran] = set()

    def watching(name: str, call: Callable[..., int]) -> Callable[..., int]:
        signature = inspect.signature(call)

        @wraps(call)
        def watcher(*args: Any, **more: Any) -> int:
            result = call(*args, **more)
            found.update(_rows(name, signature.bind(*args, **more).arguments))
            return result

        return watcher

    calls = {name: getattr(_core, name) for name in (*CALLS, *ENCODERS)}
    for name, call in calls.items():
        setattr(_core, name, watching(name, call))
    try:
        yield found
    finally:
        for name, call in calls.items():
            setattr(_core, name, call)


def note(oracle: str, ran: set[Ran]) -> None:
    """Add to the record what ran; what this process has noted before is left out."""
    new = {(oracle, row) for row in ran} - _noted
    if RECORD and new:
        _noted.update(new)
        lines = [json.dumps({"oracle": oracle, **row._asdict()}) for oracle, row in sorted(new)]
        with open(RECORD, "a", encoding="utf-8") as file:  # one write: other workers do as well
            file.write("".join(f"{line}\n" for line in lines))
