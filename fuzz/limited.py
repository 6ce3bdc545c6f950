"""Limits that the first bytes of an input choose, and what must hold under them."""

from __future__ import annotations

from collections.abc import Callable

from exercise import exercise

import anamnesis as an


def limit_from(byte: int) -> int | None:
    """Return a limit of 0 to 4 MB, in steps of a quarter, or none."""
    return None if byte == 255 else (4 + byte % 4) * 2 ** (byte // 4) // 16


def lengths_of_names(_: bytes, model: an.Model) -> list[int]:
    """Return what is surely allocated for a header that is no run of bytes of its own."""
    return [len(name) for name in (*model.stored, *model.metadata)]


def check_limits(
    data: bytes,
    file_from: Callable[[bytes], bytes],
    allocated: Callable[[bytes, an.Model], list[int]] = lengths_of_names,
) -> None:
    """Raise if limits let through allocations, or as many values, as are over them."""
    single, total, items = (limit_from(byte) for byte in data[:3].ljust(3, b"\xff"))
    limits = an.ParseLimits(max_single_alloc=single, max_total_bytes=total, max_item_count=items)
    raw = file_from(data[3:])
    model = exercise(raw, limits)
    if model is None:
        return
    sizes = allocated(raw, model)
    assert single is None or max(sizes, default=0) <= single
    assert total is None or sum(sizes) <= total
    assert items is None or len(model.stored) + len(model.metadata) <= items
    assert exercise(raw) is not None, "limits only tighten"
