"""Pickles, and the files that hold them, for tests of what is told of them."""

from __future__ import annotations

import io
import pickle
import zipfile
from typing import Any

import numpy as np
import torch

SAFE = pickle.dumps({"a": [1, "b"]}, 2)
RUN = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R."


class Runs:
    """Anything that pickles as a call."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


def zipped(members: dict[str, bytes]) -> bytes:
    """Return an archive."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return stream.getvalue()


def torch_saved(value: Any, **options: Any) -> bytes:
    """Return what torch.save writes."""
    stream = io.BytesIO()
    torch.save(value, stream, **options)
    return stream.getvalue()


def numpy_saved(array: np.ndarray) -> bytes:
    """Return what np.save writes."""
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()
