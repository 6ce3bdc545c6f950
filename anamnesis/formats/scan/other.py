"""Whether files that are no pickles are what they look like, to their end."""

from __future__ import annotations

import codecs
import re
import struct
from math import prod
from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.magic import GGUF_MAGIC, ZIP_END_MAGIC
from anamnesis.formats.numpy.npy import read_header
from anamnesis.formats.zip.directory import start_of_last
from anamnesis.sources.gathered import JoinedSource

# Descriptors of NumPy arrays that hold strings, dates, bytes or long numbers, no objects.
_NO_OBJECTS = re.compile(r"[<>|=]?[?bBiuUSaMmVfc][0-9]{0,9}(?:\[[0-9a-z]{1,9}\])?")

# What lies beside weights, and no program takes for a pickle by its name.
_DOCUMENT_NAME = re.compile(
    r"\.(json|jsonl|md|rst|txt|ya?ml|toml|csv|html|py|jinja|png|jpe?g|gif|webp)$"
    r"|(^|[/\\])(README|LICEN[CS]E|NOTICE|\.git(attributes|ignore))$",
    re.IGNORECASE,
)
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"RIFF")
_MOST_TEXT = 1 << 16  # bytes that are looked at

_TAR_BLOCK = 512
_TAR_SUM = slice(148, 156)

_ZIP_TAIL = 22 + 0xFFFF  # bytes: the end record, and the longest comment
_ZIP_END = struct.Struct("<4s8xII2x")
_ZIP_LOCATOR_BYTES = 20


def parse_other(source: Source, head: bytes, budget: Budget) -> None:
    """Parse the header of a GGUF or safetensors file, which must go to the end of the file."""
    if not head.startswith(GGUF_MAGIC):
        from anamnesis.formats.safetensors import read as safetensors

        safetensors.parse(source, head, budget)
        return
    from anamnesis.formats.gguf import read as gguf

    container = gguf.parse(source, head, budget)
    ends = (tensor.offset + tensor.n_bytes for tensor in container.tensors.values())
    end = max(ends, default=container.header_bytes)
    if source.size > end + -end % container.facts["alignment"]:
        raise source.error("bytes follow the last tensor", end)


def data_of_array(source: Source, start: int, end: int, name: str, budget: Budget) -> int | None:
    """Return where the data of a NumPy array begins; None if that is surely no pickle."""
    header = read_header(source, start, end, name, budget)
    if not header.problem:
        return None
    if not _has_no_objects(header.descr):
        return header.data_start
    from numpy.lib.format import descr_to_dtype

    try:
        n_expected = descr_to_dtype(header.descr).itemsize * prod(header.shape)
    except (TypeError, ValueError):
        return header.data_start
    return None if n_expected == header.n_bytes else header.data_start


def _has_no_objects(descr: Any) -> bool:
    """Return whether a descriptor, or each of its fields, is of plain values."""
    # A field is a tuple of its name, alone or after a title, its descriptor, and its shape if it
    # has one.
    if isinstance(descr, str):
        return _NO_OBJECTS.fullmatch(descr) is not None
    return isinstance(descr, list) and all(
        isinstance(field, tuple) and len(field) > 1 and _has_no_objects(field[1]) for field in descr
    )


def is_document(source: Source) -> bool:
    """Return whether a file is text or a picture by its name and by its content."""
    if not _DOCUMENT_NAME.search(source.name):
        return False
    head = source.read(0, min(source.size, _MOST_TEXT))
    if head.startswith(_PICTURES):
        return True
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # a character may be cut at the end
    except UnicodeDecodeError:
        return False
    return b"\0" not in head


def is_tar(source: Source) -> bool:
    """Return whether a file begins as a tar archive does: by the checksum of its first block."""
    if source.size < _TAR_BLOCK:
        return False
    block = source.read(0, _TAR_BLOCK)
    field = block[_TAR_SUM]
    if field[0] in (0o200, 0o377):
        given = int.from_bytes(field[1:], "big", signed=field[0] == 0o377)
    else:
        try:
            given = int(field.partition(b"\0")[0].strip() or b"0", 8)
        except ValueError:
            return False
    rest = block[: _TAR_SUM.start] + b" " * len(field) + block[_TAR_SUM.stop :]
    unsigned = sum(rest)
    signed = unsigned - 256 * sum(byte > 0x7F for byte in rest)
    return given in (unsigned, signed)


def ends_like_an_archive(source: Source) -> bool:
    """Return whether a file has the end of a ZIP archive, where some readers look for one."""
    n_tail = min(source.size, _ZIP_TAIL)
    tail = source.read(source.size - n_tail, n_tail)
    at = tail.rfind(ZIP_END_MAGIC)
    if at < 0 or n_tail - at < _ZIP_END.size:
        return False
    _, n_directory, _ = _ZIP_END.unpack_from(tail, at)
    before = source.size - n_tail + at
    if before >= n_directory + 4 and n_directory:
        return source.read(before - n_directory, 4) == b"PK\x01\x02" or _has_locator(source, before)
    return _has_locator(source, before)


def _has_locator(source: Source, at: int) -> bool:
    """Return whether ZIP64's locator precedes the end record."""
    at -= _ZIP_LOCATOR_BYTES
    return at >= 0 and source.read(at, 4) == b"PK\x06\x07"


def archives_in(source: Source, most: int) -> list[tuple[int, Source]]:
    """Return the last archives of a file, one more than `most` at most, and where each begins."""
    found: list[tuple[int, Source]] = []
    end = source.size
    while end and len(found) <= most:
        begin = start_of_last(_part(source, 0, end))
        found.append((begin, _part(source, begin, end)))
        end = begin
    return found[::-1]


def _part(source: Source, begin: int, end: int) -> Source:
    whole = StoredTensor(source.name, DTYPES["U8"], (end - begin,), end - begin, begin, source)
    return JoinedSource([whole])
