"""The fuzzer of bitsandbytes' encoders as a regression test, on random inputs."""

from __future__ import annotations

import numpy as np

from helpers.kernel_calls import load_by_path


def test_random_weights(rng: np.random.Generator) -> None:
    fuzz = load_by_path("fuzz/fuzz_encode_bnb.py")
    for _ in range(150):
        body = rng.integers(0, 256, rng.integers(0, 3000), np.uint8) & rng.choice(
            [0xFF, 0xBF, 0x3F]
        )
        fuzz.check(rng.bytes(4) + body.astype(np.uint8).tobytes())
