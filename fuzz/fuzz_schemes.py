"""Quantised weights with something wrong about them: shapes, dtypes, parts, what they say.

Those that can be read must come out the same at all levels.
"""

from __future__ import annotations

from contextlib import suppress

from exercise import exercise
from structured import Choices
from structured_schemes import quantised_file
from traced import fuzz

import anamnesis as an
from anamnesis.base.levels import supported_levels


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    model = exercise(quantised_file(Choices(data)))
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
