"""GGUF files made by hand, sharing no code with the package; nothing is checked."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
CODES = {
    U8: "B",
    I8: "b",
    U16: "H",
    I16: "h",
    U32: "I",
    I32: "i",
    F32: "f",
    BOOL: "B",
    U64: "Q",
    I64: "q",
    F64: "d",
}


@dataclass(frozen=True)
class Raw:
    """Bytes of a value, whatever they are, behind their type."""

    type: int
    data: bytes


@dataclass(frozen=True)
class Array:
    """An array of items of one type; items of arrays are `Array`s."""

    type: int
    items: Sequence[Any]


Value = tuple[int, Any] | Array | Raw


@dataclass(frozen=True)
class Tensor:
    """A row of the table and its data; `dims` as they are stored, innermost first."""

    dims: Sequence[int]
    type: int
    data: bytes = b""
    offset: int | None = None


class Writer:
    """Writes numbers as one version and byte order have them."""

    def __init__(self, version: int = 3, big: bool = False) -> None:
        self.version = version
        self.order = ">" if big else "<"
        self.length_code = "I" if version == 1 else "Q"

    def pack(self, code: str, *values: Any) -> bytes:
        return struct.pack(self.order + code, *values)

    def length(self, n: int) -> bytes:
        return self.pack(self.length_code, n)

    def string(self, text: str | bytes) -> bytes:
        raw = text.encode("utf-8") if isinstance(text, str) else text
        return self.length(len(raw)) + raw

    def item(self, kind: int, value: Any) -> bytes:
        if kind == STRING:
            return self.string(value)
        if kind == ARRAY:
            return self.array(value)
        return self.pack(CODES[kind], value)

    def array(self, array: Array) -> bytes:
        items = b"".join(self.item(array.type, item) for item in array.items)
        return self.pack("I", array.type) + self.length(len(array.items)) + items

    def value(self, value: Value) -> bytes:
        if isinstance(value, Raw):
            return self.pack("I", value.type) + value.data
        if isinstance(value, Array):
            return self.pack("I", ARRAY) + self.array(value)
        return self.pack("I", value[0]) + self.item(*value)

    def entry(self, name: str | bytes, tensor: Tensor, offset: int) -> bytes:
        dims = b"".join(self.length(dim) for dim in tensor.dims)
        where = offset if tensor.offset is None else tensor.offset
        return (
            self.string(name)
            + self.pack("I", len(tensor.dims))
            + dims
            + self.pack("IQ", tensor.type, where)
        )

    def head(self, n_tensors: int, n_keys: int) -> bytes:
        return b"GGUF" + self.pack("I", self.version) + self.length(n_tensors) + self.length(n_keys)


def gguf_bytes(
    keys: Mapping[Any, Any] | Iterable[tuple[str | bytes, Value]] = (),
    tensors: Mapping[Any, Tensor] | Iterable[tuple[str | bytes, Tensor]] = (),
    *,
    version: int = 3,
    big: bool = False,
    alignment: int = 32,
    n_tensors: int | None = None,
    n_keys: int | None = None,
) -> bytes:
    """Return a file; `n_tensors` and `n_keys` may lie, keys and names may stand twice."""
    writer = Writer(version, big)
    all_keys = list(keys.items() if isinstance(keys, Mapping) else keys)
    all_tensors = list(tensors.items() if isinstance(tensors, Mapping) else tensors)
    out = writer.head(
        len(all_tensors) if n_tensors is None else n_tensors,
        len(all_keys) if n_keys is None else n_keys,
    )
    for key, value in all_keys:
        out += writer.string(key) + writer.value(value)
    data = b""
    for name, tensor in all_tensors:
        data += bytes(-len(data) % alignment)
        out += writer.entry(name, tensor, len(data))
        data += tensor.data
    if not all_tensors:
        return out
    return out + bytes(-len(out) % alignment) + data
