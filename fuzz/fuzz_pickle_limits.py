"""One pickle under limits, which the first three bytes of the input choose."""

from __future__ import annotations

from fuzz_pickle import check as check_pickle
from limited import limit_from
from traced import fuzz

import anamnesis as an


def check(data: bytes) -> None:
    """Raise whatever comes out that should not."""
    single, total, items = (limit_from(byte) for byte in data[:3].ljust(3, b"\xff"))
    limits = an.ParseLimits(max_single_alloc=single, max_total_bytes=total, max_item_count=items)
    check_pickle(data[3:], limits)


if __name__ == "__main__":
    fuzz(check)
