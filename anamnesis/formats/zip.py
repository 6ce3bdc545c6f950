"""ZIP archives, read-only, as their central directory tells them; it fails closed.

    member … member | central directory | [ZIP64 end, its locator] | end record, comment

What readers could understand in two ways is refused, for that is how a member hides from a scanner
and not from a loader: names that stand twice, a local header that says other than the directory,
members that overlap or leave a hole, bytes before the first or behind the end. Stored and deflated
members are read; nothing is ever written to a file of a member's name.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

from anamnesis import _core
from anamnesis.crc import crc32
from anamnesis.errors import LimitExceeded, ParseError, UnsupportedError
from anamnesis.formats.checked import CheckedSource
from anamnesis.formats.inflated import Deflated, InflatedChunks, InflatedSource
from anamnesis.limits import Budget
from anamnesis.source import Source

__all__ = ["ZipDirectory", "ZipEntry", "read_directory"]

ZIP_MAX_ENTRIES = 1_000_000
ZIP_MAX_DIRECTORY = 100_000_000  # bytes
DEFLATE_MAX_RATIO = 1032  # 258 bytes for two bits: no deflated stream is longer

_END = struct.Struct("<4s4H2IH")
_END_MAGIC = b"PK\x05\x06"
_MAX_COMMENT = 0xFFFF
_LOCATOR = struct.Struct("<4sIQI")
_LOCATOR_MAGIC = b"PK\x06\x07"
_END64 = struct.Struct("<4sQ2H2I4Q")
_END64_MAGIC = b"PK\x06\x06"
_END64_HEAD = 12  # magic and length, which the length does not count
# Left out: times, attributes, and which systems the versions are of.
_CENTRAL = struct.Struct("<4s2xBx2H4x3I4H6xI")
_CENTRAL_MAGIC = b"PK\x01\x02"
_CENTRAL_BYTES = _CENTRAL.size
_LOCAL = struct.Struct("<4s2x2H4x3I2H")
_LOCAL_MAGIC = b"PK\x03\x04"
_LOCAL_BYTES = _LOCAL.size

_AT_ONCE = 1 << 15  # bytes of a file's end that are read together: of a small one, all

_VERSION = 63
_MANY = 0xFFFF  # "see ZIP64"
_LARGE = 0xFFFFFFFF

_ENCRYPTED = 1 << 0
_HAS_DESCRIPTOR = 1 << 3  # sizes and CRC follow the member's bytes
_PATCHED = 1 << 5
_STRONGLY_ENCRYPTED = 1 << 6
_UTF8 = 1 << 11
_MASKED = 1 << 13
_LEVELS = 1 << 1 | 1 << 2  # how hard the writer tried; may differ
_UNREADABLE = _ENCRYPTED | _STRONGLY_ENCRYPTED | _MASKED | _PATCHED
_DESCRIPTOR_BYTES = (12, 16, 20, 24)  # with or without a magic, of 32 or 64 bits

_METHODS = {0: "stored", 8: "deflate"}
_EXTRA_ZIP64 = 0x0001
_ZIP64_BYTES = 20  # of both lengths
_EXTRA_UNICODE_NAME = 0x7075


class ZipEntry(NamedTuple):
    """One member, as the central directory tells it.

    Attributes
    ----------
    name : str
    method : str
        `stored` or `deflate`.
    crc : int
        CRC-32 of its bytes.
    n_bytes, n_compressed : int
        Its length, and what it takes in the file.
    header_offset : int
        Where its local header is.
    raw_name : bytes
    flags : int
    header_bytes : int
        Length of its local header if that was read and says the same; else 0.
    """

    name: str
    method: str
    crc: int
    n_bytes: int
    n_compressed: int
    header_offset: int
    raw_name: bytes
    flags: int
    header_bytes: int = 0


def read_directory(source: Source, budget: Budget) -> ZipDirectory:
    """Read the central directory, and nothing else but what is near it.

    Raises
    ------
    ParseError
        If it is malformed or ambiguous, with the offset.
    UnsupportedError
        If it is in several files, encrypted, or compressed by what is not read here.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    """
    archive = _EndAtHand(source)
    plain = _core.zip_members(archive.end, archive.end_start, ZipEntry)
    if plain is not None:  # what is wrong with others is said below
        n_bytes, entries, ends = plain
        budget.items(len(entries), "the members")
        budget.alloc(n_bytes, "the directory of the archive")
        return ZipDirectory(archive, entries, ends, budget)
    end = _find_end(archive)
    if end.n_entries > ZIP_MAX_ENTRIES:
        raise LimitExceeded(
            "ZIP_MAX_ENTRIES",
            f"{source.name}: {end.n_entries:,} members; {ZIP_MAX_ENTRIES:,} are allowed",
        )
    if end.n_bytes > ZIP_MAX_DIRECTORY:
        raise LimitExceeded(
            "ZIP_MAX_DIRECTORY",
            f"{source.name}: the directory claims {end.n_bytes:,} bytes;"
            f" {ZIP_MAX_DIRECTORY:,} are allowed",
        )
    if end.n_entries * _CENTRAL_BYTES > end.n_bytes:
        raise _error(
            source,
            end.start,
            f"{end.n_entries:,} members do not fit a directory of {end.n_bytes:,} bytes",
        )
    budget.items(end.n_entries, "the members")
    budget.alloc(end.n_bytes, "the directory of the archive")
    entries = _entries(archive, end, budget)
    return ZipDirectory(archive, entries, _ends(source, entries, end.start), budget)


class _EndAtHand(Source):
    """An archive, whose end was read already: the directory, and of a small one all members."""

    def __init__(self, file: Source) -> None:
        self.file = file
        self.name = file.name
        self.size = file.size
        self.end_start = max(0, file.size - _AT_ONCE)
        self.end = file.read(self.end_start, file.size - self.end_start)

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Return exactly `n_bytes` bytes; they may be at hand."""
        at = offset - self.end_start
        if at < 0 or at + n_bytes > len(self.end):
            return self.file.read(offset, n_bytes)
        return self.end[at : at + n_bytes]

    def _read_some(self, offset: int, view: memoryview) -> int:
        return self.file._read_some(offset, view)


def _error(source: Source, offset: int, message: str) -> ParseError:
    return ParseError(message, offset=offset, source=source.name)


# --- the end, where reading begins --------------------------------------------------------------


class _End(NamedTuple):
    """What the end of an archive says of its directory."""

    n_entries: int
    n_bytes: int
    start: int


def _find_end(source: Source) -> _End:
    """Find the one end record whose comment is the end of the file."""
    at, record = _end_record(source)
    _, disk, start_disk, n_here, n_entries, n_bytes, start, _ = record
    stop = at  # of the directory
    wide = _zip64_end(source, at)
    if wide is not None:
        short = (n_entries, n_bytes, start)
        stop, n_entries, n_bytes, start = wide
        for told, full, none in zip(short, wide[1:], (_MANY, _LARGE, _LARGE), strict=True):
            if told not in (full, none):
                raise _error(source, at, "the end of the archive and its ZIP64 end disagree")
        n_here = n_entries if n_here == _MANY else n_here
        disk = 0 if disk == _MANY else disk
        start_disk = 0 if start_disk == _MANY else start_disk
    if disk or start_disk or n_here != n_entries:
        raise _several_files(source)
    if start + n_bytes != stop:
        raise _error(
            source,
            at,
            f"the directory should end at byte {start + n_bytes:,}, its end record begins at"
            f" {stop:,}: the archive has a prefix, was cut, or is malformed",
        )
    return _End(n_entries, n_bytes, start)


def _end_record(source: Source) -> tuple[int, tuple[Any, ...]]:
    if source.size < _END.size:
        raise _error(source, 0, f"{source.size} bytes are no ZIP archive")
    at = source.size - _END.size
    record = _END.unpack(source.read(at, _END.size))
    if record[0] == _END_MAGIC and record[-1] == 0:
        return at, record
    n_tail = min(source.size, _END.size + _MAX_COMMENT)
    tail = source.read(source.size - n_tail, n_tail)
    pos = tail.rfind(_END_MAGIC)
    if pos < 0:
        raise _error(
            source, source.size, "no end of a ZIP archive's directory: the file is cut short"
        )
    at = source.size - n_tail + pos
    if len(tail) - pos < _END.size:
        raise _error(source, at, "the end record of the archive is cut short")
    record = _END.unpack_from(tail, pos)
    if at + _END.size + record[-1] != source.size:
        raise _error(
            source, at, "the comment of the archive does not end where the file does, or hides one"
        )
    return at, record


def _zip64_end(source: Source, at: int) -> tuple[int, int, int, int] | None:
    """Return where the ZIP64 end begins, and the entries, bytes and start of the directory."""
    at -= _LOCATOR.size
    if at < 0:
        return None
    magic, disk, offset, n_disks = _LOCATOR.unpack(source.read(at, _LOCATOR.size))
    if magic != _LOCATOR_MAGIC:
        return None
    if disk != 0 or n_disks > 1:
        raise _several_files(source)
    if offset + _END64.size > at:
        raise _error(source, at, "the ZIP64 end does not lie before its locator")
    record = _END64.unpack(source.read(offset, _END64.size))
    magic, n_bytes, _, _, disk, start_disk, n_here, n_entries, n_directory, start = record
    if magic != _END64_MAGIC or offset + _END64_HEAD + n_bytes != at:
        raise _error(source, offset, "no ZIP64 end where its locator says")
    if disk or start_disk or n_here != n_entries:
        raise _several_files(source)
    return offset, n_entries, n_directory, start


def _several_files(source: Source) -> UnsupportedError:
    return UnsupportedError(f"{source.name}: a ZIP archive in several files; join them first")


# --- the directory ------------------------------------------------------------------------------


def _entries(source: Source, end: _End, budget: Budget) -> dict[str, ZipEntry]:
    """Return all members in the directory's order, each checked by itself and by the limits."""
    directory = source.read(end.start, end.n_bytes)
    entries: dict[str, ZipEntry] = {}
    pos = 0
    for _ in range(end.n_entries):
        at = end.start + pos
        if len(directory) - pos < _CENTRAL_BYTES:
            raise _error(source, at, "the directory ends before its last member")
        (
            magic,
            version,
            flags,
            method,
            crc,
            n_compressed,
            n_bytes,
            n_name,
            n_extra,
            n_comment,
            disk,
            offset,
        ) = _CENTRAL.unpack_from(directory, pos)
        name_at = pos + _CENTRAL_BYTES
        extra_at = name_at + n_name
        pos = extra_at + n_extra + n_comment
        if magic != _CENTRAL_MAGIC or pos > len(directory):
            raise _error(source, at, "no record of a member where one should be in the directory")
        raw_name = directory[name_at:extra_at]
        name = _name(source, at, raw_name, flags)
        if flags & _UNREADABLE or version > _VERSION or method not in _METHODS:
            raise _unsupported(source, name, flags, version, method)
        if n_extra:
            extra = directory[extra_at : extra_at + n_extra]
            n_bytes, n_compressed, offset, disk = _wide(
                source, at, name, raw_name, extra, (n_bytes, n_compressed, offset, disk)
            )
        if disk:
            raise _several_files(source)
        if name in entries:
            raise _error(source, at, f"member {name!r} stands twice")
        entries[name] = entry = ZipEntry(
            name, _METHODS[method], crc, n_bytes, n_compressed, offset, raw_name, flags
        )
        if method or n_bytes != n_compressed:
            _check_length(source, entry, at, budget)
    if pos != len(directory):
        raise _error(source, end.start + pos, "the directory goes on behind its last member")
    return entries


def _ends(source: Source, entries: dict[str, ZipEntry], start: int) -> dict[int, int]:
    """Return where the room of each member ends, by where it begins.

    That is where the next one begins, or the directory, at `start`. They fill all before that.
    """
    ends: dict[int, int] = {}
    end = start
    for entry in sorted(entries.values(), key=attrgetter("header_offset"), reverse=True):
        offset = entry.header_offset
        if offset + _LOCAL_BYTES + len(entry.raw_name) + entry.n_compressed > end:
            raise _error(
                source,
                offset,
                f"member {entry.name!r} overlaps what is behind it, or the file is cut short",
            )
        ends[offset] = end
        end = offset
    if end != 0:
        raise _error(source, 0, f"{end:,} bytes before the first member of the archive")
    return ends


def _unsupported(
    source: Source, name: str, flags: int, version: int, method: int
) -> UnsupportedError:
    """Return what is wrong with a member that is not malformed."""
    if flags & _UNREADABLE:
        what = "a patch" if flags & _PATCHED else "encrypted"
        message = f"is {what}; no such are read here"
    elif version > _VERSION:
        message = (
            f"needs version {version / 10} of ZIP; {_VERSION / 10} is the last that is known here"
        )
    else:
        message = f"is compressed by method {method}; stored and deflated ones are read here"
    return UnsupportedError(f"{source.name}: member {name!r} {message}")


def _name(source: Source, at: int, raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & _UTF8 or raw.isascii() else "cp437")
    except UnicodeDecodeError:
        raise _error(source, at, f"a member's name is not UTF-8: {raw[:40]!r}") from None
    if not name or "\0" in name:
        raise _error(source, at, f"a member cannot be called {name[:40]!r}")
    return name


def _wide(
    source: Source,
    at: int,
    name: str,
    raw_name: bytes,
    extra: bytes,
    short: tuple[int, int, int, int],
) -> tuple[int, ...]:
    """Return lengths, offset and disk of a record, those of its ZIP64 field where it has any."""
    fields = list(short)
    wanting = [i for i, none in enumerate((_LARGE, _LARGE, _LARGE, _MANY)) if fields[i] == none]
    for kind, body in _extra_fields(source, at, extra, (_EXTRA_ZIP64, _EXTRA_UNICODE_NAME)):
        if kind == _EXTRA_UNICODE_NAME:
            _check_unicode_name(source, at, name, raw_name, body)
            continue
        layout = struct.Struct("<" + "".join("I" if i == 3 else "Q" for i in wanting))
        if len(body) < layout.size:
            raise _error(source, at, f"the ZIP64 field of member {name!r} is cut short")
        for i, value in zip(wanting, layout.unpack_from(body), strict=True):
            fields[i] = value
    return tuple(fields)


def _extra_fields(
    source: Source, at: int, extra: bytes, wanted: tuple[int, ...]
) -> Iterator[tuple[int, bytes]]:
    """Yield the wanted fields of an extra field; a few bytes at the end may be padding."""
    seen = set()
    pos = 0
    while len(extra) - pos >= 4:
        kind, length = struct.unpack_from("<2H", extra, pos)
        pos += 4
        if length > len(extra) - pos:
            raise _error(source, at, "an extra field of a member is longer than there is room")
        if kind in wanted:
            if kind in seen:
                raise _error(source, at, "an extra field of a member stands twice")
            seen.add(kind)
            yield kind, extra[pos : pos + length]
        pos += length


def _check_unicode_name(source: Source, at: int, name: str, raw_name: bytes, body: bytes) -> None:
    """Refuse another name in Info-ZIP's field: some readers take it, some do not."""
    if body[5:] not in (raw_name, name.encode("utf-8", "surrogatepass")):
        raise _error(source, at, f"member {name!r} has a second name: {body[5:45]!r}")


def _check_length(source: Source, entry: ZipEntry, at: int, budget: Budget) -> None:
    """Check that so few bytes can stand for so many, and that the limits allow it."""
    n_bytes, n_compressed = entry.n_bytes, entry.n_compressed
    if entry.method == "stored":
        if n_bytes != n_compressed:
            raise _error(
                source,
                at,
                f"member {entry.name!r} is stored, but has two lengths, {n_bytes:,} and"
                f" {n_compressed:,}",
            )
        return
    if n_bytes > n_compressed * DEFLATE_MAX_RATIO:
        raise _error(
            source,
            at,
            f"member {entry.name!r} claims {n_bytes:,} bytes, which {n_compressed:,} deflated ones"
            " cannot hold",
        )
    most = budget.limits.max_decompression_ratio
    if most is not None and n_bytes > n_compressed * most:
        raise LimitExceeded(
            "max_decompression_ratio",
            f"{source.name}: member {entry.name!r} has {n_bytes:,} bytes in {n_compressed:,},"
            f" more than {most:g} for one",
        )


# --- the members --------------------------------------------------------------------------------


class ZipDirectory:
    """The members of an archive. Nothing of them is read before it is asked for.

    Attributes
    ----------
    source : Source
        The archive.
    entries : dict of str to ZipEntry
        In the directory's order.
    """

    def __init__(
        self,
        archive: _EndAtHand,
        entries: dict[str, ZipEntry],
        ends: dict[int, int],
        budget: Budget,
    ) -> None:
        self.source = archive.file
        self.entries = entries
        self._archive = archive
        self._ends = ends
        self._budget = budget

    @cached_property
    def _inflated(self) -> InflatedChunks:
        return InflatedChunks()

    def data_offset(self, entry: ZipEntry) -> int:
        """Return where a member's bytes begin; check its local header against the directory.

        Raises
        ------
        ParseError
            If they disagree, or if the member does not end where the next begins.
        """
        at = entry.header_offset
        start = at + (entry.header_bytes or self._header_bytes(entry))
        end = start + entry.n_compressed
        behind = self._ends[at] - end
        is_described = entry.flags & _HAS_DESCRIPTOR and behind in _DESCRIPTOR_BYTES
        if behind and not is_described:
            what = "runs into" if behind < 0 else "leaves a hole before"
            raise _error(self.source, end, f"member {entry.name!r} {what} what is behind it")
        return start

    def _header_bytes(self, entry: ZipEntry) -> int:
        """Return the length of a member's local header, which must say what the directory does."""
        at = entry.header_offset
        n_fixed = _LOCAL_BYTES + len(entry.raw_name)
        raw = self._archive.read(at, min(n_fixed + _ZIP64_BYTES, self._ends[at] - at))
        header: tuple[Any, ...] = _LOCAL.unpack_from(raw)
        magic, flags, method, crc, n_compressed, n_bytes, n_name, n_extra = header
        if magic != _LOCAL_MAGIC:
            raise _error(self.source, at, f"no header of member {entry.name!r}")
        same = (
            n_name == len(entry.raw_name)
            and raw[_LOCAL_BYTES:n_fixed] == entry.raw_name
            and (flags ^ entry.flags) & ~_LEVELS == 0
            and _METHODS.get(method) == entry.method
        )
        if same and n_extra and _LARGE in (n_compressed, n_bytes):
            extra = raw[n_fixed : n_fixed + n_extra]
            if len(extra) < n_extra:
                extra = self._archive.read(at + n_fixed, n_extra)
            n_bytes, n_compressed, *_ = _wide(
                self.source, at, entry.name, entry.raw_name, extra, (n_bytes, n_compressed, 0, 0)
            )
        late = flags & _HAS_DESCRIPTOR  # what was not known yet is 0
        if not (
            same
            and (crc == entry.crc or (late and crc == 0))
            and (n_bytes == entry.n_bytes or (late and n_bytes == 0))
            and (n_compressed == entry.n_compressed or (late and n_compressed == 0))
        ):
            raise _error(
                self.source, at, f"the header of member {entry.name!r} and the directory disagree"
            )
        length: int = n_fixed + n_extra
        return length

    def locate(self, entry: ZipEntry, *, checked: bool = False) -> tuple[Source, int]:
        """Return a source that holds a member's bytes, and where in it they begin.

        A stored member is in the archive itself; a deflated one gets a source of its own. If a
        stored one is to be `checked`, its source raises `ParseError` when the last of its bytes is
        read and their CRC is wrong; a deflated one's always does.
        """
        start = self.data_offset(entry)
        if entry.method == "stored":
            if not checked:
                return self.source, start
            stop = start + entry.n_bytes
            return CheckedSource(self.source, entry.name, start, stop, entry.crc), start
        member = Deflated(entry.name, start, entry.n_compressed, entry.n_bytes, entry.crc)
        return InflatedSource(self.source, member, self._inflated), 0

    def source_of(self, entry: ZipEntry) -> Source:
        """Return a source of a member's bytes, and of no others.

        Deflated ones are inflated as they are asked for, forwards; what lies behind is kept for a
        few MiB, so that several threads can read side by side, and is inflated again from the
        beginning if it is asked for later. The CRC is checked when the end is reached.
        """
        source, start = self.locate(entry)
        return source if start == 0 else _StoredMember(source, entry, start)

    def read(
        self,
        entry: ZipEntry,
        max_bytes: int,
        limit: str = "ZIP_MAX_READ",
        *,
        crc_optional: bool = False,
    ) -> bytes:
        """Return all of a small member; its CRC is checked.

        Parameters
        ----------
        entry : ZipEntry
        max_bytes : int
            The permanent cap for what this member is.
        limit : str
            What that cap is called.
        crc_optional : bool
            Take a CRC of 0 as none: torch writes it so when it is told not to compute any.

        Raises
        ------
        ParseError
            If its header, its length or its CRC is wrong.
        LimitExceeded
            If it is longer than `max_bytes` or than the budget allows.
        """
        if entry.n_bytes > max_bytes:
            raise LimitExceeded(
                limit,
                f"{self.source.name}: member {entry.name!r} has {entry.n_bytes:,} bytes;"
                f" {max_bytes:,} are allowed",
            )
        self._budget.alloc(entry.n_bytes, f"member {entry.name!r}")
        source, start = self.locate(entry)
        data = (self._archive if source is self.source else source).read(start, entry.n_bytes)
        is_known = entry.method == "stored" and not (crc_optional and entry.crc == 0)
        if is_known and crc32(data) != entry.crc:
            raise _error(self.source, start, f"member {entry.name!r} is damaged: its CRC is wrong")
        return data


class _StoredMember(Source):
    """The bytes of a stored member, where they are."""

    def __init__(self, archive: Source, entry: ZipEntry, start: int) -> None:
        self._archive = archive
        self._start = start
        self.name = f"{archive.name}: {entry.name}"
        self.size = entry.n_bytes

    @property
    def base(self) -> Source:
        """The source of the whole file."""
        return self._archive.base

    def _read_some(self, offset: int, view: memoryview) -> int:
        view = view[: max(self.size - offset, 0)]
        self._archive.read_into(self._start + offset, view)
        return len(view)
