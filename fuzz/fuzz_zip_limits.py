"""One ZIP archive under limits, which the first four bytes of the input choose."""

from __future__ import annotations

from fuzz_zip import file_from, read
from limited import limit_from
from traced import fuzz
from usual import check_members

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
    check_members(raw, limits)
    members = read(raw, limits)
    if members is None:
        return
    sizes = [len(content) for content in members.values()]
    assert single is None or max(sizes, default=0) <= single
    assert total is None or sum(sizes) <= total
    assert items is None or len(members) <= items
    assert ratio is None or sum(sizes) <= max(1, ratio) * len(raw)
    free = read(raw)
    assert free is not None
    assert members.items() <= free.items(), "limits only tighten"


if __name__ == "__main__":
    fuzz(check)
