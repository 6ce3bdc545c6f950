"""The journals of a partial run: numbered records, of which the last may be torn."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from typing import BinaryIO
from zlib import crc32

from anamnesis.convert.resume.folder import Folder

_HEAD = struct.Struct("<QI")  # the number of a band or a weight, and the length of what is noted
_CRC = struct.Struct("<I")  # behind each record: of all of it


class Damaged(Exception):
    """A journal says what no run says."""


class Journal:
    """Notes of things that are numbered from 0 to `n`, each once; use `close`."""

    def __init__(self, home: Folder, name: str, n: int, lengths: range) -> None:
        self._fd = home.open_or_create(name, os.O_APPEND)
        self._n, self._lengths = n, lengths
        self._lock = threading.Lock()

    def append(self, number: int, data: bytes) -> None:
        if len(data) not in self._lengths:
            raise ValueError(f"{len(data):,} bytes are noted, not {self._lengths}")
        record = _HEAD.pack(number, len(data)) + data
        rest = memoryview(record + _CRC.pack(crc32(record)))
        with self._lock:  # a system may write less than is asked for
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def records(self) -> Iterator[tuple[int, bytes]]:
        """Yield all records; a torn last one is cut off."""
        end = 0
        os.lseek(self._fd, 0, os.SEEK_SET)
        with open(self._fd, "rb", closefd=False) as stream:
            for number, data in read(stream, self._n, self._lengths):
                end += _HEAD.size + len(data) + _CRC.size
                yield number, data
        if os.fstat(self._fd).st_size != end:
            os.ftruncate(self._fd, end)

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read(stream: BinaryIO, n: int, lengths: range) -> Iterator[tuple[int, bytes]]:
    """Yield the whole records of a journal; raise `Damaged` where one is not as it was written."""
    for _ in range(n + 1):
        head = stream.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return
        number, length = _HEAD.unpack(head)
        if number >= n or length not in lengths:
            raise Damaged
        rest = stream.read(length + _CRC.size)
        if len(rest) < length + _CRC.size:
            return
        data = rest[:length]
        if _CRC.unpack_from(rest, length)[0] != crc32(head + data):
            raise Damaged
        yield number, data
    raise Damaged  # by more records than there are things
