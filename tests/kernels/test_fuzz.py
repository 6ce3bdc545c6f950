"""The fuzzers of kernels and encoders as a regression test, on a few hundred fixed inputs."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.kernel_calls import load_by_path


@pytest.mark.sampled(3)
@pytest.mark.parametrize("size", [0, 1, 15, 40, 200, 3000])
def test_random_strings(size: int, rng: np.random.Generator) -> None:
    fuzz = load_by_path("fuzz/fuzz_kernels.py")
    for _ in range(60):
        fuzz.check(rng.bytes(size))


@pytest.mark.parametrize("size", [0, 9, 40, 200, 3000])
def test_random_weights(size: int, rng: np.random.Generator) -> None:
    fuzz = load_by_path("fuzz/fuzz_encode_blockwise.py")
    for i in range(40):
        fuzz.check(rng.bytes(7) + bytes([i & 1]) + rng.bytes(size))


@pytest.mark.parametrize("size", [0, 9, 40, 600, 3000])
def test_random_rows_of_blocks(size: int, rng: np.random.Generator) -> None:
    fuzz = load_by_path("fuzz/fuzz_encode_ggml.py")
    for i in range(8):
        fuzz.check(bytes([i, i // 4]) + rng.bytes(4 + size))


@pytest.mark.parametrize("size", [0, 9, 400, 3000])
def test_random_weights_packed(size: int, rng: np.random.Generator) -> None:
    fuzz = load_by_path("fuzz/fuzz_encode_packing.py")
    for i in range(40):
        fuzz.check(bytes([i % 3 + 0x80 * (i & 1)]) + rng.bytes(3 + size))
