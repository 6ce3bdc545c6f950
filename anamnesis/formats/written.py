"""Which formats are written, and what the name of a file says of its format."""

from __future__ import annotations

import os
from importlib import import_module
from typing import NamedTuple

from anamnesis.formats.base import Writer


class Written(NamedTuple):
    """A format that is written."""

    id: str
    title: str
    endings: tuple[str, ...]
    module: str
    name: str


_TORCH = (".pth", ".pt", ".bin", ".ckpt")
WRITERS = {
    id: Written(id, title, endings, module, name)
    for id, title, endings, module, name in (
        ("safetensors", "safetensors", (".safetensors",), "safetensors.write", "SafetensorsWriter"),
        ("gguf", "GGUF", (".gguf",), "gguf.write", "GgufWriter"),
        ("npz", "NPZ", (".npz",), "numpy.write", "NpzWriter"),
        ("npy", "NPY", (".npy",), "numpy.write", "NpyWriter"),
        ("torch", "PyTorch", _TORCH, "torch.write", "TorchWriter"),
    )
}

# Endings of which files are read, but not written.
_READ_ONLY = {".sft": "safetensors", ".jit": "torch"}


def make_writer(id: str) -> Writer:
    """Return a writer for one file."""
    written = WRITERS.get(id)
    if written is None:
        raise ValueError(f"a format must be one of {', '.join(WRITERS)}; got {id!r}")
    writer: Writer = getattr(import_module(f"anamnesis.formats.{written.module}"), written.name)()
    return writer


def written_as(name: str) -> str | None:
    """Return the id of the format that a file of this name is written in; None if none shows."""
    lowered = name.lower()
    for written in WRITERS.values():
        if lowered.endswith(written.endings):
            return written.id
    return None


def promised_format(name: str) -> str | None:
    """Return the id of the format that the name of a file to read promises; None if none shows."""
    # `.bin` promises nothing: other programs give it to files of many formats.
    lowered = name.lower()
    if lowered.endswith(".bin"):
        return None
    return _READ_ONLY.get(os.path.splitext(lowered)[1]) or written_as(lowered)


def asked_format(name: str) -> str | None:
    """Return the id of the format that the name of an output asks for; None if none shows."""
    # It need not be written under that ending: `.sft` is an old one of safetensors.
    return written_as(name) or promised_format(name)
