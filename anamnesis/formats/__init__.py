"""The containers: where the bytes of each stored tensor lie. They know nothing of encodings."""

from __future__ import annotations

from typing import Any

from anamnesis.errors import ParseError
from anamnesis.formats import safetensors
from anamnesis.formats.stored import Container, StoredTensor
from anamnesis.limits import Budget
from anamnesis.source import Source, open_source

__all__ = ["Container", "StoredTensor", "parse_container", "parse_file"]

# What other tools' files start with, for a message that says more than "malformed". Only where the
# header would be too long: one of 640 bytes starts like a pickle.
_FOREIGN = (
    (b"PK\x03\x04", "a ZIP archive (.npz or PyTorch .pth)"),
    (b"\x80\x02", "a pickle (an old PyTorch file)"),
    (b"\x93NUMPY", "a NumPy .npy file"),
    (b"\x89HDF", "an HDF5 file"),
    (b"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
)


def parse_container(source: Source, budget: Budget) -> Container:
    """Parse the header of a file of any format, told by its content.

    Raises
    ------
    ParseError
        If it is malformed, or of no format that is read here.
    UnsupportedError
        If it is of a version that is not read here.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    """
    head = source.read(0, min(safetensors.LENGTH_BYTES, source.size))
    if head.startswith(b"GGUF"):
        from anamnesis.formats import gguf  # only here, for the sake of a quick start

        return gguf.parse(source, head, budget)
    if int.from_bytes(head, "little") > safetensors.SAFETENSORS_MAX_HEADER:
        for magic, what in _FOREIGN:
            if head.startswith(magic[: safetensors.LENGTH_BYTES]):
                raise ParseError(f"this is {what}, not safetensors", offset=0, source=source.name)
    return safetensors.parse(source, head, budget)


def parse_file(where: Any, budget: Budget, *, mmap: bool = False) -> Container:
    """Open what `open_source` takes, and parse it; it is closed if that fails.

    Raises
    ------
    OSError
        If it cannot be opened.
    ParseError, UnsupportedError, LimitExceeded
        As `parse_container`.
    """
    source = open_source(where, mmap=mmap)
    try:
        return parse_container(source, budget)
    except BaseException:
        source.close()
        raise
