"""Every kernel at every level gives the bytes and the count that scalar gives."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import (
    BLOCK_COUNTS,
    BLOCKS,
    CODES,
    COUNTS,
    FLOATS,
    HAVE_GUARD_PAGES,
    OUTPUTS,
    POISON,
    SCALES,
    SUPPORTED,
    Blocks,
    Case,
    Convert,
    GuardedPages,
    Scaled,
    assert_levels_agree,
    at_offset,
    item_bytes,
    random_inputs,
    run,
    scaled_cases,
)

from anamnesis.dtypes import BLOCK_DTYPES

MISALIGNED = (
    *(Scaled(code, out, 3, 100, 1, 40, col_phase=7) for code in CODES for out in OUTPUTS),
    *(Scaled(code, out, 2, 90, 2, 1) for code in CODES for out in OUTPUTS),
    *(Scaled("F8_E4M3", out, 3, 100, 1, 32, scale) for scale in SCALES for out in OUTPUTS),
    *(Convert(src, out, 83) for src in FLOATS for out in OUTPUTS),
    *(Blocks(name, out, 7) for name in BLOCKS for out in OUTPUTS),
)
GUARDED = (
    *(
        Scaled(code, out, 1, n, 1, n)
        for code in CODES
        for out in OUTPUTS
        for n in (1, 31, 33, 4096)
    ),
    *(Scaled("F8_E4M3", out, 3, 67, 1, 32, scale) for scale in SCALES for out in OUTPUTS),
    *(Scaled("F8_E4M3", out, 2, 1030, 1, block) for block in (1, 5, 16) for out in OUTPUTS),
    *(Convert(src, out, n) for src in FLOATS for out in OUTPUTS for n in (1, 15, 17, 1025)),
    *(Blocks(name, out, n) for name in BLOCKS for out in OUTPUTS for n in (1, 2, 35)),
)


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("code", CODES)
def test_scaled(code: str, out: str, rng: np.random.Generator) -> None:
    for case in scaled_cases(code, out):
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("scale", SCALES)
def test_scale_dtypes(scale: str, out: str, rng: np.random.Generator) -> None:
    for case in scaled_cases("F8_E4M3", out, scale):
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("src", FLOATS)
def test_convert(src: str, out: str, rng: np.random.Generator) -> None:
    for count in COUNTS:
        case = Convert(src, out, count)
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name: str, out: str, rng: np.random.Generator) -> None:
    for count in BLOCK_COUNTS:
        case = Blocks(name, out, count)
        assert_levels_agree(case, random_inputs(case, rng))


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_of_one_byte(name: str, out: str) -> None:
    """Every field at its ends at once: zeros, NaNs, infinities, the smallest and the largest."""
    case = Blocks(name, out, 256 * 3)
    size = BLOCK_DTYPES[name].block_bytes
    inputs = (np.repeat(np.arange(256, dtype=np.uint8), 3 * size),)
    assert_levels_agree(case, inputs)


@pytest.mark.parametrize("case", MISALIGNED, ids=str)
def test_misaligned(case: Case, rng: np.random.Generator) -> None:
    inputs = random_inputs(case, rng)
    expected = run(case, "scalar", inputs)
    margin = 64
    for level in SUPPORTED:
        for offset in range(32):
            moved = tuple(at_offset(data, offset) for data in inputs)
            room = at_offset(np.full(case.output_bytes + 2 * margin, POISON, np.uint8), 0)
            start = margin + offset * item_bytes(case.out) % 32
            dst = room[start : start + case.output_bytes]
            n_overflow = case.run(level, dst, moved)
            assert (dst.tobytes(), n_overflow) == expected, (level, offset)
            assert (room[:start] == POISON).all()
            assert (room[start + case.output_bytes :] == POISON).all()


@pytest.mark.skipif(not HAVE_GUARD_PAGES, reason="needs mprotect")
@pytest.mark.parametrize("case", GUARDED, ids=str)
def test_guard_pages(case: Case, rng: np.random.Generator) -> None:
    inputs = random_inputs(case, rng)
    expected = run(case, "scalar", inputs)
    guarded_inputs = [GuardedPages(data.size) for data in inputs]
    guarded_dst = GuardedPages(case.output_bytes)
    for at_end in (True, False):
        views = tuple(pages.view(at_end) for pages in guarded_inputs)
        for view, data in zip(views, inputs, strict=True):
            view[:] = data
        dst = guarded_dst.view(at_end)
        for level in SUPPORTED:
            dst[:] = POISON
            n_overflow = case.run(level, dst, views)
            assert (dst.tobytes(), n_overflow) == expected, level
