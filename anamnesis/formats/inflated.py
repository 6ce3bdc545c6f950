"""Deflated members of archives, inflated as they are asked for, in bounded memory.

Bands are asked for nearly in order, by several threads. So one stream goes forwards, whoever asks,
and the last few megabytes that came out of it are kept for those behind. What is older is inflated
again from the beginning.
"""

from __future__ import annotations

import threading
import zlib
from collections import OrderedDict
from typing import NamedTuple

from anamnesis.errors import ParseError
from anamnesis.formats.crc import crc32
from anamnesis.source import Source

__all__ = ["Deflated", "InflatedChunks", "InflatedSource"]

_CHUNK = 1 << 18  # inflated bytes that are kept or forgotten together
_KEPT_CHUNKS = 32  # of an archive: 8 MiB, more than threads are ahead of each other
_KEPT_STREAMS = 8  # of an archive: inflating takes 40 KiB each
_COMPRESSED_CHUNK = 1 << 16


class Deflated(NamedTuple):
    """A raw deflated stream in a file.

    Attributes
    ----------
    name : str
        What error messages call it.
    start, n_compressed : int
        Its bytes in the file.
    n_bytes, crc : int
        Length and CRC-32 of what comes out of it.
    """

    name: str
    start: int
    n_compressed: int
    n_bytes: int
    crc: int


class InflatedChunks:
    """What an archive keeps of the bytes that were inflated, and the streams under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._streams: OrderedDict[int, _Stream] = OrderedDict()

    def chunk(self, archive: Source, member: Deflated, index: int) -> bytes:
        """Return a chunk of a member; one thread at a time may ask for the same member's."""
        with self._lock:
            found = self._chunks.get((member.start, index))
            if found is not None:
                return found
            stream = self._streams.pop(member.start, None)
        if stream is None or stream.n_chunks > index:
            stream = _Stream(archive, member)
        chunk = b""
        while stream.n_chunks <= index:
            chunk = stream.next_chunk()
            self._keep(member, stream.n_chunks - 1, chunk)
        with self._lock:
            self._streams[member.start] = stream
            if len(self._streams) > _KEPT_STREAMS:
                self._streams.popitem(last=False)
        return chunk

    def _keep(self, member: Deflated, index: int, chunk: bytes) -> None:
        with self._lock:
            self._chunks[member.start, index] = chunk
            if len(self._chunks) > _KEPT_CHUNKS:
                self._chunks.popitem(last=False)


class InflatedSource(Source):
    """The bytes that a deflated member stands for."""

    def __init__(self, archive: Source, member: Deflated, inflated: InflatedChunks) -> None:
        self._archive = archive
        self._member = member
        self._inflated = inflated
        self._lock = threading.Lock()
        self.name = f"{archive.name}: {member.name}"
        self.size = member.n_bytes

    @property
    def base(self) -> Source:
        """The source of the whole file."""
        return self._archive.base

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        index, begin = divmod(offset, _CHUNK)
        with self._lock:
            chunk = self._inflated.chunk(self._archive, self._member, index)
        part = memoryview(chunk)[begin : begin + len(view)]
        view[: len(part)] = part
        return len(part)


class _Stream:
    """A deflated member on its way from its beginning to its end."""

    def __init__(self, archive: Source, member: Deflated) -> None:
        self._archive = archive
        self._member = member
        self._inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        self._next = member.start
        self._stop = member.start + member.n_compressed
        self._crc = 0
        self.n_chunks = 0

    def next_chunk(self) -> bytes:
        """Inflate the next chunk; the last one brings the checks of the whole."""
        left = self._member.n_bytes - self.n_chunks * _CHUNK
        chunk = self._inflate(min(_CHUNK, left))
        self._crc = crc32(chunk, self._crc)
        self.n_chunks += 1
        if left <= _CHUNK:
            self._check_whole()
        return chunk

    def _inflate(self, n_bytes: int) -> bytes:
        parts: list[bytes] = []
        while n_bytes:
            part = self._step(n_bytes)
            if not part and (self._inflater.eof or self._is_dry()):
                raise self._error("ends before its length")
            parts.append(part)
            n_bytes -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _step(self, most: int) -> bytes:
        """Return up to `most` bytes more, perhaps none, out of the compressed bytes at hand."""
        compressed = self._inflater.unconsumed_tail
        if not compressed:
            n_bytes = min(_COMPRESSED_CHUNK, self._stop - self._next)
            compressed = self._archive.read(self._next, n_bytes)
            self._next += n_bytes
        try:
            return self._inflater.decompress(compressed, most)
        except zlib.error as error:
            raise self._error(f"is no deflated stream ({error})") from None

    def _is_dry(self) -> bool:
        return self._next == self._stop and not self._inflater.unconsumed_tail

    def _check_whole(self) -> None:
        while not self._inflater.eof and not self._is_dry():  # the mark of the end, at least
            if self._step(1):
                raise self._error("goes on behind its length")
        if not self._inflater.eof:
            raise self._error("has no end")
        if self._inflater.unused_data or self._next != self._stop:
            raise self._error("ends before its compressed length")
        if self._crc != self._member.crc:
            raise self._error("has another CRC than it should")

    def _error(self, what: str) -> ParseError:
        return ParseError(
            f"member {self._member.name!r} {what}: it is damaged",
            offset=self._member.start,
            source=self._archive.name,
        )
