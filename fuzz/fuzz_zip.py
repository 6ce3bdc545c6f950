"""One ZIP archive in memory: as the fuzzer's bytes are, or built from them if they start with `S`.

Whatever is read here the standard library reads too, and it is the same.
"""

from __future__ import annotations

import io
import zipfile

from structured import Choices
from structured_zip import zip_file
from traced import fuzz
from usual import check_members

import anamnesis as an
from anamnesis.base.limits import Budget
from anamnesis.formats.zip.members import ZipDirectory, read_directory
from anamnesis.sources.memory import BufferSource

MOST_BYTES = 1 << 22  # of a member that is compared


def file_from(data: bytes) -> bytes:
    """Return the file that an input stands for."""
    return zip_file(Choices(data[1:])) if data[:1] == b"S" else data


def read(raw: bytes, limits: an.ParseLimits | None = None) -> dict[str, bytes] | None:
    """Return the members that can be read; None if the directory was refused."""
    try:
        directory = read_directory(BufferSource(raw), Budget(limits or an.ParseLimits()))
    except an.AnamnesisError:
        return None
    return {
        name: data for name in directory.entries if (data := _read(directory, name)) is not None
    }


def _read(directory: ZipDirectory, name: str) -> bytes | None:
    entry = directory.entries[name]
    try:
        data = directory.read(entry, MOST_BYTES)
        source = directory.source_of(entry)
    except an.AnamnesisError:
        return None
    assert source.size == len(data) == entry.n_bytes
    half = len(data) // 2
    assert source.read(half, len(data) - half) == data[half:]
    assert source.read(0, half) == data[:half]
    return data


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw = file_from(data)
    check_members(raw, an.ParseLimits())
    members = read(raw)
    if not members:
        return
    with zipfile.ZipFile(io.BytesIO(raw)) as theirs:
        for name, content in members.items():
            assert theirs.read(name) == content, name


if __name__ == "__main__":
    fuzz(check)
