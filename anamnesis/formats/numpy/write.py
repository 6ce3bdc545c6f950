"""The writers of NPY and NPZ: the bytes of `numpy.save` and `numpy.savez`.

ml_dtypes' arrays are where numpy's own descriptors fail: `<V2` is BF16 to all who know of it, and
kept; what else is saved by them is `<V1`, which does not say what it is, or `<f1`, which numpy
does not read. Those are written by their names, such as `float8_e4m3fn`, which numpy reads once
ml_dtypes is imported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from anamnesis.base.crc import combined, crc32
from anamnesis.base.dtypes import ALL_DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part
from anamnesis.formats.base import FileLayout, Writer
from anamnesis.formats.magic import NPY_MAGIC
from anamnesis.formats.numpy.npy import KINDS, NPY_MAX_DIMS, NPY_MAX_ELEMENTS
from anamnesis.formats.zip.directory import LARGE, UTF8
from anamnesis.formats.zip.write import (
    LOCAL_BYTES,
    ZIPFILE,
    Member,
    directory,
    directory_bytes,
    local_header,
    wide_field,
)

_ENDING = ".npy"
_ALIGNMENT = 64  # of an array's bytes in its file
_GROWTH = 21  # digits of the first dimension: numpy leaves room for it to grow in place
_LONGEST_NAME = 0xFFFF - len(_ENDING)  # bytes

# What would leave the folder that an archive is unpacked to, on any system.
_ESCAPES = re.compile(r"[/\\]|[A-Za-z]:|(?:.*[/\\])?\.\.(?:[/\\].*)?\Z", re.DOTALL)


class _NumpyWriter(Writer):
    takes_metadata = False

    def holds(self, dtype: DType) -> bool:
        return dtype.name in _DESCRIPTORS

    def refuses(self, part: Part) -> str | None:
        _, dtype, shape = part
        if not self.holds(dtype):
            return f"numpy cannot store {dtype.name}"
        if len(shape) > NPY_MAX_DIMS:
            return f"numpy has at most {NPY_MAX_DIMS} dimensions, not {len(shape)}"
        if prod([max(dim, 1) for dim in shape]) > NPY_MAX_ELEMENTS:
            return f"an array has at most {NPY_MAX_ELEMENTS:,} elements"
        return None


class NpyWriter(_NumpyWriter):
    """One array, named after its file."""

    id = "npy"
    extension = _ENDING

    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> FileLayout:
        self.check(parts, metadata)
        if len(parts) != 1:
            raise UnsupportedError(f"an NPY file holds one array, not {len(parts):,}; write NPZ")
        header = _header(parts[0].dtype, parts[0].shape)
        return FileLayout([(0, header)], [len(header)], len(header) + parts[0].n_bytes)


class NpzWriter(_NumpyWriter):
    """Arrays in an archive, in the order given."""

    id = "npz"
    extension = ".npz"
    self_contained = True
    wants_sums = True

    def __init__(self) -> None:
        self._members: list[Member] = []
        self._headers: list[bytes] = []
        self._directory_at = 0

    def refuses(self, part: Part) -> str | None:
        why = super().refuses(part)
        if why is not None:
            return why
        try:
            raw = part.name.encode()
        except UnicodeEncodeError:
            return "its name has half of a surrogate pair, which no archive may; rename it"
        if b"\0" in raw:
            return "its name has a NUL, where numpy would end it; rename it"
        if len(raw) > _LONGEST_NAME:
            return f"its name has {len(raw):,} bytes; an archive has room for {_LONGEST_NAME:,}"
        if _ESCAPES.match(part.name):
            return "who unpacks the archive would write outside of the folder for it; rename it"
        return None

    def lay_out(self, parts: Sequence[Part], metadata: Mapping[str, Any]) -> FileLayout:
        self.check(parts, metadata)
        names = {part.name for part in parts}
        for name in names:
            if name + _ENDING in names:
                raise UnsupportedError(
                    f"tensors are called {name!r} and {name + _ENDING!r}: numpy would load the"
                    " former for both"
                )
        headers: dict[tuple[DType, tuple[int, ...]], bytes] = {}
        self._members, self._headers = [], []
        fixed: list[tuple[int, bytes]] = []
        offsets = []
        at = 0
        for name, dtype, shape in parts:
            header = headers.get((dtype, shape))
            if header is None:
                header = headers[dtype, shape] = _header(dtype, shape)
            raw = (name + _ENDING).encode()
            n_data = dtype.n_bytes(prod(shape))
            n_bytes = len(header) + n_data
            self._members.append(Member(raw, n_bytes, at, 0 if raw.isascii() else UTF8))
            self._headers.append(header)
            around = raw + wide_field((n_bytes, n_bytes)) + header
            fixed.append((at + LOCAL_BYTES, around))
            at += LOCAL_BYTES + len(around)
            offsets.append(at)
            at += n_data
        self._directory_at = at
        return FileLayout(fixed, offsets, at + directory_bytes(ZIPFILE, self._members, at))

    def finish(self, sums: Sequence[int]) -> Sequence[tuple[int, bytes]]:
        heads: dict[bytes, int] = {}
        crcs = []
        patches = []
        n_extra = len(wide_field((0, 0)))
        for member, header, crc in zip(self._members, self._headers, sums, strict=True):
            first = heads.get(header)
            if first is None:
                first = heads[header] = crc32(header)
            crcs.append(combined(first, crc, member.n_bytes - len(header)))
            local = local_header(ZIPFILE, member, crcs[-1], LARGE, n_extra)
            patches.append((member.offset, local))
        end = directory(ZIPFILE, self._members, crcs, self._directory_at)
        return [*patches, (self._directory_at, end)]


# How the header of an array says its dtype, by our name of that.
_DESCRIPTORS = {
    **{name: dtype.numpy_name for name, dtype in ALL_DTYPES.items() if dtype.numpy_name},
    **{
        name: ("|" if ALL_DTYPES[name].bits == 8 else "<") + kind
        for name, kind in KINDS.items()
        if kind != "f1"
    },
}


def _header(dtype: DType, shape: tuple[int, ...]) -> bytes:
    """Return the header of an array, as `numpy.lib.format` writes version 1."""
    descr = _DESCRIPTORS[dtype.name]
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * (_GROWTH - len(str(shape[0])))
    n_head = len(NPY_MAGIC) + 4
    n_text = len(text) + 1
    n_text += _ALIGNMENT - (n_head + n_text) % _ALIGNMENT
    head = NPY_MAGIC + b"\1\0" + n_text.to_bytes(2, "little")
    return head + text.ljust(n_text - 1).encode() + b"\n"
