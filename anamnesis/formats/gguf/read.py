"""GGUF: counts, typed metadata, a table of tensors, then their bytes, aligned.

    "GGUF" version | n_tensors n_keys | key type value … | name n_dims dims type offset … | data

Versions 1 (lengths of 4 bytes), 2 and 3 are read, in either byte order: the version shows which.
Dimensions are stored innermost first; shapes here are row-major. The checks are those of ggml's own
reader and more, except that holes between tensors are let pass.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any, NamedTuple

import anamnesis._core as _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES, DType
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import Budget
from anamnesis.base.plain_json import json_table
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.base import Container
from anamnesis.formats.gguf import limits
from anamnesis.formats.gguf.metadata import GgufMetadata, ValueType, read_metadata
from anamnesis.formats.gguf.reader import HeaderReader, NumberForm
from anamnesis.sources.altered import AlteredSource, Region, swapping

_MAGIC_BYTES = 4
_HEAD_BYTES = 8  # magic and version

ALIGNMENT_KEY = "general.alignment"
DEFAULT_ALIGNMENT = 32
ARCHITECTURE_KEY = "general.architecture"
SHAPE_KEY = "comfy.gguf.orig_shape."  # ComfyUI-GGUF's, of tensors in rows of whole blocks

_TABLE: Mapping[str, Any] = json_table(__file__)
TYPES: dict[int, DType] = {
    **{int(number): DTYPES[name] for number, name in _TABLE["scalars"].items()},
    **{row.id: BLOCK_DTYPES[row.name] for row in _core.block_types()},
}
_REMOVED: Mapping[int, str] = {int(number): name for number, name in _TABLE["removed"].items()}

# The numbers of more than one byte in a block, as (offset, width): what `gguf-convert-endian`
# swaps. It knows no other block types.
_BLOCK_NUMBERS: Mapping[str, Sequence[tuple[int, int]]] = _TABLE["block_numbers"]


def parse(source: Source, head: bytes, budget: Budget) -> Container:
    """Read the header of a GGUF file, and nothing else; `head` is its first 8 bytes."""
    encoding = _encoding(source, head)
    reader = HeaderReader(source, encoding, budget, _HEAD_BYTES)
    n_tensors, n_keys = _counts(reader)
    metadata = read_metadata(reader, n_keys)
    alignment = _alignment(metadata, source)
    entries = _read_entries(reader, n_tensors)
    data_start = reader.offset + -reader.offset % alignment
    tensors = _placed(source, data_start, alignment, entries)
    arch = metadata.fields.get(ARCHITECTURE_KEY)
    if encoding.big_endian:
        regions = [
            Region(t.offset, t.offset + t.n_bytes, n, swapping(n, numbers))
            for t in tensors
            if t.n_bytes and (n := t.dtype.block_bytes) and (numbers := _numbers(t.dtype))
        ]
        swapped = AlteredSource(source, regions)
        source, tensors = swapped, [t._replace(source=swapped) for t in tensors]
    return Container(
        "gguf",
        f"GGUF v{encoding.version}{', big-endian' if encoding.big_endian else ''}",
        source,
        {tensor.name: tensor for tensor in tensors},
        metadata,
        reader.offset,
        {
            "version": encoding.version,
            "byte_order": "big" if encoding.big_endian else "little",
            "arch": arch.value if arch is not None and isinstance(arch.value, str) else None,
            "alignment": alignment,
        },
        _unreadable(tensors, encoding.big_endian),
        self_contained=True,
        shapes=_own_shapes(metadata, tensors, source),
    )


def _encoding(source: Source, head: bytes) -> NumberForm:
    if len(head) < _HEAD_BYTES:
        raise source.error(
            f"{source.size} bytes are too few for a GGUF file, which starts with 24 of counts",
            len(head),
        )
    little, big = (int.from_bytes(head[_MAGIC_BYTES:], order) for order in ("little", "big"))
    big_endian = little & 0xFFFF == 0  # versions are small numbers
    version = big if big_endian else little
    if version == 0:
        raise source.error("there is no GGUF version 0", _MAGIC_BYTES)
    if version > 3:
        raise source.unsupported(f"GGUF version {version} is not supported; 1, 2 and 3 are")
    return NumberForm(version, big_endian)


def _counts(reader: HeaderReader) -> tuple[int, int]:
    """Read the numbers of tensors and keys; check that the file has room for as many."""
    reader.owed = reader.encoding.length_bytes
    n_tensors = reader.length()
    reader.owed = 0
    n_keys = reader.length()
    if n_tensors > limits.GGUF_MAX_TENSORS:
        raise reader.exceeded("GGUF_MAX_TENSORS", f"{n_tensors:,} tensors", limits.GGUF_MAX_TENSORS)
    if n_keys > limits.GGUF_MAX_KEYS:
        raise reader.exceeded("GGUF_MAX_KEYS", f"{n_keys:,} keys", limits.GGUF_MAX_KEYS)
    keys_take = n_keys * reader.encoding.smallest_key
    tensors_take = n_tensors * reader.encoding.smallest_entry
    reader.require(n_keys, keys_take, "keys")
    reader.require(n_tensors, keys_take + tensors_take, "tensors behind the keys")
    reader.budget.items(n_tensors + n_keys, "the tensors and keys")
    reader.owed = keys_take + tensors_take
    return n_tensors, n_keys


def _alignment(metadata: GgufMetadata, source: Source) -> int:
    field = metadata.fields.get(ALIGNMENT_KEY)
    if field is None:
        return DEFAULT_ALIGNMENT
    value = field.value
    if field.type is not ValueType.U32 or value == 0 or value & (value - 1):
        shown = field.describe() if field.span else f"the {field.describe()} {value!r}"
        raise source.error(f"{ALIGNMENT_KEY} must be a u32 and a power of two, not {shown}")
    if value > limits.GGUF_MAX_ALIGNMENT:
        raise source.exceeded(
            "GGUF_MAX_ALIGNMENT", f"{ALIGNMENT_KEY} is {value:,}", limits.GGUF_MAX_ALIGNMENT
        )
    return int(value)


# --- the table of tensors -----------------------------------------------------------------------


class _Entry(NamedTuple):
    """One row of the table, checked by itself; `offset` counts from the start of the data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    n_bytes: int
    offset: int
    at: int  # where the row is


def _read_entries(reader: HeaderReader, n_tensors: int) -> list[_Entry]:
    form = reader.encoding
    smallest = form.smallest_entry
    tails = [
        struct.Struct(f"{form.order}{n}{form.length_code}IQ")
        for n in range(limits.GGUF_MAX_DIMS + 1)
    ]
    entries: dict[str, _Entry] = {}
    layouts: dict[tuple[int, ...], tuple[DType, tuple[int, ...], int]] = {}
    for _ in range(n_tensors):
        reader.owed -= smallest
        at = reader.offset
        name = reader.name("GGUF_MAX_NAME", limits.GGUF_MAX_NAME, "a tensor's name")
        if name in entries:
            raise reader.error(f"tensor {name!r} appears twice", at)
        n_dims = reader.u32()
        if n_dims > limits.GGUF_MAX_DIMS:
            raise reader.exceeded(
                "GGUF_MAX_DIMS", f"tensor {name!r} has {n_dims:,} dimensions", limits.GGUF_MAX_DIMS
            )
        *layout, offset = reader.unpack(tails[n_dims])
        key = tuple(layout)
        if key not in layouts:  # a model has few, and each often
            layouts[key] = _layout(reader, name, *key, at=at)
        entries[name] = _Entry(name, *layouts[key], offset, at)
    return list(entries.values())


def _layout(
    reader: HeaderReader, name: str, *dims_and_type: int, at: int
) -> tuple[DType, tuple[int, ...], int]:
    """Return dtype, shape and length of a tensor; the length of an unknown type is 0."""
    *dims, number = dims_and_type
    shape = tuple(reversed(dims))
    n_elements, most = 1, 1
    for dim in dims:
        n_elements *= dim
        most *= max(dim, 1)  # an empty tensor must not hide dimensions that nothing can hold
    if most > limits.GGUF_MAX_ELEMENTS:
        raise reader.exceeded(
            "GGUF_MAX_ELEMENTS",
            f"tensor {name!r} of shape {list(shape)};"
            f" {limits.GGUF_MAX_ELEMENTS:,} elements are allowed",
        )
    dtype = TYPES.get(number)
    if dtype is None:
        return _unknown(number), shape, 0
    if dtype.block_elements > 1 and (dims[0] if dims else 1) % dtype.block_elements:
        raise reader.error(
            f"tensor {name!r} of type {dtype} has rows of {dims[0] if dims else 1} elements, which"
            f" are not whole blocks of {dtype.block_elements}",
            at,
        )
    return dtype, shape, dtype.n_bytes(n_elements)


@cache
def _unknown(number: int) -> DType:
    name = _REMOVED.get(number)
    shown = f"type {number}" if name is None else f"{name} (type {number})"
    return DType(shown, 0, None, shown, "unknown", 1, 0)


# --- where the data lies ------------------------------------------------------------------------


def _placed(
    source: Source, start: int, alignment: int, entries: Sequence[_Entry]
) -> list[StoredTensor]:
    """Check offsets against the file and each other; return the tensors in the table's order."""
    # The length of a tensor of unknown type is unknown: it gets all bytes up to the next one.
    placed: dict[str, StoredTensor] = {}
    following = source.size
    for entry in sorted(entries, key=lambda e: (e.offset, e.n_bytes), reverse=True):
        name, dtype, shape, n_bytes, offset, at = entry
        if offset % alignment:
            raise source.error(
                f"tensor {name!r} has offset {offset:,}, which is not a multiple of the alignment,"
                f" {alignment}",
                at,
            )
        begin = start + offset
        end = begin + n_bytes
        if end > source.size and (n_bytes or dtype.kind == "unknown"):
            raise source.error(
                f"truncated: {source.size:,} of {end:,} bytes, where tensor {name!r} ends", at
            )
        if dtype.kind == "unknown":
            end = max(begin, following)
        elif n_bytes and end > following:
            raise source.error(f"tensor {name!r} overlaps the next one", begin)
        if end > begin:
            following = begin
        placed[name] = StoredTensor(name, dtype, shape, end - begin, begin, source)
    return [placed[entry.name] for entry in entries]


def _numbers(dtype: DType) -> Sequence[tuple[int, int]]:
    """Return the numbers of more than one byte in a block."""
    if dtype.kind in ("block", "unknown"):
        return _BLOCK_NUMBERS.get(dtype.name, ())
    return ((0, dtype.block_bytes),) if dtype.block_bytes > 1 else ()


def _unreadable(tensors: list[StoredTensor], big_endian: bool) -> dict[str, AnamnesisError]:
    """Return what is wrong with each tensor that is listed but cannot be decoded."""
    problems: dict[str, AnamnesisError] = {}
    for tensor in tensors:
        kind = tensor.dtype.kind
        if kind == "unknown":
            what = (
                "which ggml has removed" if "(" in tensor.dtype.name else "which ggml does not have"
            )
        elif kind == "block" and big_endian and tensor.dtype.name not in _BLOCK_NUMBERS:
            what = "whose blocks cannot be read from a big-endian file; make it little-endian"
        else:
            continue
        problems[tensor.name] = tensor.source.unsupported(
            f"tensor {tensor.name!r} is of GGML {tensor.dtype.name}, {what}"
        )
    return problems


def _own_shapes(
    metadata: GgufMetadata, tensors: Sequence[StoredTensor], source: Source
) -> dict[str, tuple[int, ...]]:
    """Return the shapes of tensors whose rows were cut anew, so that they are whole blocks."""
    given = {key.removeprefix(SHAPE_KEY) for key in metadata if key.startswith(SHAPE_KEY)}
    shapes = {}
    for tensor in tensors if given else ():
        if tensor.name not in given:
            continue
        key = SHAPE_KEY + tensor.name
        shape: Any = metadata[key] if (metadata.n_items(key) or 0) <= limits.GGUF_MAX_DIMS else None
        is_shape = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not is_shape or prod(shape) != tensor.n_elements:
            raise source.error(
                f"{key} must be the shape of as many values as {tensor.describe()} has, not"
                f" {shape if is_shape else metadata.fields[key].describe()}"
            )
        shapes[tensor.name] = tuple(shape)
    return shapes
