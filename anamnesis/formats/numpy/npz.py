"""NPZ, a ZIP archive of NumPy arrays, and NPY, a single one.

Stored members are read where they lie in the archive, deflated ones as they are inflated; the CRC
of either is checked when the last of it was read. A tensor is called as `numpy.load` calls it, by
its member without `.npy`; that of an NPY file by the file, without its ending, or `array` where
there is no file name.
"""

from __future__ import annotations

import os
from typing import Any

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.base import Container
from anamnesis.formats.magic import NPY_MAGIC
from anamnesis.formats.numpy.npy import read_header
from anamnesis.formats.zip.members import ZipDirectory
from anamnesis.sources.altered import swapped
from anamnesis.sources.strided import Strips, column_major, strided

_ENDING = ".npy"
_NAMELESS = "array"


def holds_arrays(directory: ZipDirectory) -> bool:
    """Return whether an archive is an NPZ file: one of arrays, or an empty one."""
    return not directory.entries or any(name.endswith(_ENDING) for name in directory.entries)


def parse(directory: ZipDirectory, budget: Budget, void: DType | None = None) -> Container:
    """Read the headers of all arrays of an archive, and nothing else."""
    # `void` is the dtype of arrays whose items are bytes without a meaning.
    arrays = _Arrays(directory.source, budget, void)
    for entry in directory.entries.values():
        if entry.name.endswith("/") and not entry.n_bytes:  # a folder
            continue
        name = entry.name.removesuffix(_ENDING)
        if name in arrays.tensors:
            raise directory.source.error(
                f"members {name!r} and {name + _ENDING!r} both name one array", entry.header_offset
            )
        inner, start = directory.locate(entry, checked=True)
        n, is_array = len(NPY_MAGIC), entry.name.endswith(_ENDING)
        if is_array or (entry.n_bytes >= n and inner.read(start, n) == NPY_MAGIC):
            arrays.add(name, inner, start, start + entry.n_bytes)
        else:
            arrays.add_foreign(name, inner, start, entry.n_bytes)
    n_deflated = sum(entry.method != "stored" for entry in directory.entries.values())
    return arrays.container("NPZ", {"deflated": n_deflated})


def parse_npy(source: Source, budget: Budget, void: DType | None = None) -> Container:
    """Read the header of a single array, and nothing else. `void` is as in `parse`."""
    budget.items(1, "the array")
    name = os.path.splitext(os.path.basename(source.path or ""))[0] or _NAMELESS
    arrays = _Arrays(source, budget, void)
    arrays.add(name, source, 0, source.size)
    return arrays.container("NPY", {})


class _Arrays:
    """The arrays of one file, on their way to a container."""

    def __init__(self, file: Source, budget: Budget, void: DType | None) -> None:
        self._file = file
        self._budget = budget
        self._void = void
        self._strips = Strips()
        self._n_column_major = 0
        self._n_big_endian = 0
        self.tensors: dict[str, StoredTensor] = {}
        self._unreadable: dict[str, AnamnesisError] = {}

    def add(self, name: str, source: Source, start: int, end: int) -> None:
        """Read the header of an array that lies at `start` to `end` of a source."""
        header = read_header(source, start, end, name, self._budget, self._void)
        dtype, shape, n_bytes, start = header.dtype, header.shape, header.n_bytes, header.data_start
        self._n_column_major += header.column_major
        self._n_big_endian += header.big_endian
        if header.problem:
            what, _, remedy = header.problem.partition("; ")
            self._refuse(name, f"holds {what}", remedy)
        elif header.big_endian:
            number = dtype.block_bytes // 2 if dtype.kind == "complex" else dtype.block_bytes
            source = swapped(source, start, start + n_bytes, number)
        if header.column_major and not header.problem:
            order = column_major(shape)
            source, start = strided(source, start, shape, order, dtype.block_bytes, self._strips)
        self.tensors[name] = StoredTensor(name, dtype, shape, n_bytes, start, source)

    def add_foreign(self, name: str, source: Source, start: int, n_bytes: int) -> None:
        dtype = DType("no array", 0, None, "no array", "unknown", 1, 0)
        self._refuse(name, "is not a NumPy array")
        self.tensors[name] = StoredTensor(name, dtype, (), n_bytes, start, source)

    def _refuse(self, name: str, why: str, remedy: str = "") -> None:
        self._unreadable[name] = self._file.unsupported(
            f"array {name!r} {why}", remedy=remedy or None
        )

    def container(self, form: str, facts: dict[str, Any]) -> Container:
        facts |= {"column_major": self._n_column_major, "big_endian": self._n_big_endian}
        return Container(
            form.lower(),
            form,
            self._file,
            self.tensors,
            facts=facts,
            unreadable=self._unreadable,
            self_contained=True,
        )
