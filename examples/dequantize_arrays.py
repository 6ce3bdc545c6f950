"""Decode arrays that are in memory already: FP8 with scales, and blocks of GGUF.

python examples/dequantize_arrays.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from anamnesis.schemes import fp8, ggml


def main() -> None:
    """Decode random codes, once into a new array and once into one that is there."""
    rng = np.random.default_rng(0)

    codes = rng.integers(0, 0x7F, (256, 384), dtype=np.uint8).view(ml_dtypes.float8_e4m3fn)
    scales = rng.uniform(0.5, 2.0, (2, 3)).astype(np.float32)  # one for each block of 128x128
    weight = fp8.dequantize(codes, scales, dtype="bf16", threads=2)
    print("FP8 ", weight.dtype, weight.shape)

    blocks = rng.integers(0, 256, (64, 34), dtype=np.uint8)  # Q8_0: a half float, 32 codes
    blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    out = np.empty((64, 32), np.float32)
    assert ggml.dequantize(blocks, "Q8_0", dtype="f32", out=out) is out
    print("Q8_0", out.dtype, out.shape, "equal to d * q:", np.array_equal(out, q8_0(blocks)))


def q8_0(blocks: np.ndarray) -> np.ndarray:
    """Return the values of Q8_0 blocks as the format defines them."""
    return blocks[:, :2].copy().view(np.float16).astype(np.float32) * blocks[:, 2:].view(np.int8)


if __name__ == "__main__":
    main()
