"""Quantised weights with something wrong about them: shapes, dtypes, parts, what they say.

Those that can be read must come out the same at all levels.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import suppress
from pathlib import Path

from exercise import exercise
from structured import Choices
from structured_schemes import checkpoint
from traced import fuzz

import anamnesis as an
from anamnesis.base.levels import supported_levels


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    raw, config = checkpoint(Choices(data))
    folds = len(data) % 2 == 1
    if config is None:
        _check(raw, folds)
        return
    with tempfile.TemporaryDirectory(prefix="anamnesis-fuzz-") as folder:
        Path(folder, "model.safetensors").write_bytes(raw)
        Path(folder, "config.json").write_text(json.dumps(config))
        _check(Path(folder), folds)


def _check(model_input: bytes | Path, folds: bool) -> None:
    model = exercise(model_input, folds=folds)
    if model is None:
        return
    with suppress(an.AnamnesisError):
        outputs = [
            model.remember_to_bytes(level=level, allow_unknown=True, threads=1)
            for level in supported_levels()
        ]
        assert len(set(outputs)) == 1


if __name__ == "__main__":
    fuzz(check)
