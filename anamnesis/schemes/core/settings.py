"""How a weight is encoded: what its parts show, and what somebody says of it.

Names, dtypes and shapes decide what a weight is. Where a config, a marker or the file's own
metadata name its bits, groups or parts, these must agree: else a part is missing, damaged, or of
another model, and what comes out would be other values without a word.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple


class Shown(NamedTuple):
    """What the parts of a weight show."""

    kind: str
    bits: int
    shape: tuple[int, int]
    grid: tuple[int, int]
    is_mx: bool = False

    def __str__(self) -> str:
        return f"{self.bits}-bit {self.kind}s with {self.grid[0]:,} x {self.grid[1]:,} scales"


class AskedPart(NamedTuple):
    """A part that there must be."""

    name: str
    why: str


class Expected(NamedTuple):
    """What a config, or a file, says that a weight is."""

    by: str
    kind: str = ""
    bits: int = 0
    block: tuple[int, int] | None = None
    parts: tuple[AskedPart, ...] = ()
    of_kind_only: bool = False
    not_of: str = ""
    is_whole: bool = False
    unread: str = ""
    is_symmetric: bool = False
    in_bytes: bool = False  # whether codes of fewer bits may take a byte each
    format: str = ""  # of numbers that no name, dtype or shape tells from others

    def __str__(self) -> str:
        words = [f"{self.bits}-bit" if self.bits else "", f"{self.kind}s" if self.kind else "codes"]
        if self.block is not None:
            rows, cols = self.block
            one = f"in groups of {cols}" if cols else "with a scale for each row"
            several = f"in blocks of {rows}x{cols}" if rows else "with one scale"
            words.append(one if rows == 1 else several)
        return " ".join(filter(None, words))


@lru_cache(maxsize=4096)  # a model has many weights, but few kinds of them
def disagreement(shown: Shown, given: Expected) -> str:
    """Return what is wrong with what a weight shows, in words; nothing if all agrees."""
    is_other = bool(given.kind) and given.kind != shown.kind
    is_wide = given.in_bytes and (shown.kind, shown.bits) == ("int", 8)
    is_other = is_other or bool(given.bits and shown.bits not in (0, given.bits) and not is_wide)
    if given.of_kind_only and (is_other or shown.is_mx):
        return ""
    if not is_other and (given.block is None or _has_blocks(shown, given.block, given.is_whole)):
        return ""
    return f"the shapes are those of {shown}, but {given.by} says {given}"


def _has_blocks(shown: Shown, block: tuple[int, int], is_whole: bool) -> bool:
    cols, size = shown.shape[1], block[1]
    is_odd = size % 32 and size & (size - 1)  # no tool has such: 33 fits scales of 32 by accident
    if size and cols % size and (is_whole or (size < cols and block[0] == 1 and is_odd)):
        return False
    sizes = zip(shown.shape, block, strict=True)  # 0 is all rows or columns
    return shown.grid == tuple(-(-n // size) if size else 1 for n, size in sizes)
