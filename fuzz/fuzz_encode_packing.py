"""A byte string is a weight: the encodings of MLX, GPTQ and AWQ give the same at every level.

Run `python fuzz/fuzz_encode_packing.py -max_total_time=60` (needs atheris), or call `check` with
bytes.
"""

from __future__ import annotations

import sys

import numpy as np

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.schemes import awq, gptq, mlx
from anamnesis.schemes.core import arrays
from anamnesis.schemes.families.integers.layouts import awq as awq_layout
from anamnesis.schemes.families.integers.layouts import gptq as gptq_layout
from anamnesis.schemes.families.integers.layouts import mlx as mlx_layout

_HEAD = 4
_LEVELS = _core.supported_levels()


def check(data: bytes) -> None:
    """Raise AssertionError if two levels differ, or what is packed has another shape."""
    head, body = data[:_HEAD].ljust(_HEAD, b"\0"), data[_HEAD:]
    dtype = DTYPES[("BF16", "F16", "F32")[head[0] % 3]]
    group = (32, 64, 128)[head[1] % 3]
    cols, bits = (head[1] % 4 + 1) * group, mlx_layout.WIDTHS[head[2] % 6]
    rows = (head[3] % 3 + 1) * 32
    values = np.resize(np.frombuffer(body[: len(body) // 4 * 4], dtype.numpy()), (rows, cols))
    if head[0] & 0x80:  # else hardly any is
        with np.errstate(invalid="ignore"):  # of NaNs that signal
            values = np.where(np.isfinite(values), values, np.zeros_like(values))
    gptq_bits = gptq_layout.BITS[bits % 3]
    for encoding in (
        mlx_layout.encoding(bits, group),
        gptq_layout.encoding(gptq_bits, group),
        awq_layout.encoding(group),
    ):
        fitted, found = encoding.fitted(dtype), set()
        for level in _LEVELS:
            try:
                made = arrays.encode(fitted, values, rows % 3 + 1, _core.LEVELS[level])
                found.add(tuple([part.tobytes() for part in made]))
            except UnsupportedError as error:
                found.add((str(error).encode(),))
        assert len(found) == 1, (encoding, values.shape)
        if len(found.pop()) == 1:
            continue
        if encoding.id.startswith("mlx"):
            decoded = mlx.dequantize(made[0], made[1], made[2], bits, group_size=group)
        elif encoding.id.startswith("gptq"):
            decoded = gptq.dequantize(*made, bits=gptq_bits, group_size=group)
        else:
            decoded = awq.dequantize(*made, group_size=group)
        assert decoded.shape == values.shape


def main() -> None:
    """Fuzz until libFuzzer's options say stop."""
    import atheris

    atheris.Setup([sys.argv[0], "-max_len=8192", *sys.argv[1:]], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
