"""MXFP8 that lies in arrays."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import stored
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.families.fp8 import mx_layouts
from anamnesis.schemes.families.fp8.encode import MXFP8
from anamnesis.schemes.families.fp8.weight import Fp8Weight
from anamnesis.schemes.views.grid import ScaleGrid


def mx_encoder(producer: str) -> Encoding:
    """Return what encodes arrays as MXFP8 of one producer, each code a byte."""
    if producer not in MXFP8:
        raise ValueError(f"there is no 'MXFP8' of {producer!r}")
    in_bytes = "compressed-tensors" if producer == "MLX" else producer
    return replace(mx_layouts.mxfp8(in_bytes), codes=MXFP8[producer])


def mx_of_arrays(codes: NDArray[Any], scales: NDArray[Any]) -> Fp8Weight:
    """Return MXFP8 as a weight."""
    parts = (
        stored(codes, "codes", ("F8_E4M3", "F8_E5M2")),
        stored(scales, "scales", ("U8", "F8_E8M0")),
    )
    shape = parts[0].shape
    if len(shape) < 2:
        raise ValueError(f"codes must have rows and columns, not shape {shape}")
    memory.check_groups(shape, 32, parts[1])
    grid = ScaleGrid("block", 1, prod(shape[:-1]), shape[-1], 1, 32)
    return Fp8Weight("array", shape, parts, grid)
