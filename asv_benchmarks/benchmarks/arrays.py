"""`dequantize` and `quantize` of arrays in memory, as users call them, beside a copy of the result.

The kernels are measured in kernels.py; what this shows beyond them is the way there.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anamnesis import UnsupportedError

from .figures import best_time, figure, skipped_if_missing, times_another
from .kernels import LEVELS, NF4, PackedArrays, block_type, level_name, plausible_blocks

ROWS, COLS, GROUP = 4096, 4096, 128
ENCODED_ROWS = 1024  # encoders take far longer

Decode = Callable[..., NDArray[Any]]


def fp8_decoder() -> Decode:
    """Blocks of 128x128."""
    from anamnesis.schemes import fp8

    codes = np.random.default_rng(1).integers(1, 0x7C, (ROWS, COLS), dtype=np.uint8)
    scales = np.full((ROWS // 128, COLS // 128), 0.01, np.float32)
    return lambda **how: fp8.dequantize(codes.view(ml_dtypes.float8_e4m3fn), scales, **how)


def block_decoder(name: str) -> Decode:
    """A GGUF type."""
    from anamnesis.schemes import ggml

    row = block_type(name)
    n_bytes = ROWS * COLS // row.elements * row.bytes
    blocks = plausible_blocks(name, n_bytes).reshape(ROWS, -1)
    return lambda **how: ggml.dequantize(blocks, name, **how)


def nf4_decoder() -> Decode:
    """Blocks of 64."""
    from anamnesis.schemes import bnb

    codes = np.random.default_rng(1).integers(0, 256, ROWS * COLS // 2, dtype=np.uint8)
    absmax, codebook = np.full(ROWS * COLS // 64, 0.01, np.float32), np.array(NF4, np.float32)
    shape = (ROWS, COLS)
    return lambda **how: bnb.dequantize_4bit(codes, absmax, codebook, shape=shape, **how)


def int8_decoder() -> Decode:
    """A scale for each row."""
    from anamnesis.schemes import bnb

    codes = np.random.default_rng(1).integers(-127, 128, (ROWS, COLS), dtype=np.int8)
    scb = np.full(ROWS, 0.5, np.float32)
    return lambda **how: bnb.dequantize_int8(codes, scb, **how)


def packed_decoder(packing: str, *, act_order: bool = False) -> Decode:
    """Groups of 128, in order or listed."""
    from anamnesis.schemes import awq, gptq

    packed = PackedArrays(packing, ROWS, COLS, GROUP, act_order)
    arrays: dict[str, Any] = {
        name: array.view(np.int32) if array.dtype == np.uint32 else array
        for name, array in packed.arrays.items()
    }
    g_idx = arrays.pop("g_idx")
    if packing == "AWQ4":
        return lambda **how: awq.dequantize(**arrays, **how)
    listed = g_idx if act_order else None
    return lambda **how: gptq.dequantize(**arrays, g_idx=listed, bits=int(packing[-1]), **how)


def exl2_decoder() -> Decode:
    """Groups of 5 bits, then of 3, in any order."""
    from anamnesis.schemes import exl2

    rng = np.random.default_rng(1)
    n_groups = COLS // GROUP
    bits = np.repeat([5, 3], n_groups // 2)
    lines = np.concatenate([[0], np.cumsum(bits * GROUP // 32)])
    words = [(int(lines[-1]), ROWS), (n_groups, ROWS // 8)]
    codes, scales = (rng.integers(-(1 << 31), 1 << 31, shape).astype(np.int32) for shape in words)
    maxima = rng.uniform(0.01, 0.02, n_groups).astype(np.float16)
    groups = np.stack([bits, lines[:-1]], 1).astype(np.int16).reshape(-1)
    order = rng.permutation(COLS).astype(np.int32)
    return lambda **how: exl2.dequantize(codes, scales, maxima, groups, order, **how)


def exl3_decoder() -> Decode:
    """Of 4 bits; of others it takes as long."""
    from anamnesis.schemes import exl3

    rng = np.random.default_rng(1)
    codes = rng.integers(-(1 << 15), 1 << 15, (COLS // 16, ROWS // 16, 64)).astype(np.int16)
    suh, svh = (rng.uniform(-0.1, 0.1, n).astype(np.float16) for n in (COLS, ROWS))
    return lambda **how: exl3.dequantize(codes, suh, svh, **how)


DECODERS: dict[str, Callable[[], Decode]] = {
    "fp8": fp8_decoder,
    "nf4": nf4_decoder,
    "int8": int8_decoder,
    "gptq": lambda: packed_decoder("GPTQ4"),
    "gptq-act-order": lambda: packed_decoder("GPTQ4", act_order=True),
    "awq": lambda: packed_decoder("AWQ4"),
    "exl2": exl2_decoder,
    "exl3": exl3_decoder,
    "Q4_K": lambda: block_decoder("Q4_K"),
    "Q8_0": lambda: block_decoder("Q8_0"),
    "IQ3_S": lambda: block_decoder("IQ3_S"),
}


class Dequantize:
    """Into an array that is there already, on one thread."""

    params = (tuple(DECODERS), ("bf16", "f32"))
    param_names = ("scheme", "dtype")

    def setup(self, scheme: str, dtype: str) -> None:
        with skipped_if_missing():
            decode = DECODERS[scheme]()
            self.out = decode(dtype=dtype)
        self.copy = np.zeros_like(self.out)
        self.work = lambda: decode(dtype=dtype, out=self.out, threads=1)

    @figure("dequantize: time")
    def time_dequantize(self, scheme: str, dtype: str) -> None:
        self.work()

    @figure("dequantize: time, copy of the result = 1", "times the copy's time")
    def track_beside_copy(self, scheme: str, dtype: str) -> float:
        return times_another(self.work, self._copy)

    def _copy(self) -> None:
        np.copyto(self.copy.view(np.uint8), self.out.view(np.uint8))


# What `quantize` is called with, by the name of an encoding; a module without it is skipped.
ENCODERS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "fp8-block": ("fp8.quantize", ("block",)),
    "fp8-channel": ("fp8.quantize", ("channel",)),
    "nf4": ("bnb.quantize_4bit", ("nf4",)),
    "fp4": ("bnb.quantize_4bit", ("fp4",)),
    "int8": ("bnb.quantize_int8", ()),
    **{name: ("ggml.quantize", (name,)) for name in ("Q4_0", "Q8_0", "Q4_K")},
}


class Quantize:
    """A weight of float32 to each encoding that there is a `quantize` for, on one thread."""

    params = (tuple(ENCODERS), LEVELS)
    param_names = ("encoding", "level")

    def setup(self, encoding: str, level: str) -> None:
        function, arguments = ENCODERS[encoding]
        module, name = function.split(".")
        values = np.random.default_rng(1).standard_normal((ENCODED_ROWS, COLS), np.float32)
        how = {"level": level_name(level), "threads": 1}
        with skipped_if_missing():
            encode: Any = getattr(import_module(f"anamnesis.schemes.{module}"), name)
            try:
                encode(values[:128], *arguments, **how)
            except UnsupportedError as missing:
                raise NotImplementedError(encoding) from missing
        self.work = lambda: encode(values, *arguments, **how)
        self.values = values

    @figure("quantize: time", "ns/element")
    def track_time(self, encoding: str, level: str) -> float:
        return 1e9 * best_time(self.work) / self.values.size

    @figure("quantize: time, memcpy of the input = 1", "times memcpy's time")
    def track_beside_memcpy(self, encoding: str, level: str) -> float:
        copy = np.zeros_like(self.values)
        return times_another(self.work, lambda: np.copyto(copy, self.values))
