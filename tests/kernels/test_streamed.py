"""Results that are stored past the caches, by way of a tile: same bytes, and large ones alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from anamnesis import _core
from anamnesis.schemes.core.bands import band_bytes
from helpers.kernel_calls import PROJECT

STREAMED = {**os.environ, "ANAMNESIS_STREAMED_FROM": "1"}


def test_bands_of_a_file_stay_in_the_cache() -> None:
    assert all(least == 0 or least > 8 * band_bytes() for least in _core.STREAMED_FROM)


@pytest.mark.slow
def test_the_same_bytes_whatever_the_size() -> None:
    """What is compared between levels, with all that is decoded leaving by way of the tile."""
    tests = Path(PROJECT, "tests", "kernels", "test_levels.py")
    decoded = "not quantize and not encode and not largest"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", decoded]
    ran = subprocess.run(
        [*command, str(tests)], env=STREAMED, capture_output=True, text=True, cwd=PROJECT
    )
    assert ran.returncode == 0, ran.stdout


def test_what_lies_around_a_result_stays_as_it_is() -> None:
    """Of any length, from any place in a cache line on."""
    code = """
import numpy as np
from anamnesis import _core

src = np.random.default_rng(1).standard_normal(3000, np.float32).view(np.uint8)
for level in map(_core.LEVELS.get, _core.supported_levels()):
    for start in (0, 1, 16, 63, 64):
        for n in (1, 7, 33, 511, 513, 2047, 3000):
            room = np.full(20_000, 0xa5, np.uint8)
            dst = room[start : start + 4 * n]
            _core.convert(_core.FLOATS["F32"], _core.OUTPUTS["F32"], src[: 4 * n], dst, level)
            assert dst.tobytes() == src[: 4 * n].tobytes()
            assert (room[:start] == 0xa5).all() and (room[start + 4 * n :] == 0xa5).all()
"""
    subprocess.run([sys.executable, "-c", code], env=STREAMED, check=True)
