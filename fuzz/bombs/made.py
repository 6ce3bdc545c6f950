"""How bombs are made, and all that there are."""

from __future__ import annotations

from collections.abc import Callable

Files = dict[str, bytes]

MOST = 64 << 10  # bytes of all files of a bomb
BOMBS: dict[str, Callable[[int], Files]] = {}


def bomb(name: str, make: Callable[[int], bytes], *files: str) -> None:
    """Add a bomb that is one file, under all these names."""
    for file in files:
        key = f"{name}.{file.rpartition('.')[2]}"
        assert key not in BOMBS
        BOMBS[key] = lambda size, file=file: {file: make(size)}


def filled(unit: Callable[[int], bytes] | bytes, size: int) -> bytes:
    """Return as many units as there is room for: bytes, or a function of their number."""
    if isinstance(unit, bytes):
        return unit * (max(0, size) // len(unit)) if unit else b""
    out = bytearray()
    i = 0
    while True:
        piece = unit(i)
        if len(out) + len(piece) > size:
            return bytes(out)
        out += piece
        i += 1
