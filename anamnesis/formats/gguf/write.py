"""The GGUF writer: version 3, little-endian; and headers with other metadata."""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate
from math import prod
from typing import Any

from anamnesis.base.arguments import as_float
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import LimitExceeded, UnsupportedError
from anamnesis.base.nearest import did_you_mean
from anamnesis.base.stored import Part
from anamnesis.formats.base import Container, FileLayout, Writer
from anamnesis.formats.gguf import limits
from anamnesis.formats.gguf.metadata import GgufMetadata, HeaderField, ValueType
from anamnesis.formats.gguf.read import ALIGNMENT_KEY, ARCHITECTURE_KEY, DEFAULT_ALIGNMENT, TYPES
from anamnesis.formats.gguf.settings import guessed, read_setting
from anamnesis.formats.gguf.split import SPLIT_KEYS
from anamnesis.formats.gguf.values import (
    FLOATS,
    SAID,
    Value,
    carried,
    check_own,
    merged,
    of_key,
    of_type,
    typed,
)
from anamnesis.formats.magic import GGUF_MAGIC

_VERSION = 3
_HEAD = struct.Struct("<4sIQQ")
_LENGTH = struct.Struct("<Q")
_TYPE = struct.Struct("<I")

_NUMBERS = {dtype.name: number for number, dtype in TYPES.items()}

# What ggml reads, which is less than the format could hold; ComfyUI-GGUF reads more of images.
_MOST_DIMS, _OF_IMAGES = 4, 5
_LONGEST_NAME, _LONGEST_OF_IMAGES = 63, 127  # bytes


class GgufWriter(Writer):
    """Tensors go in the order given, each at the next multiple of `general.alignment`."""

    # ggml has no scalars: it writes them with one dimension, and so does this, for gguf-py does not
    # read all that have none.

    id = "gguf"
    extension = ".gguf"
    self_contained = True

    def __init__(self, *, of_images: bool = False) -> None:
        self.most_dims = _OF_IMAGES if of_images else _MOST_DIMS
        self.longest_name = _LONGEST_OF_IMAGES if of_images else _LONGEST_NAME

    def holds(self, dtype: DType) -> bool:
        return dtype.name in _NUMBERS

    def floats(self, shape: tuple[int, ...], dtype: DType) -> DType:
        return DTYPES["F32"] if len(shape) < 2 else dtype

    def refuses(self, part: Part) -> str | None:
        name, dtype, shape = part
        if not self.holds(dtype):
            return f"gguf cannot store {dtype.name}"
        if len(shape) > self.most_dims:
            return f"gguf stores at most {self.most_dims} dimensions, not {len(shape)}"
        row = shape[-1] if shape else 1
        if row % dtype.block_elements:
            return (
                f"{dtype.name} needs rows of whole blocks of {dtype.block_elements} elements, not"
                f" {row:,}"
            )
        if prod([max(dim, 1) for dim in shape]) > limits.GGUF_MAX_ELEMENTS:
            return f"gguf stores at most {limits.GGUF_MAX_ELEMENTS:,} elements"
        try:
            raw = name.encode()
        except UnicodeEncodeError:
            return "its name has half of a surrogate pair, which is no UTF-8; rename it"
        if b"\0" in raw:
            return "its name has a NUL, where ggml would end it; rename it"
        if len(raw) > self.longest_name:
            most = self.longest_name
            return f"its name has {len(raw)} bytes, and ggml reads at most {most}; rename it"
        return None

    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> FileLayout:
        self.check(parts, metadata)
        values = merged(metadata)
        for limit, n, most in (
            ("GGUF_MAX_TENSORS", len(parts), limits.GGUF_MAX_TENSORS),
            ("GGUF_MAX_KEYS", len(values), limits.GGUF_MAX_KEYS),
        ):
            if n > most:
                raise LimitExceeded(limit, f"the output would have {n:,}; {most:,} are allowed")
        alignment = _alignment(values.get(ALIGNMENT_KEY))
        sizes = [part.n_bytes for part in parts]
        *begins, end = accumulate([n + -n % alignment for n in sizes], initial=0)
        header = b"".join(
            [
                _HEAD.pack(GGUF_MAGIC, _VERSION, len(parts), len(values)),
                *[key_bytes(key, value) for key, value in values.items()],
                *_table(parts, begins),
            ]
        )
        if not parts:  # nothing is to be aligned
            alignment = min(alignment, DEFAULT_ALIGNMENT)
        start = len(header) + -len(header) % alignment
        return FileLayout([(0, header)], [start + begin for begin in begins], start + end)


def _alignment(value: Value | None) -> int:
    if value is None:
        return DEFAULT_ALIGNMENT
    alignment = int.from_bytes(value.raw, "little")
    if value.type is not ValueType.U32 or alignment.bit_count() != 1:
        raise UnsupportedError(f"{ALIGNMENT_KEY} must be a uint32 and a power of two")
    if alignment > limits.GGUF_MAX_ALIGNMENT:
        raise LimitExceeded(
            "GGUF_MAX_ALIGNMENT",
            f"{ALIGNMENT_KEY} would be {alignment:,}; {limits.GGUF_MAX_ALIGNMENT:,} are allowed",
        )
    return alignment


def key_bytes(key: str, value: Value) -> bytes:
    """Return a key and its value as in a header."""
    try:
        raw = key.encode()
    except UnicodeEncodeError:
        raise UnsupportedError(f"metadata {key!r}: a key must be UTF-8") from None
    if not 0 < len(raw) <= limits.GGUF_MAX_KEY:
        raise UnsupportedError(
            f"metadata {key[:80]!r}: a key has 1 to {limits.GGUF_MAX_KEY:,} bytes"
        )
    return _LENGTH.pack(len(raw)) + raw + _TYPE.pack(value.type) + value.raw


def _table(parts: Sequence[Part], begins: Sequence[int]) -> list[bytes]:
    layouts: dict[tuple[DType, tuple[int, ...]], bytes] = {}  # a model has few, and each often
    rows = []
    for (name, dtype, shape), begin in zip(parts, begins, strict=True):
        layout = layouts.get((dtype, shape))
        if layout is None:
            dims = shape[::-1] or (1,)
            layout = layouts[dtype, shape] = struct.pack(
                f"<I{len(dims)}QI", len(dims), *dims, _NUMBERS[dtype.name]
            )
        raw = name.encode()
        rows.append(_LENGTH.pack(len(raw)) + raw + layout + _LENGTH.pack(begin))
    return rows


_COUNT_AT, _KEYS_AT = 16, 24  # behind magic, version and the number of tensors


class Text(str):
    """A value as a flag has it, whose type its key may have already."""

    __slots__ = ()


def read_edit(text: str) -> tuple[str, Value | Text]:
    """Read `KEY=VALUE`, `KEY:TYPE=VALUE` or `KEY=TYPE:VALUE`, as a flag has it."""
    key, equals, given = text.partition("=")
    name, colon, kind = key.rpartition(":")
    if colon and kind in SAID:
        return read_setting(f"{name}={kind}:{given}")
    if equals and key and given.partition(":")[0] not in SAID:
        return key, Text(given)
    return read_setting(text)


def edited(container: Container, new: Mapping[str, Any], gone: Collection[str]) -> bytes:
    """Return the header up to the data, which begin at the next multiple of the alignment."""
    # A key keeps its type, unless a value says its own. The bytes of all others, and those of the
    # table of tensors, are as they were.
    metadata, source = container.metadata, container.source
    assert isinstance(metadata, GgufMetadata)
    if metadata.encoding.big_endian or metadata.encoding.version == 1:  # of lengths of 4 bytes
        raise source.unsupported(
            f"the header of a {container.format} file cannot be edited",
            remedy="convert it first: to='gguf-copy' copies all tensors",
        )
    for key in {*new, *gone} & {ALIGNMENT_KEY, *SPLIT_KEYS}:
        raise UnsupportedError(f"metadata {key!r}: says where tensors lie, and cannot be edited")
    check_own(new)
    was = source.read(0, container.header_bytes)
    values = {key: carried(metadata, key) for key in metadata}
    keys = was[:_KEYS_AT] + b"".join(map(key_bytes, values, values.values()))
    if not was.startswith(keys):
        raise source.unsupported(
            "its header has values that other programs would write otherwise, and cannot be edited"
        )
    had = _keys_of_architecture(values)
    for key, given in new.items():
        if isinstance(given, Text) and key not in values:
            _check_untyped(key)
        values[key] = of_key(key, given, partial(_value, metadata.fields.get(key)))
    for key in gone:
        del values[key]
    if had and not _keys_of_architecture(values):
        raise UnsupportedError(
            f"metadata {ARCHITECTURE_KEY!r}: keys such as {had[0]!r} belong to the old one, and no"
            " program would find them",
            remedy="leave it, or set the new architecture's keys, too",
        )
    if len(values) > limits.GGUF_MAX_KEYS:
        raise source.exceeded("GGUF_MAX_KEYS", f"would have {len(values):,} keys")
    count = len(values).to_bytes(_KEYS_AT - _COUNT_AT, "little")
    head = [was[:_COUNT_AT], count, *map(key_bytes, values, values.values()), was[len(keys) :]]
    raw = b"".join(head)
    return raw + bytes(-len(raw) % container.facts["alignment"])


def _keys_of_architecture(values: Mapping[str, Value]) -> list[str]:
    name = values.get(ARCHITECTURE_KEY)
    if name is None or name.type is not ValueType.STRING:
        return []
    prefix = f"{name.raw[_LENGTH.size :].decode(errors='replace')}."
    return [key for key in values if key.startswith(prefix)]


def _check_untyped(key: str) -> None:
    """Refuse a new key that ends in what looks like a type, and is none."""
    _, colon, kind = key.rpartition(":")
    if colon:
        raise UnsupportedError(
            f"metadata {key!r}: there is no type {kind!r}{did_you_mean(kind, SAID)}"
        )


def _value(had: HeaderField | None, given: Any) -> Value:
    """Return a value in the type that its key has in the file; what says its own in that."""
    if isinstance(given, (Value, Mapping)) or hasattr(given, "dtype"):
        return typed(given)
    if had is None:
        return typed(guessed(str(given)) if isinstance(given, Text) else given)
    is_array = had.type is ValueType.ARRAY
    kind = had.span.item_type if is_array and had.span is not None else had.type
    if isinstance(given, Text):
        text = str(given)
        given = text if had.type is ValueType.STRING else guessed(text)
        if had.type in FLOATS and isinstance(given, str):
            given = as_float(text)
    if isinstance(given, (list, tuple)) != is_array:
        raise ValueError(f"{given!r} is no {had.type.name.lower()}, as the file has there")
    return of_type(kind, given)
