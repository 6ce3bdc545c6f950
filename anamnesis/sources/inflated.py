"""Deflated members of archives, inflated as they are asked for, in bounded memory.

Bands are asked for nearly in order, by several threads. So one stream runs forwards for all of
them, and its output, up to a few megabytes, is kept until it has been read. A read further back
restarts the stream if most of its output was used, once. Otherwise, as when strips are
cut across the columns of a matrix, all goes to a temporary file, or time would grow with the
square.
"""

from __future__ import annotations

import os
import threading
import weakref
import zlib
from collections import OrderedDict
from typing import IO, NamedTuple

from anamnesis.base.crc import crc32
from anamnesis.base.errors import ParseError
from anamnesis.base.source import Source
from anamnesis.sources.file import FileSource
from anamnesis.sources.stream import StreamSource

_CHUNK = 1 << 18  # inflated bytes that are kept or forgotten together
_KEPT_CHUNKS = 64  # of an archive: 16 MiB, what a thread may take
_KEPT_STREAMS = 8  # of an archive: inflating takes 40 KiB each
_COMPRESSED_CHUNK = 1 << 16
_FAR_CHUNK = 1 << 20  # of an archive that takes long to answer


class Deflated(NamedTuple):
    """A raw deflated stream in a file."""

    name: str
    start: int
    n_compressed: int
    n_bytes: int
    crc: int


class _Chunk:
    """Inflated bytes, and how many of them are still unread."""

    __slots__ = ("data", "n_unread")

    def __init__(self, data: bytes) -> None:
        self.data = memoryview(data)
        self.n_unread = len(data)


class InflatedChunks:
    """What an archive keeps of the bytes that were inflated, and the streams under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[int, int], _Chunk] = OrderedDict()
        self._streams: OrderedDict[int, _Stream] = OrderedDict()

    def read_some(self, archive: Source, member: Deflated, offset: int, view: memoryview) -> int:
        """Fill some of `view`; 0 if that has passed and is not worth inflating again.

        One thread at a time may ask for the same member's.
        """
        index, begin = divmod(offset, _CHUNK)
        chunk = self._chunk(archive, member, index)
        if chunk is None:
            return 0
        part = chunk.data[begin : begin + len(view)]
        view[: len(part)] = part
        chunk.n_unread -= len(part)
        with self._lock:
            if chunk.n_unread <= 0:
                self._chunks.pop((member.start, index), None)
            stream = self._streams.get(member.start)
            if stream is not None:
                stream.n_read += len(part)
        return len(part)

    def _chunk(self, archive: Source, member: Deflated, index: int) -> _Chunk | None:
        with self._lock:
            found = self._chunks.get((member.start, index))
            if found is not None:
                return found
            stream = self._streams.pop(member.start, None)
        if stream is None:
            stream = _Stream(archive, member)
        elif stream.n_chunks > index:
            # It was of use if at least half of what was inflated, less one chunk, has been read.
            if stream.is_second or 2 * stream.n_read < (stream.n_chunks - 1) * _CHUNK:
                return None
            stream = _Stream(archive, member, is_second=True)
        while stream.n_chunks <= index:
            found = _Chunk(stream.next_chunk())
            with self._lock:
                self._chunks[member.start, (stream.n_chunks - 1)] = found
                if len(self._chunks) > _KEPT_CHUNKS:
                    self._chunks.popitem(last=False)
        with self._lock:
            self._streams[member.start] = stream
            if len(self._streams) > _KEPT_STREAMS:
                self._streams.popitem(last=False)
        return found


class InflatedSource(Source):
    """The bytes that a deflated member inflates to."""

    def __init__(self, archive: Source, member: Deflated, inflated: InflatedChunks) -> None:
        self._archive = archive
        self._member = member
        self._inflated = inflated
        self._whole: Source | None = None
        self._lock = threading.Lock()
        self.name = f"{archive.name}: {member.name}"
        self.size = member.n_bytes
        if not self.size:  # no reading would bring out that it is damaged
            _Stream(archive, member).next_chunk()

    @property
    def base(self) -> Source:
        return self._archive.base

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        with self._lock:
            if self._whole is None:
                n = self._inflated.read_some(self._archive, self._member, offset, view)
                if n:
                    return n
                self._whole = self._inflate_whole()
        view = view[: self.size - offset]
        self._whole.read_into(offset, view)
        return len(view)

    def _read_rows(self, offset: int, stride: int, row_bytes: int, view: memoryview) -> None:
        if self._whole is None:
            super()._read_rows(offset, stride, row_bytes, view)
        else:
            self._whole.read_rows_into(offset, stride, row_bytes, view)

    def _inflate_whole(self) -> Source:
        """Return a temporary file of all of it, of which nothing is left if the process is killed.

        By its descriptor reads are cheaper, but Windows neither opens one twice nor takes its name.
        """
        from tempfile import NamedTemporaryFile  # only here, for few need it

        if os.name == "nt":
            file = NamedTemporaryFile()  # noqa: SIM115 -- it lives as long as this source
            weakref.finalize(self, file.close)
            self._inflate_to(file)
            return StreamSource(file)
        with NamedTemporaryFile(delete=False) as file:
            try:
                file.truncate(self.size)
                whole = FileSource(file.name)
            finally:
                os.unlink(file.name)
            self._inflate_to(file)
            return whole

    def _inflate_to(self, file: IO[bytes]) -> None:
        stream = _Stream(self._archive, self._member)
        while stream.n_left:
            file.write(stream.next_chunk())
        file.flush()


class _Stream:
    """A deflated member on its way from its beginning to its end."""

    def __init__(self, archive: Source, member: Deflated, *, is_second: bool = False) -> None:
        self._archive = archive
        self._member = member
        self.is_second = is_second
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._next = member.start
        self._stop = member.start + member.n_compressed
        self._crc = 0
        self.n_chunks = 0
        self.n_read = 0
        self.n_left = member.n_bytes

    def next_chunk(self) -> bytes:
        """Inflate the next chunk; the last one brings the checks of the whole."""
        parts, n_bytes = list[bytes](), min(_CHUNK, self.n_left)
        while n_bytes:
            part = self._step(n_bytes)
            if not part and (self._inflater.eof or self._is_dry()):
                raise self._error("ends before its stated length")
            parts.append(part)
            n_bytes -= len(part)
        chunk = parts[0] if len(parts) == 1 else b"".join(parts)
        self._crc = crc32(chunk, self._crc)
        self.n_chunks += 1
        self.n_left -= len(chunk)
        if not self.n_left:
            while not self._inflater.eof and not self._is_dry():  # the mark of the end, at least
                if self._step(1):
                    raise self._error("continues past its stated length")
            if not self._inflater.eof:
                raise self._error("has no end")
            if self._inflater.unused_data or self._next != self._stop:
                raise self._error("ends before its stated compressed length")
            if self._crc != self._member.crc:
                raise self._error("has the wrong CRC")
        return chunk

    def _step(self, most: int) -> bytes:
        """Return up to `most` bytes more, perhaps none, out of the compressed bytes at hand."""
        compressed = self._inflater.unconsumed_tail
        if not compressed:
            is_far = self._next > self._member.start and self._archive.in_flight(1)
            n_bytes = min(_FAR_CHUNK if is_far else _COMPRESSED_CHUNK, self._stop - self._next)
            compressed = self._archive.read(self._next, n_bytes)
            self._next += n_bytes
        try:
            return self._inflater.decompress(compressed, most)
        except zlib.error as error:
            raise self._error(f"is not a deflate stream ({error})") from None

    def _is_dry(self) -> bool:
        return self._next == self._stop and not self._inflater.unconsumed_tail

    def _error(self, what: str) -> ParseError:
        return ParseError(
            f"member {self._member.name!r} {what}: it is damaged",
            offset=self._member.start,
            source=self._archive.name,
        )
