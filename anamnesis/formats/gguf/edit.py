"""The header of a GGUF file with other metadata, its tensors as they lie."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from anamnesis.base.errors import LimitExceeded, UnsupportedError
from anamnesis.base.nearest import did_you_mean
from anamnesis.formats.base import Container
from anamnesis.formats.gguf.metadata import GgufMetadata, HeaderField, ValueType
from anamnesis.formats.gguf.read import ALIGNMENT_KEY, ARCHITECTURE_KEY, GGUF_MAX_KEYS
from anamnesis.formats.gguf.settings import as_float, guessed, read_setting
from anamnesis.formats.gguf.split import SPLIT_KEYS
from anamnesis.formats.gguf.values import (
    FLOATS,
    SAID,
    Value,
    carried,
    check_own,
    of_key,
    of_type,
    typed,
)
from anamnesis.formats.gguf.write import key_bytes

_LENGTH_BYTES = 8
_COUNT_AT, _KEYS_AT = 16, 24  # behind magic, version and the number of tensors
_LAST_VERSION_OF_U32 = 1


class Text(str):
    """A value as a flag has it, whose type its key may have already."""

    __slots__ = ()

    def as_type(self, kind: ValueType) -> Any:
        if kind is ValueType.STRING:
            return str(self)
        value = guessed(str(self))
        return as_float(str(self)) if kind in FLOATS and isinstance(value, str) else value


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
    if metadata.encoding.big_endian or metadata.encoding.version <= _LAST_VERSION_OF_U32:
        raise UnsupportedError(
            f"{source.name}: the header of a {container.format} file cannot be edited",
            remedy="convert it first: to='gguf-copy' copies all tensors",
        )
    for key in {*new, *gone} & {ALIGNMENT_KEY, *SPLIT_KEYS}:
        raise UnsupportedError(f"metadata {key!r}: says where tensors lie, and cannot be edited")
    check_own(new)
    was = source.read(0, container.header_bytes)
    values = {key: carried(metadata, key) for key in metadata}
    keys = was[:_KEYS_AT] + b"".join(map(key_bytes, values, values.values()))
    if not was.startswith(keys):
        raise UnsupportedError(
            f"{source.name}: its header has values that other programs would write otherwise, and"
            " cannot be edited"
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
    if len(values) > GGUF_MAX_KEYS:
        raise LimitExceeded("GGUF_MAX_KEYS", f"{source.name}: would have {len(values):,} keys")
    count = len(values).to_bytes(_KEYS_AT - _COUNT_AT, "little")
    head = [was[:_COUNT_AT], count, *map(key_bytes, values, values.values()), was[len(keys) :]]
    raw = b"".join(head)
    return raw + bytes(-len(raw) % container.facts["alignment"])


def _keys_of_architecture(values: Mapping[str, Value]) -> list[str]:
    name = values.get(ARCHITECTURE_KEY)
    if name is None or name.type is not ValueType.STRING:
        return []
    prefix = f"{name.raw[_LENGTH_BYTES:].decode(errors='replace')}."
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
        given = given.as_type(had.type)
    if isinstance(given, (list, tuple)) != is_array:
        raise ValueError(f"{given!r} is no {_told(had)}, as the file has there")
    return of_type(kind, given)


def _told(field: HeaderField) -> str:
    return "array" if field.type is ValueType.ARRAY else field.type.name.lower()
