"""Which format a file is of, told by its content."""

from __future__ import annotations

from typing import Any, NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import StoredTensor
from anamnesis.formats.base import Container
from anamnesis.formats.safetensors import read as safetensors
from anamnesis.sources.open import open_source

__all__ = ["Container", "Opening", "StoredTensor", "parse_container", "parse_file"]

# What other tools' files start with, for a message that says more than "malformed". Only where the
# header would be too long: one of 640 bytes starts like a pickle.
_FOREIGN = (
    *((bytes((0x80, protocol)), "a pickle, but not a PyTorch file") for protocol in range(2, 6)),
    (b"\x89HDF", "an HDF5 file"),
    (b"version https://git-lfs", "a Git LFS pointer: the file itself was not downloaded"),
    (b"<!DOCTYPE", "a web page"),
    (b"<html", "a web page"),
)


_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # the latter of an empty one


class Opening(NamedTuple):
    """How files are opened.

    Attributes
    ----------
    mmap : bool
        Map them instead of reading them.
    allow_foreign : bool
        Let pickles refer to what no tensor needs; nothing is done with it.
    void_dtype : DType or None
        Of NumPy arrays whose items are bytes without a meaning.
    """

    mmap: bool = False
    allow_foreign: bool = False
    void_dtype: DType | None = None


_READ = Opening()


def parse_container(source: Source, budget: Budget, opening: Opening = _READ) -> Container:
    """Parse the header of a file of any format, told by its content.

    Parameters
    ----------
    source : Source
    budget : Budget
    opening : Opening

    Raises
    ------
    ParseError
        If it is malformed, or of no format that is read here.
    UnsupportedError
        If it is of a version that is not read here.
    DisallowedGlobal
        If a pickle refers to what no tensor needs, and `opening` does not allow that.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    """
    head = source.read(0, min(safetensors.LENGTH_BYTES, source.size))
    too_long = int.from_bytes(head, "little") > safetensors.SAFETENSORS_MAX_HEADER
    if head.startswith(b"GGUF"):
        from anamnesis.formats.gguf import read as gguf  # only here, for the sake of a quick start

        return gguf.parse(source, head, budget)
    if head.startswith(b"\x93NUMPY"):
        from anamnesis.formats.numpy import npz

        return npz.parse_npy(source, budget, opening.void_dtype)
    # A safetensors header may be as long as these letters say, but not what is in it.
    if head.startswith(_ZIP_MAGICS) and (too_long or source.read(len(head), 1) != b"{"):
        from anamnesis.formats.archives import parse_archive

        return parse_archive(source, budget, opening)
    if too_long:
        if head[:1] in (b"\x80", b"L"):
            from anamnesis.formats.torch import legacy as pth_legacy

            if pth_legacy.is_legacy(source):
                return pth_legacy.parse(source, budget, allow_foreign=opening.allow_foreign)
        for magic, what in _FOREIGN:
            if head.startswith(magic[: safetensors.LENGTH_BYTES]):
                raise ParseError(f"this is {what}, not safetensors", offset=0, source=source.name)
    return safetensors.parse(source, head, budget)


def parse_file(where: Any, budget: Budget, opening: Opening = _READ) -> Container:
    """Open what `open_source` takes, and parse it; it is closed if that fails.

    Raises
    ------
    OSError
        If it cannot be opened.
    ParseError, UnsupportedError, DisallowedGlobal, LimitExceeded
        As `parse_container`.
    """
    source = open_source(where, mmap=opening.mmap)
    try:
        return parse_container(source, budget, opening)
    except BaseException:
        source.close()
        raise
