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
from typing import Protocol

from anamnesis.dtypes import DTYPES, DType
from anamnesis.errors import LimitExceeded, ParseError
from anamnesis.formats.stored import Container, StoredTensor
from anamnesis.limits import Budget
from anamnesis.source import Source

__all__ = ["LENGTH_BYTES", "SAFETENSORS_MAX_HEADER", "build_header", "parse"]

SAFETENSORS_MAX_HEADER = 100_000_000
SAFETENSORS_MAX_DEPTH = 127  # of values under keys that mean nothing; serde_json's own limit
LENGTH_BYTES = 8
_METADATA_KEY = "__metadata__"
_U64_MAX = 2**64 - 1

_WS = r"[ \t\n\r]*"
_INT = r"(?:0|[1-9][0-9]{0,19})"
_LIST = rf"\[{_WS}((?:{_INT}{_WS}(?:,{_WS}{_INT}{_WS})*)?)\]"
_SPACE = re.compile(_WS)
_INTEGERS = re.compile(_LIST)
# A key and a tensor as every writer spells them, with what follows; escapes in the name, another
# order or further keys take the slow path.
_ENTRY = re.compile(
    rf'"([^"\\\x00-\x1f]*)"{_WS}:{_WS}\{{{_WS}"dtype"{_WS}:{_WS}"([A-Z0-9_]+)"{_WS},'
    rf'{_WS}"shape"{_WS}:{_WS}{_LIST}{_WS},'
    rf'{_WS}"data_offsets"{_WS}:{_WS}\[{_WS}({_INT}){_WS},{_WS}({_INT}){_WS}\]{_WS}\}}'
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
    for tensor in sorted(tensors.values(), key=lambda t: (t.offset, t.n_bytes)):
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


class _HeaderScanner:
    """One pass over the header text; every error knows its offset in the file."""

    def __init__(self, text: str, source: Source, budget: Budget, data_start: int) -> None:
        self.text = text
        self.source = source
        self.budget = budget
        self.data_start = data_start
        self.pos = 0
        self.sizes: dict[tuple[str, tuple[int, ...]], int] = {}  # few shapes come often
        self.shapes: dict[str, tuple[int, ...]] = {}

    def scan(self) -> tuple[dict[str, StoredTensor], dict[str, str]]:
        tensors: dict[str, StoredTensor] = {}
        metadata: dict[str, str] | None = None
        if not self.text.startswith("{"):
            raise self.error("the header must start with '{'")
        self.pos = 1
        more = self.peek() != "}"
        while more:
            start = self.pos
            found = _ENTRY.match(self.text, start)
            if found is not None and found[1] != _METADATA_KEY:
                key, dtype, dims, begin, end, comma = found.groups()
                self.pos = found.end()
                shape = self.shapes.get(dims)
                if shape is None:
                    shape = self.shapes[dims] = _integers(dims)
                tensor = self.tensor(key, dtype, shape, int(begin), int(end), start)
            else:
                comma = ""
                key = self.string()
                self.expect(":")
                if key == _METADATA_KEY:
                    if metadata is not None:
                        raise self.error("__metadata__ stands twice", start)
                    metadata = self.metadata()
                    more = self.another("}")
                    continue
                tensor = self.tensor(key, *self.tensor_fields(key), start)
            if key in tensors:
                raise self.error(f"tensor {key!r} stands twice", start)
            self.budget.items(1, "the tensors")
            tensors[key] = tensor
            more = bool(comma) or self.another("}")
        if not tensors and metadata is None:
            self.expect("}")
        self.space()
        if self.pos != len(self.text):
            raise self.error("something follows the header's closing '}'")
        return tensors, metadata or {}

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

    def tensor(
        self, name: str, dtype_name: str, shape: tuple[int, ...], begin: int, end: int, start: int
    ) -> StoredTensor:
        dtype = DTYPES.get(dtype_name)
        if dtype is None:
            raise self.error(f"tensor {name!r} has the unknown dtype {dtype_name!r}", start)
        n_bytes = self.sizes.get((dtype_name, shape))
        if n_bytes is None:
            n_bytes = self.sizes[dtype_name, shape] = self.byte_length(name, dtype, shape, start)
        if end - begin != n_bytes:
            raise self.error(
                f"tensor {name!r} is {dtype.name} {_short(shape)} = {n_bytes:,} bytes, "
                f"but data_offsets [{begin}, {end}] span {end - begin:,}",
                start,
            )
        return StoredTensor(name, dtype, shape, self.data_start + begin, n_bytes, self.source)

    def byte_length(self, name: str, dtype: DType, shape: tuple[int, ...], start: int) -> int:
        n_bits = dtype.bits
        for dim in shape:
            n_bits *= dim
            if n_bits > _U64_MAX:
                raise self.error(f"tensor {name!r} of shape {_short(shape)} is too large", start)
        if n_bits % 8:
            raise self.error(
                f"tensor {name!r}: {dtype.name} {list(shape)} does not fill whole bytes", start
            )
        return n_bits // 8

    def tensor_fields(self, name: str) -> tuple[str, tuple[int, ...], int, int]:
        """Scan an entry whose keys stand in any order, maybe among others."""
        dtype: str | None = None
        lists: dict[str, tuple[int, ...]] = {}
        start = self.pos

        def entry(key: str) -> None:
            nonlocal dtype
            if key in lists or (key == "dtype" and dtype is not None):
                raise self.error(f"tensor {name!r}: {key} stands twice")
            if key == "dtype":
                dtype = self.string()
            elif key in ("shape", "data_offsets"):
                found = _INTEGERS.match(self.text, self.pos)
                if found is None:
                    raise self.error(f"tensor {name!r}: {key} must be a list of integers")
                lists[key] = _integers(found[1])
                self.pos = found.end()
            else:
                self.skip_value()

        if self.peek() != "{":
            raise self.error(f"tensor {name!r} must be an object with dtype, shape, data_offsets")
        self.object(entry)
        missing = [k for k in ("shape", "data_offsets") if k not in lists]
        if dtype is None or missing:
            raise self.error(
                f"tensor {name!r} has no {'dtype' if dtype is None else missing[0]}", start
            )
        if len(lists["data_offsets"]) != 2:
            raise self.error(f"tensor {name!r}: data_offsets must be [begin, end]", start)
        begin, end = lists["data_offsets"]
        return dtype, lists["shape"], begin, end

    def skip_value(self) -> None:
        """Step over any JSON value without building it."""
        closers: list[str] = []
        while True:
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


def _integers(text: str) -> tuple[int, ...]:
    """Return the integers of a list whose inner text, already checked, is `text`."""
    return tuple([int(item) for item in text.split(",")]) if text else ()


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
