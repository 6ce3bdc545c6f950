"""safetensors: the header's length, a JSON header, then the tensors' bytes.

The invariants are those of the reference implementation (`safetensors::tensor::Metadata`): offsets
tile the buffer without a hole or an overlap, each range is as long as shape x dtype says, the
header is UTF-8 and at most 100 MB. Names that appear twice are refused, which it leaves to serde.

The header is scanned, not handed to `json.loads`: a general reader builds everything that a hostile
header spells (a hundred megabytes of `[[],[],…` become gigabytes of lists) before anything is
checked, and it does not report offsets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from itertools import pairwise
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from math import isinf
from operator import attrgetter

import anamnesis._parse as _parse
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.base import Container

SAFETENSORS_MAX_HEADER = 100_000_000
SAFETENSORS_MAX_DEPTH = 125  # of values under keys that mean nothing; serde_json's 127 in all
SAFETENSORS_MAX_DIMS = 64  # as numpy and torch; a header that is one long shape takes gigabytes
LENGTH_BYTES = 8
METADATA_KEY = "__metadata__"
_U64_MAX = 2**64 - 1

_BATCH = 256  # entries scanned at a time, before they are counted

_WS = rb"[ \t\n\r]*+"
_INT = rb"(?:0|[1-9][0-9]{0,19})"
_LIST = rb"\[[0-9, \t\n\r]*+\]"  # more than lists of integers, which _INTEGERS matches
# Groups are repeated greedily: Python before 3.11.5 matches a possessive group wrongly.
_INTEGERS = rb"\[%b((?:%b%b(?:,%b%b%b)*)?)\]" % (_WS, _INT, _WS, _WS, _INT, _WS)
_LITERAL = rb"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_REST_OF_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*"'


@cache
def _pattern(pattern: bytes) -> re.Pattern[bytes]:
    """Compile when first needed: for most headers, few are."""
    return re.compile(pattern, re.DOTALL)


def parse(source: Source, head: bytes, budget: Budget) -> Container:
    """Read the header of a safetensors file, and nothing else; `head` is its first 8 bytes."""
    if source.size < LENGTH_BYTES:
        raise source.error(
            f"{source.size} bytes are too few for safetensors, which starts with 8 of length", 0
        )
    n_header = int.from_bytes(head, "little")
    if n_header > SAFETENSORS_MAX_HEADER:
        raise source.exceeded(
            "SAFETENSORS_MAX_HEADER",
            f"the header claims {n_header:,} bytes, the format allows {SAFETENSORS_MAX_HEADER:,}",
        )
    if n_header > source.size - LENGTH_BYTES:
        raise source.error(
            f"truncated within the header: {source.size:,} of at least"
            f" {LENGTH_BYTES + n_header:,} bytes; or not safetensors",
            0,
        )
    budget.alloc(n_header, "the header")
    raw = source.read(LENGTH_BYTES, n_header)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise source.error("the header is not UTF-8", LENGTH_BYTES + error.start) from None
    scanner = _HeaderScanner(raw, source, budget, data_start=LENGTH_BYTES + n_header)
    tensors, metadata = scanner.scan()
    _check_tiling(tensors, source, LENGTH_BYTES + n_header)
    return Container(
        "safetensors", "safetensors", source, tensors, metadata, LENGTH_BYTES + n_header
    )


def _check_tiling(tensors: Mapping[str, StoredTensor], source: Source, data_start: int) -> None:
    """Check that the tensors' ranges follow each other to the end of the file."""
    ordered = list(tensors.values())
    if any(a.offset + a.n_bytes != b.offset for a, b in pairwise(ordered)):  # no writer's order
        ordered.sort(key=attrgetter("offset", "n_bytes"))
    end = data_start
    for tensor in ordered:
        if tensor.offset != end:
            what = (
                "overlaps the previous tensor" if tensor.offset < end else "leaves a gap before it"
            )
            raise source.error(f"tensor {tensor.name!r} {what}", tensor.offset)
        end += tensor.n_bytes
    if end != source.size:
        raise source.error(
            f"truncated: {source.size:,} of {end:,} bytes"
            if end > source.size
            else f"{source.size - end:,} bytes after the last tensor belong to none",
            min(end, source.size),
        )


_Layout = tuple[DType, tuple[int, ...], int]  # dtype, shape, length in bytes
_Entry = tuple[str, str, tuple[int, ...], int, int, int]  # name, dtype, shape, offsets; its place


class _HeaderScanner:
    """One pass over the header, which is UTF-8; every error knows its offset in the file."""

    def __init__(self, raw: bytes, source: Source, budget: Budget, data_start: int) -> None:
        self.raw = raw
        self.source = source
        self.budget = budget
        self.data_start = data_start
        self.pos = 0
        # A model has few, and each often.
        self.layouts: dict[tuple[str, tuple[int, ...]], _Layout] = {}

    def scan(self) -> tuple[dict[str, StoredTensor], dict[str, str]]:
        tensors: dict[str, StoredTensor] = {}
        metadata: dict[str, str] | None = None
        if not self.raw.startswith(b"{"):
            raise self.error("the header must start with '{'")
        self.pos = 1
        more = self.peek() != b"}" or self.another(b"}")
        while more:
            start = self.pos
            # Returns whether there was one and a comma after the last.
            entries, self.pos, another = _parse.tensor_entries(self.raw, self.pos, _BATCH)
            self.add(tensors, entries)
            if bool(entries) and another:
                more = True
            elif self.pos > start:
                more = self.another(b"}")
            else:
                key = self.string()
                self.expect(b":")
                if key != METADATA_KEY:
                    self.add(tensors, [(key, *self.tensor_fields(key, start), start)])
                elif metadata is None:
                    metadata = self.metadata()
                else:
                    raise self.error("__metadata__ appears twice", start)
                more = self.another(b"}")
        self.space()
        if self.pos != len(self.raw):
            raise self.error("something follows the header's closing '}'")
        return tensors, metadata or {}

    def add(self, tensors: dict[str, StoredTensor], entries: Iterable[_Entry]) -> None:
        """Check tensors in the order of their entries, and keep them."""
        make = partial(tuple.__new__, StoredTensor)  # its own constructor takes twice the time
        for name, dtype, shape, begin, end, start in entries:
            layout = self.layouts.get((dtype, shape))
            if layout is None:
                layout = self.layouts[dtype, shape] = self.layout(name, dtype, shape, start)
            if name in tensors:
                raise self.error(f"tensor {name!r} appears twice", start)
            if end - begin != layout[2]:
                raise self.error(
                    f"tensor {name!r} is {layout[0].name} {_short(layout[1])} = {layout[2]:,} bytes"
                    f", but data_offsets [{begin}, {end}] span {end - begin:,}",
                    start,
                )
            self.budget.items(1, "the tensors")
            tensors[name] = make((name, *layout, self.data_start + begin, self.source))

    def another(self, closer: bytes) -> bool:
        """Step over a comma (True: an item must follow) or over `closer` (False)."""
        mark = self.peek()
        if mark == b",":
            self.pos += 1
            self.space()
            return True
        self.expect(closer)
        return False

    def peek(self) -> bytes:
        self.space()
        return self.raw[self.pos : self.pos + 1]

    def error(self, message: str, pos: int | None = None) -> ParseError:
        offset = LENGTH_BYTES + (self.pos if pos is None else pos)
        return self.source.error(message, offset)

    def take(self, pattern: bytes) -> bytes | None:
        """Step over what the pattern matches here, and return it."""
        found = _pattern(pattern).match(self.raw, self.pos)
        if found is None:
            return None
        self.pos = found.end()
        return found[0]

    def space(self) -> None:
        if self.raw[self.pos : self.pos + 1].isspace():
            self.take(_WS)

    def expect(self, mark: bytes) -> None:
        self.space()
        if not self.raw.startswith(mark, self.pos):
            raise self.error(f"expected {mark.decode()!r} in the header")
        self.pos += 1

    def string(self) -> str:
        self.expect(b'"')
        start = self.pos
        text = self.take(_REST_OF_STRING) or self.raw[start:]
        try:
            value: str = scanstring(text.decode(), 0, True)[0]
        except JSONDecodeError as error:
            raise self.error(f"bad string in the header: {error.msg}", start) from None
        if b"\\" in text:
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise self.error("a string contains half of a surrogate pair", start) from None
        return value

    def object(self, entry: Callable[[str], None]) -> None:
        """Scan `{"key": value, …}`; `entry(key)` scans each value."""
        self.expect(b"{")
        more = self.peek() != b"}"
        if not more:
            self.pos += 1
        while more:
            key = self.string()
            self.expect(b":")
            self.space()
            entry(key)
            more = self.another(b"}")

    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self.space()
        if self.raw.startswith(b"null", self.pos):
            self.pos += 4
            return found

        def entry(key: str) -> None:
            if key in found:
                raise self.error(f"__metadata__ key {key!r} appears twice")
            self.budget.items(1, "__metadata__")
            if not self.raw.startswith(b'"', self.pos):
                raise self.error(f"__metadata__ value of {key!r} must be a string")
            found[key] = self.string()

        if not self.raw.startswith(b"{", self.pos):
            raise self.error("__metadata__ must map strings to strings")
        self.object(entry)
        return found

    def layout(self, name: str, dtype_name: str, shape: tuple[int, ...], start: int) -> _Layout:
        dtype = self.dtype(name, dtype_name, start)
        n_bits = bits_of(shape, dtype)
        if n_bits is None:
            raise self.error(f"tensor {name!r} of shape {_short(shape)} is too large", start)
        if n_bits % 8:
            raise self.error(
                f"tensor {name!r}: {dtype.name} {_short(shape)} does not fill whole bytes", start
            )
        return dtype, shape, n_bits // 8

    def dtype(self, name: str, dtype_name: str, start: int) -> DType:
        dtype = DTYPES.get(dtype_name)
        if dtype is None:
            raise self.error(f"tensor {name!r} has the unknown dtype {dtype_name!r}", start)
        return dtype

    def integers(self, name: str, key: str, text: bytes, start: int) -> tuple[int, ...]:
        if text.count(b",") >= SAFETENSORS_MAX_DIMS:
            raise self.source.exceeded(
                "SAFETENSORS_MAX_DIMS", f"tensor {name!r} has a {key} that is too long"
            )
        found = _pattern(_INTEGERS).fullmatch(text)
        if found is None:
            raise self.error(f"tensor {name!r}: {key} must be a list of integers", start)
        return tuple([int(item) for item in found[1].split(b",")]) if found[1] else ()

    def tensor_fields(self, name: str, start: int) -> tuple[str, tuple[int, ...], int, int]:
        """Scan an entry whose keys are in any order, possibly among others."""
        # Returns dtype, shape, and the two offsets.
        dtype: str | None = None
        lists: dict[str, bytes] = {}
        brace = self.pos

        def entry(key: str) -> None:
            nonlocal dtype
            if key in lists or (key == "dtype" and dtype is not None):
                raise self.error(f"tensor {name!r}: {key} appears twice")
            if key == "dtype":
                dtype = self.string()
            elif key in ("shape", "data_offsets"):
                found = self.take(_LIST)
                if found is None:
                    raise self.error(f"tensor {name!r}: {key} must be a list of integers")
                lists[key] = found
            else:
                self.skip_value()

        if self.peek() != b"{":
            raise self.error(f"tensor {name!r} must be an object with dtype, shape, data_offsets")
        self.object(entry)
        for key in ("dtype", "shape", "data_offsets"):
            if key not in lists and (key != "dtype" or dtype is None):
                raise self.error(f"tensor {name!r} has no {key}", brace)
        assert dtype is not None
        offsets = self.integers(name, "data_offsets", lists["data_offsets"], brace)
        if len(offsets) != 2:
            raise self.error(f"tensor {name!r}: data_offsets must be [begin, end]", brace)
        self.dtype(name, dtype, start)
        return dtype, self.integers(name, "shape", lists["shape"], start), *offsets

    def skip_value(self) -> None:
        """Step over any JSON value without building it."""
        closers: list[bytes] = []
        while True:
            self.budget.items(1, "values under unknown keys")
            mark = self.peek()
            if mark in (b"{", b"["):
                self.pos += 1
                closers.append(b"}" if mark == b"{" else b"]")
                if len(closers) > SAFETENSORS_MAX_DEPTH:
                    raise self.source.exceeded(
                        "SAFETENSORS_MAX_DEPTH", "the header is nested too deeply"
                    )
                if self.peek() != closers[-1]:
                    self.skip_key(closers)
                    continue
                self.pos += 1
                closers.pop()
            elif mark == b'"':
                self.string()
            else:
                start = self.pos
                literal = self.take(_LITERAL)
                if literal is None:
                    raise self.error("expected a JSON value in the header")
                if literal[-1:].isdigit() and isinf(float(literal)):
                    raise self.error("a number in the header is out of range", start)
            while closers and not self.another(closers[-1]):
                closers.pop()
            if not closers:
                return
            self.skip_key(closers)

    def skip_key(self, closers: list[bytes]) -> None:
        if closers[-1] == b"}":
            self.string()
            self.expect(b":")


def bits_of(shape: tuple[int, ...], dtype: DType) -> int | None:
    """Return how many bits a tensor takes; None if the numbers on the way fill more than 64."""
    # Even one without elements: readers multiply its sizes, from the first on.
    n_bits = 1
    for factor in (*shape, dtype.bits):
        n_bits *= factor
        if max(n_bits, factor) > _U64_MAX:
            return None
    return n_bits


def _short(shape: tuple[int, ...]) -> str:
    shown = ", ".join(str(dim) for dim in shape[:8])
    return f"[{shown}{', …' if len(shape) > 8 else ''}]"
