"""A byte string is a weight: bitsandbytes' encodings give the same at every level, and come back.

Run `python fuzz/fuzz_encode_bnb.py -max_total_time=60` (needs atheris), or call `check` with bytes.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.levels import LevelName, supported_levels
from anamnesis.schemes import bnb
from anamnesis.schemes.families.bnb.encode import BLOCK_SIZES

_HEAD = 4
_LEVELS = supported_levels()


def _outcome(matrix: NDArray[Any], how: dict[str, Any], level: LevelName) -> list[bytes] | str:
    """All arrays that `quantize_4bit` and `quantize_int8` give, or what is wrong."""
    try:
        packed = bnb.quantize_4bit(matrix, **how, threads=matrix.size % 3 + 1, level=level)
        made = [packed.weight, packed.absmax, np.float64(packed.nested_offset)]
        if packed.nested_absmax is not None:
            made.append(packed.nested_absmax)
        made += bnb.quantize_int8(matrix, level=level)
    except UnsupportedError as error:
        return str(error)
    return [part.tobytes() for part in made]


def check(data: bytes) -> None:
    """Raise AssertionError if two levels differ, or codes do not come back from their values."""
    head, body = data[:_HEAD].ljust(_HEAD, b"\0"), data[_HEAD:]
    dtype = DTYPES[("BF16", "F16", "F32")[head[0] % 3]].numpy()
    values = np.frombuffer(body[: len(body) // 4 * 4], dtype)
    cols = min(head[1] % 200 + 1, values.size)
    if cols == 0:
        return
    matrix = values[: values.size // cols * cols].reshape(-1, cols)
    if head[2] & 1:  # else hardly any is
        with np.errstate(invalid="ignore"):  # of NaNs that signal
            matrix = np.where(np.isfinite(matrix), matrix, np.zeros_like(matrix))
    kind = ("nf4", "fp4")[head[2] >> 1 & 1]
    how = {"kind": kind, "blocksize": BLOCK_SIZES[head[3] % 8], "nested": bool(head[2] & 4)}
    how["second_zero"] = kind == "fp4" and bool(head[2] & 8)
    scalar = _outcome(matrix, how, "scalar")
    for level in _LEVELS[1:]:
        assert _outcome(matrix, how, level) == scalar, (how, matrix.shape, level)
    if not isinstance(scalar, str):
        _check_decoding(matrix, kind, BLOCK_SIZES[head[3] % 8])


def _check_decoding(matrix: NDArray[Any], kind: str, blocksize: int) -> None:
    usual = np.clip(matrix.astype(np.float32), -1e30, 1e30)
    usual = np.where(np.abs(usual) < 1e-30, np.float32(0), usual)
    first = bnb.quantize_4bit(usual, kind, blocksize=blocksize)
    decoded = bnb.dequantize_4bit(**first._asdict(), dtype="f32")
    again = bnb.quantize_4bit(decoded, kind, blocksize=blocksize, second_zero=kind == "fp4")
    assert again.weight.tobytes() == first.weight.tobytes()
    assert again.absmax.tobytes() == first.absmax.tobytes()


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.Setup([sys.argv[0], "-max_len=8192", *sys.argv[1:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
