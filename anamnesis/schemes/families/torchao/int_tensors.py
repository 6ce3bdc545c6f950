"""torchao's integers: Int4Tensor, Int8Tensor and IntxUnpackedToInt8Tensor.

Int4Tensor has two codes in a byte:

    _weight_qdata I8 [..., rows, cols / 2], two's complement, the low nibble first
    _weight_scale, _weight_zero_point F32 | F16 | BF16 [..., groups, rows]

    result = round(float32((code + 8) * scale) + float32(zero point - 8 * scale))

In that order, as in `_int4_row_dequantize_zp`, of float32. It computes the latter in the dtype
of its scales, and so rounds once more if that is a narrower one.

The others have one, of 1 to 8 bits:

    _weight_qdata I8 [..., rows, cols]
    _weight_scale F32 | F16 | BF16, for whole blocks of any shape
    _weight_zero_point I8 of the scales' shape, if any; IntxUnpackedToInt8Tensor may have floats

    result = round(float32(code - zero point) * scale)

as in `dequantize_affine`. It computes differences in the dtype of the result, in which those of
integers are exact; those of floats are rounded.
"""

from __future__ import annotations

from math import prod
from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import check_scale_dtype
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.families.torchao.parts import Parts, parts_of
from anamnesis.schemes.views.grid import ScaleGrid, resolve_even
from anamnesis.schemes.views.views import made_of
from anamnesis.sources.strided import transposed

_INPUT_SCALE = "act_pre_scale"  # what inputs are multiplied by, and so a part of the weight
_OF_INT4 = Rounding(("biases",))
_OF_FLOAT_ZEROS = Rounding(("differences",))


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    parts = parts_of(codes.name, facts)
    if parts is None or not codes.shape or 0 in codes.shape:
        return None
    scale, zeros = ledger.find(f"{parts.prefix}scale"), ledger.find(f"{parts.prefix}zero_point")
    if scale is None or parts.prefix + _INPUT_SCALE in ledger.stored:
        return None
    has_floats = zeros is not None and zeros.dtype.kind == "float"
    if zeros is not None and has_floats and parts.is_one_of("Int4Tensor"):
        weight = _nibbles(parts, codes, scale, zeros, ledger)
    elif parts.is_one_of("Int8Tensor", "IntxUnpackedToInt8Tensor"):
        weight = _bytes(parts, codes, scale, zeros)
    else:
        return None
    parts.drop_activation_scales(ledger)
    return weight


def _nibbles(
    parts: Parts, codes: StoredTensor, scale: StoredTensor, zeros: StoredTensor, ledger: Ledger
) -> IntegerWeight:
    check_scale_dtype(scale, codes)
    *lead, rows, half = codes.shape if len(codes.shape) > 1 else (1, *codes.shape)
    cols, groups = 2 * half, scale.shape[-2] if len(scale.shape) > 1 else 0
    if scale.shape != (*lead, groups, rows) or groups == 0 or cols % groups:
        raise scale.misshapen(f"[{', '.join(map(str, (*lead, 'groups', rows)))}]", codes)
    if zeros.shape != scale.shape or zeros.dtype != scale.dtype:
        raise zeros.misshapen(f"{scale.dtype} {list(scale.shape)}", codes)
    grid, biases = transposed(scale, ledger.strips), transposed(zeros, ledger.strips)
    shape, block = (*lead, rows, cols), (1, cols // groups)
    return IntegerWeight(
        *(parts.weight, shape, (codes, grid, biases), "INT4", block),
        constant=-8,
        biases=biases,
        producer="torchao",
        reference=_OF_INT4,
    )


def _bytes(
    parts: Parts, codes: StoredTensor, scale: StoredTensor, zeros: StoredTensor | None
) -> IntegerWeight:
    check_scale_dtype(scale, codes)
    try:
        grid = resolve_even(codes.shape, scale.shape)
    except ValueError:
        raise scale.misshapen("one scale for each of equal blocks", codes) from None
    reference = None
    zeros = _narrowed(zeros)
    if zeros is not None:
        if zeros.shape != scale.shape or zeros.dtype.name not in ("I8", scale.dtype.name):
            raise zeros.misshapen(f"I8 or {scale.dtype} {list(scale.shape)}", codes)
        if zeros.dtype.kind == "float":  # torchao computes with them in the dtype of the result
            reference, result = _OF_FLOAT_ZEROS, parts.described.dtype
            if result and result != zeros.dtype.torch_name:
                raise zeros.unsupported(
                    f"{zeros} belongs to a weight of {result}: float zero points of another dtype "
                    "are not supported"
                )
    matrix, block = _matrix(codes.shape, grid)
    stored = (codes, scale) if zeros is None else (codes, scale, zeros)
    return IntegerWeight(
        *(parts.weight, codes.shape, stored, "INT8", block, zeros),
        matrix=None if matrix == codes.shape else matrix,
        producer="torchao",
        reference=reference,
    )


def _narrowed(zeros: StoredTensor | None) -> StoredTensor | None:
    """Return zero points that older versions have as wider integers as what they are now."""
    if zeros is None or zeros.dtype.name not in ("I32", "I64"):
        return zeros
    wide = zeros

    def narrow(units: range, raw: NDArray[Any]) -> NDArray[Any]:
        values = raw.reshape(-1).view(wide.dtype.numpy())
        if np.any(values != values.astype(np.int8)):
            raise wide.malformed(f"{wide} has zero points that no code of 8 bits is")
        return values.astype(np.int8).view(np.uint8)

    return made_of(Part(zeros.name, DTYPES["I8"], zeros.shape), [zeros], zeros.n_elements, narrow)


def _matrix(shape: tuple[int, ...], grid: ScaleGrid) -> tuple[tuple[int, ...], tuple[int, int]]:
    """Return the shape as which a weight is read, with rows and columns that share a scale."""
    if grid.kind == "tensor":
        rows, cols = prod(shape[:-1]), shape[-1]
        return (shape if len(shape) == 2 else (rows, cols)), (rows, cols)
    is_last = grid.cols == shape[-1] and (grid.kind == "channel" or grid.rows == shape[-2:][0])
    matrix = shape if is_last and len(shape) > 1 else (grid.batch, grid.rows, grid.cols)
    return matrix, (grid.block_rows, grid.block_cols)
