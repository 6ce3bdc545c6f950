"""Which format a file has, recognised by its content."""

from __future__ import annotations

import os
from typing import Any

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.formats.base import Container, Opening, TypedMetadata
from anamnesis.formats.magic import GGUF_MAGIC, NPY_MAGIC, PICKLE_MAGICS, ZIP_MAGICS
from anamnesis.formats.safetensors import read as safetensors
from anamnesis.sources.open import open_source

_NO_HEADER = 1 << 48  # bytes; only other files seem to claim a longer header

# Of the file beside one whose header is being written: as it was, and as it will be.
UNDO_SUFFIX = ".amn-undo"
_KERAS_CONFIG, _KERAS_WEIGHTS = "config.json", "model.weights.h5"
_READ = Opening()


def parse_container(source: Source, budget: Budget, opening: Opening = _READ) -> Container:
    """Parse the header of a file of any format, recognised by its content."""
    container = _parsed(source, budget, opening)
    reads_on = isinstance(container.metadata, TypedMetadata)  # when it is asked for a value
    source.settle(container.header_bytes if reads_on else 0)
    return container


def _parsed(source: Source, budget: Budget, opening: Opening) -> Container:
    head = source.read(0, min(safetensors.LENGTH_BYTES, source.size))
    too_long = int.from_bytes(head, "little") > safetensors.SAFETENSORS_MAX_HEADER
    if head.startswith(GGUF_MAGIC):
        from anamnesis.formats.gguf import read as gguf

        return gguf.parse(source, head, budget)
    if head.startswith(NPY_MAGIC):
        from anamnesis.formats.numpy import npz

        return npz.parse_npy(source, budget, opening.void_dtype)
    # A safetensors header may be as long as these letters say, but then begins with a brace.
    if head.startswith(ZIP_MAGICS) and (too_long or source.read(len(head), 1) != b"{"):
        return _parse_archive(source, budget, opening)
    if too_long and head[:1] in PICKLE_MAGICS:
        from anamnesis.formats.torch import legacy as pth_legacy

        if pth_legacy.is_legacy(source):
            return pth_legacy.parse(source, budget, allow_foreign=opening.allow_foreign)
    try:
        return safetensors.parse(source, head, budget)
    except AnamnesisError as error:
        raise _of_another_kind(source, head, error) from None


def detect(source: Source) -> str | None:
    """Return the id of the format that a file begins as; None for what is none that is read."""
    head = source.read(0, min(safetensors.LENGTH_BYTES, source.size))
    n_header = int.from_bytes(head, "little")
    if head.startswith(GGUF_MAGIC):
        return "gguf"
    if head.startswith(NPY_MAGIC):
        return "npy"
    opens = source.size > len(head) and source.read(len(head), 1) == b"{"
    if opens and n_header <= safetensors.SAFETENSORS_MAX_HEADER:
        return "safetensors"
    try:
        if head.startswith(ZIP_MAGICS):
            from anamnesis.formats.numpy.npz import holds_arrays
            from anamnesis.formats.torch.read import pickles_of
            from anamnesis.formats.zip.members import read_directory

            directory = read_directory(source, Budget())
            if pickles_of(directory):
                return "torch"
            return "npz" if holds_arrays(directory) else None
        from anamnesis.formats.torch import legacy as pth_legacy

        return "torch" if head[:1] in PICKLE_MAGICS and pth_legacy.is_legacy(source) else None
    except AnamnesisError:
        return None


def _of_another_kind(source: Source, head: bytes, error: AnamnesisError) -> AnamnesisError:
    """Return what is wrong with a file that is no safetensors: `error`, or what it is instead."""
    n_header = int.from_bytes(head, "little")
    is_likely = n_header < _NO_HEADER and source.size > len(head)
    if is_likely and source.read(len(head), 1) == b"{":
        return error
    from anamnesis.formats.foreign import foreign_error

    foreign = foreign_error(source)
    if foreign is None and n_header > safetensors.SAFETENSORS_MAX_HEADER:
        foreign = source.error(
            f"this is not a model file of a known format: it starts with {head.hex(' ')}",
            remedy="pass a safetensors, GGUF, NPZ, NPY or PyTorch file",
        )
    return foreign or error


def parse_file(where: Any, budget: Budget, opening: Opening = _READ) -> Container:
    """Open what `open_source` takes, and parse it; it is closed if that fails."""
    source = open_source(where, mmap=opening.mmap, buffer=opening.remote_buffer)
    try:
        if source.path is not None and os.path.lexists(source.path + UNDO_SUFFIX):
            raise source.error(
                "its header is being edited, or that was cut short",
                remedy="anamnesis.edit_metadata(path) puts it right",
            )
        return parse_container(source, budget, opening)
    except BaseException:
        source.close()
        raise


def _parse_archive(source: Source, budget: Budget, opening: Opening) -> Container:
    """Parse an archive of arrays or of tensors, known by the names of its members."""
    from anamnesis.formats.torch.read import parse as parse_pth
    from anamnesis.formats.torch.read import pickles_of
    from anamnesis.formats.zip.members import read_directory

    directory = read_directory(source, budget)
    pickles = pickles_of(directory)
    if pickles:
        return parse_pth(directory, pickles, budget, allow_foreign=opening.allow_foreign)
    from anamnesis.formats.numpy import npz

    if npz.holds_arrays(directory):
        return npz.parse(directory, budget, opening.void_dtype)
    keras = _KERAS_CONFIG in directory.entries and _KERAS_WEIGHTS in directory.entries
    what = "a Keras archive" if keras else "a ZIP archive without tensors"
    remedy = "export the weights as safetensors" if keras else "unpack it and pass the model inside"
    raise source.error(f"this is {what}, not a model file", 0, remedy=remedy)
