"""Archives that lie: what hid members from scanners, and what costs too much, is refused."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.formats.zip.members import ZipDirectory, read_directory
from anamnesis.sources.memory import BufferSource
from helpers.zip_handmade import Member, deflated, end_record, extra, zip_bytes

A = Member(b"a", b"first")
B = Member(b"b", b"second")
MOST32, MOST64 = 2**32 - 1, 2**64 - 1


def lying(name: bytes = b"a", data: bytes = b"first", **told: Any) -> Member:
    return Member(name, data, central=told)


def wide(**told: Any) -> Member:
    """Return a member whose lengths are in its ZIP64 field, which says what it is told to."""
    f = {"n_bytes": 5, "n_compressed": 5, "offset": 0, **told}
    body = struct.pack("<3Q", *(f["n_bytes"], f["n_compressed"], f["offset"]))
    central = {"n_bytes": MOST32, "n_compressed": MOST32, "offset": MOST32}
    return Member(b"a", b"first", central={**central, "extra": extra(1, body)})


def overlapping(n: int) -> bytes:
    """Return a bomb without recursion: all members share one deflated kernel (Fifield, 2019)."""
    kernel = Member(b"k", bytes(1_000_000), 8)
    records = b"".join(Member(f"{i}".encode(), bytes(1_000_000), 8).record(0) for i in range(n))
    body = kernel.header() + kernel.packed()
    return body + records + end_record(n, len(records), len(body))


def hidden_in_the_comment() -> bytes:
    """Return an archive whose comment is the end of another: which counts?"""
    first = zip_bytes([A])
    records = B.record(0)
    inner = records + end_record(1, len(records), len(first))
    return zip_bytes([A], comment=inner)


# What is refused when the directory is read.
DIRECTORY: dict[str, tuple[bytes, type[AnamnesisError], str]] = {
    "nothing": (b"", ParseError, "too few for a ZIP archive"),
    "21 bytes": (zip_bytes([])[:-1], ParseError, "too few for a ZIP archive"),
    "cut short": (zip_bytes([A, B])[:-30], ParseError, "without the directory at its end"),
    "names that stand twice": (
        zip_bytes([A, Member(b"a", b"other")]),
        ParseError,
        "appears twice",
    ),
    "names that differ by their encoding only": (
        zip_bytes([Member("é".encode("cp437"), b"1"), Member("é".encode(), b"2", flags=0x800)]),
        ParseError,
        "appears twice",
    ),
    "a name with a NUL": (zip_bytes([Member(b"a\0.txt")]), ParseError, "cannot be called"),
    "no name": (zip_bytes([Member(b"")]), ParseError, "cannot be called"),
    "a name that is not UTF-8": (
        zip_bytes([Member(b"\xff", flags=0x800)]),
        ParseError,
        "not UTF-8",
    ),
    "a second name in an extra field": (
        zip_bytes([lying(extra=extra(0x7075, b"\1" + bytes(4) + b"data.pkl"))]),
        ParseError,
        "second name",
    ),
    "encrypted": (zip_bytes([Member(b"a", b"x", flags=1)]), UnsupportedError, "encrypted"),
    "encrypted as the directory alone says": (
        zip_bytes([lying(flags=1)]),
        UnsupportedError,
        "encrypted",
    ),
    "strongly encrypted": (zip_bytes([lying(flags=0x40)]), UnsupportedError, "encrypted"),
    "masked": (zip_bytes([lying(flags=0x2000)]), UnsupportedError, "encrypted"),
    "a patch": (zip_bytes([lying(flags=0x20)]), UnsupportedError, "patch"),
    "bzip2": (zip_bytes([Member(b"a", b"x", 12)]), UnsupportedError, "method 12"),
    "of a version to come": (zip_bytes([lying(version=64)]), UnsupportedError, "version 6.4"),
    "method 9": (zip_bytes([lying(method=9)]), UnsupportedError, "method 9"),
    "a prefix": (zip_bytes([A], prefix=b"garbage"), ParseError, "before the first member"),
    "a prefix that offsets do not count": (b"garbage" + zip_bytes([A]), ParseError, "prefix"),
    "a pickle before it": (b"\x80\x02}." + zip_bytes([A]), ParseError, "prefix"),
    "bytes behind it": (zip_bytes([A]) + b"x", ParseError, "comment"),
    "an end in the comment": (
        zip_bytes([A], comment=b"x" + end_record(0, 0, 0) + b"y"),
        ParseError,
        "comment",
    ),
    "a comment that ends early": (
        zip_bytes([A], comment=b"abc", end={"n_comment": 2}),
        ParseError,
        "comment",
    ),
    "a comment that ends late": (
        zip_bytes([A], comment=b"abc", end={"n_comment": 4}),
        ParseError,
        "comment",
    ),
    "two disks": (zip_bytes([A], end={"disk": 1}), UnsupportedError, "several files"),
    "a directory on another disk": (
        zip_bytes([A], end={"start_disk": 1}),
        UnsupportedError,
        "several files",
    ),
    "members elsewhere": (zip_bytes([A], end={"n": 2}), UnsupportedError, "several files"),
    "a member on another disk": (zip_bytes([lying(disk=3)]), UnsupportedError, "several files"),
    "fewer members than there are": (
        zip_bytes([A, B], end={"n": 1, "n_here": 1}),
        ParseError,
        "continues past",
    ),
    "more members than there are": (
        zip_bytes([A, B], end={"n": 3, "n_here": 3}),
        ParseError,
        "do not fit|ends before",
    ),
    "65,534 members in 100 bytes": (
        zip_bytes([A, B], end={"n": 65_534, "n_here": 65_534}),
        ParseError,
        "do not fit",
    ),
    "a directory elsewhere": (zip_bytes([A], end={"start": 0}), ParseError, "should end"),
    "a directory behind the file": (
        zip_bytes([A], end={"start": MOST32 - 1}),
        ParseError,
        "should end",
    ),
    "a directory of 4 GB": (zip_bytes([A], end={"n_bytes": MOST32}), ParseError, "should end"),
    "no magic in the directory": (
        zip_bytes([lying(magic=b"PK\1\3")]),
        ParseError,
        "lacks the record",
    ),
    "a name longer than the directory": (
        zip_bytes([lying(n_name=9)]),
        ParseError,
        "lacks the record",
    ),
    "an extra field longer than the directory": (
        zip_bytes([lying(n_extra=9)]),
        ParseError,
        "lacks the record",
    ),
    "an extra field within longer than there is room": (
        zip_bytes([lying(extra=b"\1\0\xff\0")]),
        ParseError,
        "is too long",
    ),
    "ZIP64 fields twice": (
        zip_bytes([lying(extra=extra(1, bytes(8)) * 2)]),
        ParseError,
        "appears twice",
    ),
    "a ZIP64 field cut short": (
        zip_bytes([lying(n_bytes=MOST32, n_compressed=MOST32, extra=extra(1, bytes(15)))]),
        ParseError,
        "is truncated",
    ),
    "2^64 - 1 bytes": (
        zip_bytes([wide(n_bytes=MOST64, n_compressed=MOST64)]),
        ParseError,
        "overlaps",
    ),
    "an offset of 2^64 - 1": (zip_bytes([wide(offset=MOST64)]), ParseError, "overlaps"),
    "two lengths": (zip_bytes([lying(n_bytes=6)]), ParseError, "two lengths"),
    "an offset in the directory": (zip_bytes([lying(offset=37)]), ParseError, "overlaps"),
    "a member inside another": (
        zip_bytes([Member(b"a", A.header() + b"first"), lying(b"b", offset=31)]),
        ParseError,
        "overlaps",
    ),
    "members of one place": (overlapping(30), ParseError, "overlaps"),
    "a ZIP64 end that disagrees": (
        zip_bytes([A], zip64={"n": 2, "n_here": 2}),
        ParseError,
        "disag",
    ),
    "a ZIP64 end elsewhere": (zip_bytes([A], zip64={"located": 0}), ParseError, "no ZIP64 end"),
    "a ZIP64 end behind its locator": (
        zip_bytes([A], zip64={"located": MOST64}),
        ParseError,
        "before its locator",
    ),
    "a ZIP64 end of another length": (zip_bytes([A], zip64={"length": 45}), ParseError, "no ZIP64"),
    "a ZIP64 end without magic": (
        zip_bytes([A], zip64={"magic": b"PK\6\5"}),
        ParseError,
        "no ZIP64",
    ),
    "ZIP64 and two disks": (zip_bytes([A], zip64={"disks": 2}), UnsupportedError, "several files"),
    "2^64 - 1 members": (
        zip_bytes(
            [A],
            zip64={"n": MOST64, "n_here": MOST64},
            end={"n": 0xFFFF, "n_here": 0xFFFF},
        ),
        LimitExceeded,
        "ZIP_MAX_ENTRIES",
    ),
    "10^6 members": (
        zip_bytes(
            [A],
            zip64={"n": 10**6, "n_here": 10**6},
            end={"n": 0xFFFF, "n_here": 0xFFFF},
        ),
        ParseError,
        "do not fit",
    ),
    "a bomb beyond what deflate can": (
        zip_bytes([Member(b"a", bytes(10_000), 8, central={"n_bytes": 10**6})]),
        ParseError,
        "cannot hold",
    ),
}

# What is refused when a member is read.
MEMBERS: dict[str, tuple[bytes, type[AnamnesisError], str]] = {
    "another name": (zip_bytes([Member(b"a", b"x", local={"name": b"b"})]), ParseError, "disagree"),
    "a longer name": (
        zip_bytes([Member(b"a", b"x", local={"name": b"ab"}), B]),
        ParseError,
        "disagree",
    ),
    "another method": (
        zip_bytes([Member(b"a", b"x", local={"method": 8})]),
        ParseError,
        "disagree",
    ),
    "an unknown method": (
        zip_bytes([Member(b"a", b"x", local={"method": 99})]),
        ParseError,
        "disagree",
    ),
    "encrypted as its header alone says": (
        zip_bytes([Member(b"a", b"x", local={"flags": 1})]),
        ParseError,
        "disagree",
    ),
    "another length": (
        zip_bytes([Member(b"a", b"x", local={"n_bytes": 0})]),
        ParseError,
        "disagree",
    ),
    "another compressed length": (
        zip_bytes([Member(b"a", b"x", local={"n_compressed": 0})]),
        ParseError,
        "disagree",
    ),
    "another CRC": (zip_bytes([Member(b"a", b"x", local={"crc": 1})]), ParseError, "disagree"),
    "another CRC, with a descriptor": (
        zip_bytes([Member(b"a", b"x", flags=8, descriptor=bytes(16), local={"crc": 1})]),
        ParseError,
        "disagree",
    ),
    "no header": (
        zip_bytes([Member(b"a", b"x", local={"magic": b"PK\3\5"})]),
        ParseError,
        "no head",
    ),
    "another archive's end in the comment": (hidden_in_the_comment(), ParseError, "disagree"),
    "a hole behind it": (zip_bytes([A, B], gaps={1: b"hidden"}), ParseError, "gap"),
    "a member that no record names": (
        zip_bytes([A, B], gaps={1: Member(b"c", b"hidden").header() + b"hidden"}),
        ParseError,
        "gap",
    ),
    "an extra field that runs on": (
        zip_bytes([Member(b"a", b"x", local={"n_extra": 9}), B]),
        ParseError,
        "runs into",
    ),
    "a descriptor of an odd length": (
        zip_bytes([Member(b"a", b"x", flags=8, descriptor=bytes(13))]),
        ParseError,
        "gap",
    ),
    "a stored CRC that is wrong": (
        zip_bytes([Member(b"a", b"x", local={"crc": 1}, central={"crc": 1})]),
        ParseError,
        "CRC",
    ),
    "a deflated CRC that is wrong": (
        zip_bytes([Member(b"a", b"x", 8, local={"crc": 1}, central={"crc": 1})]),
        ParseError,
        "CRC",
    ),
    "no deflated stream": (
        zip_bytes([Member(b"a", b"xxx", 8, raw=b"\xff\xff\xff")]),
        ParseError,
        "not a deflate stream",
    ),
    "no deflated stream of nothing": (
        zip_bytes([Member(b"a", b"", 8, raw=b"\x03\x01")]),
        ParseError,
        "damaged",
    ),
    "a stream that ends early": (
        zip_bytes([Member(b"a", b"xxx", 8, raw=deflated(b"xx"))]),
        ParseError,
        "ends before its stated length",
    ),
    "a stream that goes on": (
        zip_bytes([Member(b"a", b"xxx", 8, raw=deflated(b"xxxx"))]),
        ParseError,
        "continues past",
    ),
    "a stream that is cut short": (
        zip_bytes([Member(b"a", b"x" * 99, 8, raw=deflated(b"x" * 99)[:-1])]),
        ParseError,
        "no end|before its length",
    ),
    "bytes behind the stream": (
        zip_bytes([Member(b"a", b"xxx", 8, raw=deflated(b"xxx") + b"\0")]),
        ParseError,
        "compressed length",
    ),
}

ACCEPTED = {
    "nothing in it": zip_bytes([]),
    "a comment": zip_bytes([A, B], comment=b"PK\5 and more"),
    "the longest comment": zip_bytes([A], comment=b"x" * 65_535),
    "ZIP64 that nothing asks for": zip_bytes([A], zip64={}),
    "a ZIP64 field": zip_bytes([wide()]),
    "names like paths": zip_bytes([Member(b"../../etc/passwd", b"x"), Member(b"/a", b"y")]),
    "an extra field with padding": zip_bytes([Member(b"a", b"x", local={"extra": bytes(63)})]),
    "an odd byte of padding": zip_bytes([lying(extra=b"\0")]),
    "descriptors": zip_bytes(
        Member(f"{n}".encode(), b"x" * n, 8, 8, descriptor=bytes(n), local={"crc": 0, "n_bytes": 0})
        for n in (12, 16, 20, 24)
    ),
    "a directory in another order than the file": zip_bytes([A, B]),
    "empty members": zip_bytes([Member(b"a"), Member(b"b", b"", 8), Member(b"c/")]),
}


def directory(raw: bytes) -> ZipDirectory:
    return read_directory(BufferSource(raw), Budget())


def read_all(raw: bytes) -> dict[str, bytes]:
    found = directory(raw)
    return {name: found.read(entry, 1 << 30) for name, entry in found.entries.items()}


@pytest.mark.parametrize("name", DIRECTORY)
@pytest.mark.usefixtures("bounded")
def test_directory_is_refused(name: str) -> None:
    raw, error, match = DIRECTORY[name]
    with pytest.raises(error, match=match) as raised:
        directory(raw)
    assert raised.type is error
    assert len(str(raised.value)) < 1000


@pytest.mark.parametrize("name", MEMBERS)
@pytest.mark.usefixtures("bounded")
def test_member_is_refused(name: str) -> None:
    raw, error, match = MEMBERS[name]
    with pytest.raises(error, match=match) as raised:
        read_all(raw)
    assert raised.type is error


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(name: str) -> None:
    raw = ACCEPTED[name]
    with zipfile.ZipFile(io.BytesIO(raw)) as theirs:
        assert read_all(raw) == {n: theirs.read(n) for n in theirs.namelist()}


def test_names_are_names_and_not_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written where a member's name says."""
    import numpy as np

    from helpers.npy_cases import npy

    monkeypatch.chdir(tmp_path)
    raw = zip_bytes(
        [Member(b"../x.npy", npy(np.zeros(3, "f4"))), Member(b"/y.npy", npy(np.ones(2)))]
    )
    with an.parse(raw) as model:
        assert list(model) == ["../x", "/y"]
        model.remember(tmp_path / "out.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["out.safetensors"]
    assert not (tmp_path.parent / "x").exists()


@pytest.mark.usefixtures("bounded")
def test_a_bomb_inflates_in_bounded_memory() -> None:
    """60 KB that stand for 60 MB."""
    data = bytes(60_000_000)
    raw = zip_bytes([Member(b"a", data, 8)])
    del data
    assert len(raw) < 64 << 10
    found = directory(raw)
    source = found.source_of(found.entries["a"])
    buffer = memoryview(bytearray(1 << 20))
    for at in range(0, source.size - len(buffer), len(buffer)):
        source.read_into(at, buffer)


@pytest.mark.usefixtures("bounded")
def test_many_members_of_nothing() -> None:
    found = directory(zip_bytes(Member(f"{i}".encode()) for i in range(20_000)))
    assert len(found.entries) == 20_000


def test_every_byte_changed() -> None:
    """Where a byte is wrong there is the error of the one kind, or what the archive held."""
    raw = zip_bytes([A, Member(b"b", b"second" * 9, 8)], comment=b"c", zip64={})
    want = read_all(raw)
    for at in range(len(raw)):
        for value in (0, 1, 0x7F, 0x80, 0xFF, raw[at] ^ 1):
            changed = raw[:at] + bytes([value]) + raw[at + 1 :]
            try:
                found = read_all(changed)
            except AnamnesisError:
                continue
            assert sorted(found.values()) == sorted(want.values())
    assert zlib.crc32(b"first") != 0
