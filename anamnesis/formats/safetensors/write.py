"""The safetensors writer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Protocol

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import LimitExceeded
from anamnesis.formats.safetensors.read import (
    LENGTH_BYTES,
    METADATA_KEY,
    SAFETENSORS_MAX_HEADER,
    _has_half_a_pair,
    _refused_name,
)

__all__ = ["Described", "build_header"]


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
    aligned, as the reference implementation does. The metadata must be encodable as UTF-8.

    Raises
    ------
    LimitExceeded
        If the header would be over `SAFETENSORS_MAX_HEADER`: no reader would take it.
    UnsupportedError
        If two tensors have one name, or a tensor has one that no safetensors file can hold.
    """
    header: dict[str, object] = {METADATA_KEY: dict(metadata)}
    end = 0
    for tensor in tensors:
        name = tensor.name
        if name in header:
            raise _refused_name(name)
        begin, end = end, end + tensor.n_bytes
        header[name] = {
            "dtype": tensor.dtype.name,
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    if not metadata:
        del header[METADATA_KEY]
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
