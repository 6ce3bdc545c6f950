"""What the extension of a file promises, and who writes files of that format."""

from __future__ import annotations

import os
from importlib import import_module

from anamnesis.base.errors import OutputError
from anamnesis.formats.base import Writer

__all__ = ["promised_format", "writer_for", "written_extensions"]

# Other extensions, such as .bin, promise nothing.
_PROMISED = {
    ".safetensors": "safetensors",
    ".sft": "safetensors",
    ".gguf": "gguf",
    ".npz": "npz",
    ".npy": "npy",
    **dict.fromkeys((".pth", ".pt", ".ckpt", ".jit"), "torch"),
}

# A format's id, and its writer: one line for each that is written.
_WRITERS = {
    "safetensors": "anamnesis.formats.safetensors.write:SafetensorsWriter",
}


def promised_format(path: str) -> str | None:
    """Return the id of the format that a file's extension promises, if it promises any."""
    return _PROMISED.get(os.path.splitext(path)[1].lower())


def written_extensions() -> tuple[str, ...]:
    """Return the extensions of the formats that can be written."""
    return tuple(extension for extension, id in _PROMISED.items() if id in _WRITERS)


def writer_for(path: str) -> Writer:
    """Return the writer of the format that an output's extension promises, or of safetensors.

    Raises
    ------
    OutputError
        If that format cannot be written.
    """
    id = promised_format(path) or "safetensors"
    if id not in _WRITERS:
        raise OutputError(
            f"{path}: {os.path.splitext(path)[1].lower()} files cannot be written",
            remedy=f"name one that ends in {' or '.join(written_extensions())}",
        )
    module, _, name = _WRITERS[id].partition(":")
    writer: Writer = getattr(import_module(module), name)()
    return writer
