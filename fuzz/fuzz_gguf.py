"""One GGUF file in memory: as the fuzzer's bytes are, or built from them if they start with `S`."""

from __future__ import annotations

import sys

from exercise import exercise
from structured import Choices
from structured_gguf import gguf_file


def file_from(data: bytes) -> bytes:
    """Return the file that an input stands for; it is never of another format."""
    return gguf_file(Choices(data[1:])) if data[:1] == b"S" else b"GGUF" + data[4:]


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    exercise(file_from(data))


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
