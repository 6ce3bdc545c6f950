"""Time of every kernel, at the best level that the machine has and the scalar one, beside memcpy's.

Parameters come from the tables in csrc/: a new row is measured by itself. Of the package nothing is
asked but `_core`, so that commits whose modules had other names are measured too. memcpy moves as
many bytes as the kernel reads and writes together; the arrays are too large for the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anamnesis import _core

from .figures import Work, best_time, figure, skipped_if_missing, slowed, times_another
from .tables import kernels

# family -> names, as _core.kernels() has them: what the classes below cover.
MEASURED = {
    "scaled": kernels("SCALED"),
    "scaled_bf16": kernels("SCALED"),
    "absmax": kernels("ABSMAX"),
    "absmax_16": kernels("ABSMAX"),
    "convert": kernels("WIDEN", "convert"),
    "scale": kernels("WIDEN", "scale"),
    "output": kernels("NARROW"),
    "block": kernels("BLOCK"),
    "block_bf16": kernels("BLOCK"),
    "packed": kernels("PACKED"),
    "packed_16": kernels("PACKED"),
    "integers": kernels("INTEGERS"),
    "integers_16": kernels("INTEGERS"),
    "trellis": kernels("TRELLIS"),
    # These are in encoders.py.
    "amax": kernels("SOURCE"),
    "range": kernels("SOURCE"),
    "quantize": kernels("QUANTIZE"),
    "pack": kernels("PACK"),
    "encode": kernels("ENCODE"),
}
# asv draws the first values of each parameter until it has eight lines. What "best" is, the machine
# says; by their names, a page would have levels that half of its machines have not.
LEVELS = ("best", "scalar")
OUTPUTS = kernels("NARROW")
COLS = 4096
ROWS = 4096
LAYER_ROWS = 11008  # of packed integers

NUMPY: dict[str, Any] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
}

# name -> (scale dtype, block_rows, block_cols); 0 stands for the whole side.
GRIDS = {
    "tensor": ("F32", 0, 0),
    "row": ("F32", 1, 0),
    "column": ("F32", 0, 1),
    "block128": ("F32", 128, 128),
    "mxfp8": ("F8_E8M0", 1, 32),
}


def level_name(level: str) -> str:
    """Return a level's own name, where it may be the best one of this machine."""
    return _core.supported_levels()[-1] if level == "best" else level


def level_id(level: str) -> int:
    """Return the id that `_core` has for a level."""
    return _core.LEVELS[level_name(level)]


def item_bytes(dtype: str) -> int:
    """Bytes of one element."""
    return int(np.dtype(NUMPY[dtype]).itemsize)


def room(n_bytes: int) -> NDArray[np.uint8]:
    """Bytes that begin with a cache line, as large results of `dequantize`, and are in memory."""
    line = 64
    touched = np.zeros(n_bytes + line, np.uint8)
    touched[:] = 0
    start = -touched.ctypes.data % line
    return touched[start : start + n_bytes]


def block_type(name: str) -> _core.BlockType:
    """Return a GGUF type's row."""
    return {row.name: row for row in _core.block_types()}[name]


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
            level=level_id(level),
        )

    return call, src.size + dst.size


def integers_call(
    code: str, out: str, level: str, rows: int = ROWS
) -> tuple[Callable[[], int], int]:
    """Return a call of dequantize_integers on plausible data, and the bytes it moves."""
    rng = np.random.default_rng(1)
    per_word = {3: 10, 5: 6, 6: 5, 7: 4}  # of those that leave bits unused
    bits = int(code[-1])
    stride = -(-COLS // per_word[bits]) * 4 if code.startswith("PADDED") else COLS * bits // 8
    src = rng.integers(0, 256, rows * stride, dtype=np.uint8)
    scales = np.full(rows * COLS // 128, 0.01, np.float32).view(np.uint8)
    dst = room(rows * COLS * item_bytes(out))

    def call() -> int:
        return _core.dequantize_integers(
            _core.INTEGERS[code],
            _core.OUTPUTS[out],
            src,
            dst,
            rows,
            COLS,
            stride,
            scales,
            _core.SCALES["F32"],
            COLS // 128,
            1,
            128,
            _core.ZEROS["constant"],
            b"",
            level=level_id(level),
        )

    return call, src.size + dst.size


def trellis_call(
    code: str, bits: int, out: str, level: str, cols: int = COLS
) -> tuple[Callable[[], int], int]:
    """Return a call of dequantize_trellis on plausible data, and the bytes it moves."""
    rng = np.random.default_rng(1)
    tiles = rng.integers(0, 256, 16 * bits * cols, dtype=np.uint8)
    scales = rng.uniform(0.01, 0.02, cols).astype(np.float16).view(np.uint8)
    dst = room(128 * cols * item_bytes(out))

    def call() -> int:
        ids = _core.TRELLISES[code], _core.OUTPUTS[out]
        return _core.dequantize_trellis(
            *ids, tiles, dst, bits, cols, scales, scales[:256], level=level_id(level)
        )

    return call, tiles.size + dst.size


def convert_call(
    src_dtype: str, out: str, level: str, count: int = ROWS * COLS
) -> tuple[Callable[[], int], int]:
    """Return a call of convert on plausible data, and the bytes it moves."""
    values = np.random.default_rng(1).standard_normal(count, np.float32)
    src = values.astype(NUMPY[src_dtype]).view(np.uint8)
    dst = room(count * item_bytes(out))

    def call() -> int:
        ids = _core.FLOATS[src_dtype], _core.OUTPUTS[out]
        return _core.convert(*ids, src, dst, level=level_id(level))

    return call, src.size + dst.size


def plausible_blocks(name: str, n_bytes: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    """Return whole blocks of random bytes without infinities and NaNs, nor too-large scales."""
    width = block_type(name).bytes
    src = np.random.default_rng(1).integers(0, 256, (n_bytes // width, width), dtype=np.uint8)
    if name in ("MXFP4", "NVFP4"):
        src[:, :4] = 110 + src[:, :4] % 10
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
    row = block_type(name)
    src = plausible_blocks(name, count // row.elements * row.bytes)
    dst = room(count * item_bytes(out))

    def call() -> int:
        ids = _core.BLOCKS[name], _core.OUTPUTS[out]
        return _core.dequantize_blocks(*ids, src, dst, level=level_id(level))

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
            False,
            packed.group_size,
            0,
            g_idx,
            level=level_id(level),
        )

    return call, qweight.size + qzeros.size + scales.size + g_idx.size + dst.size


NF4 = (
    *(-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.091050036, 0.0),
    *(0.0795803, 0.1609302, 0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0),
)
FP4 = tuple(s * n / 12 for s in (1, -1) for n in (0, 0.0625, 8, 12, 4, 6, 2, 3))
CODEBOOKS = {"NF4": NF4, "FP4": FP4, "CODEBOOK4": NF4, "CODEBOOK4_LOW": FP4, "INT8": ()}


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
    f32, number = _core.FLOATS["F32"], level_id(level)

    def call() -> int:
        name = code if code in _core.ABSMAX else "CODEBOOK4"
        return _core.dequantize_absmax(
            _core.ABSMAX[name],
            _core.OUTPUTS[out],
            src,
            dst,
            count,
            codebook,
            absmax,
            f32,
            block,
            level=number,
        )

    return call, src.size + absmax.size + dst.size


def memcpy_call(moved: int) -> Callable[[], object]:
    """Return a memcpy that reads and writes `moved` bytes together."""
    src, dst = np.ones(moved // 2, np.uint8), np.zeros(moved // 2, np.uint8)
    return lambda: np.copyto(dst, src)


class _Kernel:
    """Two figures, under a name of its own for each kind of kernel."""

    work: Work
    moved: int
    elements = 0

    def __init_subclass__(cls, title: str) -> None:
        """Give asv the two."""

        @figure(f"{title}: time", "ns/element")
        def track_time(self: _Kernel, *_parameters: str) -> float:
            return 1e9 * best_time(self.work) / self.elements

        @figure(f"{title}: time, memcpy = 1", "times memcpy's time")
        def track_beside_memcpy(self: _Kernel, *_parameters: str) -> float:
            return times_another(self.work, memcpy_call(self.moved))

        cls.track_time = track_time  # type: ignore[attr-defined]
        cls.track_beside_memcpy = track_beside_memcpy  # type: ignore[attr-defined]

    def take(self, make: Callable[[], tuple[Work, int]], elements: int) -> None:
        """Make a call and try it, so that asv skips a kernel that the commit does not have."""
        with skipped_if_missing():
            work, self.moved = make()
            work()
        self.work, self.elements = slowed(work), elements


class Scaled(_Kernel, title="FP8"):
    """FP8 codes times a grid of scales."""

    params = (MEASURED["scaled"], tuple(GRIDS), OUTPUTS, LEVELS)
    param_names = ("code", "grid", "out", "level")

    def setup(self, code: str, grid: str, out: str, level: str) -> None:
        self.take(lambda: scaled_call(code, grid, out, level, ROWS, COLS), ROWS * COLS)


class Convert(_Kernel, title="casts"):
    """Floats to an output dtype."""

    params = (MEASURED["convert"], OUTPUTS, LEVELS)
    param_names = ("src", "out", "level")

    def setup(self, src: str, out: str, level: str) -> None:
        self.take(lambda: convert_call(src, out, level, ROWS * COLS), ROWS * COLS)


class Block(_Kernel, title="GGUF blocks"):
    """GGUF blocks to an output dtype."""

    params = (MEASURED["block"], OUTPUTS, LEVELS)
    param_names = ("type", "out", "level")

    def setup(self, name: str, out: str, level: str) -> None:
        self.take(lambda: block_call(name, out, level, ROWS * COLS), ROWS * COLS)


class Integers(_Kernel, title="INT8, packed integers"):
    """Integers of rows, in groups of 128."""

    params = (MEASURED["integers"], OUTPUTS, LEVELS)
    param_names = ("code", "out", "level")

    def setup(self, code: str, out: str, level: str) -> None:
        self.take(lambda: integers_call(code, out, level), ROWS * COLS)


class Trellis(_Kernel, title="EXL3"):
    """A trellis of 128 out features; of other bits than these it takes as long."""

    params = (MEASURED["trellis"], (4, 3), OUTPUTS, LEVELS)
    param_names = ("code", "bits", "out", "level")

    def setup(self, code: str, bits: int, out: str, level: str) -> None:
        self.take(lambda: trellis_call(code, bits, out, level), 128 * COLS)


class Packed(_Kernel, title="GPTQ, EXL2, AWQ"):
    """Packed integers, with groups of 128 in order or in act-order."""

    params = (MEASURED["packed"], ("in-order", "act-order"), OUTPUTS, LEVELS)
    param_names = ("packing", "groups", "out", "level")

    def setup(self, packing: str, groups: str, out: str, level: str) -> None:
        packed = PackedArrays(packing, LAYER_ROWS, COLS, 128, groups == "act-order")
        self.take(lambda: packed_call(packed, out, level), LAYER_ROWS * COLS)


class Absmax(_Kernel, title="bitsandbytes, NVFP4, MXFP4"):
    """Codes with a number for each block: 16 are NVFP4's, 32 MXFP4's, a row INT8's."""

    params = (MEASURED["absmax"], (64, 16, 32, COLS), OUTPUTS, LEVELS)
    param_names = ("code", "block", "out", "level")

    def setup(self, code: str, block: int, out: str, level: str) -> None:
        self.take(lambda: absmax_call(code, block, out, level, ROWS * COLS), ROWS * COLS)


class Machine:
    """What the machine does at all."""

    @figure("memcpy of 50 MB", "seconds")
    def track_peer_memcpy(self) -> float:
        return best_time(memcpy_call(ROWS * COLS * 6))
