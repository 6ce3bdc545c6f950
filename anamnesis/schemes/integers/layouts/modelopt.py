"""ModelOpt's 4-bit integers: INT4_AWQ and W4A8_AWQ.

    weight U8 [..., rows / 2, cols]: rows 2i in the low nibbles of line i, 2i + 1 in the high ones,
    of two's complement
    weight_scale F32 | F16 | BF16 [..., rows, groups]

One multiplication and one rounding. W4A8 has a `weight_scale_2`, which only its runtime's weights
of 8 bits have. Where inputs are scaled before (`pre_quant_scale`), `input_scales` says so.
"""

from __future__ import annotations

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.integers.checks import SCALES, group_size
from anamnesis.schemes.integers.weight import IntegerWeight, Planes

__all__ = ["find"]


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind.

    Raises
    ------
    UnsupportedError, ParseError
        If its parts do not fit.
    """
    if (facts.method or "").lower() != "modelopt":
        return None
    scale = ledger.find(f"{codes.name}_scale")
    if codes.name.rpartition(".")[2] != "weight" or scale is None or len(codes.shape) < 2:
        return None
    if scale.dtype.name not in SCALES or 0 in codes.shape:
        return None
    rows, cols = 2 * codes.shape[-2], codes.shape[-1]
    shape = (*codes.shape[:-2], rows, cols)
    if len(scale.shape) != len(shape) or scale.shape[:-1] != shape[:-1]:
        raise scale.misshapen(f"[{', '.join(map(str, shape[:-1]))}, groups]", codes)
    size = group_size(codes, cols, scale.shape[-1], facts.group_sizes)
    second = f"{codes.name}_scale_2"
    if ledger.find(second) is not None:
        ledger.drop(second, "scale of the same weight in 8 bits, as only its runtime has it")
    return IntegerWeight(
        codes.name,
        shape,
        (codes, scale),
        "INT8",
        (1, size),
        planes=Planes(4),
        producer="ModelOpt",
    )
