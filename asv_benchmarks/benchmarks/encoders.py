"""Every encoder at every level: time, and times memcpy's of as many bytes (in and out).

From BF16 unless it says otherwise, on arrays too large for the caches, the loss measured too; those
of GGUF blocks from F32, on a band, as some make no more than a million numbers a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from anamnesis import _core

from .kernels import (
    COLS,
    LEVELS,
    MEASURED,
    NUMPY,
    ROWS,
    _Kernel,
    block_type,
    item_bytes,
    level_id,
    room,
)
from .tables import block_encoders

# name -> (code, rule, block_rows, block_cols); 0 stands for the whole side.
ENCODERS = {
    "fp8-block": ("F8_E4M3", "reciprocal", 128, 128),
    "fp8-block-ue8m0": ("F8_E4M3", "power of two", 128, 128),
    "fp8-block-e5m2": ("F8_E5M2", "reciprocal", 128, 128),
    "fp8-block-ct": ("F8_E4M3", "divided", 128, 128),
    "fp8-channel": ("F8_E4M3", "divided", 1, 0),
    "fp8-tensor": ("F8_E4M3", "reciprocal", 0, 0),
    "int8": ("INT8", "divided", 1, 0),
    "int4-128": ("INT4", "divided", 1, 128),
    "int4-128-asym": ("INT4", "asymmetric", 1, 128),
    "nvfp4": ("E2M1", "nv divided", 1, 16),
    "nvfp4-modelopt": ("E2M1", "nv multiplied", 1, 16),
    "comfy-nvfp4": ("E2M1_SIGNED", "nv quotient", 1, 16),
    "mxfp4": ("E2M1", "mx", 1, 32),
    "mxfp4-modelopt": ("E2M1_DOWN", "mx up", 1, 32),
    "mxfp8": ("F8_E4M3", "mx", 1, 32),
    "mlx-nvfp4": ("E2M1_FIRST", "nv alone", 1, 16),
    "mlx-mxfp4": ("E2M1_FIRST", "mx own power", 1, 32),
    "gptoss-mxfp4": ("E2M1_AWAY", "mx power", 1, 32),
    "bnb-nf4": ("NF4", "absmax", 1, 64),
    "bnb-nf4-nested": ("NF4", "nested", 1, 64),
    "bnb-fp4": ("FP4", "absmax", 1, 64),
    "bnb-int8": ("INT8_ABSMAX", "absmax", 1, 0),
}
# name -> (code, rule, group)
PACKERS = {
    **{f"mlx-{bits}bit": (f"PACKED{bits}", "edge", 64) for bits in (2, 3, 4, 5, 6, 8)},
    "gptq-4bit": ("PACKED4", "mirrored", 128),
    "gptq-8bit": ("PACKED8", "mirrored", 128),
    "awq-4bit": ("PACKED4", "half", 128),
}
BAND_ROWS = 32  # of what is encoded to GGUF blocks
FLAT = ("NF4", "FP4")  # of which a matrix is one row


def encode_call(
    encoder: str, source: str, level: str, *, measure: bool = True, rows: int = ROWS
) -> tuple[Callable[[], object], int]:
    """Return a call of quantize on plausible data, and the bytes it moves."""
    code, rule, block_rows, block_cols = ENCODERS[encoder]
    values = np.random.default_rng(1).standard_normal((rows, COLS), np.float32) / 50
    array = values.astype(NUMPY[source])
    src = array.reshape(-1).view(np.uint8)
    largest = np.abs(array).max().astype(np.float32).reshape(1).view(np.uint8)
    is_found = block_rows == 0 or rule in ("nested", "nv divided", "nv multiplied", "nv quotient")
    found: NDArray[Any] = largest if is_found else np.empty(0, np.uint8)
    n_rows, n_cols = (1, rows * COLS) if code in FLAT else (rows, COLS)
    codes = room(rows * COLS // (2 if code in ("INT4", *FLAT) or code.startswith("E2M1") else 1))
    scales, zeros = room(rows * COLS // 16), room(rows * COLS // 16)

    def call() -> object:
        return _core.quantize(
            _core.SOURCES[source],
            _core.QUANTIZERS[code],
            _core.RULES[rule],
            src,
            n_rows,
            n_cols,
            block_rows or n_rows,
            block_cols or n_cols,
            codes,
            scales,
            zeros,
            found,
            measure=measure,
            level=level_id(level),
        )

    return call, src.size + codes.size


def pack_call(
    encoder: str, source: str, level: str, *, measure: bool = True
) -> tuple[Callable[[], object], int]:
    """Return a call of pack on plausible data, and the bytes it moves."""
    code, rule, group = PACKERS[encoder]
    values = np.random.default_rng(1).standard_normal((ROWS, COLS), np.float32) / 50
    src = values.astype(NUMPY[source]).reshape(-1).view(np.uint8)
    codes = room(ROWS * COLS // 8 * int(code[-1]))
    scales, shifts = (room(ROWS * COLS // group * item_bytes(source)) for _ in range(2))

    def call() -> object:
        return _core.pack(
            _core.SOURCES[source],
            _core.PACKERS[code],
            _core.PACKING_RULES[rule],
            src,
            ROWS,
            COLS,
            group,
            codes,
            scales,
            shifts,
            measure=measure,
            level=level_id(level),
        )

    return call, src.size + codes.size


def block_numbers(rows: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return plausible rows of a weight, and how important their columns are."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((rows, COLS), np.float32) * np.float32(0.02)
    return values, rng.gamma(0.5, 2.0, COLS).astype(np.float32)


def encode_blocks_call(
    encoder: str, level: str, *, rows: int, measure: bool = False
) -> tuple[Callable[[], object], int]:
    """Return a call of encode_blocks on plausible data, and the bytes it moves."""
    name, _, is_weighed = encoder.partition(" by ")
    values, importance = block_numbers(rows)
    src, weights = values.reshape(-1).view(np.uint8), importance.view(np.uint8)
    row = block_type(name)
    dst = room(rows * COLS // row.elements * row.bytes)

    def call() -> object:
        sizes = rows, COLS, weights if is_weighed else b""
        number = level_id(level)
        return _core.encode_blocks(_core.ENCODERS[name], src, *sizes, dst, measure, number)

    return call, src.size + dst.size


def amax_call(source: str, level: str) -> tuple[Callable[[], object], int]:
    """Return a call of amax, and the bytes it reads."""
    data = np.zeros(ROWS * COLS * item_bytes(source), np.uint8)
    data[:] = np.frombuffer(np.ones(1, ml_dtypes.bfloat16).tobytes(), np.uint8)[0]
    return lambda: _core.amax(_core.SOURCES[source], data, level_id(level)), data.size


def _call(encoder: str, level: str, *, measure: bool = True) -> tuple[Callable[[], object], int]:
    """Return the call of an encoder, from BF16, and the bytes it moves."""
    call = pack_call if encoder in PACKERS else encode_call
    return call(encoder, "BF16", level, measure=measure)


class Encode(_Kernel, title="encoders"):
    """From BF16, measured."""

    params = ((*ENCODERS, *PACKERS), LEVELS)
    param_names = ("encoder", "level")

    def setup(self, encoder: str, level: str) -> None:
        self.take(lambda: _call(encoder, level), ROWS * COLS)


class EncodeUnmeasured(_Kernel, title="encoders, without the loss"):
    """From BF16, without the loss."""

    params = ((*ENCODERS, *PACKERS), LEVELS)
    param_names = ("encoder", "level")

    def setup(self, encoder: str, level: str) -> None:
        self.take(lambda: _call(encoder, level, measure=False), ROWS * COLS)


class EncodeFrom(_Kernel, title="encoders, by source"):
    """From every dtype."""

    params = (("fp8-block", "int4-128"), MEASURED["amax"], LEVELS)
    param_names = ("encoder", "source", "level")

    def setup(self, encoder: str, source: str, level: str) -> None:
        self.take(lambda: encode_call(encoder, source, level), ROWS * COLS)


class EncodeBlocks(_Kernel, title="encoders of GGUF blocks"):
    """Rows of F32, with and without the importance of columns."""

    params = (block_encoders(), LEVELS)
    param_names = ("encoder", "level")

    def setup(self, encoder: str, level: str) -> None:
        self.take(lambda: encode_blocks_call(encoder, level, rows=BAND_ROWS), BAND_ROWS * COLS)


class Amax(_Kernel, title="largest magnitude"):
    """The largest magnitude of a tensor, as a survey looks for it."""

    params = (MEASURED["amax"], LEVELS)
    param_names = ("source", "level")

    def setup(self, source: str, level: str) -> None:
        self.take(lambda: amax_call(source, level), ROWS * COLS)
