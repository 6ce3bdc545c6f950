"""Extensions that lie: the content says what a file is, but who named it should know."""

from __future__ import annotations

import os

__all__ = ["misnomer"]

# What the formats' names begin with, by extension; others, such as .bin, promise nothing.
_PROMISED = {
    ".safetensors": "safetensors",
    ".sft": "safetensors",
    ".gguf": "GGUF",
    ".npz": "NPZ",
    ".npy": "NPY",
    **dict.fromkeys((".pth", ".pt", ".ckpt", ".jit"), "PyTorch"),
}


def misnomer(path: str, format: str) -> str | None:
    """Return a warning if a file's extension promises another format than its content is of."""
    promised = _PROMISED.get(os.path.splitext(path)[1].lower())
    if promised is None or format.startswith(promised):
        return None
    return f"{path}: is {format} by its content, not {promised} as its name says"
