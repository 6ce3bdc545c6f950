"""What stands around the members of a written ZIP archive: headers, directory.

Members are stored. Python's zipfile, by which numpy writes, and miniz, by which torch does, fill
the same records in differently; each is followed to the byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anamnesis.base.errors import LimitExceeded
from anamnesis.formats.zip.directory import (
    END,
    END64,
    LARGE,
    LOCATOR,
    MANY,
    ZIP_MAX_DIRECTORY,
    ZIP_MAX_ENTRIES,
)

# Zeros: methods and times, and of the directory comments, disks and internal attributes.
_LOCAL = struct.Struct("<4s2H4xH3I2H")
_CENTRAL = struct.Struct("<4s3H4xH3I2H6x2I")
LOCAL_BYTES = _LOCAL.size

_ZIP64_VERSION = 45


class Dialect(NamedTuple):
    """How a program fills records in."""

    made_by: int
    needed: int
    made_by_64: int
    date: int
    attributes: int
    largest: int
    always_64: bool


_UNIX = 3 << 8
ZIPFILE = Dialect(
    made_by=_UNIX | _ZIP64_VERSION,
    needed=_ZIP64_VERSION,
    made_by_64=_ZIP64_VERSION,
    date=1 << 5 | 1,  # 1 January 1980
    attributes=0o600 << 16,
    largest=0x7FFFFFFF,
    always_64=False,
)
MINIZ = Dialect(
    made_by=0,
    needed=0,
    made_by_64=_UNIX | 30,
    date=0,
    attributes=0,
    largest=LARGE - 1,
    always_64=True,
)


class Member(NamedTuple):
    """A member to be: its name, its length, where its local header is, and its flags."""

    name: bytes
    n_bytes: int
    offset: int
    flags: int


def local_header(dialect: Dialect, member: Member, crc: int, n_shown: int, n_extra: int) -> bytes:
    """Return a local header without the name and the `n_extra` bytes of extra fields."""
    # `n_shown` stands for the length, which may stand elsewhere.
    lengths = (n_shown, n_shown, len(member.name), n_extra)
    return _LOCAL.pack(b"PK\3\4", dialect.needed, member.flags, dialect.date, crc, *lengths)


def wide_field(numbers: Sequence[int]) -> bytes:
    """Return the ZIP64 field of these numbers; nothing if there are none."""
    n = len(numbers)
    return struct.pack(f"<2H{n}Q", 1, 8 * n, *numbers) if numbers else b""


def wide_numbers(dialect: Dialect, member: Member) -> list[int]:
    """Return what of a member's lengths and offset does not fit 4 bytes."""
    numbers = [member.n_bytes] * 2 if member.n_bytes > dialect.largest else []
    return [*numbers, member.offset] if member.offset > dialect.largest else numbers


def directory(
    dialect: Dialect, members: Sequence[Member], crcs: Iterable[int], offset: int
) -> bytes:
    """Return the directory, which lies at `offset`, and the end of the archive."""
    records = []
    for member, crc in zip(members, crcs, strict=True):
        name, n_bytes, at, flags = member
        large, far = n_bytes > dialect.largest, at > dialect.largest
        extra = wide_field(wide_numbers(dialect, member)) if large or far else b""
        shown, at = LARGE if large else n_bytes, LARGE if far else at
        made = (dialect.made_by, dialect.needed, flags, dialect.date, crc)
        lengths = (shown, shown, len(name), len(extra))
        records += [_CENTRAL.pack(b"PK\1\2", *made, *lengths, dialect.attributes, at), name, extra]
    raw = b"".join(records)
    return raw + _end(dialect, len(members), len(raw), offset)


def directory_bytes(dialect: Dialect, members: Sequence[Member], offset: int) -> int:
    """Return the length of `directory`."""
    if len(members) > ZIP_MAX_ENTRIES:
        what = f"{len(members):,} members; {ZIP_MAX_ENTRIES:,} are allowed"
        raise LimitExceeded("ZIP_MAX_ENTRIES", f"the output would have {what}")
    n_bytes = 0
    for member in members:
        n_bytes += _CENTRAL.size + len(member.name)
        if member.n_bytes > dialect.largest or member.offset > dialect.largest:
            n_bytes += len(wide_field(wide_numbers(dialect, member)))
    if n_bytes > ZIP_MAX_DIRECTORY:
        raise LimitExceeded(
            "ZIP_MAX_DIRECTORY", f"the output's directory would take {n_bytes:,} bytes"
        )
    return n_bytes + len(_end(dialect, len(members), n_bytes, offset))


def _end(dialect: Dialect, n: int, n_bytes: int, offset: int) -> bytes:
    wide = b""
    if dialect.always_64 or n > MANY or max(n_bytes, offset) > dialect.largest:
        versions = (dialect.made_by_64, _ZIP64_VERSION)
        numbers = (END64.size - 12, *versions, 0, 0, n, n, n_bytes, offset)
        wide = END64.pack(b"PK\6\6", *numbers) + LOCATOR.pack(b"PK\6\7", 0, offset + n_bytes, 1)
    few = min(n, MANY)
    return wide + END.pack(b"PK\5\6", 0, 0, few, few, min(n_bytes, LARGE), min(offset, LARGE), 0)
