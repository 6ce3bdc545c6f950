"""torchao's Int4Tensor.

    _weight_qdata I8 [rows, cols / 2], two's complement, the low nibble first
    _weight_scale, _weight_zero_point F32 | F16 | BF16 [groups, rows]

    result = round(float32((code + 8) * scale) + float32(zero point - 8 * scale))

In that order, as `_int4_row_dequantize_zp` has it, of float32. It computes the latter in the dtype
of its scales, and so rounds once more if that is a narrower one.
"""

from __future__ import annotations

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.facts import QuantFacts
from anamnesis.schemes.integers.checks import check_scale_dtype, group_size, misshapen
from anamnesis.schemes.integers.weight import IntegerWeight
from anamnesis.schemes.ledger import Claim
from anamnesis.schemes.rounding import Rounding
from anamnesis.sources.strided import transposed

__all__ = ["find"]

_REFERENCE = Rounding(("biases",))

_CODES = "_weight_qdata"
_MORE = ("_weight_act_pre_scale", "_weight_act_quant_scale")


def find(codes: StoredTensor, claim: Claim, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind.

    Raises
    ------
    UnsupportedError, ParseError
        If its parts do not fit.
    """
    head = codes.name.removesuffix(_CODES)
    if head == codes.name or codes.dtype.name != "I8" or len(codes.shape) != 2:
        return None
    scale, zeros = claim.find(f"{head}_weight_scale"), claim.find(f"{head}_weight_zero_point")
    if scale is None or zeros is None or zeros.dtype.kind != "float" or 0 in codes.shape:
        return None
    if any(head + other in claim.stored for other in _MORE):
        return None
    check_scale_dtype(scale, codes)
    rows, cols = codes.shape[0], 2 * codes.shape[1]
    if len(scale.shape) != 2 or scale.shape[1] != rows:
        raise misshapen(scale, codes, f"[groups, {rows}]")
    if zeros.shape != scale.shape or zeros.dtype != scale.dtype:
        raise misshapen(zeros, codes, f"{scale.dtype} {list(scale.shape)}")
    size = group_size(codes, cols, scale.shape[0], facts.group_sizes)
    grid, biases = transposed(scale, claim.strips), transposed(zeros, claim.strips)
    return IntegerWeight(
        f"{head}weight",
        (rows, cols),
        (codes, grid, biases),
        "INT4",
        (1, size),
        constant=-8,
        biases=biases,
        producer="torchao",
        reference=_REFERENCE,
    )
