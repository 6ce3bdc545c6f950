"""safetensors: 8 bytes of header length, a JSON header, then the tensors' bytes, back to back.

The invariants are those of the reference implementation (`safetensors::tensor::Metadata`): offsets
tile the buffer without a hole or an overlap, each range is as long as shape x dtype says, the
header is UTF-8 and at most 100 MB. Names that stand twice are refused, which it leaves to serde.

The header is scanned, not handed to `json.loads`: a general reader builds whatever a hostile
header spells (a hundred megabytes of `[[],[],…` become gigabytes of lists) before anything is
checked, and it does not tell where things stand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from json.decoder import JSONDecodeError, scanstring  # type: ignore[attr-defined]
from math import isinf
from operator import attrgetter
from typing import Protocol

from anamnesis.dtypes import DTYPES, DType
from anamnesis.errors import LimitExceeded, ParseError
from anamnesis.formats.stored import Container, StoredTensor
from anamnesis.limits import Budget
from anamnesis.source import Source

__all__ = [
    "LENGTH_BYTES",
    "SAFETENSORS_MAX_DIMS",
    "SAFETENSORS_MAX_HEADER",
    "build_header",
    "parse",
]

SAFETENSORS_MAX_HEADER = 100_000_000
SAFETENSORS_MAX_DEPTH = 125  # of values under keys that mean nothing; serde_json's 127 in all
SAFETENSORS_MAX_DIMS = 64  # as numpy and torch; a header that is one long shape takes gigabytes
LENGTH_BYTES = 8
_METADATA_KEY = "__metadata__"
_U64_MAX = 2**64 - 1

_WS = r"[ \t\n\r]*+"
_INT = r"(?:0|[1-9][0-9]{0,19})"
_SPACE = re.compile(_WS)
_LIST = r"\[[0-9, \t\n\r]*+\]"  # more than lists of integers; which these are, _INTEGERS tells
_LISTS = re.compile(_LIST)
_INTEGERS = re.compile(rf"\[{_WS}((?:{_INT}{_WS}(?:,{_WS}{_INT}{_WS})*+)?+)\]")
# A key and a tensor as all known writers spell them, and the comma that follows. Escapes in the
# name, other white space, another order or further keys take the slow path.
_ENTRY = re.compile(
    rf'"([^"\\\x00-\x1f]*+)":{_WS}\{{"dtype":{_WS}"([A-Z0-9_]++)",'
    rf'{_WS}"shape":{_WS}({_LIST}),{_WS}"data_offsets":{_WS}\[({_INT}),{_WS}({_INT})\]\}}'
    rf"{_WS}(,?){_WS}"
)
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")


def parse(source: Source, head: bytes, budget: Budget) -> Container:
    """Read the header of a safetensors file, and nothing else; `head` is its first 8 bytes.

    Raises
    ------
    ParseError
        If it is malformed, with the offset.
    LimitExceeded
        If the header is over `SAFETENSORS_MAX_HEADER` or over the budget.
    """
    if source.size < LENGTH_BYTES:
        raise ParseError(
            f"a safetensors file starts with 8 bytes of header length, this one has {source.size}",
            offset=0,
            source=source.name,
        )
    n_header = int.from_bytes(head, "little")
    if n_header > SAFETENSORS_MAX_HEADER:
        raise LimitExceeded(
            "SAFETENSORS_MAX_HEADER",
            f"{source.name}: the header claims {n_header:,} bytes, "
            f"the format allows {SAFETENSORS_MAX_HEADER:,}",
        )
    if n_header > source.size - LENGTH_BYTES:
        raise ParseError(
            f"the header claims {n_header:,} bytes, but only {source.size - LENGTH_BYTES:,} follow;"
            " the file is cut short or is not safetensors",
            offset=0,
            source=source.name,
        )
    budget.alloc(n_header, "the header")
    raw = source.read(LENGTH_BYTES, n_header)
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ParseError(
            "the header is not UTF-8", offset=LENGTH_BYTES + error.start, source=source.name
        ) from None
    scanner = _HeaderScanner(text, source, budget, data_start=LENGTH_BYTES + n_header)
    tensors, metadata = scanner.scan()
    _check_tiling(tensors, source, LENGTH_BYTES + n_header)
    return Container("safetensors", source, tensors, metadata, LENGTH_BYTES + n_header)


def _check_tiling(tensors: Mapping[str, StoredTensor], source: Source, data_start: int) -> None:
    """Check that the tensors' ranges follow each other to the end of the file."""
    end = data_start
    for tensor in sorted(tensors.values(), key=attrgetter("offset", "n_bytes")):
        if tensor.offset != end:
            what = (
                "overlaps the tensor before it"
                if tensor.offset < end
                else "leaves a hole before it"
            )
            raise ParseError(
                f"tensor {tensor.name!r} {what}", offset=tensor.offset, source=source.name
            )
        end += tensor.n_bytes
    if end != source.size:
        what = "cut short" if end > source.size else "followed by bytes that no tensor owns"
        raise ParseError(
            f"the tensors end at byte {end:,}, the file at {source.size:,}: it is {what}",
            offset=min(end, source.size),
            source=source.name,
        )


_Layout = tuple[DType, tuple[int, ...], int]  # dtype, shape, length in bytes


class _HeaderScanner:
    """One pass over the header text; every error knows its offset in the file."""

    def __init__(self, text: str, source: Source, budget: Budget, data_start: int) -> None:
        self.text = text
        self.source = source
        self.budget = budget
        self.data_start = data_start
        self.pos = 0
        self.layouts: dict[tuple[str, str], _Layout] = {}  # a model has few, and each often

    def scan(self) -> tuple[dict[str, StoredTensor], dict[str, str]]:
        tensors: dict[str, StoredTensor] = {}
        metadata: dict[str, str] | None = None
        if not self.text.startswith("{"):
            raise self.error("the header must start with '{'")
        self.pos = 1
        more = self.peek() != "}" or self.another("}")
        while more:
            start = self.pos
            if self.usual_entries(tensors):
                more = True
            elif self.pos > start:
                more = self.another("}")
            else:
                key = self.string()
                self.expect(":")
                if key != _METADATA_KEY:
                    self.add(tensors, key, *self.tensor_fields(key), start)
                elif metadata is None:
                    metadata = self.metadata()
                else:
                    raise self.error("__metadata__ stands twice", start)
                more = self.another("}")
        self.space()
        if self.pos != len(self.text):
            raise self.error("something follows the header's closing '}'")
        return tensors, metadata or {}

    def usual_entries(self, tensors: dict[str, StoredTensor]) -> bool:
        """Scan entries that are spelt as usual, as many as follow each other.

        Returns whether there was one and a comma after the last.
        """
        comma = ""
        while (found := _ENTRY.match(self.text, self.pos)) and found[1] != _METADATA_KEY:
            key, dtype, dims, begin, end, comma = found.groups()
            self.add(tensors, key, dtype, dims, int(begin), int(end), self.pos)
            self.pos = found.end()
            if not comma:
                break
        return comma == ","

    def add(
        self,
        tensors: dict[str, StoredTensor],
        name: str,
        dtype: str,
        dims: str,
        begin: int,
        end: int,
        start: int,
    ) -> None:
        """Check a tensor whose entry stands at `start`, and keep it."""
        layout = self.layouts.get((dtype, dims))
        if layout is None:
            layout = self.layouts[dtype, dims] = self.layout(name, dtype, dims, start)
        if name in tensors:
            raise self.error(f"tensor {name!r} stands twice", start)
        if end - begin != layout[2]:
            raise self.error(
                f"tensor {name!r} is {layout[0].name} {_short(layout[1])} = {layout[2]:,} bytes,"
                f" but data_offsets [{begin}, {end}] span {end - begin:,}",
                start,
            )
        self.budget.items(1, "the tensors")
        tensors[name] = StoredTensor(name, *layout, self.data_start + begin, self.source)

    def another(self, closer: str) -> bool:
        """Step over a comma (True: an item must follow) or over `closer` (False)."""
        mark = self.peek()
        if mark == ",":
            self.pos += 1
            self.space()
            return True
        self.expect(closer)
        return False

    def peek(self) -> str:
        self.space()
        return self.text[self.pos : self.pos + 1]

    def error(self, message: str, pos: int | None = None) -> ParseError:
        pos = self.pos if pos is None else pos
        offset = LENGTH_BYTES + len(self.text[:pos].encode("utf-8", "surrogatepass"))
        return ParseError(message, offset=offset, source=self.source.name)

    def space(self) -> None:
        found = _SPACE.match(self.text, self.pos)
        assert found is not None
        self.pos = found.end()

    def expect(self, mark: str) -> None:
        self.space()
        if not self.text.startswith(mark, self.pos):
            raise self.error(f"expected {mark!r} in the header")
        self.pos += 1

    def string(self) -> str:
        self.expect('"')
        start = self.pos
        try:
            scanned: tuple[str, int] = scanstring(self.text, start, True)
        except JSONDecodeError as error:
            raise self.error(f"bad string in the header: {error.msg}", start) from None
        value, self.pos = scanned
        if "\\" in self.text[start : self.pos]:
            try:
                value.encode("utf-8")
            except UnicodeEncodeError:
                raise self.error("a string has half of a surrogate pair", start) from None
        return value

    def object(self, entry: Callable[[str], None]) -> None:
        """Scan `{"key": value, …}`; `entry(key)` scans each value."""
        self.expect("{")
        more = self.peek() != "}"
        if not more:
            self.pos += 1
        while more:
            key = self.string()
            self.expect(":")
            self.space()
            entry(key)
            more = self.another("}")

    def metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        self.space()
        if self.text.startswith("null", self.pos):
            self.pos += 4
            return found

        def entry(key: str) -> None:
            if key in found:
                raise self.error(f"__metadata__ key {key!r} stands twice")
            self.budget.items(1, "__metadata__")
            if not self.text.startswith('"', self.pos):
                raise self.error(f"__metadata__ value of {key!r} must be a string")
            found[key] = self.string()

        if not self.text.startswith("{", self.pos):
            raise self.error("__metadata__ must map strings to strings")
        self.object(entry)
        return found

    def layout(self, name: str, dtype_name: str, dims: str, start: int) -> _Layout:
        """Return dtype, shape and length of a tensor; `dims` is the text of its shape."""
        dtype = DTYPES.get(dtype_name)
        if dtype is None:
            raise self.error(f"tensor {name!r} has the unknown dtype {dtype_name!r}", start)
        shape = self.integers(name, "shape", dims, start)
        n_bits = 1
        for factor in (*shape, dtype.bits):
            n_bits *= factor
            if max(n_bits, factor) > _U64_MAX:
                raise self.error(f"tensor {name!r} of shape {_short(shape)} is too large", start)
        if n_bits % 8:
            raise self.error(
                f"tensor {name!r}: {dtype.name} {_short(shape)} does not fill whole bytes", start
            )
        return dtype, shape, n_bits // 8

    def integers(self, name: str, key: str, text: str, start: int) -> tuple[int, ...]:
        """Return the integers of a JSON list."""
        if text.count(",") >= SAFETENSORS_MAX_DIMS:
            raise LimitExceeded(
                "SAFETENSORS_MAX_DIMS", f"{self.source.name}: tensor {name!r} has too long a {key}"
            )
        found = _INTEGERS.fullmatch(text)
        if found is None:
            raise self.error(f"tensor {name!r}: {key} must be a list of integers", start)
        return tuple([int(item) for item in found[1].split(",")]) if found[1] else ()

    def tensor_fields(self, name: str) -> tuple[str, str, int, int]:
        """Scan an entry whose keys stand in any order, maybe among others.

        Returns dtype, the text of the shape, and the two offsets.
        """
        fields: dict[str, str] = {}
        start = self.pos

        def entry(key: str) -> None:
            if key in fields:
                raise self.error(f"tensor {name!r}: {key} stands twice")
            if key == "dtype":
                fields[key] = self.string()
            elif key in ("shape", "data_offsets"):
                found = _LISTS.match(self.text, self.pos)
                if found is None:
                    raise self.error(f"tensor {name!r}: {key} must be a list of integers")
                fields[key] = found[0]
                self.pos = found.end()
            else:
                self.skip_value()

        if self.peek() != "{":
            raise self.error(f"tensor {name!r} must be an object with dtype, shape, data_offsets")
        self.object(entry)
        for key in ("dtype", "shape", "data_offsets"):
            if key not in fields:
                raise self.error(f"tensor {name!r} has no {key}", start)
        offsets = self.integers(name, "data_offsets", fields["data_offsets"], start)
        if len(offsets) != 2:
            raise self.error(f"tensor {name!r}: data_offsets must be [begin, end]", start)
        return fields["dtype"], fields["shape"], *offsets

    def skip_value(self) -> None:
        """Step over any JSON value without building it."""
        closers: list[str] = []
        while True:
            self.budget.items(1, "values that mean nothing")
            mark = self.peek()
            if mark in ("{", "["):
                self.pos += 1
                closers.append("}" if mark == "{" else "]")
                if len(closers) > SAFETENSORS_MAX_DEPTH:
                    raise LimitExceeded(
                        "SAFETENSORS_MAX_DEPTH", f"{self.source.name}: the header nests too deep"
                    )
                if self.peek() != closers[-1]:
                    self.skip_key(closers)
                    continue
                self.pos += 1
                closers.pop()
            elif mark == '"':
                self.string()
            else:
                found = _LITERAL.match(self.text, self.pos)
                if found is None:
                    raise self.error("expected a JSON value in the header")
                if found[0][-1].isdigit() and isinf(float(found[0])):
                    raise self.error("a number in the header is out of range")
                self.pos = found.end()
            while closers and not self.another(closers[-1]):
                closers.pop()
            if not closers:
                return
            self.skip_key(closers)

    def skip_key(self, closers: list[str]) -> None:
        if closers[-1] == "}":
            self.string()
            self.expect(":")


def _short(shape: tuple[int, ...]) -> str:
    shown = ", ".join(str(dim) for dim in shape[:8])
    return f"[{shown}{', …' if len(shape) > 8 else ''}]"


class Described(Protocol):
    """What `build_header` wants to know of a tensor."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def dtype(self) -> DType:
        """Its dtype."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""

    @property
    def n_bytes(self) -> int:
        """Its length."""


def build_header(tensors: Iterable[Described], metadata: Mapping[str, str]) -> bytes:
    """Return the length and header that precede `tensors`, laid out back to back in this order.

    It is padded with spaces to a multiple of 8 bytes, so that data sorted by falling alignment is
    aligned, as the reference implementation does.

    Raises
    ------
    LimitExceeded
        If the header would be over `SAFETENSORS_MAX_HEADER`: no reader would take it.
    """
    header: dict[str, object] = {}
    if metadata:
        header[_METADATA_KEY] = dict(metadata)
    end = 0
    for tensor in tensors:
        begin, end = end, end + tensor.n_bytes
        header[tensor.name] = {
            "dtype": tensor.dtype.name,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > SAFETENSORS_MAX_HEADER:
        raise LimitExceeded(
            "SAFETENSORS_MAX_HEADER", f"the output's header would take {len(text):,} bytes"
        )
    return len(text).to_bytes(LENGTH_BYTES, "little") + text
