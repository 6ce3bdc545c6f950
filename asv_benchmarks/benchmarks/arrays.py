"""`dequantize` of arrays in memory, as users call it, beside a copy of the result.

The kernels are measured in kernels.py; what this shows beyond them is the way there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anamnesis.base.dtypes import BLOCK_DTYPES
from anamnesis.schemes import awq, bnb, fp8, ggml, gptq

from .kernels import NF4, TURNS, PackedArrays, best_time, plausible_blocks

ROWS, COLS, GROUP = 4096, 4096, 128

Decode = Callable[..., NDArray[Any]]


def fp8_decoder() -> Decode:
    """Blocks of 128x128."""
    codes = np.random.default_rng(1).integers(1, 0x7C, (ROWS, COLS), dtype=np.uint8)
    scales = np.full((ROWS // 128, COLS // 128), 0.01, np.float32)
    return lambda **how: fp8.dequantize(codes.view(ml_dtypes.float8_e4m3fn), scales, **how)


def block_decoder(name: str) -> Decode:
    """A GGUF type."""
    blocks = plausible_blocks(name, BLOCK_DTYPES[name].n_bytes(ROWS * COLS)).reshape(ROWS, -1)
    return lambda **how: ggml.dequantize(blocks, name, **how)


def nf4_decoder() -> Decode:
    """Blocks of 64."""
    codes = np.random.default_rng(1).integers(0, 256, ROWS * COLS // 2, dtype=np.uint8)
    absmax, codebook = np.full(ROWS * COLS // 64, 0.01, np.float32), np.array(NF4, np.float32)
    shape = (ROWS, COLS)
    return lambda **how: bnb.dequantize_4bit(codes, absmax, codebook, shape=shape, **how)


def int8_decoder() -> Decode:
    """A scale for each row."""
    codes = np.random.default_rng(1).integers(-127, 128, (ROWS, COLS), dtype=np.int8)
    scb = np.full(ROWS, 0.5, np.float32)
    return lambda **how: bnb.dequantize_int8(codes, scb, **how)


def packed_decoder(packing: str, *, act_order: bool = False) -> Decode:
    """Groups of 128, in order or listed."""
    packed = PackedArrays(packing, ROWS, COLS, GROUP, act_order)
    arrays = {
        name: array.view(np.int32) if array.dtype == np.uint32 else array
        for name, array in packed.arrays.items()
    }
    g_idx = arrays.pop("g_idx")
    if packing == "AWQ4":
        return lambda **how: awq.dequantize(**arrays, **how)
    listed = g_idx if act_order else None
    return lambda **how: gptq.dequantize(**arrays, g_idx=listed, bits=int(packing[-1]), **how)


DECODERS: dict[str, Callable[[], Decode]] = {
    "fp8": fp8_decoder,
    "nf4": nf4_decoder,
    "int8": int8_decoder,
    "gptq": lambda: packed_decoder("GPTQ4"),
    "gptq-act-order": lambda: packed_decoder("GPTQ4", act_order=True),
    "awq": lambda: packed_decoder("AWQ4"),
    "Q4_K": lambda: block_decoder("Q4_K"),
    "Q8_0": lambda: block_decoder("Q8_0"),
    "IQ3_S": lambda: block_decoder("IQ3_S"),
}


class Dequantize:
    """Into an array that is there already, on one thread."""

    params = (tuple(DECODERS), ("bf16", "f32"))
    param_names = ("scheme", "dtype")

    def setup(self, scheme: str, dtype: str) -> None:
        decode = DECODERS[scheme]()
        self.out = decode(dtype=dtype)
        self.copy = np.zeros_like(self.out)
        self.work = lambda: decode(dtype=dtype, out=self.out, threads=1)

    def time_dequantize(self, scheme: str, dtype: str) -> None:
        self.work()

    def track_of_copy(self, scheme: str, dtype: str) -> float:
        times = [(best_time(self._copy, 1), best_time(self.work, 1)) for _ in range(TURNS)]
        return min(copied for copied, _ in times) / min(worked for _, worked in times)

    def _copy(self) -> None:
        np.copyto(self.copy.view(np.uint8), self.out.view(np.uint8))

    track_of_copy.unit = "of the speed of a copy of the result"  # type: ignore[attr-defined]
