"""Limits that the first bytes of an input choose, and what must hold under them."""

from __future__ import annotations

from collections.abc import Callable

from exercise import exercise

import anamnesis as an


def limit_from(byte: int) -> int | None:
    """Return a limit of 0 to 4 MB, in steps of a quarter, or none."""
    return None if byte == 255 else (4 + byte % 4) * 2 ** (byte // 4) // 16


def check_names(data: bytes, file_from: Callable[[bytes], bytes]) -> None:
    """Raise if limits let through names, or as many values, as are over them.

    For formats whose header is no run of bytes of its own: its names are what is surely allocated.
    """
    single, total, items = (limit_from(byte) for byte in data[:3].ljust(3, b"\xff"))
    limits = an.ParseLimits(max_single_alloc=single, max_total_bytes=total, max_item_count=items)
    raw = file_from(data[3:])
    model = exercise(raw, limits)
    if model is None:
        return
    names = [*model.stored, *model.metadata]
    assert single is None or max((len(name) for name in names), default=0) <= single
    assert total is None or sum(len(name) for name in names) <= total
    assert items is None or len(names) <= items
    assert exercise(raw) is not None, "limits only tighten"
