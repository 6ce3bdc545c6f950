"""One NPZ archive or NPY file under limits, which the first four bytes of the input choose."""

from __future__ import annotations

from exercise import exercise
from fuzz_npz import file_from
from limited import limit_from
from traced import fuzz

import anamnesis as an


def check(data: bytes) -> None:
    """Raise whatever comes out that should not, or if a limit lets through what is over it."""
    single, total, items, ratio = (limit_from(byte) for byte in data[:4].ljust(4, b"\xff"))
    limits = an.ParseLimits(
        max_single_alloc=single,
        max_total_bytes=total,
        max_item_count=items,
        max_decompression_ratio=ratio,
    )
    raw = file_from(data[4:])
    model = exercise(raw, limits)
    if model is None:
        return
    assert items is None or len(model.stored) <= items
    n_bytes = sum(t.n_bytes for t in model.stored.values())
    assert ratio is None or n_bytes <= max(1, ratio) * len(raw)
    assert exercise(raw) is not None, "limits only tighten"


if __name__ == "__main__":
    fuzz(check)
