"""Throughput of every encoder at every level, beside memcpy of as many bytes (in and out).

From BF16 unless it says otherwise, on arrays too large for the caches, the loss measured too.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES

from .kernels import COLS, LEVELS, MEASURED, ROWS, _Throughput, item_bytes, room

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
}


def encode_call(
    encoder: str, source: str, level: str, *, measure: bool = True
) -> tuple[Callable[[], object], int]:
    """Return a call of quantize on plausible data, and the bytes it moves."""
    code, rule, block_rows, block_cols = ENCODERS[encoder]
    values = np.random.default_rng(1).standard_normal((ROWS, COLS), np.float32) / 50
    array = values.astype(DTYPES[source].numpy())
    src = array.reshape(-1).view(np.uint8)
    largest = np.abs(array).max().astype(np.float32).reshape(1).view(np.uint8)
    amax = largest if block_rows == 0 else np.empty(0, np.uint8)
    codes = room(ROWS * COLS // (2 if code == "INT4" else 1))
    scales, zeros = room(ROWS * COLS // 32), room(ROWS * COLS // 32)
    block = (block_rows or ROWS, block_cols or COLS)

    def call() -> object:
        return _core.quantize(
            *(_core.SOURCES[source], _core.QUANTIZERS[code], _core.RULES[rule]),
            *(src, ROWS, COLS, *block, codes, scales, zeros, amax),
            measure=measure,
            level=_core.LEVELS[level],
        )

    return call, src.size + codes.size


class Encode(_Throughput):
    """From BF16, measured."""

    params = (tuple(ENCODERS), LEVELS)
    param_names = ("encoder", "level")

    def setup(self, encoder: str, level: str) -> None:
        self.work, self.moved = encode_call(encoder, "BF16", level)


class EncodeUnmeasured(_Throughput):
    """From BF16, without the loss."""

    params = (tuple(ENCODERS), LEVELS)
    param_names = ("encoder", "level")

    def setup(self, encoder: str, level: str) -> None:
        self.work, self.moved = encode_call(encoder, "BF16", level, measure=False)


class EncodeFrom(_Throughput):
    """From every dtype."""

    params = (("fp8-block", "int4-128"), MEASURED["amax"], LEVELS)
    param_names = ("encoder", "source", "level")

    def setup(self, encoder: str, source: str, level: str) -> None:
        self.work, self.moved = encode_call(encoder, source, level)


class Amax(_Throughput):
    """The largest magnitude of a tensor, as a survey looks for it."""

    params = (MEASURED["amax"], LEVELS)
    param_names = ("source", "level")

    def setup(self, source: str, level: str) -> None:
        data = np.zeros(ROWS * COLS * item_bytes(source), np.uint8)
        data[:] = np.frombuffer(np.ones(1, ml_dtypes.bfloat16).tobytes(), np.uint8)[0]
        self.moved = data.size
        self.work = lambda: _core.amax(_core.SOURCES[source], data, _core.LEVELS[level])
