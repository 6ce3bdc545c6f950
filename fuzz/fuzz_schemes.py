"""Quantised weights with something wrong about them: shapes, dtypes, parts, what they say."""

from __future__ import annotations

import sys

from exercise import exercise
from structured import Choices
from structured_schemes import quantised_file


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    exercise(quantised_file(Choices(data)))


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
