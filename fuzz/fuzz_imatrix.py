"""One importance matrix in memory under limits, which the first three bytes of the input choose."""

from __future__ import annotations

import numpy as np
from limited import limit_from
from structured import Choices
from structured_imatrix import imatrix_file
from traced import fuzz

import anamnesis as an


def file_from(data: bytes) -> bytes:
    """Return the file that an input stands for."""
    return imatrix_file(Choices(data[1:])) if data[:1] == b"S" else data


def check(data: bytes) -> None:
    """Raise if what is read is no importance, or if limits change it or let too much through."""
    single, total, items = (limit_from(byte) for byte in data[:3].ljust(3, b"\xff"))
    limits = an.ParseLimits(max_single_alloc=single, max_total_bytes=total, max_item_count=items)
    raw = file_from(data[3:])
    try:
        found = an.read_imatrix(raw, limits)
    except an.AnamnesisError:
        return
    assert found.entries
    sizes = [entry.values.nbytes for entry in found.entries.values()]
    assert single is None or max(sizes) <= single
    assert total is None or sum(sizes) <= total
    assert items is None or len(sizes) <= items
    again = an.read_imatrix(raw)
    assert again.entries.keys() == found.entries.keys()
    for name, entry in found.entries.items():
        assert entry.values.dtype == np.float32
        assert np.isfinite(entry.values).all()
        assert (entry.values >= 0).all()
        assert entry.counts
        assert entry.values.size % len(entry.counts) == 0
        assert again.entries[name].values.tobytes() == entry.values.tobytes()


if __name__ == "__main__":
    fuzz(check)
