"""The .metadata of a distributed checkpoint, beside files that hold what the seeds' say."""

from __future__ import annotations

import io
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
from traced import fuzz

import anamnesis as an
from anamnesis.base.limits import ParseLimits

_LIMITS = ParseLimits(max_total_bytes=1 << 26, max_item_count=100_000)


def piece() -> bytes:
    """Return one piece as torch saves it: a tensor of 2 x 2."""
    stream = io.BytesIO()
    an.save({"w": np.arange(4, dtype=np.float32).reshape(2, 2)}, stream, "torch")
    return stream.getvalue()


FOLDER = Path(tempfile.mkdtemp(prefix="anamnesis-fuzz-"))
(FOLDER / "__0_0.distcp").write_bytes(piece() * 4)


def check(data: bytes) -> None:
    """Raise whatever a checkpoint brings out that should not come out."""
    (FOLDER / ".metadata").write_bytes(data)
    with (
        suppress(an.AnamnesisError, FileNotFoundError, IsADirectoryError),
        an.parse(FOLDER, limits=_LIMITS) as model,
    ):
        for tensor in model.stored.values():
            if tensor.n_bytes < 1 << 20:
                with suppress(an.AnamnesisError):
                    tensor.read()


if __name__ == "__main__":
    fuzz(check)
