"""A file of ternary weights, as transformers stores BitNet's, which no encoding makes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["bitnet_file"]


def bitnet_file(
    name: str, codes: NDArray[Any], scale: float, linear: str = "autobitlinear"
) -> bytes:
    """Return a safetensors file whose metadata have the config.

    Parameters
    ----------
    name : str
        Of the weight.
    codes : array
        -1, 0 and 1, [rows, cols].
    scale : float
        What BitNet's `AutoBitLinear` multiplies by, and its `BitLinear` divides by.
    linear : str, optional
        Which of them.
    """
    quarters = (codes + 1).astype(np.uint8).reshape(4, -1, codes.shape[1])
    packed = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
    config = {"quant_method": "bitnet", "linear_class": linear}
    header = {
        "__metadata__": {"quantization_config": json.dumps(config)},
        name: {"dtype": "U8", "shape": packed.shape, "data_offsets": [0, packed.size]},
        f"{name}_scale": {
            "dtype": "F32",
            "shape": [1],
            "data_offsets": [packed.size, packed.size + 4],
        },
    }
    text = json.dumps(header).encode()
    body = packed.tobytes() + np.float32(scale).tobytes()
    return len(text).to_bytes(8, "little") + text + body
