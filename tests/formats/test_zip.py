"""Archives by the standard library's writer and by torch's: the same members, to the byte."""

from __future__ import annotations

import io
import os
import random
import tempfile
import threading
import zipfile
from pathlib import Path
from typing import Any

import pytest

from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.formats.zip.members import ZipDirectory, read_directory
from anamnesis.sources.memory import BufferSource


class _Unseekable(io.RawIOBase):
    """Makes the writer put lengths and CRCs behind the members."""

    def __init__(self) -> None:
        self.data = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.data += data
        return len(data)


def _directory(data: bytes, **limits: Any) -> ZipDirectory:
    return read_directory(BufferSource(data), Budget(ParseLimits(**limits)))


def _members() -> dict[str, bytes]:
    rng = random.Random(1)
    return {
        "empty": b"",
        "few": b"few",
        "zeros": bytes(3_000_000),
        "noise": rng.randbytes(700_000),
        "folder/": b"",
        "folder/été ☃": b"abc" * 1000,
    }


def _archive(method: int, *, seekable: bool, zip64: bool = False, comment: bytes = b"") -> bytes:
    stream: Any = io.BytesIO() if seekable else _Unseekable()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.comment = comment
        for name, data in _members().items():
            with archive.open(zipfile.ZipInfo(name), "w", force_zip64=zip64) as member:
                member._compress_type = method  # type: ignore[attr-defined]
                member.write(data)
    return bytes(stream.getvalue() if seekable else stream.data)


def _deflated(data: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", data)
    return stream.getvalue()


def _same_as_zipfile(data: bytes) -> None:
    ours = _directory(data)
    with zipfile.ZipFile(io.BytesIO(data)) as theirs:
        assert list(ours.entries) == theirs.namelist()
        for name, entry in ours.entries.items():
            want = theirs.read(name)
            assert ours.read(entry, 1 << 30) == want
            source = ours.source_of(entry)
            assert source.size == len(want)
            assert source.read(0, source.size) == want
            half = source.size // 2
            assert source.read(half, source.size - half) == want[half:]


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("zip64", [True, False])
@pytest.mark.parametrize("comment", [b"", b"a comment"])
def test_same_members_as_zipfile(method: int, seekable: bool, zip64: bool, comment: bytes) -> None:
    _same_as_zipfile(_archive(method, seekable=seekable, zip64=zip64, comment=comment))


def test_an_empty_archive_has_no_members() -> None:
    stream = io.BytesIO()
    zipfile.ZipFile(stream, "w").close()
    assert _directory(stream.getvalue()).entries == {}


def test_more_members_than_16_bits_count() -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for i in range(70_000):
            archive.writestr(str(i), b"")
    ours = _directory(stream.getvalue())
    assert list(ours.entries) == [str(i) for i in range(70_000)]


@pytest.mark.oracle
def test_torch_archives() -> None:
    import torch

    stream = io.BytesIO()
    torch.save({f"w{i}": torch.randn(i, 3) for i in range(5)}, stream)
    _same_as_zipfile(stream.getvalue())


@pytest.mark.oracle
def test_a_crc_of_0_counts_as_none_where_the_caller_says_so() -> None:
    import torch

    torch.serialization.set_crc32_options(False)
    try:
        stream = io.BytesIO()
        torch.save({}, stream)
    finally:
        torch.serialization.set_crc32_options(True)
    directory = _directory(stream.getvalue())
    entry = directory.entries["archive/data.pkl"]
    with pytest.raises(ParseError, match="CRC"):
        directory.read(entry, 1000)
    assert directory.read(entry, 1000, crc_optional=True).startswith(b"\x80")


def test_a_deflated_member_is_read_in_any_order_and_by_many_threads() -> None:
    data = random.Random(2).randbytes(1 << 20) * 17 + b"end"
    directory = _directory(_deflated(data))
    source = directory.source_of(directory.entries["a"])
    rng = random.Random(3)
    for _ in range(12):
        at = rng.randrange(len(data))
        n = rng.randrange(min(600_000, len(data) - at) + 1)
        assert source.read(at, n) == data[at : at + n]
    wrong: list[int] = []

    def read(first: int) -> None:
        for at in range(first << 18, len(data), 3 << 18):
            n = min(1 << 18, len(data) - at)
            if source.read(at, n) != data[at : at + n]:
                wrong.append(at)

    threads = [threading.Thread(target=read, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.slow
def test_no_order_of_reading_inflates_a_member_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backwards, across columns, many times: what is inflated stays in proportion."""
    from anamnesis.sources import inflated

    data = random.Random(2).randbytes(1 << 18) * 160  # 40 MiB
    n_inflated = 0

    class Counting(inflated._Stream):
        def next_chunk(self) -> bytes:
            nonlocal n_inflated
            n_inflated += 1 << 18
            return super().next_chunk()

    monkeypatch.setattr(inflated, "_Stream", Counting)
    backwards = [(at, 1 << 20) for at in range(39 << 20, -1, -(1 << 20))]
    columns = [
        (at, 4096) for first in range(0, 64 << 10, 4096) for at in range(first, 40 << 20, 1 << 20)
    ]
    twice = [(at, 1 << 20) for _ in range(2) for at in range(0, 40 << 20, 1 << 20)]
    strips = [(at, 1 << 20) for _ in range(8) for at in range(0, 40 << 20, 1 << 20)]
    for pieces, most in ((backwards, 3), (columns, 3), (twice, 2), (strips, 3)):
        n_inflated = 0
        directory = _directory(_deflated(data))
        source = directory.source_of(directory.entries["a"])
        for at, n in pieces:
            assert source.read(at, n) == data[at : at + n]
        assert n_inflated <= most * len(data)


@pytest.mark.skipif(os.name == "nt", reason="a file that is open has a name there")
def test_a_temporary_file_is_gone_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that a process that is killed leaves none."""
    from anamnesis.sources import inflated

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(inflated, "_KEPT_CHUNKS", 1)
    data = random.Random(4).randbytes(1 << 20)
    directory = _directory(_deflated(data))
    source = directory.source_of(directory.entries["a"])
    for at in (3 << 18, 1 << 18, 0, 5, 2 << 18):
        assert source.read(at, 1000) == data[at : at + 1000]
    assert isinstance(source, inflated.InflatedSource)
    assert source._whole is not None
    assert [*tmp_path.iterdir()] == []


@pytest.mark.slow
def test_what_is_kept_of_a_deflated_member_is_bounded() -> None:
    import tracemalloc

    directory = _directory(_deflated(bytes(200 << 20)))
    source = directory.source_of(directory.entries["a"])
    buffer = memoryview(bytearray(1 << 20))
    tracemalloc.start()
    try:
        for at in range(0, source.size, len(buffer)):
            source.read_into(at, buffer)
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_limits() -> None:
    bomb = _deflated(bytes(1_000_000))
    with pytest.raises(LimitExceeded, match="max_decompression_ratio"):
        _directory(bomb, max_decompression_ratio=100)
    with pytest.raises(LimitExceeded, match="max_item_count"):
        _directory(bomb, max_item_count=0)
    with pytest.raises(LimitExceeded, match="max_single_alloc"):
        _directory(bomb, max_single_alloc=10)
    directory = _directory(bomb)
    with pytest.raises(LimitExceeded, match="SOME_MAX_THING"):
        directory.read(directory.entries["a"], 999_999, "SOME_MAX_THING")
