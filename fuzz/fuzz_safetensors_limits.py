"""One file in memory under limits, which the first three bytes of the input choose."""

from __future__ import annotations

import sys

from exercise import exercise
from fuzz_safetensors import file_from
from limited import limit_from

import anamnesis as an


def check(data: bytes) -> None:
    """Raise whatever comes out that should not, or if a limit lets through what is over it."""
    single, total, items = (limit_from(byte) for byte in data[:3].ljust(3, b"\xff"))
    limits = an.ParseLimits(max_single_alloc=single, max_total_bytes=total, max_item_count=items)
    raw = file_from(data[3:])
    model = exercise(raw, limits)
    if model is None:
        return
    n_header = int.from_bytes(raw[:8], "little")
    assert single is None or n_header <= single
    assert total is None or n_header <= total
    assert items is None or len(model.stored) + len(model.metadata) <= items
    assert exercise(raw) is not None, "limits only tighten"


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.instrument_all()
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
