"""The module `_parse` without C: what it finds quickly is not known, and strings are walked."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct


def tensor_entries(header: bytes, pos: int, count: int) -> tuple[list[object], int, bool]:
    """Read no entry of a safetensors header: the parser does."""
    return [], pos, True


def zip_members(end: bytes, end_start: int, make: object) -> None:
    """Read no directory of an archive: the parser does."""


def skip_strings(
    src: memoryview, pos: int, count: int, length_bytes: int, big_endian: bool, longest: int
) -> tuple[int, int]:
    """Step over up to `count` of GGUF's strings, until one is too long or `src` ends."""
    done = 0
    for start, n in _strings(src, pos, count, length_bytes, big_endian):
        if n > longest:
            break
        pos, done = start + n, done + 1
    return pos, done


def read_strings(
    src: memoryview, pos: int, count: int, length_bytes: int, big_endian: bool
) -> tuple[list[str], int]:
    """Return up to `count` of GGUF's strings, and where they end."""
    found = []
    for start, n in _strings(src, pos, count, length_bytes, big_endian):
        if start + n > len(src):
            break
        pos = start + n
        found.append(bytes(src[start:pos]).decode("utf-8", "surrogateescape"))
    return found, pos


def _strings(
    src: memoryview, pos: int, count: int, length_bytes: int, big_endian: bool
) -> Iterator[tuple[int, int]]:
    """Yield where each string starts, and its length."""
    length = Struct((">" if big_endian else "<") + {4: "I", 8: "Q"}[length_bytes]).unpack_from
    for _ in range(count):
        if pos + length_bytes > len(src):
            return
        (n,) = length(src, pos)
        yield pos + length_bytes, n
        pos += length_bytes + n
