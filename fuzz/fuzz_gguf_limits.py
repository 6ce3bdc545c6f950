"""One GGUF file in memory under limits, which the first three bytes of the input choose."""

from __future__ import annotations

import sys

from fuzz_gguf import file_from
from limited import check_limits


def check(data: bytes) -> None:
    """Raise whatever comes out that should not, or if a limit lets through what is over it."""
    check_limits(data, file_from)


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
