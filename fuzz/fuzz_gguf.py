"""One GGUF file in memory: as the fuzzer's bytes are, or built from them if they start with `S`."""

from __future__ import annotations

from exercise import exercise
from structured import Choices
from structured_gguf import gguf_file
from traced import fuzz


def file_from(data: bytes) -> bytes:
    """Return the file that an input stands for; it is never of another format."""
    return gguf_file(Choices(data[1:])) if data[:1] == b"S" else b"GGUF" + data[4:]


def check(data: bytes) -> None:
    """Raise whatever an input brings out that should not come out."""
    exercise(file_from(data))


if __name__ == "__main__":
    fuzz(check)
