"""One file in memory under limits, which the first three bytes of the input choose."""

from __future__ import annotations

from fuzz_safetensors import file_from
from limited import check_limits
from traced import fuzz


def check(data: bytes) -> None:
    """Raise whatever comes out that should not, or if a limit lets through what is over it."""
    check_limits(data, file_from, lambda raw, _: [int.from_bytes(raw[:8], "little")])


if __name__ == "__main__":
    fuzz(check)
