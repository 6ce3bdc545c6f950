"""ModelOpt's 4-bit integers: INT4_AWQ and W4A8_AWQ.

    weight U8 [..., rows / 2, cols]: rows 2i in the low nibbles of line i, 2i + 1 in the high ones,
    of two's complement
    weight_scale F32 | F16 | BF16 [..., rows, groups]

One multiplication and one rounding. W4A8 has a `weight_scale_2`, which only its runtime's weights
of 8 bits have. Inputs may be scaled before: `pre_quant_scale`.
"""

from __future__ import annotations

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, stored_parts
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import SCALES, group_size
from anamnesis.schemes.families.integers.rows import Planes
from anamnesis.schemes.families.integers.weight import IntegerWeight

FIELDS = (
    Field("codes", "{weight}", ("U8",)),
    Field("scales", "{weight}_scale"),
    Field("second", "{weight}_scale_2", unless="weights of 4 bits alone"),
)


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    if (facts.method or "").lower() != "modelopt":
        return None
    found = stored_parts(FIELDS, codes.name, ledger.find)
    is_weight = codes.name.rpartition(".")[2] == "weight" and len(codes.shape) > 1
    if not is_weight or missing(FIELDS, found):
        return None
    scale = found["scales"]
    if scale.dtype.name not in SCALES or 0 in codes.shape:
        return None
    rows, cols = 2 * codes.shape[-2], codes.shape[-1]
    shape = (*codes.shape[:-2], rows, cols)
    if len(scale.shape) != len(shape) or scale.shape[:-1] != shape[:-1]:
        raise scale.misshapen(f"[{', '.join(map(str, shape[:-1]))}, groups]", codes)
    size = group_size(codes, cols, scale.shape[-1], facts.group_sizes)
    if "second" in found:
        why = "scale of the same weight in 8 bits, as only its runtime has it"
        ledger.drop(found["second"].name, why)
    own = codes.name, shape, (codes, scale), "INT8", (1, size)
    return IntegerWeight(*own, planes=Planes(4), producer="ModelOpt")
