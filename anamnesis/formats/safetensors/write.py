"""The safetensors writer, and a header with other metadata."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from math import prod
from typing import Any

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import LimitExceeded, UnsupportedError
from anamnesis.base.stored import Part
from anamnesis.formats.base import Container, FileLayout, Writer
from anamnesis.formats.safetensors.read import (
    LENGTH_BYTES,
    METADATA_KEY,
    SAFETENSORS_MAX_HEADER,
    bits_of,
)

_SURELY_FIT = 1 << 56  # elements whose bits, and all products of sizes, fit 64 bits


class SafetensorsWriter(Writer):
    """Tensors go by falling alignment, else in the order given, so that no padding is needed."""

    id = "safetensors"
    extension = ".safetensors"

    def holds(self, dtype: DType) -> bool:
        return dtype.name in DTYPES

    def refuses(self, part: Part) -> str | None:
        if not self.holds(part.dtype):
            return super().refuses(part)
        n = prod(part.shape)
        if n % part.dtype.block_elements:
            return f"{n:,} elements of {part.dtype.name} fill no whole bytes"
        if (n == 0 or n > _SURELY_FIT) and bits_of(part.shape, part.dtype) is None:
            return f"sizes {list(part.shape)} and their product must fit 64 bits in safetensors"
        return None

    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> FileLayout:
        check_metadata(metadata)
        header: dict[str, object] = {METADATA_KEY: dict(metadata)}
        begins = [0] * len(parts)
        end = 0
        for i in sorted(range(len(parts)), key=lambda i: -parts[i].dtype.alignment):
            name, dtype, shape = part = parts[i]
            if name in header:
                raise _refused_name(name)
            why = self.refuses(part)
            if why is not None:
                raise UnsupportedError(f"tensor {name!r}: {why}")
            begins[i], end = end, end + part.n_bytes
            entry = {"dtype": dtype.name, "shape": list(shape), "data_offsets": [begins[i], end]}
            header[name] = entry
        if not metadata:
            del header[METADATA_KEY]
        raw = header_bytes(header)
        return FileLayout([(0, raw)], [len(raw) + begin for begin in begins], len(raw) + end)


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Refuse what `__metadata__` cannot hold: it maps text to text."""
    for key, value in metadata.items():
        for what, text in (("the key", key), ("its value", value)):
            if not isinstance(text, str):
                raise UnsupportedError(
                    f"metadata {key!r}: {what} must be a string; safetensors has no other types"
                )
            if _has_half_a_pair(text):
                raise UnsupportedError(
                    f"metadata {key!r}: {what} has half of a surrogate pair, which is no UTF-8"
                )


def header_bytes(header: dict[str, object]) -> bytes:
    """Return the header behind its length, padded with spaces to a multiple of 8 bytes."""
    # So does the reference implementation; data sorted by falling alignment is aligned then.
    try:
        text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise _refused_name(next(filter(_has_half_a_pair, header))) from None
    text += b" " * (-len(text) % 8)
    if len(text) > SAFETENSORS_MAX_HEADER:
        raise LimitExceeded(
            "SAFETENSORS_MAX_HEADER", f"the output's header would take {len(text):,} bytes"
        )
    return len(text).to_bytes(LENGTH_BYTES, "little") + text


def _has_half_a_pair(text: str) -> bool:
    return any("\ud800" <= mark <= "\udfff" for mark in text)


def _refused_name(name: str) -> UnsupportedError:
    if name == METADATA_KEY:
        why = "which safetensors keep for what the file says of itself; rename the tensor"
    elif _has_half_a_pair(name):
        why = "which has half of a surrogate pair, as no safetensors file may; rename the tensor"
    else:
        why = "as another is, and a file can hold one of them"
    return UnsupportedError(f"a tensor is called {name!r}, {why}")


def edited(container: Container, new: Mapping[str, Any], gone: Collection[str]) -> bytes:
    """Return the header behind its length, as long as it was if that is long enough."""
    text = container.source.read(LENGTH_BYTES, container.header_bytes - LENGTH_BYTES)
    header: dict[str, Any] = json.loads(text)
    metadata = {k: v for k, v in {**container.metadata, **new}.items() if k not in gone}
    check_metadata(metadata)
    header = {METADATA_KEY: metadata, **{k: v for k, v in header.items() if k != METADATA_KEY}}
    if not metadata:
        del header[METADATA_KEY]
    raw = header_bytes(header)
    if len(raw) > container.header_bytes:
        return raw
    return len(text).to_bytes(LENGTH_BYTES, "little") + raw[LENGTH_BYTES:].ljust(len(text))
