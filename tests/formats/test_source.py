"""Everything that can be read, everything that cannot, and that no byte is read without need."""

from __future__ import annotations

import io
import mmap
import os
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.limits import UNLIMITED
from anamnesis.base.source import Source
from anamnesis.model import Model
from anamnesis.sources.open import open_source
from helpers.handmade import Entry, WriteModel, safetensors_bytes

TENSORS: dict[str, Entry] = {
    "a.weight": ("F8_E4M3", [2, 128], b"\x38" * 256),
    "a.weight_scale": ("F32", [1], struct.pack("<f", 2.0)),
    "b": ("F32", [1000], struct.pack("<f", 3.0) * 1000),
}
RAW = safetensors_bytes(TENSORS, {"format": "pt"})
N_HEADER = 8 + int.from_bytes(RAW[:8], "little")


def assert_reads(model: an.Model) -> None:
    assert set(model) == {"a.weight", "b"}
    assert np.all(model["a.weight"].numpy() == 2.0)
    assert np.all(model["b"].numpy() == 3.0)
    assert an.parse(model.remember_to_bytes())["b"].numpy()[999] == 3.0


# --- what is read -----------------------------------------------------------------------------


class OnlyReadAndSeek:
    """As little of a file object as will do."""

    def __init__(self, raw: bytes) -> None:
        self._stream = io.BytesIO(raw)

    def read(self, size: int = -1, /) -> Any:
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._stream.seek(offset, whence)


class ShortReads(OnlyReadAndSeek):
    """Gives at most seven bytes at once."""

    def read(self, size: int = -1, /) -> bytes:
        return self._stream.read(min(size, 7))


class OtherBytes(OnlyReadAndSeek):
    """Gives bytearrays."""

    def read(self, size: int = -1, /) -> bytearray:
        return bytearray(self._stream.read(size))


class SeekWithoutResult(OnlyReadAndSeek):
    """Has a seek that returns nothing, as an mmap has before Python 3.13."""

    def seek(self, offset: int, whence: int = 0, /) -> Any:
        self._stream.seek(offset, whence)

    def tell(self) -> int:
        return self._stream.tell()


def moved(stream: io.BytesIO) -> io.BytesIO:
    """Leave it where another reader left it."""
    stream.seek(100)
    return stream


def mapped() -> mmap.mmap:
    anonymous = mmap.mmap(-1, len(RAW))
    anonymous.write(RAW)
    return anonymous


INPUTS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: RAW,
    "bytearray": lambda: bytearray(RAW),
    "memoryview": lambda: memoryview(RAW),
    "part of a memoryview": lambda: memoryview(b"x" + RAW + b"y")[1:-1],
    "array": lambda: np.frombuffer(RAW, np.uint8),
    "mmap": mapped,
    "BytesIO": lambda: io.BytesIO(RAW),
    "BytesIO not at its start": lambda: moved(io.BytesIO(RAW)),
    "BufferedReader": lambda: io.BufferedReader(io.BytesIO(RAW)),
    "read and seek": lambda: OnlyReadAndSeek(RAW),
    "short reads": lambda: ShortReads(RAW),
    "bytearrays": lambda: OtherBytes(RAW),
    "seek without a result": lambda: SeekWithoutResult(RAW),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs(name: str) -> None:
    assert_reads(an.parse(INPUTS[name]()))


@pytest.fixture
def path(write_model: WriteModel) -> Path:
    return write_model(TENSORS, metadata={"format": "pt"})


@pytest.mark.parametrize("as_text", [True, False])
@pytest.mark.parametrize("map_it", [True, False])
def test_paths(path: Path, map_it: bool, as_text: bool) -> None:
    with an.parse(str(path) if as_text else path, mmap=map_it) as model:
        assert_reads(model)


@pytest.mark.parametrize("buffering", [0, -1])
def test_file_objects(path: Path, buffering: int) -> None:
    with path.open("rb", buffering=buffering) as file:
        with an.parse(file) as model:
            assert_reads(model)
        assert not file.closed  # what the caller opened, the caller closes


@pytest.mark.parametrize("kind", [tempfile.SpooledTemporaryFile, tempfile.TemporaryFile])
def test_temporary_files(kind: Callable[[], Any]) -> None:
    with kind() as file:
        file.write(RAW)
        assert_reads(an.parse(file))


def test_from_several_threads(path: Path) -> None:
    with path.open("rb") as file:
        out = an.parse(file).remember_to_bytes(threads=4)
    assert out == an.parse(RAW).remember_to_bytes(threads=1)


def test_folder_in_place_of_a_model(tmp_path: Path) -> None:
    with pytest.raises(an.ParseError, match=r"no \.safetensors file"):
        an.parse(tmp_path)


# --- what is not ------------------------------------------------------------------------------


@pytest.mark.parametrize("where", [None, 1, 1.5, [b"a"], object(), memoryview(RAW)[::2]])
def test_neither_path_nor_bytes_nor_file(where: Any) -> None:
    with pytest.raises(TypeError, match="need a path, bytes or a file object"):
        an.parse(where)


@pytest.mark.parametrize("stream", [io.StringIO("{}" * 100), io.TextIOWrapper(io.BytesIO(RAW))])
def test_text(stream: Any) -> None:
    with pytest.raises(TypeError, match="open the file in binary mode"):
        an.parse(stream)


def test_text_file(path: Path) -> None:
    with path.open(encoding="latin-1") as file, pytest.raises(TypeError, match="binary mode"):
        an.parse(file)  # type: ignore[arg-type]


def test_closed_file(path: Path) -> None:
    with path.open("rb") as file:
        pass
    with pytest.raises(ValueError, match="closed file"):
        an.parse(file)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        an.parse(tmp_path / "a.safetensors")


@pytest.mark.parametrize("map_it", [True, False])
def test_empty_file(tmp_path: Path, map_it: bool) -> None:
    (tmp_path / "a.safetensors").touch()
    with pytest.raises(an.ParseError, match="this is an empty file") as raised:
        an.parse(tmp_path / "a.safetensors", mmap=map_it)
    assert raised.value.offset == 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
@pytest.mark.parametrize("map_it", [True, False])
def test_named_pipe(tmp_path: Path, map_it: bool) -> None:
    """It is not opened: that would wait for a writer."""
    os.mkfifo(tmp_path / "a.safetensors")
    with pytest.raises(an.ParseError, match="not a regular file"):
        an.parse(tmp_path / "a.safetensors", mmap=map_it)
    with pytest.raises(an.ParseError, match="not a regular file"):
        an.parse(tmp_path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no such device")
def test_device() -> None:
    with pytest.raises(an.ParseError, match="not a regular file"):
        an.parse("/dev/zero")


@pytest.mark.parametrize("length", [0, 7, 8, 20, N_HEADER - 1, N_HEADER, len(RAW) - 1])
def test_every_way_to_be_cut_short(length: int) -> None:
    with pytest.raises(an.ParseError) as raised:
        an.parse(RAW[:length])
    assert raised.value.offset is not None
    assert 0 <= raised.value.offset <= length


@pytest.mark.parametrize("length", [0, N_HEADER, len(RAW) - 1])
def test_cut_short_after_parsing(path: Path, length: int) -> None:
    with an.parse(path) as model:
        os.truncate(path, length)
        with pytest.raises(an.ParseError, match="was cut while it was read") as raised:
            model["b"].numpy()
        assert raised.value.offset == max(length, model["b"].parts[0].offset)
        assert raised.value.source == str(path)
        with pytest.raises(an.ParseError):
            model.remember_to_bytes()


def test_stream_that_lies_about_its_size() -> None:
    class Lying(OnlyReadAndSeek):
        def seek(self, offset: int, whence: int = 0, /) -> int:
            return super().seek(offset, whence) + (1 << 30 if whence else 0)

    with pytest.raises(an.ParseError):
        an.parse(Lying(RAW))


def test_reading_after_closing(path: Path) -> None:
    for map_it in (False, True):
        model = an.parse(path, mmap=map_it)
        model.close()
        model.close()
        with pytest.raises((OSError, ValueError)):
            model["b"].numpy()


def test_closing_unmaps(path: Path) -> None:
    """Else the file cannot be replaced on Windows, and its blocks cannot be freed elsewhere."""
    with an.parse(path, mmap=True) as model:
        (container,) = model._checkpoint.shards.values()
        mapping = container.source._mapped  # type: ignore[attr-defined]
        assert not mapping.closed
    assert mapping.closed


def test_stamp_tells_a_replaced_file_however_it_is_read(path: Path) -> None:
    stamps = []
    for second in (1, 2):
        os.utime(path, (second, second))
        for map_it in (False, True):
            with open_source(path, mmap=map_it) as source:
                stamps.append(tuple(source.stamp()))
    assert stamps[0] == stamps[1] != stamps[2] == stamps[3]


# --- how much is read -------------------------------------------------------------------------


class Counting(Source):
    """Bytes that note each range that is read."""

    def __init__(self, raw: bytes) -> None:
        self.name = "counting"
        self.size = len(raw)
        self._raw = raw
        self.ranges: list[tuple[int, int]] = []

    def _read_some(self, offset: int, view: memoryview) -> int:
        part = self._raw[offset : offset + len(view)]
        view[: len(part)] = part
        self.ranges.append((offset, offset + len(part)))
        return len(part)


class CountingFile(OnlyReadAndSeek):
    """A file object that notes each range that is read."""

    def __init__(self, raw: bytes) -> None:
        super().__init__(raw)
        self.ranges: list[tuple[int, int]] = []

    def read(self, size: int = -1, /) -> bytes:
        start = self._stream.tell()
        data = self._stream.read(size)
        self.ranges.append((start, start + len(data)))
        return data


def inspected(where: Any) -> Model:
    model = an.parse(where, limits=UNLIMITED)
    assert model.inspect().n_quantized == 1
    assert len(list(model)) == 2
    assert repr(model["b"])
    return model


@pytest.mark.parametrize("kind", [Counting, CountingFile])
def test_inspection_reads_the_header_once(kind: Callable[[bytes], Any]) -> None:
    source = kind(RAW)
    inspected(source)
    assert source.ranges == [(0, 8), (8, N_HEADER)]


def test_one_tensor_reads_that_tensor_once() -> None:
    source = CountingFile(RAW)
    model = inspected(source)
    del source.ranges[:]
    model["b"].numpy()
    (part,) = model["b"].parts
    assert source.ranges == [(part.offset, part.offset + part.n_bytes)]


def test_remembering_reads_codes_once_and_scales_twice() -> None:
    source = CountingFile(RAW)
    model = inspected(source)
    scales = {
        (part.offset, part.offset + part.n_bytes)
        for part in model.stored.values()
        if "scale" in part.name
    }
    model.remember_to_bytes(threads=1)
    for counted in scales:  # once to count those that are NaN, infinite or 0
        source.ranges.remove(counted)
    assert _covered(source.ranges) == len(RAW)


def _covered(ranges: list[tuple[int, int]]) -> int:
    """How far the ranges reach if they follow each other without a hole or an overlap."""
    end = 0
    for start, stop in sorted(ranges):
        assert start == end
        end = stop
    return end


@pytest.fixture
def os_reads(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Every range that is read of a file that was opened by its path."""
    ranges: list[tuple[int, int]] = []
    pread, preadv = os.pread, os.preadv

    def counting(fd: int, n_bytes: int, offset: int) -> bytes:
        data = pread(fd, n_bytes, offset)
        ranges.append((offset, offset + len(data)))
        return data

    def counting_into(fd: int, buffers: list[memoryview], offset: int) -> int:
        n = preadv(fd, buffers, offset)
        ranges.append((offset, offset + n))
        return n

    monkeypatch.setattr(os, "pread", counting)
    monkeypatch.setattr(os, "preadv", counting_into)
    return ranges


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="no positioned reads")
def test_inspection_of_a_path(path: Path, os_reads: list[tuple[int, int]]) -> None:
    inspected(path)
    assert os_reads == [(0, 8), (8, N_HEADER)]


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="no positioned reads")
def test_inspection_of_a_directory(path: Path, os_reads: list[tuple[int, int]]) -> None:
    inspected(path.parent)
    assert os_reads == [(0, 8), (8, N_HEADER)]


@pytest.mark.skipif(not hasattr(os, "preadv"), reason="only on Linux and macOS: positioned reads")
def test_a_short_read_is_not_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FUSE and 9p may give less than is asked for."""
    (tmp_path / "file").write_bytes(bytes(range(100)))
    pread, preadv = os.pread, os.preadv
    monkeypatch.setattr(os, "pread", lambda fd, n, at: pread(fd, min(n, 7), at))
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: preadv(fd, [views[0][:7]], at))
    with open_source(tmp_path / "file") as source:
        assert source.read(10, 60) == bytes(range(10, 70))
