"""Extensions that lie: the content says what a file is, but who named it should know."""

from __future__ import annotations

import os

__all__ = ["misnomer"]

# The formats that extensions promise, by id; other extensions, such as .bin, promise nothing.
_PROMISED = {
    ".safetensors": "safetensors",
    ".sft": "safetensors",
    ".gguf": "gguf",
    ".npz": "npz",
    ".npy": "npy",
    **dict.fromkeys((".pth", ".pt", ".ckpt", ".jit"), "torch"),
}
_WORDS = {
    "safetensors": "safetensors",
    "gguf": "GGUF",
    "npz": "NPZ",
    "npy": "NPY",
    "torch": "PyTorch",
}


def misnomer(path: str, format_id: str, format: str) -> str | None:
    """Return a warning if a file's extension promises another format than its content is of."""
    promised = _PROMISED.get(os.path.splitext(path)[1].lower())
    if promised is None or format_id == promised:
        return None
    return f"{path}: is {format} by its content, not {_WORDS[promised]} as its name says"
