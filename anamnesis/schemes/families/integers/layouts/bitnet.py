"""BitNet's ternary weights, as in transformers.

    weight U8 [rows / 4, cols], of whose bytes the lowest bits hold the first quarter of all rows,
    stored plus 1
    weight_scale F32 | F16 | BF16 [1]

`BitLinear` divides by its scale, `AutoBitLinear` multiplies with it: the config says which. With
the reciprocal, rounded to float32, a quotient of 1 or -1 is the same number.
"""

from __future__ import annotations

import math
import struct

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import SCALES
from anamnesis.schemes.families.integers.rows import Planes
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.views.views import constant

FIELDS = (Field("codes", "{weight}", ("U8",)), Field("scales", "{weight}_scale"))


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    if (facts.method or "").lower() != "bitnet":
        return None
    scale = ledger.find(FIELDS[1].named(codes.name))
    if scale is None or scale.dtype.name not in SCALES or len(codes.shape) != 2:
        return None
    if 0 in codes.shape:
        return None
    if scale.shape not in ((), (1,)):
        raise scale.misshapen("[1]", codes)
    shape = (4 * codes.shape[0], codes.shape[1])
    factor = scale if facts.layout == "autobitlinear" else _reciprocal(scale)
    own = codes.name, shape, (codes, factor), "PACKED8", shape
    return IntegerWeight(*own, constant=1, planes=Planes(2, in_parts=True), producer="BitNet")


def _reciprocal(scale: StoredTensor) -> StoredTensor:
    """Return a scale of which one is the quotient of 1 and this one, in float32."""
    raw = scale.read()
    if scale.dtype.name == "BF16":
        raw = b"\0\0" + raw
    (value,) = struct.unpack("<e" if scale.dtype.name == "F16" else "<f", raw)
    try:
        quotient = 1.0 / value if value else math.copysign(math.inf, value)
        packed = struct.pack("<f", quotient)
    except OverflowError:
        raise scale.unsupported(
            f"{scale.name} is {value}, too small to divide by in float32"
        ) from None
    return constant(Part(scale.name, DTYPES["F32"], scale.shape), packed, scale)
