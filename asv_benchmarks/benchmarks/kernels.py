"""Throughput of every kernel at every level, beside memcpy of as many bytes.

Parameters come from the tables of `_core`: a new row in csrc/kernels/*.def is measured by itself.
The figures are bytes in plus bytes out, in GB/s, on arrays too large for the caches.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from anamnesis import _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.schemes.arrays import aligned_bytes
from anamnesis.schemes.base import BAND_BYTES

# family -> names, as _core.kernels() has them: what the classes below cover.
MEASURED = {
    "scaled": tuple(_core.CODES),
    "scaled_bf16": tuple(_core.CODES),
    "absmax": tuple(_core.ABSMAX),
    "absmax_16": tuple(_core.ABSMAX),
    "convert": tuple(_core.FLOATS),
    "scale": tuple(name for name in _core.SCALES if name not in _core.FLOATS),
    "output": tuple(_core.OUTPUTS),
    "block": tuple(_core.BLOCKS),
    "block_bf16": tuple(_core.BLOCKS),
    "packed": tuple(_core.PACKINGS),
    "packed_16": tuple(_core.PACKINGS),
    "integers": tuple(_core.INTEGERS),
    # These are in encoders.py.
    "amax": tuple(_core.SOURCES),
    "range": tuple(_core.SOURCES),
    "quantize": tuple(_core.QUANTIZERS),
}
LEVELS = _core.supported_levels()
OUTPUTS = tuple(_core.OUTPUTS)
COLS = 4096
ROWS = 4096
TURNS = 5

# name -> (scale dtype, block_rows, block_cols); 0 stands for the whole side.
GRIDS = {
    "tensor": ("F32", 0, 0),
    "row": ("F32", 1, 0),
    "column": ("F32", 0, 1),
    "block128": ("F32", 128, 128),
    "mxfp8": ("F8_E8M0", 1, 32),
}


def best_time(work: Callable[[], object], turns: int = TURNS) -> float:
    """Seconds of the fastest of some turns."""
    best = float("inf")
    for _ in range(turns):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return best


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return DTYPES[dtype].bits // 8


def room(n_bytes: int) -> NDArray[np.uint8]:
    """Bytes that begin as large results of `dequantize` do, and were touched before."""
    zeros = aligned_bytes(n_bytes)
    zeros[:] = 0
    return zeros


def scaled_call(
    code: str, grid: str, out: str, level: str, rows: int = ROWS, cols: int = COLS
) -> tuple[Callable[[], int], int]:
    """Return a call of dequantize_scaled on plausible data, and the bytes it moves."""
    rng = np.random.default_rng(1)
    scale, block_rows, block_cols = GRIDS[grid]
    block_rows, block_cols = block_rows or rows, block_cols or cols
    stride = -(-cols // block_cols)
    count = -(-rows // block_rows) * stride
    if scale == "F32":
        scales = np.exp(rng.uniform(-9, -5, count)).astype(np.float32).view(np.uint8)
    else:
        scales = rng.integers(110, 125, count, dtype=np.uint8)
    src = rng.integers(0, 0x7C, rows * cols, dtype=np.uint8)  # no special codes, as in real tensors
    src |= rng.integers(0, 2, src.size, dtype=np.uint8) << np.uint8(7)
    src[src == 0x80] = 1
    dst = room(rows * cols * item_bytes(out))

    def call() -> int:
        return _core.dequantize_scaled(
            _core.CODES[code],
            _core.OUTPUTS[out],
            src,
            dst,
            rows,
            cols,
            scales,
            _core.SCALES[scale],
            stride,
            block_rows,
            block_cols,
            level=_core.LEVELS[level],
        )

    return call, src.size + dst.size


def integers_call(code: str, out: str, level: str) -> tuple[Callable[[], int], int]:
    """Return a call of dequantize_integers on plausible data, and the bytes it moves."""
    rng = np.random.default_rng(1)
    stride = COLS // (2 if code == "PACKED4" else 1)
    src = rng.integers(0, 256, ROWS * stride, dtype=np.uint8)
    scales = np.full(ROWS * COLS // 128, 0.01, np.float32).view(np.uint8)
    dst = room(ROWS * COLS * item_bytes(out))

    def call() -> int:
        return _core.dequantize_integers(
            _core.INTEGERS[code],
            _core.OUTPUTS[out],
            src,
            dst,
            ROWS,
            COLS,
            stride,
            scales,
            _core.SCALES["F32"],
            COLS // 128,
            128,
            b"",
            False,
            level=_core.LEVELS[level],
        )

    return call, src.size + dst.size


def convert_call(
    src_dtype: str, out: str, level: str, count: int = ROWS * COLS
) -> tuple[Callable[[], int], int]:
    """Return a call of convert on plausible data, and the bytes it moves."""
    values = np.random.default_rng(1).standard_normal(count, np.float32)
    src = values.astype(DTYPES[src_dtype].numpy()).view(np.uint8)
    dst = room(count * item_bytes(out))

    def call() -> int:
        ids = _core.FLOATS[src_dtype], _core.OUTPUTS[out]
        return _core.convert(*ids, src, dst, level=_core.LEVELS[level])

    return call, src.size + dst.size


def plausible_blocks(name: str, n_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return whole blocks of random bytes without infinities and NaNs, nor too-large scales."""
    stored = BLOCK_DTYPES[name]
    rng = np.random.default_rng(1)
    src = rng.integers(0, 256, (n_bytes // stored.block_bytes, stored.block_bytes), dtype=np.uint8)
    if name in ("MXFP4", "NVFP4"):
        src[:, :4] = rng.integers(110, 120, src[:, :4].shape)
    elif name == "IQ1_M":  # a nibble of the half float in each of four words
        src[:, 49:56:2] &= 0x3F
    else:
        for at in _HALVES.get(name, (0, 2)):
            src[:, at + 1] &= 0x3F
    return src.reshape(-1)


# Where in a block the upper bytes of half floats are, counted from an end, but for (0, 2).
_HALVES = {
    "Q2_K": (-4, -2),
    "Q3_K": (-2,),
    "Q6_K": (-2,),
    "Q8_K": (2,),
    "TQ1_0": (-2,),
    "TQ2_0": (-2,),
}


def block_call(
    name: str, out: str, level: str, count: int = ROWS * COLS
) -> tuple[Callable[[], int], int]:
    """Return a call of dequantize_blocks on plausible data, and the bytes it moves."""
    src = plausible_blocks(name, BLOCK_DTYPES[name].n_bytes(count))
    dst = room(count * item_bytes(out))

    def call() -> int:
        ids = _core.BLOCKS[name], _core.OUTPUTS[out]
        return _core.dequantize_blocks(*ids, src, dst, level=_core.LEVELS[level])

    return call, src.size + dst.size


@dataclass(frozen=True)
class PackedArrays:
    """The plausible weight of a GPTQ or AWQ layer: random codes, small F16 scales."""

    packing: str
    rows: int
    cols: int
    group_size: int
    act_order: bool

    @cached_property
    def arrays(self) -> dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]:
        """What a checkpoint has: qweight, qzeros, scales and g_idx, which may be empty."""
        rng = np.random.default_rng(1)
        bits, n_groups = int(self.packing[-1]), self.cols // self.group_size
        by_cols = (self.cols * bits // 32, self.rows), (self.cols, self.rows * bits // 32)
        groups = rng.permutation(self.cols) // self.group_size
        return {
            "qweight": rng.integers(0, 1 << 32, by_cols[self.packing == "AWQ4"], dtype=np.uint32),
            "qzeros": rng.integers(0, 1 << 32, (n_groups, self.rows * bits // 32), np.uint32),
            "scales": rng.uniform(1e-3, 1e-2, (n_groups, self.rows)).astype(np.float16),
            "g_idx": groups[: self.cols * self.act_order].astype(np.int32),
        }


def packed_call(packed: PackedArrays, out: str, level: str) -> tuple[Callable[[], int], int]:
    """Return a call of dequantize_packed on that weight, and the bytes it moves."""
    qweight, qzeros, scales, g_idx = (
        array.reshape(-1).view(np.uint8) for array in packed.arrays.values()
    )
    dst = room(packed.rows * packed.cols * item_bytes(out))

    def call() -> int:
        return _core.dequantize_packed(
            _core.PACKINGS[packed.packing],
            _core.OUTPUTS[out],
            qweight,
            dst,
            packed.rows,
            packed.cols,
            qzeros,
            scales,
            _core.SCALES["F16"],
            0,
            packed.group_size,
            0,
            g_idx,
            level=_core.LEVELS[level],
        )

    return call, qweight.size + qzeros.size + scales.size + g_idx.size + dst.size


NF4 = (
    *(-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
)
FP4 = tuple(s * n / 12 for s in (1, -1) for n in (0, 0.0625, 8, 12, 4, 6, 2, 3))
CODEBOOKS = {"NF4": NF4, "FP4": FP4, "CODEBOOK4": NF4, "INT8": ()}
NESTED_BLOCK = 256


def absmax_call(
    code: str, block: int, out: str, level: str, count: int = ROWS * COLS
) -> tuple[Callable[[], int], int]:
    """Return a call of dequantize_absmax on plausible data, and the bytes it moves."""
    rng = np.random.default_rng(1)
    is_four_bit = code != "INT8"
    src = rng.integers(0, 256, count // 2 if is_four_bit else count, dtype=np.uint8)
    codebook = np.array(CODEBOOKS[code], np.float32).view(np.uint8)
    absmax = np.exp(rng.uniform(-6, -3, -(-count // block))).astype(np.float32).view(np.uint8)
    dst = room(count * item_bytes(out))
    f32, number = _core.FLOATS["F32"], _core.LEVELS[level]

    def call() -> int:
        ids = _core.ABSMAX["CODEBOOK4" if is_four_bit else code], _core.OUTPUTS[out]
        blocks = count, codebook, absmax, f32, block
        return _core.dequantize_absmax(*ids, src, dst, *blocks, level=number)

    return call, src.size + absmax.size + dst.size


def nested_call(
    code: str, block: int, out: str, level: str, count: int = ROWS * COLS
) -> tuple[Callable[[], int], int]:
    """Return the same for a double-quantised weight, whose absmax are recovered band by band."""
    rng = np.random.default_rng(1)
    src = rng.integers(0, 256, count // 2, dtype=np.uint8)
    codebook = np.array(CODEBOOKS[code], np.float32).view(np.uint8)
    codes = rng.integers(0, 256, count // block, dtype=np.uint8)
    nested_codebook = np.linspace(-1, 1, 256, dtype=np.float32).view(np.uint8)
    nested = np.full(-(-codes.size // NESTED_BLOCK), 0.01, np.float32).view(np.uint8)
    dst = room(count * item_bytes(out))
    f32, number = _core.FLOATS["F32"], _core.LEVELS[level]
    band = BAND_BYTES // item_bytes(out) // (block * NESTED_BLOCK) * block * NESTED_BLOCK
    absmax = np.empty(band // block * 4, np.uint8)

    def call() -> int:
        ids = _core.ABSMAX["CODEBOOK4"], _core.OUTPUTS[out]
        for at in range(0, count, band):
            n = min(band, count - at)
            of_band = codes[at // block : (at + n) // block]
            phase = at // block // NESTED_BLOCK * 4
            _core.recover_absmax(
                of_band, absmax, nested_codebook, nested[phase:], NESTED_BLOCK, 0.02
            )
            _core.dequantize_absmax(
                *ids,
                src[at // 2 : (at + n) // 2],
                dst[at * item_bytes(out) :],
                n,
                codebook,
                absmax,
                f32,
                block,
                level=number,
            )
        return 0

    return call, src.size + codes.size + nested.size + dst.size


def memcpy_call(moved: int) -> Callable[[], object]:
    """Return a memcpy that reads and writes `moved` bytes together."""
    src, dst = np.ones(moved // 2, np.uint8), np.zeros(moved // 2, np.uint8)
    return lambda: np.copyto(dst, src)


class _Throughput:
    """GB/s, and the same as a share of what memcpy reaches in turns with it."""

    unit = "GB/s"
    work: Callable[[], object]
    moved: int

    def track_throughput(self, *_parameters: str) -> float:
        return self.moved / best_time(self.work) / 1e9

    def track_of_memcpy(self, *_parameters: str) -> float:
        copy = memcpy_call(self.moved)
        times = [(best_time(copy, 1), best_time(self.work, 1)) for _ in range(TURNS)]
        return min(copied for copied, _ in times) / min(worked for _, worked in times)

    track_throughput.unit = "GB/s"  # type: ignore[attr-defined]
    track_of_memcpy.unit = "of memcpy"  # type: ignore[attr-defined]


class Scaled(_Throughput):
    """FP8 codes times a grid of scales."""

    params = (MEASURED["scaled"], tuple(GRIDS), OUTPUTS, LEVELS)
    param_names = ("code", "grid", "out", "level")

    def setup(self, code: str, grid: str, out: str, level: str) -> None:
        self.work, self.moved = scaled_call(code, grid, out, level)


class Convert(_Throughput):
    """Floats to an output dtype."""

    params = (MEASURED["convert"], OUTPUTS, LEVELS)
    param_names = ("src", "out", "level")

    def setup(self, src: str, out: str, level: str) -> None:
        self.work, self.moved = convert_call(src, out, level)


class Block(_Throughput):
    """GGUF blocks to an output dtype."""

    params = (MEASURED["block"], OUTPUTS, LEVELS)
    param_names = ("type", "out", "level")

    def setup(self, name: str, out: str, level: str) -> None:
        self.work, self.moved = block_call(name, out, level)


class Integers(_Throughput):
    """Integers of rows to an output dtype, groups of 128."""

    params = (MEASURED["integers"], OUTPUTS, LEVELS)
    param_names = ("code", "out", "level")

    def setup(self, code: str, out: str, level: str) -> None:
        self.work, self.moved = integers_call(code, out, level)


class Packed(_Throughput):
    """Packed integers, 11008 x 4096, with groups of 128 in order or in act-order."""

    params = (MEASURED["packed"], ("in-order", "act-order"), OUTPUTS, LEVELS)
    param_names = ("packing", "groups", "out", "level")

    def setup(self, packing: str, groups: str, out: str, level: str) -> None:
        packed = PackedArrays(packing, 11008, 4096, 128, groups == "act-order")
        self.work, self.moved = packed_call(packed, out, level)


class Absmax(_Throughput):
    """bitsandbytes' codes to an output dtype; a row of INT8 is a block."""

    params = (MEASURED["absmax"], (64, COLS), OUTPUTS, LEVELS)
    param_names = ("code", "block", "out", "level")

    def setup(self, code: str, block: int, out: str, level: str) -> None:
        self.work, self.moved = absmax_call(code, block, out, level)


class Memcpy:
    """What the machine can do at all."""

    def track_throughput(self) -> float:
        moved = ROWS * COLS * 3
        return moved / best_time(memcpy_call(moved)) / 1e9

    track_throughput.unit = "GB/s"  # type: ignore[attr-defined]
