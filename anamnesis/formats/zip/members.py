"""ZIP archives, read as their central directory describes them.

What readers could understand in two ways is refused, because that is how a member hides from a
scanner but not from a loader: names that appear twice, a local header that contradicts the
directory, members that overlap or leave a gap, bytes before the first or after the end. Stored and
deflated members are read; nothing is ever written to a file of a member's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anamnesis.base.crc import crc32
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.formats.magic import ZIP_MAGIC
from anamnesis.formats.zip import directory
from anamnesis.sources.checked import CheckedSource
from anamnesis.sources.inflated import Deflated, InflatedChunks, InflatedSource

_LEVELS = 1 << 1 | 1 << 2  # how hard the writer tried; may differ
_DESCRIPTOR_BYTES = (12, 16, 20, 24)  # with or without a magic, of 32 or 64 bits
_ZIP64_BYTES = 20  # of both lengths
_SAYING = (".pkl", "/byteorder", "/version")
_EXTRA = 70  # bytes behind a name; torch aligns data by them
_HEAD = 192  # bytes of an array: its header is rarely longer
_SMALL = 4 << 20


def read_directory(source: Source, budget: Budget) -> ZipDirectory:
    """Read the central directory, and nothing else but what is near it."""
    archive = directory.EndAtHand(source)
    entries, ends = directory.read_entries(archive, budget)

    def soon_read() -> Iterator[tuple[int, int]]:
        """Yield what parsing reads of members: headers, and what says what they are."""
        for entry in entries.values():
            start, n = entry.header_offset, entry.n_compressed
            n = n if entry.name.endswith(_SAYING) and n < _SMALL else _HEAD
            yield start, start + directory.LOCAL_BYTES + len(entry.raw_name) + _EXTRA + n

    archive.prefetch(soon_read())
    return ZipDirectory(archive, entries, ends, budget)


class ZipDirectory:
    """The members of an archive. Nothing of them is read before it is asked for."""

    def __init__(
        self,
        archive: directory.EndAtHand,
        entries: dict[str, directory.ZipEntry],
        ends: dict[int, int],
        budget: Budget,
    ) -> None:
        self.source = archive.file
        self.entries = entries
        self._archive = archive
        self._ends = ends
        self._budget = budget
        self._inflated = InflatedChunks()

    def data_offset(self, entry: directory.ZipEntry) -> int:
        """Return where a member's bytes begin; check its local header against the directory."""
        at = entry.header_offset
        start = at + (entry.header_bytes or self._header_bytes(entry))
        end = start + entry.n_compressed
        behind = self._ends[at] - end
        is_described = entry.flags & directory.HAS_DESCRIPTOR and behind in _DESCRIPTOR_BYTES
        if behind and not is_described:
            what = "runs into" if behind < 0 else "leaves a gap before"
            raise self.source.error(f"member {entry.name!r} {what} what follows it", end)
        return start

    def _header_bytes(self, entry: directory.ZipEntry) -> int:
        """Return the length of a member's local header, which must say what the directory does."""
        at = entry.header_offset
        n_fixed = directory.LOCAL_BYTES + len(entry.raw_name)
        raw = self._archive.read(at, min(n_fixed + _ZIP64_BYTES, self._ends[at] - at))
        header: tuple[Any, ...] = directory.LOCAL.unpack_from(raw)
        magic, flags, method, crc, n_compressed, n_bytes, n_name, n_extra = header
        if magic != ZIP_MAGIC:
            raise self.source.error(f"no header of member {entry.name!r}", at)
        same = (
            n_name == len(entry.raw_name)
            and raw[directory.LOCAL_BYTES : n_fixed] == entry.raw_name
            and (flags ^ entry.flags) & ~_LEVELS == 0
            and directory.METHODS.get(method) == entry.method
        )
        if same and n_extra and directory.LARGE in (n_compressed, n_bytes):
            extra = raw[n_fixed : n_fixed + n_extra]
            if len(extra) < n_extra:
                extra = self._archive.read(at + n_fixed, n_extra)
            n_bytes, n_compressed, *_ = directory.widened(
                self.source, at, entry.name, entry.raw_name, extra, (n_bytes, n_compressed, 0, 0)
            )
        late = flags & directory.HAS_DESCRIPTOR  # what was not known yet is 0
        if not (
            same
            and (crc == entry.crc or (late and crc == 0))
            and (n_bytes == entry.n_bytes or (late and n_bytes == 0))
            and (n_compressed == entry.n_compressed or (late and n_compressed == 0))
        ):
            raise self.source.error(
                f"the header of member {entry.name!r} and the directory disagree", at
            )
        length: int = n_fixed + n_extra
        return length

    def locate(self, entry: directory.ZipEntry, *, checked: bool = False) -> tuple[Source, int]:
        """Return a source that holds a member's bytes, and where in it they begin."""
        # A stored member is in the archive itself; a deflated one gets a source of its own. If a
        # stored one is to be `checked`, its source raises `ParseError` when the last of its bytes
        # is read and their CRC is wrong; a deflated one's always does.
        start = self.data_offset(entry)
        if entry.method == "stored":
            if not checked:
                return self.source, start
            stop = start + entry.n_bytes
            return CheckedSource(self.source, entry.name, start, stop, entry.crc), start
        member = Deflated(entry.name, start, entry.n_compressed, entry.n_bytes, entry.crc)
        return InflatedSource(self.source, member, self._inflated), 0

    def source_of(self, entry: directory.ZipEntry) -> Source:
        """Return a source of a member's bytes, and of no others."""
        # Deflated ones are inflated as they are asked for, forwards; what lies behind is kept for a
        # few MiB, so that several threads can read side by side, and is inflated again from the
        # beginning if it is asked for later. The CRC is checked when the end is reached.
        source, start = self.locate(entry)
        return source if start == 0 else _StoredMember(source, entry, start)

    def read(
        self,
        entry: directory.ZipEntry,
        max_bytes: int,
        limit: str = "ZIP_MAX_READ",
        *,
        crc_optional: bool = False,
    ) -> bytes:
        """Return all of a small member; its CRC is checked."""
        if entry.n_bytes > max_bytes:
            raise self.source.exceeded(
                limit, f"member {entry.name!r} has {entry.n_bytes:,} bytes", max_bytes
            )
        self._budget.alloc(entry.n_bytes, f"member {entry.name!r}")
        source, start = self.locate(entry)
        data = (self._archive if source is self.source else source).read(start, entry.n_bytes)
        is_known = entry.method == "stored" and not (crc_optional and entry.crc == 0)
        if is_known and crc32(data) != entry.crc:
            raise self.source.error(f"member {entry.name!r} is damaged: its CRC is wrong", start)
        return data


class _StoredMember(Source):
    """The bytes of a stored member, where they are."""

    def __init__(self, archive: Source, entry: directory.ZipEntry, start: int) -> None:
        self._archive = archive
        self._start = start
        self.name = f"{archive.name}: {entry.name}"
        self.size = entry.n_bytes

    @property
    def base(self) -> Source:
        return self._archive.base

    def _read_some(self, offset: int, view: memoryview) -> int:
        view = view[: max(self.size - offset, 0)]
        self._archive.read_into(self._start + offset, view)
        return len(view)
