"""HQQ's integers of 1 to 8 bits.

    W_q U8 [rows / (8 / bits), cols], of whose bytes the highest bits hold the first rows; in 3 bits
        I32 [rows / 10, cols], rounded up; also seen as floats
    packing, a text, says so: 5 and 6 bits take 8, and those of 1.58 take 2
    scale, zero F32 | F16 | BF16 [rows, 1] or [1, cols]
    shape I64 [2], of which rows x cols are a view; nbits, axis I32
    others that tell how it was made

    result = round(float32(code - zero) * scale)

Its `Quantizer.dequantize` does the same in the model's dtype, which is that of the scales, and so
rounds the difference and the product; in float32 it gives these bits.
"""

from __future__ import annotations

import struct
from math import prod

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, stored_parts
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.families.integers.checks import SCALES
from anamnesis.schemes.families.integers.rows import Planes
from anamnesis.schemes.families.integers.weight import IntegerWeight

_REFERENCE = Rounding(("differences", "products"))

_NUMBERS = {"I32": "i", "I64": "q"}
_PACKINGS = {b"8bit_u8": 8, b"4bit_u8": 4, b"3bit_32": 3, b"2bit_u8": 2, b"1bit_u8": 1}
_LONGEST_PACKING = 16

# What says how it was made, and nothing more.
_TOLD = (
    *("group_size", "packing", "compute_dtype", "unpack_view_dtype", "view_as_float"),
    *("channel_wise", "encoded_state_dict", "offload_meta", "optimize", "quant_scale"),
    *("quant_zero", "round_zero", "stores_quant_config"),
)

FIELDS = (
    Field("codes", "{module}W_q"),
    Field("scales", "{module}scale"),
    Field("zeros", "{module}zero"),
)
_NEEDED = ("shape", "nbits", "axis")  # numbers, by ordinary names


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    name = FIELDS[0].weight_of(codes.name)
    if name is None or len(codes.shape) != 2:
        return None
    found = stored_parts(FIELDS, name, ledger.find)
    beside = ((part, ledger.find(sibling(codes.name, part))) for part in (*_NEEDED, *_TOLD))
    given_by = {part: stored for part, stored in beside if stored is not None}
    if missing(FIELDS, found) or any(part not in given_by for part in _NEEDED):
        return None
    scale, zero = found["scales"], found["zeros"]
    if scale.dtype.name not in SCALES or zero.dtype != scale.dtype or scale.n_elements == 0:
        return None
    given = _numbers(given_by["shape"], 2)
    bits = _packed_bits(given_by.get("packing"), given_by["nbits"])
    if bits not in _PACKINGS.values() or min(given) < 1:
        return None
    (axis,) = _numbers(given_by["axis"], 1)
    matrix = _matrix(scale, prod(given), axis)
    seen = _as_bytes(codes)
    width = 4 if bits == 3 else 1
    planes = Planes(bits, in_parts=True, high_first=True, width=width) if bits < 8 else None
    stacked = planes.stacked if planes else 1
    lines = None if matrix is None else (-(-matrix[0] // stacked), matrix[1] * width)
    if matrix is None or seen.shape != lines or (matrix[0] % stacked and bits != 3):
        raise codes.misshapen(f"{bits}-bit codes of a matrix of {given[0]:,} x {given[1]:,}", scale)
    if zero.shape != scale.shape:
        raise zero.misshapen(f"{list(scale.shape)}", codes)
    block = (1, matrix[1]) if axis == 1 else (matrix[0], 1)
    return IntegerWeight(
        name,
        given,
        (seen, scale, zero, *given_by.values()),
        "PACKED8",
        block,
        zero,
        planes=planes,
        matrix=matrix,
        producer="HQQ",
        reference=_REFERENCE,
    )


def _packed_bits(packing: StoredTensor | None, nbits: StoredTensor) -> int:
    """Return the bits that a code takes; 0 if that is none of those that are known."""
    if packing is None:
        return _numbers(nbits, 1)[0]
    if packing.dtype.name != "U8" or packing.n_bytes > _LONGEST_PACKING:
        return 0
    return _PACKINGS.get(packing.read(), 0)


def _numbers(stored: StoredTensor, n: int) -> tuple[int, ...]:
    if stored.dtype.name not in _NUMBERS or stored.n_elements != n:
        raise stored.unsupported(f"{stored} must be I32 or I64 [{n}]")
    return struct.unpack(f"<{n}{_NUMBERS[stored.dtype.name]}", stored.read())


def _matrix(scale: StoredTensor, n: int, axis: int) -> tuple[int, int] | None:
    """Return the shape in which each row, or each column, has one scale."""
    n_scales = scale.n_elements
    if n % n_scales:
        return None
    if axis == 1 and scale.shape == (n_scales, 1):
        return n_scales, n // n_scales
    return (n // n_scales, n_scales) if axis == 0 and scale.shape == (1, n_scales) else None


def _as_bytes(codes: StoredTensor) -> StoredTensor:
    """Return codes that may be seen as floats as what they are."""
    width = codes.dtype.n_bytes(1)
    return codes._replace(dtype=DTYPES["U8"], shape=(codes.shape[0], codes.shape[1] * width))
