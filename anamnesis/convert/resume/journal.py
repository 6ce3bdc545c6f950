"""The journals of a partial run, whose last record may be torn."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Iterator
from zlib import crc32

from anamnesis.convert.resume.folder import Folder

SURVEYS = "surveys"

_ORDINAL = struct.Struct("<Q")
_FOUND = struct.Struct("<QI")  # the weight's index, and the length of what was found
_CRC = struct.Struct("<I")  # behind each record: of all of it
_MOST_FOUND = 1 << 12  # bytes
_AT_ONCE = 1 << 12  # records


class Damaged(Exception):
    """A journal says what no run says."""


class _Journal:
    """A file of records; use `close`."""

    def __init__(self, home: Folder, name: str) -> None:
        self._fd = home.open_or_create(name, os.O_APPEND)
        self._lock = threading.Lock()

    def _append(self, record: bytes) -> None:
        rest = memoryview(record + _CRC.pack(crc32(record)))
        with self._lock:  # a system may write less than is asked for
            while rest:
                rest = rest[os.write(self._fd, rest) :]

    def clear(self) -> None:
        os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class BandJournal(_Journal):
    """Which bands are written: records of one length, which begin with the band's ordinal."""

    def __init__(self, home: Folder, record_bytes: int, n_bands: int) -> None:
        super().__init__(home, "journal")
        self._record_bytes = record_bytes + _CRC.size
        self._n_bands = n_bands

    def append(self, record: bytes) -> None:
        self._append(record)

    def records(self) -> Iterator[bytes]:
        """Yield all records; a torn last one is cut off."""
        size = os.fstat(self._fd).st_size
        whole = size - size % self._record_bytes
        if whole > self._n_bands * self._record_bytes:
            raise Damaged
        if whole != size:
            os.ftruncate(self._fd, whole)
        os.lseek(self._fd, 0, os.SEEK_SET)
        with open(self._fd, "rb", closefd=False) as stream:
            while raw := stream.read(_AT_ONCE * self._record_bytes):
                for start in range(0, len(raw), self._record_bytes):
                    end = start + self._record_bytes - _CRC.size
                    record = raw[start:end]
                    if _CRC.unpack_from(raw, end)[0] != crc32(record):
                        raise Damaged
                    if _ORDINAL.unpack_from(record)[0] >= self._n_bands:
                        raise Damaged
                    yield record


class SurveyJournal(_Journal):
    """What surveys have found, by the index of the weight; a torn last record is cut off."""

    def __init__(self, home: Folder, n_weights: int) -> None:
        self.noted, n_bytes = _parsed(home, n_weights)
        super().__init__(home, SURVEYS)
        os.ftruncate(self._fd, n_bytes)

    def append(self, index: int, found: bytes) -> None:
        """Note what a survey has found, unless that is noted."""
        if len(found) > _MOST_FOUND:
            raise ValueError(f"a survey finds at most {_MOST_FOUND} bytes, not {len(found):,}")
        if index not in self.noted:
            self._append(_FOUND.pack(index, len(found)) + found)
            self.noted[index] = found


def read_surveys(home: Folder, n_weights: int) -> dict[int, bytes]:
    """Return what surveys have found; raise `Damaged` as `SurveyJournal` does."""
    return _parsed(home, n_weights)[0]


def _parsed(home: Folder, n_weights: int) -> tuple[dict[int, bytes], int]:
    """Return what is noted, and the length of all whole records."""
    most = n_weights * (_FOUND.size + _MOST_FOUND + _CRC.size)
    raw = home.read(SURVEYS, most + 1) or b""
    if len(raw) > most:
        raise Damaged
    noted: dict[int, bytes] = {}
    at = 0
    while at + _FOUND.size <= len(raw):
        index, n = _FOUND.unpack_from(raw, at)
        if n > _MOST_FOUND:
            raise Damaged
        end = at + _FOUND.size + n
        if end + _CRC.size > len(raw):
            break
        if index >= n_weights or _CRC.unpack_from(raw, end)[0] != crc32(raw[at:end]):
            raise Damaged
        noted[index] = raw[end - n : end]
        at = end + _CRC.size
    return noted, at
