"""One GGUF file in memory under limits, which the first three bytes of the input choose."""

from __future__ import annotations

from fuzz_gguf import file_from
from limited import check_limits
from traced import fuzz


def check(data: bytes) -> None:
    """Raise whatever comes out that should not, or if a limit lets through what is over it."""
    check_limits(data, file_from)


if __name__ == "__main__":
    fuzz(check)
