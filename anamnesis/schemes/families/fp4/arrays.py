"""Floats with a small scale for each group of a row, given as arrays."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

from numpy.typing import ArrayLike, NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.core.arrays import as_scale, stored
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.families.fp4.encode import CODES
from anamnesis.schemes.families.fp4.formats import FORMATS, GROUPS
from anamnesis.schemes.families.fp4.layouts import encoding
from anamnesis.schemes.families.fp4.weight import Fp4Weight


def encoder(kind: str, producer: str) -> Encoding:
    """Return what encodes arrays as `NVFP4` or `MXFP4` of one producer, two codes in a byte."""
    ends = {"compressed-tensors": "", "ModelOpt": "-modelopt"}
    if (kind, producer) == ("MXFP4", "MLX"):
        return replace(encoding("mxfp4"), codes=CODES["mlx-mxfp4"])
    if producer not in ends:
        raise ValueError(f"there is no {kind!r} of {producer!r}")
    return encoding(f"{kind.lower()}{ends[producer]}")


def of_arrays(
    kind: str,
    producer: str,
    codes: NDArray[Any],
    scales: NDArray[Any],
    second: ArrayLike | None,
) -> Fp4Weight:
    """Return codes of 4 bits with their scales as a weight."""
    forms = {row.producer: row for row in FORMATS.values() if row.kind == kind}
    if kind == "MXFP4":
        forms |= {"compressed-tensors": forms[""], "ModelOpt": forms[""]}
    if producer not in forms:
        names = ", ".join(repr(name) for name in forms)
        raise ValueError(f"producer must be one of {names}; got {producer!r}")
    form, is_nv = forms[producer], kind == "NVFP4"
    group, allowed = GROUPS[kind], ("F8_E4M3", "U8") if is_nv else ("U8", "F8_E8M0")
    parts = [stored(codes, "codes", ("U8",)), stored(scales, "scales", allowed)]
    if parts[0].shape[1:] == ():
        raise ValueError(f"codes must have rows and columns, not shape {parts[0].shape}")
    shape = (*parts[0].shape[:-1], 2 * parts[0].shape[-1])
    memory.check_groups(shape, group, parts[1])
    if is_nv and second is None and form.needs_second:
        raise ValueError(f"the NVFP4 of {producer} has a global scale, which is missing")
    if second is not None:
        number = as_scale(second)
        if number.size not in (1, prod(shape[:-2])):
            raise ValueError(
                f"global_scale has {number.size} numbers, but must have one, or one for each of "
                f"{prod(shape[:-2])} matrices"
            )
        parts.append(stored(number, "global_scale", ("F32",)))
    return Fp4Weight("array", shape, tuple(parts), form, group, shape[-1])
