"""GGUF's metadata: typed keys, whose arrays and long strings are read on demand.

A vocabulary is a quarter of a million strings, which listing the tensors does not need: of long
values only type, length and place are kept.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

import anamnesis._parse as _parse
from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.base.plain_json import plain_json
from anamnesis.base.source import Source
from anamnesis.formats.base import TypedMetadata
from anamnesis.formats.gguf.limits import (
    GGUF_MAX_ARRAY_DEPTH,
    GGUF_MAX_ARRAY_ITEMS,
    GGUF_MAX_KEY,
    GGUF_MAX_NESTED_ARRAYS,
)
from anamnesis.formats.gguf.reader import HeaderReader, NumberForm

_EAGER_STRING = 1 << 16  # bytes; what is longer is read when asked for
_CARRIED_ITEMS = 64
_CARRIED_STRING = 1 << 20  # bytes
_GLANCE = 4096  # bytes of strings that a look at the first few of them reads
_ITEM_COST = 64  # bytes that a Python object takes beside its content, about
_CHANGED = "the file has changed since it was parsed"


class ValueType(IntEnum):
    """The types of values, by GGUF's ids."""

    U8 = 0
    I8 = 1
    U16 = 2
    I16 = 3
    U32 = 4
    I32 = 5
    F32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    U64 = 10
    I64 = 11
    F64 = 12


CODES = {  # as `struct` spells them
    ValueType.U8: "B",
    ValueType.I8: "b",
    ValueType.U16: "H",
    ValueType.I16: "h",
    ValueType.U32: "I",
    ValueType.I32: "i",
    ValueType.F32: "f",
    ValueType.BOOL: "B",
    ValueType.U64: "Q",
    ValueType.I64: "q",
    ValueType.F64: "d",
}
SIZES = {kind: struct.calcsize("<" + code) for kind, code in CODES.items()}
_TYPES = {int(kind): kind for kind in ValueType}


class Span(NamedTuple):
    """Where a value lies that is not read yet."""

    offset: int
    n_bytes: int
    item_type: ValueType
    n_items: int


class HeaderField(NamedTuple):
    """What a key has."""

    type: ValueType
    value: Any
    span: Span | None

    def describe(self) -> str:
        """Return the type in words: `u32`, `string`, `array of 262,144 strings`."""
        if self.type is not ValueType.ARRAY or self.span is None:
            return self.type.name.lower()
        item = self.span.item_type.name.lower()
        return f"array of {self.span.n_items:,} {item}{'' if self.span.n_items == 1 else 's'}"


class GgufMetadata(TypedMetadata):
    """The keys of a file, in its order."""

    # Values are bool, int, float, str and lists of these. A string that is not UTF-8 has lone
    # surrogates for the bytes that are not, as `os.fsdecode` gives them. An array is read from the
    # file when it is first asked for, and kept from then on.

    def __init__(
        self,
        fields: dict[str, HeaderField],
        source: Source,
        encoding: NumberForm,
        limits: ParseLimits,
    ) -> None:
        self.fields = fields
        self.encoding = encoding
        self._source = source
        self._limits = limits
        self._read: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        kind, value, span = self.fields[key]
        if span is None:
            return value
        if key not in self._read:
            n_bytes = span.n_bytes + span.n_items * _ITEM_COST
            Budget(self._limits).alloc(n_bytes, f"the value of {key}")
            raw = self._raw(span, span.n_bytes)
            if kind is ValueType.STRING:
                self._read[key] = raw.decode("utf-8", "surrogateescape")
            else:
                items = _Items(raw, span.offset, self.encoding, self._source)
                self._read[key] = items.read(span.item_type, span.n_items, 1)
        return self._read[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    def _raw(self, span: Span, n_bytes: int) -> bytearray:
        raw = bytearray(n_bytes)
        self._source.read_into(span.offset, memoryview(raw))
        return raw

    def raw(self, key: str) -> bytearray:
        """Return the bytes of a value with a span: an array's items, a string's text."""
        span = self.fields[key].span
        if span is None:
            raise ValueError(f"{key} was read with the header")
        Budget(self._limits).alloc(span.n_bytes, f"the value of {key}")
        return self._raw(span, span.n_bytes)

    def changed(self, key: str) -> ParseError:
        """Return the error for a value that is not what it was when it was stepped over."""
        span = self.fields[key].span
        return self._source.error(_CHANGED, 0 if span is None else span.offset)

    def first(self, key: str, n: int) -> list[Any]:
        """Return the first items of an array, at most `n`, and read not much more than those."""
        # There are fewer if they are long, none if they are arrays themselves.
        span = self.fields[key].span
        if span is None or span.item_type is ValueType.ARRAY:
            return []
        n = min(n, span.n_items)
        is_string = span.item_type is ValueType.STRING
        n_bytes = min(span.n_bytes, _GLANCE) if is_string else n * SIZES[span.item_type]
        raw = self._raw(span, n_bytes)
        items = _Items(raw, span.offset, self.encoding, self._source)
        return items.strings(n, few=True) if is_string else items.read(span.item_type, n, 1)

    # --- for those who want no array -----------------------------------------------------------

    def summary(self) -> dict[str, Any]:
        return {
            key: field.value if field.span is None else f"[{field.describe()}]"
            for key, field in self.fields.items()
        }

    def n_items(self, key: str) -> int | None:
        field = self.fields.get(key)
        is_array = field is not None and field.type is ValueType.ARRAY
        return field.span.n_items if field and field.span and is_array else None

    def is_carried(self, key: str) -> bool:
        span = self.fields[key].span
        return span is None or (span.n_items <= _CARRIED_ITEMS and span.n_bytes <= _CARRIED_STRING)

    def text(self, key: str) -> str:
        field, value = self.fields[key], self[key]
        if isinstance(value, str):
            return value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        item_type = field.type if field.span is None else field.span.item_type
        if item_type is ValueType.F32:
            value = [_shortest(v) for v in value] if isinstance(value, list) else _shortest(value)
        value = plain_json(value)
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _shortest(value: float) -> float:
    """Return the float64 with the fewest digits that is the same float32: 1e-05 for 9.9…e-06."""
    if not math.isfinite(value):
        return value
    for digits in range(6, 10):
        candidate = float(f"{value:.{digits}g}")
        if abs(candidate) < _F32_MAX and _F32.unpack(_F32.pack(candidate))[0] == value:
            return candidate
    return value


_F32 = struct.Struct("<f")
_F32_MAX = 3.4028234e38


# --- the header's part --------------------------------------------------------------------------


def read_metadata(reader: HeaderReader, n_keys: int) -> GgufMetadata:
    """Read `n_keys` keys; step over arrays and long strings."""
    fields: dict[str, HeaderField] = {}
    scanner = _FieldScanner(reader)
    smallest = reader.encoding.smallest_key
    for _ in range(n_keys):
        reader.owed -= smallest  # this one is asked for, no longer owed
        start = reader.offset
        key = reader.name("GGUF_MAX_KEY", GGUF_MAX_KEY, "a key")
        if not key:
            raise reader.error("a key is empty", start)
        if key in fields:
            raise reader.error(f"key {key!r} appears twice", start)
        fields[key] = scanner.field(key)
    return GgufMetadata(fields, reader.source, reader.encoding, reader.budget.limits)


class _FieldScanner:
    """Reads values, or steps over them."""

    def __init__(self, reader: HeaderReader) -> None:
        self.reader = reader
        order = reader.encoding.order
        self.layouts = {kind: struct.Struct(order + code) for kind, code in CODES.items()}
        self.n_nested = 0
        self.n_items = 0

    def field(self, key: str) -> HeaderField:
        kind = self.type(key)
        if kind is ValueType.STRING:
            reader = self.reader
            n_bytes = reader.string_length()
            if n_bytes > _EAGER_STRING:
                span = Span(reader.offset, n_bytes, ValueType.STRING, 1)
                reader.skip(n_bytes)
                return HeaderField(kind, None, span)
            reader.budget.alloc(n_bytes, "a string")
            return HeaderField(kind, reader.raw(n_bytes).decode("utf-8", "surrogateescape"), None)
        if kind is ValueType.ARRAY:
            self.n_items = 0
            return HeaderField(kind, None, self.array(key, 1))
        (value,) = self.reader.unpack(self.layouts[kind])
        if kind is ValueType.BOOL:
            if value > 1:
                raise self.reader.error(
                    f"{key}: a bool must be 0 or 1, not {value}", self.reader.offset - 1
                )
            value = bool(value)
        return HeaderField(kind, value, None)

    def type(self, key: str) -> ValueType:
        number = self.reader.u32()
        kind = _TYPES.get(number)
        if kind is None:
            raise self.reader.error(
                f"{key}: unknown type {number} of a value", self.reader.offset - 4
            )
        return kind

    def array(self, key: str, depth: int) -> Span:
        """Step over an array; `depth` is 1 for one that is in no other."""
        reader = self.reader
        if depth > GGUF_MAX_ARRAY_DEPTH:
            raise reader.exceeded(
                "GGUF_MAX_ARRAY_DEPTH",
                f"{key}: arrays are nested more than {GGUF_MAX_ARRAY_DEPTH} deep",
            )
        item_type = self.type(key)
        n_items = reader.length()
        self.n_items += n_items
        if self.n_items > GGUF_MAX_ARRAY_ITEMS:
            raise reader.exceeded(
                "GGUF_MAX_ARRAY_ITEMS",
                f"{key}: an array of {self.n_items:,} {item_type.name.lower()} items",
                GGUF_MAX_ARRAY_ITEMS,
            )
        reader.budget.items(n_items, f"the items of {key}")
        start = reader.offset
        if item_type is ValueType.STRING:
            reader.require(n_items, n_items * reader.encoding.length_bytes, "strings")
            reader.skip_strings(n_items)
        elif item_type is ValueType.ARRAY:
            self.arrays(key, n_items, depth)
        else:
            reader.require(n_items, n_items * SIZES[item_type], f"items of {key}")
            reader.skip(n_items * SIZES[item_type])
        return Span(start, reader.offset - start, item_type, n_items)

    def arrays(self, key: str, n: int, depth: int) -> None:
        reader = self.reader
        self.n_nested += n
        if self.n_nested > GGUF_MAX_NESTED_ARRAYS:
            raise reader.exceeded(
                "GGUF_MAX_NESTED_ARRAYS",
                f"{key}: {self.n_nested:,} arrays in arrays",
                GGUF_MAX_NESTED_ARRAYS,
            )
        smallest = 4 + reader.encoding.length_bytes
        reader.require(n, n * smallest, "arrays")
        reader.owed += n * smallest
        for _ in range(n):
            reader.owed -= smallest
            self.array(key, depth + 1)


class _Items:
    """The items of an array, from its bytes; they were scanned before, but a file may change."""

    def __init__(self, raw: bytearray, offset: int, encoding: NumberForm, source: Source) -> None:
        self.raw = raw
        self.offset = offset
        self.encoding = encoding
        self.source = source
        self.pos = 0
        self.head = struct.Struct(f"{encoding.order}I{encoding.length_code}")

    def read(self, kind: ValueType, n: int, depth: int) -> list[Any]:
        """Return the next `n` items."""
        if kind is ValueType.STRING:
            return self.strings(n)
        if kind is ValueType.ARRAY:
            return [self.array(depth + 1) for _ in range(n)]
        n_bytes = n * SIZES[kind]
        if n_bytes > len(self.raw) - self.pos:
            raise self.changed()
        layout = f"{self.encoding.order}{n}{CODES[kind]}"
        values = list(struct.unpack_from(layout, self.raw, self.pos))
        if kind is ValueType.BOOL:
            wrong = next((i for i, value in enumerate(values) if value > 1), None)
            if wrong is not None:
                at = self.offset + self.pos + wrong
                raise self.source.error(f"a bool is {values[wrong]}", at)
            values = [value == 1 for value in values]
        self.pos += n_bytes
        return values

    def strings(self, n: int, *, few: bool = False) -> list[Any]:
        """Return the next `n` strings; with `few` only those that are here, if they are fewer."""
        form = self.encoding
        strings: list[Any]
        strings, end = _parse.read_strings(
            self.raw, self.pos, n, form.length_bytes, form.big_endian
        )
        if len(strings) < n and not few:
            raise self.changed()
        self.pos = end
        return strings

    def array(self, depth: int) -> list[Any]:
        if self.head.size > len(self.raw) - self.pos:
            raise self.changed()
        number, n = self.head.unpack_from(self.raw, self.pos)
        self.pos += self.head.size
        # Each item takes at least a byte, so no count can promise more than the file holds.
        if number not in _TYPES or depth > GGUF_MAX_ARRAY_DEPTH or n > len(self.raw) - self.pos:
            raise self.changed()
        return self.read(_TYPES[number], n, depth)

    def changed(self) -> ParseError:
        return self.source.error(_CHANGED, self.offset + self.pos)
