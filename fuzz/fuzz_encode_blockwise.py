"""A byte string is a weight: every encoding of FP8, INT8, INT4, NVFP4 and MX, at every level alike.

Codes of 8-bit floats are those that their own values are encoded to. Run `python
fuzz/fuzz_encode_blockwise.py -max_total_time=60` (needs atheris), or call `check` with bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import fp8, int4, int8
from anamnesis.schemes.core import arrays
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.encodings import ENCODINGS, made
from anamnesis.schemes.families.fp8.layouts import encoding as fp8_encoding
from anamnesis.schemes.families.integers.layouts.compressed_tensors import (
    int_quantized,
    pack_quantized,
)

_HEAD = 8


def _encoding(head: bytes, dtype: DType, cols: int) -> Encoding:
    kind = ("block", "channel", "tensor")[head[1] % 3]
    block = (head[2] % 9 + 1, head[3] % 140 + 1)
    sizes = [size for size in range(1, cols + 1) if cols % size == 0]
    group_size = sizes[head[3] % len(sizes)] if head[2] % 4 else None
    if head[4] & 64 and cols % 32 == 0:
        kind_of_group = ("nvfp4", "mxfp4", "mxfp8")[head[1] % 3]
        named = ("{}", "{}-modelopt", "mlx-{}")[head[2] % 3]
        return made(ENCODINGS[named.format(kind_of_group)]).fitted(dtype)
    choice = head[4] % 6
    if choice == 0:
        return fp8_encoding(kind, "compressed-tensors", block_size=block).fitted(dtype)
    if choice == 1:
        return int_quantized().fitted(dtype)
    if choice < 4:
        return pack_quantized(group_size, is_symmetric=choice == 2).fitted(dtype)
    of_two = bool(head[5] & 1)
    return fp8_encoding(kind, block_size=block, powers_of_two=of_two).fitted(dtype)


def _matrix(head: bytes, body: bytes, dtype: DType) -> NDArray[Any]:
    values = np.frombuffer(body[: len(body) // 4 * 4], dtype.numpy())
    cols = min(head[6] % 200 + 1, values.size)
    if head[4] & 64 and cols > 32:
        cols = cols // 32 * 32
    return values[: values.size // max(cols, 1) * cols].reshape(-1, max(cols, 1))


def _encoded(encoding: Encoding, matrix: NDArray[Any], level: str) -> list[bytes] | str:
    """All parts, on one to three threads; or what is wrong."""
    try:
        made = arrays.encode(encoding, matrix, matrix.size % 3 + 1, _core.LEVELS[level])
    except UnsupportedError as error:
        return str(error)
    return [part.tobytes() for part in made]


def check(data: bytes) -> None:
    """Raise AssertionError if two levels differ, or a code is not stable."""
    head, body = data[:_HEAD].ljust(_HEAD, b"\0"), data[_HEAD:]
    dtype = DTYPES[("BF16", "F16", "F32")[head[0] % 3]]
    matrix = _matrix(head, body, dtype)
    if matrix.size == 0:
        return
    if head[7] & 1:  # else hardly any is
        with np.errstate(invalid="ignore"):  # of NaNs that signal
            matrix = np.where(np.isfinite(matrix), matrix, np.zeros_like(matrix))
    encoding = _encoding(head, dtype, matrix.shape[1])
    scalar = _encoded(encoding, matrix, "scalar")
    for level in _core.supported_levels()[1:]:
        assert _encoded(encoding, matrix, level) == scalar, (encoding, matrix.shape, level)
    if not isinstance(scalar, str):
        _check_decoding(matrix, head)


def _check_decoding(matrix: NDArray[Any], head: bytes) -> None:
    """What users call: codes decode at every level alike, 8-bit floats to what gives them again."""
    usual = np.clip(matrix.astype(np.float32), -1e30, 1e30)
    usual = np.where(np.abs(usual) < 1e-30, np.float32(0), usual)
    codes, scales = fp8.quantize(usual, "channel")
    decoded = fp8.dequantize(codes, scales, dtype="f32")
    again, _ = fp8.quantize(decoded, "channel")
    assert again.tobytes() == codes.tobytes()
    levels = supported_levels()
    whole, packed = int8.quantize(usual), int4.quantize(usual, None, symmetric=bool(head[1] & 1))
    assert len({int8.dequantize(*whole, level=level).tobytes() for level in levels}) == 1
    assert len({int4.dequantize(packed, level=level).tobytes() for level in levels}) == 1


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.Setup([sys.argv[0], "-max_len=4096", *sys.argv[1:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
