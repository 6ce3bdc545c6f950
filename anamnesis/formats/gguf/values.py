"""GGUF's metadata on their way out: typed values, from Python, files or flags.

A Python value gets the type that llama.cpp reads such a thing by: an integer `uint32`, or the next
that holds it; one in an array `int32`; a float `float32`, or `float64` where that is too narrow for
its magnitude. Another type is said by its name:
`{"type": "uint8", "value": 7}`, of an array that of its items. Scalars and arrays of numpy say it
by their dtype.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import anamnesis._parse as _parse
from anamnesis.base.arrays import numpy_of
from anamnesis.base.errors import UnsupportedError
from anamnesis.formats.gguf.limits import GGUF_MAX_ARRAY_ITEMS, GGUF_MAX_STRING
from anamnesis.formats.gguf.metadata import CODES, SIZES, GgufMetadata, ValueType
from anamnesis.formats.gguf.reader import NumberForm
from anamnesis.formats.gguf.split import SPLIT_KEYS
from anamnesis.formats.gguf.strings import Strings

_LENGTH = struct.Struct("<Q")
_ARRAY_HEAD = struct.Struct("<IQ")

# As gguf-py calls them, and as this package lists them.
_NAMES = {
    **{kind.name.lower(): kind for kind in ValueType if kind is not ValueType.ARRAY},
    **{f"uint{n}": ValueType[f"U{n}"] for n in (8, 16, 32, 64)},
    **{f"int{n}": ValueType[f"I{n}"] for n in (8, 16, 32, 64)},
    **{f"float{n}": ValueType[f"F{n}"] for n in (32, 64)},
}
# As llama.cpp's `--override-kv` calls them; its integers are what an untyped one is here.
SAID: dict[str, ValueType | None] = {
    **_NAMES,
    "str": ValueType.STRING,
    "float": ValueType.F32,
    "int": None,
}

# What gguf-py's reader says of each file; a file that has them itself, it refuses.
_OF_READERS = {"GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}

_OF_OBJECTS = (ValueType.BOOL, ValueType.ARRAY)  # as Python has them, whatever holds them
FLOATS = (ValueType.F32, ValueType.F64)
_F32 = struct.Struct("<f")
_LEAST_F32 = 2.0**-126  # below, it has fewer digits
_ALONE = (ValueType.U32, ValueType.I32, ValueType.U64, ValueType.I64)
_IN_ARRAYS = (ValueType.I32, ValueType.U32, ValueType.I64, ValueType.U64)


class Value(NamedTuple):
    """A value as files of version 3 have it, little-endian."""

    type: ValueType
    raw: bytes


def typed(value: Any) -> Value:
    """Return a value with its type."""
    if isinstance(value, Value):
        return value
    if isinstance(value, Strings):
        _, n = _parse.skip_strings(value.raw, 0, len(value), _LENGTH.size, False, GGUF_MAX_STRING)
        if n < len(value):
            raise ValueError(f"a string of over {GGUF_MAX_STRING:,} bytes, which are allowed")
        return _of_items(ValueType.STRING, n, bytes(value.raw))
    if isinstance(value, Mapping):
        if set(value) != {"type", "value"}:
            raise ValueError('a typed value is written {"type": "uint32", "value": 7}')
        name = value["type"]
        kind = _NAMES.get(name) if isinstance(name, str) else None
        if kind is None:
            known = [word for word in _NAMES if len(word) > 3]
            raise ValueError(f"type must be one of {', '.join(known)}; got {name!r}")
        return of_type(kind, value["value"])
    if isinstance(value, (list, tuple)):
        return of_type(_item_type(value), value)
    if hasattr(value, "dtype") and hasattr(value, "tolist") and not isinstance(value, type):
        return _of_numpy(value)
    return of_type(_scalar_type(value), value)


def _of_items(kind: ValueType, n: int, items: bytes) -> Value:
    if n > GGUF_MAX_ARRAY_ITEMS:
        raise ValueError(f"an array of {n:,} items; {GGUF_MAX_ARRAY_ITEMS:,} are allowed")
    return Value(ValueType.ARRAY, _ARRAY_HEAD.pack(kind, n) + items)


def untyped(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata with plain values, where some are written as typed ones."""
    if isinstance(metadata, GgufMetadata):
        return metadata
    return {
        key: value["value"] if isinstance(value, Mapping) else value
        for key, value in metadata.items()
    }


def text_of(metadata: Mapping[str, Any], key: str) -> str | None:
    """Return a text of metadata, in any of their spellings; None if there is none."""
    value = metadata.get(key)
    if isinstance(value, Value):
        is_text = value.type is ValueType.STRING
        return value.raw[_LENGTH.size :].decode("utf-8", "replace") if is_text else None
    value = value.get("value") if isinstance(value, Mapping) else value
    return value if isinstance(value, str) else None


def merged(*layers: Mapping[str, Any]) -> dict[str, Value]:
    """Merge metadata; what comes later wins, and stays where the key stood first."""
    values: dict[str, Value] = {}
    for layer in layers:
        for key in layer:
            if isinstance(layer, GgufMetadata):
                if key not in SPLIT_KEYS:
                    values[key] = carried(layer, key)
            elif layer[key] is None:
                values.pop(key, None)
            else:
                values[key] = of_key(key, layer[key])
    return values


def check_own(metadata: Mapping[str, Any]) -> None:
    """Refuse a user's metadata that say what the file itself is, which part of a model or how long.

    Those of a GGUF file pass, for `merged` leaves such keys out; so does None, which removes a key.
    """
    for key in () if isinstance(metadata, GgufMetadata) else metadata:
        if key in SPLIT_KEYS and metadata[key] is not None:
            raise UnsupportedError(
                f"metadata {key!r}: says which part of a model a file is",
                remedy="leave it out; split_max_size=... cuts a model, and writes it",
            )
        if key in _OF_READERS:
            raise UnsupportedError(f"metadata {key!r}: gguf-py opens no file with that key")


def of_key(key: str, value: Any, made: Callable[[Any], Value] = typed) -> Value:
    """Return the value of a key, made by a function; what is wrong with it names the key."""
    try:
        return made(value)
    except ValueError as error:
        raise UnsupportedError(f"metadata {key!r}: {error}") from None


# --- from Python and from text ------------------------------------------------------------------


def _scalar_type(value: Any) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, int):
        return _integer_type([value], _ALONE)
    if isinstance(value, float):
        return _float_type([value])
    if isinstance(value, str):
        return ValueType.STRING
    raise ValueError(f"GGUF has no type for {type(value).__name__}")


def _of_numpy(value: Any) -> Value:
    """Return a scalar or an array of numpy or torch as the type that it says."""
    if not hasattr(value.dtype, "kind"):  # torch's
        value = numpy_of("a value", value)
    name = "string" if value.dtype.kind == "U" else value.dtype.name
    if name not in _NAMES:
        raise ValueError(f"GGUF has no type for {value.dtype}")
    if value.ndim > 1:
        raise ValueError("llama.cpp reads no arrays of arrays")
    kind = _NAMES[name]
    if value.ndim == 0 or kind is ValueType.STRING:
        return of_type(kind, value.tolist())
    import numpy as np

    items = np.asarray(value)
    return _of_items(kind, len(items), items.astype(items.dtype.newbyteorder("<")).tobytes())


def _item_type(values: Sequence[Any]) -> ValueType:
    """Return the type of an array's items; integers among floats are floats."""
    if not values:
        raise ValueError('an empty array does not show its type; write {"type": …, "value": []}')
    if any(isinstance(value, (list, tuple)) for value in values):
        raise ValueError("llama.cpp reads no arrays of arrays")
    kinds = {type(value) for value in values}
    if kinds == {int}:
        return _integer_type(values, _IN_ARRAYS)
    if kinds in ({float}, {int, float}):
        return _float_type(values)
    if len(kinds) > 1:
        raise ValueError("the items of an array must be of one type")
    return _scalar_type(values[0])


def _float_type(values: Sequence[float]) -> ValueType:
    """Return F32 if it has a number for each, with all of its own digits or exactly."""
    for value in values:
        try:
            (found,) = _F32.unpack(_F32.pack(value))
        except OverflowError:
            return ValueType.F64
        if not (abs(value) >= _LEAST_F32 or found == value or math.isnan(value)):
            return ValueType.F64
    return ValueType.F32


def _integer_type(values: Sequence[int], types: Sequence[ValueType]) -> ValueType:
    low, high = min(values), max(values)
    for kind in types:
        bits = 8 * SIZES[kind]
        least, most = (0, 2**bits) if kind.name[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1))
        if least <= low and high < most:
            return kind
    raise ValueError(f"no integer type of GGUF holds {low if low < 0 else high}")


def of_type(kind: ValueType, value: Any) -> Value:
    """Return a value, or an array of items, of a type."""
    if not isinstance(value, (list, tuple)):
        return Value(kind, _packed(kind, value))
    return _of_items(kind, len(value), b"".join([_packed(kind, item) for item in value]))


def _packed(kind: ValueType, value: Any) -> bytes:
    """Return the bytes of a scalar or a string."""
    if kind is ValueType.STRING:
        if not isinstance(value, str):
            raise ValueError(f"{value!r} is no string")
        return _string(value)
    is_right = isinstance(value, bool) == (kind is ValueType.BOOL)
    if not is_right or not isinstance(value, (int, float) if kind in FLOATS else int):
        raise ValueError(f"{value!r} is no {kind.name.lower()}")
    try:
        raw = struct.pack("<" + CODES[kind], value)
    except (struct.error, OverflowError):
        raise ValueError(f"{value!r} does not fit {kind.name.lower()}") from None
    if kind is ValueType.F32 and value and not _F32.unpack(raw)[0]:
        raise ValueError(f"{value!r} does not fit f32")
    return raw


def _string(text: str) -> bytes:
    """Return a string behind its length; half surrogate pairs are bytes that are not UTF-8."""
    try:
        raw = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError("a string has half of a surrogate pair") from None
    if len(raw) > GGUF_MAX_STRING:
        raise ValueError(f"a string of {len(raw):,} bytes; {GGUF_MAX_STRING:,} are allowed")
    return _LENGTH.pack(len(raw)) + raw


# --- from a file --------------------------------------------------------------------------------


def carried(metadata: GgufMetadata, key: str) -> Value:
    """Return a file's value; arrays and long strings by their bytes, whose items nobody makes."""
    field = metadata.fields[key]
    span = field.span
    if span is None:
        return Value(field.type, _packed(field.type, field.value))
    raw = metadata.raw(key)
    if field.type is ValueType.STRING:
        return Value(field.type, _LENGTH.pack(len(raw)) + raw)
    recoder = _Recoder(raw, metadata.encoding)
    try:
        items = recoder.items(span.item_type, span.n_items)
    except (struct.error, KeyError):
        raise metadata.changed(key) from None
    if recoder.pos != len(raw):
        raise metadata.changed(key)
    return Value(field.type, _ARRAY_HEAD.pack(span.item_type, span.n_items) + items)


def packed_array(metadata: Mapping[str, Any], key: str) -> Any:
    """Return a value; of a file's key an array of strings as `Strings`, one of numbers as numpy's.

    They take the bytes that they take in the file, and nobody keeps them.
    """
    if not isinstance(metadata, GgufMetadata) or metadata.n_items(key) is None:
        return metadata.get(key)
    import numpy as np

    value = carried(metadata, key)
    kind, n = _ARRAY_HEAD.unpack_from(value.raw)
    items = memoryview(value.raw)[_ARRAY_HEAD.size :]
    if kind == ValueType.STRING:
        return Strings(raw=items, n=n)
    return metadata[key] if kind in _OF_OBJECTS else np.frombuffer(items, "<" + CODES[kind])


class _Recoder:
    """Items of any version and byte order, as in version 3, little-endian."""

    # They were scanned before, but a file may change: `struct.error` or `KeyError` then.

    def __init__(self, raw: bytearray, encoding: NumberForm) -> None:
        self.raw = raw
        self.pos = 0
        self.encoding = encoding
        self.head = struct.Struct(f"{encoding.order}I{encoding.length_code}")
        self.is_same = not encoding.big_endian and encoding.version > 1

    def items(self, kind: ValueType, n: int) -> bytes:
        """Return the next `n` items."""
        if kind is ValueType.STRING:
            return self.strings(n)
        if kind is ValueType.ARRAY:
            return b"".join([self.array() for _ in range(n)])
        width = SIZES[kind]
        raw = self.raw[self.pos : self.pos + n * width]
        self.pos += n * width
        if self.encoding.big_endian and width > 1:
            import numpy as np

            return np.frombuffer(raw, f"u{width}").byteswap().tobytes()
        return bytes(raw)

    def strings(self, n: int) -> bytes:
        """Return the next `n` strings; those that are as they should be are only stepped over."""
        form, start = self.encoding, self.pos
        if self.is_same:
            self.pos, done = _parse.skip_strings(
                self.raw, start, n, form.length_bytes, form.big_endian, GGUF_MAX_STRING
            )
            if done < n:
                raise struct.error
            return bytes(self.raw[start : self.pos])
        strings, self.pos = _parse.read_strings(
            self.raw, start, n, form.length_bytes, form.big_endian
        )
        if len(strings) < n:
            raise struct.error
        return b"".join(map(_string, strings))

    def array(self) -> bytes:
        number, n = self.head.unpack_from(self.raw, self.pos)
        self.pos += self.head.size
        if number not in ValueType.__members__.values() or n > len(self.raw):
            raise struct.error
        kind = ValueType(number)
        return _ARRAY_HEAD.pack(kind, n) + self.items(kind, n)
