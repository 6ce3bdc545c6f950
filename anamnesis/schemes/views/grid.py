"""Which scale belongs to which element: per tensor, per row, or a grid of blocks.

All of them are one thing to the kernel: `batch` matrices of `rows` x `cols`, each with a grid of
scales, one for every `block_rows` x `block_cols` elements, partial at the edges.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from math import prod
from typing import NamedTuple

Block = tuple[int, int]
MX_BLOCK = (1, 32)  # of the OCP's formats
_LEAST_BLOCK = 8  # that is not declared: half of the scales of rows are no blocks of two
_MAX_BLOCK = 2**31  # what a config or a caller may say; the kernels count in size_t


class AmbiguousBlock(ValueError):
    """More than one block size explains the shapes, and the config does not say which."""


class ScaleGrid(NamedTuple):
    """The layout of a weight's scales."""

    kind: str
    batch: int
    rows: int
    cols: int
    block_rows: int
    block_cols: int

    @property
    def grid_rows(self) -> int:
        return -(-self.rows // self.block_rows)

    @property
    def grid_cols(self) -> int:
        return -(-self.cols // self.block_cols)


@lru_cache(maxsize=1024)  # a model has many weights, but few shapes
def resolve(
    shape: tuple[int, ...], scale_shape: tuple[int, ...], blocks: frozenset[Block] = frozenset()
) -> ScaleGrid:
    """Find how scales of `scale_shape` lie over a weight of `shape`."""
    if prod(scale_shape) == 1:
        n = prod(shape)
        return ScaleGrid("tensor", 1, 1, n, 1, max(n, 1))
    grid = _grid_shape(shape, scale_shape)
    if grid is not None:
        # Blocks that differ only beyond the weight's own size are the same.
        clipped = {(min(b[0], shape[-2]), min(b[1], shape[-1])): b for b in sorted(blocks)}
        fitting = {c: b for c, b in clipped.items() if _fits(shape, grid, b)}
        if len(fitting) > 1:
            raise _ambiguous(shape, scale_shape, fitting.values())
        for block in fitting.values():
            return _blocks(shape, block)
    prefix = scale_shape
    while prefix and prefix[-1] == 1 and len(prefix) > 1:
        prefix = prefix[:-1]
    if len(prefix) < len(shape) and shape[: len(prefix)] == prefix:
        cols = prod(shape[len(prefix) :])
        return ScaleGrid("channel", 1, prod(prefix), cols, 1, max(cols, 1))
    if grid is None:
        raise ValueError(f"a scale of shape {list(scale_shape)} does not fit {list(shape)}")
    if blocks:
        given = ", ".join(f"{r}x{c}" for r, c in sorted(blocks))
        raise ValueError(
            f"a scale of shape {list(scale_shape)} does not fit {list(shape)} in {given} blocks"
        )
    return _blocks(shape, _infer_block(shape, grid, scale_shape))


def resolve_even(shape: tuple[int, ...], scale_shape: tuple[int, ...]) -> ScaleGrid:
    """Find how scales lie over a weight if all have as many elements, as torchao has it."""
    if prod(scale_shape) == 1:
        return resolve(shape, (1,))
    is_even = len(shape) == len(scale_shape) and all(
        g > 0 and n % g == 0 for n, g in zip(shape, scale_shape, strict=True)
    )
    block = [n // g for n, g in zip(shape, scale_shape, strict=True)] if is_even else []
    cut = len(block)  # dimensions up to the last one in which a block is not the whole
    while cut and block[cut - 1] == shape[cut - 1]:
        cut -= 1
    is_channel = cut < len(block) and block[cut - 1 : cut] == [1]
    n_lead = cut if is_channel else max(cut - 1, 0)
    if not is_even or any(b != 1 for b in block[: max(n_lead - 1, 0)]):
        raise ValueError(
            f"a scale of shape {list(scale_shape)} does not fit {list(shape)} in whole blocks"
        )
    lead, cols = shape[:n_lead], prod(shape[n_lead:])
    if is_channel:
        return ScaleGrid("channel", 1, prod(lead), cols, 1, max(cols, 1))
    rows, block_rows = (lead[-1], block[n_lead - 1]) if lead else (1, 1)
    return ScaleGrid("block", prod(lead[:-1]), rows, cols, block_rows, prod(block[n_lead:]))


def _grid_shape(shape: tuple[int, ...], scale_shape: tuple[int, ...]) -> Block | None:
    """Return rows and columns of the grid if `scale_shape` is one: it leads as the weight does."""
    # Besides [..., rows, cols] this takes kohya's [rows, cols, 1] and ModelOpt's [rows, 1, cols,
    # 1].
    if len(shape) < 2:
        return None
    lead = shape[:-2]
    tail = scale_shape[len(lead) :]
    if scale_shape[: len(lead)] != lead:
        return None
    if len(tail) == 4 and tail[1] == tail[3] == 1:
        tail = (tail[0], tail[2])
    elif len(tail) == 3 and tail[2] == 1:
        tail = tail[:2]
    return (tail[0], tail[1]) if len(tail) == 2 and 0 not in tail else None


def _fits(shape: tuple[int, ...], grid: Block, block: Block) -> bool:
    return all(
        0 < b < _MAX_BLOCK and -(-n // b) == g
        for n, g, b in zip(shape[-2:], grid, block, strict=True)
    )


def _blocks(shape: tuple[int, ...], block: Block) -> ScaleGrid:
    rows, cols = shape[-2:]
    return ScaleGrid("block", prod(shape[:-2]), rows, cols, *block)


def block_candidates(n: int, parts: int) -> set[int]:
    """Return the block lengths that plausibly cut `n` elements into `parts`."""
    # An even cut is plausible, and a power of two with a shorter last block. (Any length from
    # n/parts up to n/(parts-1) would fit; nobody publishes blocks of 131.)
    if parts == 1:
        return {max(n, 1)}
    found = {n // parts} if n and n % parts == 0 else set()
    power = 1 << ((n - 1) // parts).bit_length()  # the smallest power of two with n/power <= parts
    if -(-n // power) == parts:
        found.add(power)
    return found


def _infer_block(shape: tuple[int, ...], grid: Block, scale_shape: tuple[int, ...]) -> Block:
    rows, cols = (
        {size for size in block_candidates(n, g) if size in (1, n) or size >= _LEAST_BLOCK}
        for n, g in zip(shape[-2:], grid, strict=True)
    )
    if not rows or not cols:
        raise ValueError(
            f"a scale of shape {list(scale_shape)} does not fit {list(shape)} in any likely block"
        )
    if len(rows) > 1 or len(cols) > 1:
        raise _ambiguous(shape, scale_shape, [(r, c) for r in sorted(rows) for c in sorted(cols)])
    return rows.pop(), cols.pop()


def _ambiguous(
    shape: tuple[int, ...], scale_shape: tuple[int, ...], blocks: Iterable[Block]
) -> AmbiguousBlock:
    sizes = " or ".join(f"{rows}x{cols}" for rows, cols in blocks)
    return AmbiguousBlock(
        f"a scale of shape {list(scale_shape)} over {list(shape)} may mean blocks of {sizes}"
    )
