"""Importance matrices, as llama-imatrix writes them: GGUF, or its older `.dat`.

    GGUF  imatrix.datasets, .chunk_count, .chunk_size; of each weight NAME.in_sum2 and NAME.counts,
          [experts, columns] and [experts, 1], float32
    .dat  int32 n; n times int32 length, name, int32 calls, int32 values, float32[values];
          then, maybe, int32 chunks, int32 length, dataset; all little-endian

The importance of a column is its sum by the count of its expert, 1 where that is 0, as
llama-quantize has it (llama.cpp's common/imatrix-loader.cpp and tools/quantize/quantize.cpp).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from anamnesis.base.errors import LimitExceeded
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.limits import UNLIMITED, Budget, ParseLimits
from anamnesis.base.source import Readable, Source
from anamnesis.formats.base import Container
from anamnesis.formats.magic import GGUF_MAGIC
from anamnesis.sources.open import open_source

IMATRIX_MAX_ENTRIES = 1_000_000
IMATRIX_MAX_NAME = 65_535  # bytes

_SUMS, _COUNTS = ".in_sum2", ".counts"
_KEYS = ("imatrix.datasets", "imatrix.chunk_count", "imatrix.chunk_size")
_I32 = struct.Struct("<i")
_HEAD = struct.Struct("<ii")


@dataclass(frozen=True)
class Entry:
    """What is said of a weight.

    Attributes
    ----------
    counts : tuple of int
        How often each of its matrices was used: one of most weights, one an expert of stacks.
    values : ndarray of float32
        The importance of columns, one matrix after the other; finite, and not below 0.
    """

    counts: tuple[int, ...]
    values: NDArray[Any]


@dataclass(frozen=True)
class ImatrixFile:
    """What a file of llama-imatrix says of a model.

    Attributes
    ----------
    file : str
        As it was named.
    kind : str
        `gguf` or `dat`.
    entries : dict of str to Entry
        By the name of a tensor, in the order of the file.
    datasets : tuple of str
    n_chunks, chunk_size : int
        Of tokens it was made with; a `.dat` does not say how large they were.
    """

    file: str
    kind: str
    entries: dict[str, Entry]
    datasets: tuple[str, ...]
    n_chunks: int
    chunk_size: int = 0


def read_imatrix(
    where: str | os.PathLike[str] | bytes | Readable, limits: ParseLimits | None = None
) -> ImatrixFile:
    """Read an importance matrix of either kind, which its first bytes tell.

    Parameters
    ----------
    where : path, bytes or file object
    limits : ParseLimits, optional
        As of `parse`.

    Raises
    ------
    ParseError
        If it is none, is cut short, or holds what is no importance: an infinity, a NaN, a number
        below 0.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    OSError
        If it cannot be read.
    """
    budget = Budget(limits or UNLIMITED)
    source = open_source(where)
    try:
        head = source.read(0, min(4, source.size))
        found = _gguf(source, budget) if head == GGUF_MAGIC else _Legacy(source, budget).read()
    finally:
        source.close()
    if not found.entries:
        raise source.error("it has no entries, and is no importance matrix")
    return found


def is_imatrix(metadata: Mapping[str, Any]) -> bool:
    """Return whether the metadata of a GGUF file are those of an importance matrix."""
    return metadata.get("general.type") == "imatrix" or all(key in metadata for key in _KEYS)


def is_dat(head: bytes) -> bool:
    """Return whether a file begins as a `.dat` does: with counts that can be, and a name."""
    if len(head) <= _HEAD.size:
        return False
    n_entries, n_name = _HEAD.unpack_from(head)
    name = head[_HEAD.size : _HEAD.size + n_name]
    is_size = 0 < n_entries <= IMATRIX_MAX_ENTRIES and 0 < n_name <= IMATRIX_MAX_NAME
    return is_size and all(0x20 < byte < 0x7F for byte in name)


def _checked(source: Source, name: str, counts: tuple[int, ...], values: Any) -> Entry:
    if not np.isfinite(values).all() or (values < 0).any():
        raise source.error(f"{name}: its importance holds an infinity, a NaN or a number below 0")
    return Entry(counts, values)


# --- GGUF -----------------------------------------------------------------------------------------


def _gguf(source: Source, budget: Budget) -> ImatrixFile:
    from anamnesis.formats.gguf import read as gguf

    container = gguf.parse(source, source.read(0, min(8, source.size)), budget)
    datasets, n_chunks, chunk_size = map(container.metadata.get, _KEYS)
    if isinstance(datasets, list) and isinstance(n_chunks, int) and isinstance(chunk_size, int):
        entries = dict(_entries(source, container, budget))
        names = tuple(map(str, datasets))
        return ImatrixFile(source.name, "gguf", entries, names, n_chunks, chunk_size)
    raise source.error(f"it has not all of {', '.join(_KEYS)}, and is no importance matrix")


def _entries(source: Source, container: Container, budget: Budget) -> Iterator[tuple[str, Entry]]:
    tensors = container.tensors
    names = dict.fromkeys(
        name.removesuffix(end) for name in tensors for end in (_SUMS, _COUNTS) if name.endswith(end)
    )
    for name in names:
        sums, counts = (tensors.get(name + end) for end in (_SUMS, _COUNTS))
        if sums is None or counts is None:
            raise source.error(f"{name}: has sums or counts alone")
        n, n_counts = prod(sums.shape), prod(counts.shape)
        is_float = {sums.dtype.name, counts.dtype.name} == {"F32"}
        if not is_float or not 1 <= n_counts <= n or n % n_counts:
            raise source.error(
                f"{name}: sums and counts must be F32, and as many sums for each of the counts"
            )
        budget.alloc(sums.n_bytes + counts.n_bytes, f"the importance of {name}")
        given = np.frombuffer(counts.read(), "<f4")
        if not np.isfinite(given).all() or np.abs(given).max() >= 2**31:
            raise source.error(f"{name}: its counts are no counts")
        rounded = np.trunc(given + np.copysign(np.float32(0.5), given))  # halves away from 0
        values = np.frombuffer(sums.read(), "<f4").reshape(n_counts, -1)
        used = rounded[:, None] > 0
        with np.errstate(all="ignore"):
            mean = np.where(used, values / np.where(used, rounded[:, None], 1), np.float32(1))
        flat = np.ascontiguousarray(mean.reshape(-1), np.float32)
        yield name, _checked(source, name, tuple(map(int, rounded)), flat)


# --- .dat -----------------------------------------------------------------------------------------


class _Legacy:
    """One file, read from its beginning to its end."""

    def __init__(self, source: Source, budget: Budget) -> None:
        self._source, self._budget, self._at = source, budget, 0

    def read(self) -> ImatrixFile:
        n_entries = self._number("the number of entries", 1)
        if n_entries > IMATRIX_MAX_ENTRIES:
            given = f"{self._source.name}: {n_entries:,} entries of an importance matrix"
            raise LimitExceeded("IMATRIX_MAX_ENTRIES", given)
        self._budget.items(n_entries, "entries")
        entries = dict(self._entry() for _ in range(n_entries))
        n_chunks, dataset = 0, ""
        if self._at < self._source.size:
            n_chunks = self._number("the number of chunks")
        if self._at < self._source.size:
            dataset = self._text("the dataset", 0)
        named = (dataset,) if dataset else ()
        return ImatrixFile(self._source.name, "dat", entries, named, n_chunks)

    def _entry(self) -> tuple[str, Entry]:
        name = self._text("a name", 1)
        calls = self._number("calls")
        n = self._number("the number of values", 1)
        sums = np.frombuffer(self._bytes(4 * n, f"the importance of {name}"), "<f4")
        with np.errstate(all="ignore"):
            values = sums / np.float32(calls) if calls > 0 else sums
        values = np.ascontiguousarray(values, np.float32)
        return name, _checked(self._source, name, (max(calls, 0),), values)

    def _text(self, what: str, least: int) -> str:
        n = self._number(f"the length of {what}", least)
        if n > IMATRIX_MAX_NAME:
            raise self._source.exceeded("IMATRIX_MAX_NAME", f"{n:,} bytes for {what}")
        raw = self._bytes(n, what)
        return raw.partition(b"\0")[0].decode("utf-8", "surrogateescape")

    def _number(self, what: str, least: int | None = None) -> int:
        at = self._at
        (value,) = _I32.unpack(self._bytes(4, what))
        if least is not None and value < least:
            given = f"{what} is {value:,}: it is no importance matrix"
            raise self._source.error(given, at)
        number: int = value
        return number

    def _bytes(self, n: int, what: str) -> bytes:
        left = self._source.size - self._at
        if n > left:
            raise self._source.error(
                f"{what} takes {n:,} bytes, and {left:,} are left: it is cut short, or no"
                " importance matrix",
                self._at,
            )
        self._budget.alloc(n, what)
        raw = self._source.read(self._at, n)
        self._at += n
        return bytes(raw)
