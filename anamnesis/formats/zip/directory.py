"""The central directory of a ZIP archive, and the end record that locates it.

    member … member | central directory | [ZIP64 end, its locator] | end record, comment

C reads the usual archives; here the others are read, and the errors of all are worded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

import anamnesis._parse as _parse
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.formats.magic import ZIP_END_MAGIC

ZIP_MAX_ENTRIES = 1_000_000
ZIP_MAX_DIRECTORY = 100_000_000  # bytes
DEFLATE_MAX_RATIO = 1032  # 258 bytes for two bits: no deflated stream is longer

END = struct.Struct("<4s4H2IH")
_MAX_COMMENT = 0xFFFF
LOCATOR = struct.Struct("<4sIQI")
_LOCATOR_MAGIC = b"PK\x06\x07"
END64 = struct.Struct("<4sQ2H2I4Q")
_END64_MAGIC = b"PK\x06\x06"
_END64_HEAD = 12  # magic and length, which the length does not count
# Left out: times, attributes, and which systems the versions are of.
_CENTRAL = struct.Struct("<4s2xBx2H4x3I4H6xI")
_CENTRAL_MAGIC = b"PK\x01\x02"
_CENTRAL_BYTES = _CENTRAL.size
LOCAL = struct.Struct("<4s2x2H4x3I2H")
LOCAL_BYTES = LOCAL.size

_AT_ONCE = 1 << 15  # bytes of a file's end that are read together: of a small one, all

_VERSION = 63
MANY = 0xFFFF  # "see ZIP64"
LARGE = 0xFFFFFFFF

_ENCRYPTED = 1 << 0
HAS_DESCRIPTOR = 1 << 3  # sizes and CRC follow the member's bytes
_PATCHED = 1 << 5
_STRONGLY_ENCRYPTED = 1 << 6
UTF8 = 1 << 11  # names are, that is
_MASKED = 1 << 13
_UNREADABLE = _ENCRYPTED | _STRONGLY_ENCRYPTED | _MASKED | _PATCHED

METHODS = {0: "stored", 8: "deflate"}
_EXTRA_ZIP64 = 0x0001
_EXTRA_UNICODE_NAME = 0x7075


class ZipEntry(NamedTuple):
    """One member, as the central directory describes it."""

    name: str
    method: str
    crc: int
    n_bytes: int
    n_compressed: int
    header_offset: int
    raw_name: bytes
    flags: int
    header_bytes: int = 0


def read_entries(archive: EndAtHand, budget: Budget) -> tuple[dict[str, ZipEntry], dict[int, int]]:
    """Read the directory: the members by name, and by header_offset where the room of each ends."""
    plain = _parse.zip_members(archive.end, archive.end_start, ZipEntry)
    if plain is not None:  # what is wrong with others is said below
        n_bytes, entries, ends = plain
        budget.items(len(entries), "the members")
        budget.alloc(n_bytes, "the directory of the archive")
        return entries, ends
    n_entries, n_bytes, start = _find_end(archive)
    if n_entries > ZIP_MAX_ENTRIES:
        raise archive.exceeded("ZIP_MAX_ENTRIES", f"{n_entries:,} members", ZIP_MAX_ENTRIES)
    if n_bytes > ZIP_MAX_DIRECTORY:
        raise archive.exceeded(
            "ZIP_MAX_DIRECTORY", f"the directory claims {n_bytes:,} bytes", ZIP_MAX_DIRECTORY
        )
    if n_entries * _CENTRAL_BYTES > n_bytes:
        raise archive.error(
            f"{n_entries:,} members do not fit a directory of {n_bytes:,} bytes", start
        )
    budget.items(n_entries, "the members")
    budget.alloc(n_bytes, "the directory of the archive")
    entries = _entries(archive, start, archive.read(start, n_bytes), n_entries, budget)
    return entries, _ends(archive, entries, start)


class EndAtHand(Source):
    """An archive, whose end was read already: the directory, and of a small one all members."""

    def __init__(self, file: Source) -> None:
        self.file = file
        self.name = file.name
        self.size = file.size
        self.end_start = max(0, file.size - _AT_ONCE)
        self.end = file.read(self.end_start, file.size - self.end_start)

    def read(self, offset: int, n_bytes: int) -> bytes:
        at = offset - self.end_start
        if at < 0 or at + n_bytes > len(self.end):
            return self.file.read(offset, n_bytes)
        return self.end[at : at + n_bytes]

    def _read_some(self, offset: int, view: memoryview) -> int:
        return self.file._read_some(offset, view)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.file.prefetch(ranges)


# --- the end, where reading begins --------------------------------------------------------------


def _find_end(source: Source) -> tuple[int, int, int]:
    """Return how many entries and bytes the directory has, and where it starts."""
    # The one end record, whose comment is the end of the file, says so.
    at, record = _end_record(source)
    _, disk, start_disk, n_here, n_entries, n_bytes, start, _ = record
    stop = at  # of the directory
    wide = _zip64_end(source, at)
    if wide is not None:
        short = (n_entries, n_bytes, start)
        stop, n_entries, n_bytes, start = wide
        for given, full, none in zip(short, wide[1:], (MANY, LARGE, LARGE), strict=True):
            if given not in (full, none):
                raise source.error("the end of the archive and its ZIP64 end disagree", at)
        n_here = n_entries if n_here == MANY else n_here
        disk = 0 if disk == MANY else disk
        start_disk = 0 if start_disk == MANY else start_disk
    if disk or start_disk or n_here != n_entries:
        raise _several_files(source)
    if start + n_bytes != stop:
        raise source.error(
            f"the directory should end at byte {start + n_bytes:,}, its end record begins at"
            f" {stop:,}: the archive has a prefix, is truncated, or is malformed",
            at,
        )
    return n_entries, n_bytes, start


def _end_record(source: Source) -> tuple[int, tuple[Any, ...]]:
    if source.size < END.size:
        raise source.error(f"{source.size} bytes are too few for a ZIP archive", 0)
    at = source.size - END.size
    record = END.unpack(source.read(at, END.size))
    if record[0] == ZIP_END_MAGIC and record[-1] == 0:
        return at, record
    n_tail = min(source.size, END.size + _MAX_COMMENT)
    tail = source.read(source.size - n_tail, n_tail)
    pos = tail.rfind(ZIP_END_MAGIC)
    if pos < 0:
        raise source.error(
            "a ZIP archive without the directory at its end: the file is truncated", source.size
        )
    at = source.size - n_tail + pos
    if len(tail) - pos < END.size:
        raise source.error("the end record of the archive is truncated", at)
    record = END.unpack_from(tail, pos)
    if at + END.size + record[-1] != source.size:
        raise source.error(
            "the comment of the archive does not end where the file does, or hides one", at
        )
    return at, record


def start_of_last(source: Source) -> int:
    """Return where the archive begins that a file ends with, if its offsets count from there."""
    at, record = _end_record(source)
    n_bytes, start = record[5:7]
    wide = at - LOCATOR.size - END64.size
    if wide >= 0 and source.read(wide, 4) == _END64_MAGIC:
        at, (*_, n_bytes, start) = wide, END64.unpack(source.read(wide, END64.size))
    return max(int(at - n_bytes - start), 0)


def _zip64_end(source: Source, at: int) -> tuple[int, int, int, int] | None:
    """Return where the ZIP64 end begins, and the entries, bytes and start of the directory."""
    at -= LOCATOR.size
    if at < 0:
        return None
    magic, disk, offset, n_disks = LOCATOR.unpack(source.read(at, LOCATOR.size))
    if magic != _LOCATOR_MAGIC:
        return None
    if disk != 0 or n_disks > 1:
        raise _several_files(source)
    if offset + END64.size > at:
        raise source.error("the ZIP64 end does not lie before its locator", at)
    record = END64.unpack(source.read(offset, END64.size))
    magic, n_bytes, _, _, disk, start_disk, n_here, n_entries, n_directory, start = record
    if magic != _END64_MAGIC or offset + _END64_HEAD + n_bytes != at:
        raise source.error("no ZIP64 end where its locator says", offset)
    if disk or start_disk or n_here != n_entries:
        raise _several_files(source)
    return offset, n_entries, n_directory, start


def _several_files(source: Source) -> UnsupportedError:
    return source.unsupported("a ZIP archive in several files; join them first")


# --- the directory ------------------------------------------------------------------------------


def _entries(
    source: Source, start: int, directory: bytes, n: int, budget: Budget
) -> dict[str, ZipEntry]:
    """Return all members in the directory's order, each checked by itself and by the limits."""
    entries: dict[str, ZipEntry] = {}
    pos = 0
    for _ in range(n):
        at = start + pos
        if len(directory) - pos < _CENTRAL_BYTES:
            raise source.error("the directory ends before its last member", at)
        magic, version, flags, method, crc, *numbers = _CENTRAL.unpack_from(directory, pos)
        n_compressed, n_bytes, n_name, n_extra, n_comment, disk, offset = numbers
        name_at = pos + _CENTRAL_BYTES
        extra_at = name_at + n_name
        pos = extra_at + n_extra + n_comment
        if magic != _CENTRAL_MAGIC or pos > len(directory):
            raise source.error("the directory lacks the record of a member", at)
        raw_name = directory[name_at:extra_at]
        name = _name(source, at, raw_name, flags)
        if flags & _UNREADABLE or version > _VERSION or method not in METHODS:
            raise _unsupported(source, name, flags, version, method)
        if n_extra:
            extra = directory[extra_at : extra_at + n_extra]
            n_bytes, n_compressed, offset, disk = widened(
                source, at, name, raw_name, extra, (n_bytes, n_compressed, offset, disk)
            )
        if disk:
            raise _several_files(source)
        if name in entries:
            raise source.error(f"member {name!r} appears twice", at)
        entries[name] = entry = ZipEntry(
            name, METHODS[method], crc, n_bytes, n_compressed, offset, raw_name, flags
        )
        if method or n_bytes != n_compressed:
            _check_length(source, entry, at, budget)
    if pos != len(directory):
        raise source.error("the directory continues past its last member", start + pos)
    return entries


def _ends(source: Source, entries: dict[str, ZipEntry], start: int) -> dict[int, int]:
    """Return where the room of each member ends, by where it begins."""
    # That is where the next one begins, or the directory, at `start`. They fill all before that.
    ends: dict[int, int] = {}
    end = start
    for entry in sorted(entries.values(), key=attrgetter("header_offset"), reverse=True):
        offset = entry.header_offset
        if offset + LOCAL_BYTES + len(entry.raw_name) + entry.n_compressed > end:
            raise source.error(
                f"member {entry.name!r} overlaps what follows it, or the file is truncated", offset
            )
        ends[offset] = end
        end = offset
    if end != 0:
        raise source.error(f"{end:,} bytes before the first member of the archive", 0)
    return ends


def _unsupported(
    source: Source, name: str, flags: int, version: int, method: int
) -> UnsupportedError:
    """Return what is wrong with a member that is not malformed."""
    if flags & _UNREADABLE:
        what = "a patch" if flags & _PATCHED else "encrypted"
        message = f"is {what}, which is not supported"
    elif version > _VERSION:
        message = (
            f"needs version {version / 10} of ZIP; {_VERSION / 10} is the last that is known here"
        )
    else:
        message = f"is compressed by method {method}; only stored and deflated ones are supported"
    return source.unsupported(f"member {name!r} {message}")


def _name(source: Source, at: int, raw: bytes, flags: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & UTF8 or raw.isascii() else "cp437")
    except UnicodeDecodeError:
        raise source.error(f"a member's name is not UTF-8: {raw[:40]!r}", at) from None
    if not name or "\0" in name:
        raise source.error(f"a member cannot be called {name[:40]!r}", at)
    return name


def widened(
    source: Source,
    at: int,
    name: str,
    raw_name: bytes,
    extra: bytes,
    short: tuple[int, int, int, int],
) -> tuple[int, ...]:
    """Return lengths, offset and disk of a record, from its ZIP64 field where it has them."""
    fields = list(short)
    wanting = [i for i, none in enumerate((LARGE, LARGE, LARGE, MANY)) if fields[i] == none]
    for kind, body in _extra_fields(source, at, extra, (_EXTRA_ZIP64, _EXTRA_UNICODE_NAME)):
        if kind == _EXTRA_UNICODE_NAME:
            if body[5:] not in (raw_name, name.encode("utf-8", "surrogatepass")):
                raise source.error(f"member {name!r} has a second name: {body[5:45]!r}", at)
            continue
        layout = struct.Struct("<" + "".join("I" if i == 3 else "Q" for i in wanting))
        if len(body) < layout.size:
            raise source.error(f"the ZIP64 field of member {name!r} is truncated", at)
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
            raise source.error("an extra field of a member is too long", at)
        if kind in wanted:
            if kind in seen:
                raise source.error("an extra field of a member appears twice", at)
            seen.add(kind)
            yield kind, extra[pos : pos + length]
        pos += length


def _check_length(source: Source, entry: ZipEntry, at: int, budget: Budget) -> None:
    """Check that so few bytes can inflate to so many, and that the limits allow it."""
    n_bytes, n_compressed = entry.n_bytes, entry.n_compressed
    if entry.method == "stored":
        if n_bytes != n_compressed:
            raise source.error(
                f"member {entry.name!r} is stored, but has two lengths, {n_bytes:,} and"
                f" {n_compressed:,}",
                at,
            )
        return
    if n_bytes > n_compressed * DEFLATE_MAX_RATIO:
        raise source.error(
            f"member {entry.name!r} claims {n_bytes:,} bytes, which {n_compressed:,} deflated ones"
            " cannot hold",
            at,
        )
    most = budget.limits.max_decompression_ratio
    if most is not None and n_bytes > n_compressed * most:
        raise source.exceeded(
            "max_decompression_ratio",
            f"member {entry.name!r} has {n_bytes:,} bytes in {n_compressed:,},"
            f" more than {most:g} for one",
        )
