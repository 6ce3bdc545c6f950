"""Bytes by offset: what every input offers, safe from several threads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Protocol, Self, runtime_checkable

import anamnesis._io as _io
from anamnesis.base.errors import LimitExceeded, ParseError, UnsupportedError

GAP_BYTES = 8 << 10  # a separate read costs as much as reading this much more


@runtime_checkable
class Readable(Protocol):
    """The least that is asked of a file object."""

    def read(self, size: int = ..., /) -> bytes:
        """Return up to `size` bytes."""

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Move to a position and return it."""


def file_status(stream: object) -> os.stat_result | None:
    """Return what the system says of the file that a stream is open on; None if it is on none."""
    with suppress(AttributeError, OSError, TypeError, ValueError):
        return os.fstat(stream.fileno())  # type: ignore[attr-defined]
    return None


class Source(ABC):
    """Random access to the bytes of one input."""

    name: str
    size: int
    path: str | None = None
    undone: object = None

    def error(
        self, message: str, offset: int | None = None, *, remedy: str | None = None
    ) -> ParseError:
        """Return the error for what is wrong with its bytes, at an offset if one can be named."""
        return ParseError(message, offset=offset, source=self.name, remedy=remedy)

    def unsupported(self, message: str, *, remedy: str | None = None) -> UnsupportedError:
        """Return the error for something in it that is not handled."""
        return UnsupportedError(f"{self.name}: {message}", remedy=remedy)

    def exceeded(self, limit: str, message: str, most: int | None = None) -> LimitExceeded:
        """Return the error for what is beyond a permanent cap, of which `most` are allowed."""
        allowed = "" if most is None else f"; {most:,} are allowed"
        return LimitExceeded(limit, f"{self.name}: {message}{allowed}")

    @abstractmethod
    def _read_some(self, offset: int, view: memoryview) -> int:
        """Read up to `len(view)` bytes at `offset` into `view`; return how many, 0 at the end."""

    def read_into(self, offset: int, view: memoryview) -> None:
        """Fill `view` from `offset` on; raise `ParseError` if the source ends before."""
        done = 0
        while done < len(view):
            n = self._read_some(offset + done, view[done:])
            if n <= 0:
                raise self._ends(offset + done, len(view) - done)
            done += n

    def read_summed(self, offset: int, view: memoryview) -> int:
        """Fill `view` as `read_into` does; return the CRC-32 of what was read."""
        # Summed up slice by slice, while it is in cache.
        from anamnesis.base.crc import crc32

        crc = 0
        for at in range(0, len(view), _io.CRC32_SLICE):
            part = view[at : at + _io.CRC32_SLICE]
            self.read_into(offset + at, part)
            crc = crc32(part, crc)
        return crc

    def held(self, offset: int, n_bytes: int) -> memoryview | None:
        """Return bytes as they lie if they lie in memory, not to be written to; else None."""
        return None

    def read_rows_into(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        """Fill `view` with rows of `row_bytes` that lie `stride` apart, from `offset` on."""
        # Some columns of a row-major matrix, that is. `ParseError` as in `read_into`.
        if row_bytes == stride:
            self.read_into(offset, view)
        elif len(view):
            self._read_rows(offset, stride, row_bytes, view)

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        for i in range(len(view) // row_bytes):
            self.read_into(offset + i * stride, view[i * row_bytes : (i + 1) * row_bytes])

    def read_into_each(self, offset: int, views: Sequence[memoryview]) -> None:
        """Fill views with bytes that follow each other from `offset` on; errors as `read_into`."""
        for view in views:
            self.read_into(offset, view)
            offset += len(view)

    def _ends(self, at: int, missing: int) -> ParseError:
        return self.error(f"ends after {at:,} bytes, {missing:,} more are needed", at)

    def read(self, offset: int, n_bytes: int) -> bytes:
        """Return exactly `n_bytes` bytes; check the length against `size` before allocating."""
        if n_bytes > self.size - offset:
            message = f"ends after {self.size:,} bytes, {offset + n_bytes:,} are needed"
            raise self.error(message, min(offset, self.size))
        buffer = bytearray(n_bytes)
        self.read_into(offset, memoryview(buffer))
        return bytes(buffer)

    def prefetch(self, ranges: Iterable[tuple[int, int]]) -> None:  # noqa: B027 -- files are near
        """Read what is soon asked for, each range a start and a stop: together, if that is far."""

    def settle(self, header_bytes: int) -> None:  # noqa: B027
        """Take the header as parsed, of which so many bytes may be read again."""

    def in_flight(self, n_bytes: int) -> int:
        """Return how many reads of so many bytes to have at the same time; 0 if it is all one."""
        return 0

    @property
    def file_name(self) -> str | None:
        """What it is called in its folder; None if there is no folder."""
        return None if self.path is None else os.path.basename(self.path)

    def beside(self, name: str) -> str | None:
        """Return where another file of the same folder would be; None if there is no folder."""
        return None if self.path is None else os.path.join(os.path.dirname(self.path), name)

    @property
    def base(self) -> Source:
        """The source of the whole file that these bytes are from."""
        return self

    @property
    def way(self) -> str:
        """How it sees what is beneath, where the same bytes may be seen otherwise; empty if not."""
        return ""

    @property
    def shows_base(self) -> bool:
        """Whether it has the offsets and the bytes of `base`."""
        return self.base is self

    def check(self) -> None:  # noqa: B027 -- most have no checksum
        """Read what was not read yet of bytes that have a checksum; `ParseError` if it is wrong."""

    def stamp(self) -> list[int | str]:
        """Return what changes when the content is replaced: the size; of files the mtime, too; of
        what is elsewhere, what its server calls this content.
        """
        return [self.size]

    def status(self) -> os.stat_result | None:
        """Return what the system says of the open file now; None if it is no file."""
        return None

    def check_unchanged(self) -> None:  # noqa: B027 -- most are no files
        """Raise `ParseError` if a file was written to since it was opened."""

    def close(self) -> None:  # noqa: B027 -- most have nothing to close
        """Let go of what was opened here; what the caller opened stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class DerivedSource(Source):
    """Bytes made of those of other sources; it counts as a part of the file of `like`."""

    def __init__(self, *beneath: Source, like: Source | None = None) -> None:
        self._beneath = beneath
        self._like = like or beneath[0]
        self.name = self._like.name

    @property
    def base(self) -> Source:
        return self._like.base

    @property
    def way(self) -> str:
        return " ".join(filter(None, (source.way for source in self._beneath)))

    def check(self) -> None:
        for source in dict.fromkeys(self._beneath):
            source.check()

    def stamp(self) -> list[int | str]:
        return self._like.stamp()
