"""What torchao calls the parts of a weight, and what its files say of one.

Of `layers.0.weight` its `flatten_tensor_state_dict` makes `layers.0._weight_qdata`, codes, with
`layers.0._weight_scale` and others beside; and an entry of the metadata, under the weight's own
name, of JSON: `{"_type": "Int8Tensor", "_data": {"block_size": [1, 64], ...}, ...}`. A pickle of
its tensors is read as the same. There are files without these entries.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from math import prod
from typing import Any

from anamnesis.base.described import Described
from anamnesis.base.errors import ParseError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.parts.tiles import is_tiled

__all__ = [
    "ACTIVATIONS",
    "CODES",
    "SCALE",
    "ZEROS",
    "asked_parts",
    "check_described",
    "described_in",
    "describes_tensor",
    "metadata_without",
    "prefix_of",
    "weight_of",
]

CODES, SCALE, ZEROS = "qdata", "scale", "zero_point"
_FP4 = "float4_e2m1fn_x2"  # torch's name
# Scales of activations, with which only a runtime that quantises those does anything.
ACTIVATIONS = (
    *("act_quant_scale", "act_quant_zero_point", "act_per_tensor_scale"),
    "output_act_quant_scale",
)

_START = '{"_type": '
_LONGEST = 1 << 16  # characters of what is said of a weight
_NAMES_KEY = "tensor_names"
_PLAIN = '{"_type": "Tensor"}'  # what its files say of a tensor that is none of its own

_IN_ROWS = ("MXTensor", "NVFP4Tensor")  # whose scales are of so many values of a row
_IN_BLOCKS = (
    *("Float8Tensor", "PrototypeFloat8Tensor", "Int4Tensor"),
    *("Int8Tensor", "IntxUnpackedToInt8Tensor"),
)


def prefix_of(weight: str) -> str:
    """Return what the names of a weight's parts begin with."""
    head, dot, last = weight.rpartition(".")
    return f"{head}{dot}_{last}_"


def weight_of(codes: str) -> str | None:
    """Return the weight whose codes have a name; None for a name of something else."""
    head, dot, last = codes.rpartition(".")
    name = last.removesuffix(f"_{CODES}").removeprefix("_")
    return f"{head}{dot}{name}" if name and last == f"_{name}_{CODES}" else None


# --- what is said ---------------------------------------------------------------------------------


def described_in(
    metadata: Mapping[str, Any], known: Mapping[str, Described]
) -> dict[str, Described]:
    """Return what metadata say of weights, by their names, and what is known of others."""
    found = dict(known)
    for key, text in metadata.items():
        is_told = type(text) is str and text.startswith(_START) and len(text) <= _LONGEST
        if is_told and key not in found:
            try:
                found[key] = Described.of(json.loads(text))
            except (ValueError, RecursionError):
                continue
    return found


def asked_parts(weight: str, said: Described) -> list[str]:
    """Return what the parts of a weight are called, by the end, that the file says it has."""
    last = weight.rpartition(".")[2]
    return [f"_{last}_{name}" for name in said.parts if name not in ACTIVATIONS]


def check_described(
    said: Described, codes: StoredTensor, scale: StoredTensor | None, zeros: StoredTensor | None
) -> None:
    """Compare a weight's codes, scales and zero points with what the file says of it.

    Raises
    ------
    ParseError
        If they are of another dtype or shape.
    UnsupportedError
        If no such codes are decoded.
    """
    if said.kind not in (*_IN_ROWS, *_IN_BLOCKS):
        return
    shape = _shape(said, codes)
    if said.shape not in (None, shape):
        raise _wrong(codes, said, f"of the shape {list(said.shape or ())}")
    if scale is None or not said.block or not codes.n_elements:
        return
    if said.kind in _IN_ROWS:
        _check_groups(said, shape, codes, scale)
    else:
        _check_blocks(said, shape, codes, scale)
        if zeros is not None:
            _check_blocks(said, shape, codes, zeros)


def _shape(said: Described, codes: StoredTensor) -> tuple[int, ...]:
    """Return the shape of the weight that codes are of."""
    per_byte = 2 if said.kind in ("Int4Tensor", "NVFP4Tensor") else 1
    if said.kind == "MXTensor":
        element = said.element or (_FP4 if codes.dtype.name == "U8" else codes.dtype.torch_name)
        if "fp6" in element or "float6" in element:
            what = f"torchao's MXTensor of {element}, one code to a byte, which is not decoded"
            raise codes.unsupported(f"{codes} is {what}")
        per_byte = 2 if element == _FP4 else 1
        if per_byte == 1 and element != codes.dtype.torch_name:
            raise _wrong(codes, said, f"of {element}")
    return (*codes.shape[:-1], codes.shape[-1] * per_byte) if codes.shape else ()


def _check_groups(
    said: Described, shape: tuple[int, ...], codes: StoredTensor, scale: StoredTensor
) -> None:
    """Compare scales of groups of a row, in tiles or not, with the values."""
    size = said.block[0]
    if len(said.block) > 1 or size <= 0 or not shape or shape[-1] % size:
        raise _wrong(codes, said, f"in rows of whole blocks of {list(said.block)}")
    rows, groups = prod(shape[:-1]), shape[-1] // size
    fits = said.is_tiled is not True and scale.shape == (*shape[:-1], groups)
    if not fits and not (said.is_tiled is not False and is_tiled(scale, rows, groups)):
        how = "in tiles " if said.is_tiled else ""
        raise scale.malformed(f"{scale} has no scale {how}for each {size:,} values of {codes}")


def _check_blocks(
    said: Described, shape: tuple[int, ...], codes: StoredTensor, part: StoredTensor
) -> None:
    """Compare scales or zero points with whole blocks; one alone may have any shape."""
    block = said.block
    if len(block) != len(shape) or any(b <= 0 or n % b for n, b in zip(shape, block, strict=True)):
        raise _wrong(codes, said, f"in whole blocks of {list(block)}")
    grid = tuple(n // b for n, b in zip(shape, block, strict=True))
    if said.kind == "Int4Tensor" and len(grid) > 1:
        grid = (*grid[:-2], grid[-1], grid[-2])
    if part.shape != grid and not prod(part.shape) == prod(grid) == 1:
        what = "zero point" if part.name.endswith(ZEROS) else "scale"
        raise part.malformed(f"{part} has no {what} for each block of {list(block)} of {codes}")


def _wrong(codes: StoredTensor, said: Described, what: str) -> ParseError:
    return codes.malformed(f"{codes} cannot be the codes of torchao's {said.kind} {what}")


# --- what outputs say -----------------------------------------------------------------------------


def describes_tensor(key: str, text: str) -> bool:
    """Tell whether an entry of metadata describes a tensor as torchao does, or lists them all."""
    return text.startswith("[" if key == _NAMES_KEY else _START)


def metadata_without(
    metadata: Mapping[str, str], decoded: Mapping[str, str], gone: Collection[str]
) -> dict[str, str]:
    """Return metadata that say of `decoded` weights that they are plain, and of others nothing.

    Parameters
    ----------
    metadata : mapping of str to str
    decoded : mapping of str to str
        New names by old ones.
    gone : collection of str
        Names of weights that are written otherwise.
    """
    told: dict[str, str] = {}
    for key, text in metadata.items():
        is_told = (key in decoded or key in gone) and describes_tensor(key, text)
        if key == _NAMES_KEY and describes_tensor(key, text):
            told[key] = _names_without(text, decoded, gone)
        elif not is_told:
            told[key] = text
        elif key in decoded:
            told[decoded[key]] = _PLAIN
    return told


def _names_without(text: str, decoded: Mapping[str, str], gone: Collection[str]) -> str:
    try:
        names = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not all(type(name) is str for name in names):
        return text
    return json.dumps([decoded.get(name, name) for name in names if name not in gone])
