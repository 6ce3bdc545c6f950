"""SVDQuant's INT4 of ComfyUI (`svdquant_w4a4`), to which a thin product is added.

    weight        I8 [rows, cols / 2], two's complement, the low nibble first
    weight_scale  F32 | F16 | BF16 [cols / 64, rows]
    smooth_factor F32 | F16 | BF16 [cols]
    proj_down, proj_up F32 | F16 | BF16 [cols, rank], [rows, rank]
    comfy_quant   U8: JSON with the format

comfy-kitchen calls them `weight_smooth_factor` and so on. In tiles, `weight` is
[rows / 128, cols / 64, 32, 128], `weight_scale` [rows / 128, cols / 64, 128] and `proj_up`
[rows / 128, rank, 128].

    result = round(float32(code * scale * factor) + (proj_up @ proj_down.T))

The factor is what a 1 that is divided by smooth_factor becomes as an activation of 4 bits. That is
`TensorCoreSVDQuantW4A4Layout.dequantize` in float32; it computes in the dtype of the scales.
"""

from __future__ import annotations

from typing import ClassVar

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.families.integers.checks import SCALES
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.libraries.comfy_metadata import ComfyLayer
from anamnesis.schemes.libraries.libraries import OfComfyUi
from anamnesis.schemes.views.low_rank import LowRank
from anamnesis.schemes.views.views import reordered
from anamnesis.sources.strided import transposed

_GROUP, _TILE, _HALF_GROUP = 64, 128, 32  # columns, rows, bytes

_BESIDE = ("smooth_factor", "proj_down", "proj_up")


class ComfySvdQuant:
    """ComfyUI's `svdquant_w4a4`: codes, and a thin product that is added."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("I8",)),
        Field("scales", "{weight}_scale", SCALES),
        *(Field(n, f"{{module}}{n}", SCALES, unless="comfy-kitchen wrote it") for n in _BESIDE),
        *(Field(n, f"{{weight}}_{n}", SCALES, unless="comfy-quants wrote it") for n in _BESIDE),
        OfComfyUi.marker,
    )


def find(codes: StoredTensor, layer: ComfyLayer, ledger: Ledger) -> LowRank:
    """Return the weight that codes of `svdquant_w4a4` are of."""
    found = [_part(role, codes, ledger) for role in ("scales", *_BESIDE)]
    if len(codes.shape) == 4:
        codes, found = _untiled(codes, found)
    scale, smooth, down, up = found
    rows, half = codes.shape if len(codes.shape) == 2 else (0, 0)
    cols, rank = 2 * half, up.shape[-1] if up.shape else 0
    if cols % _GROUP or not rows * cols * rank:
        raise codes.misshapen(f"rows of whole groups of {_GROUP} codes of 4 bits")
    shapes = (cols // _GROUP, rows), (cols,), (cols, rank), (rows, rank)
    for part, shape in zip(found, shapes, strict=True):
        if part.shape != shape:
            raise part.misshapen(str(list(shape)), codes)
    parts, shape = (codes, transposed(scale, ledger.strips)), (rows, cols)
    stored = IntegerWeight(codes.name, shape, parts, "INT4", (1, _GROUP), producer="SVDQuant")
    bias = ledger.find(sibling(codes.name, "bias")) if layer.shifts else None
    if bias is not None:
        error = bias.unsupported(
            f"{bias} makes up for a shift of the layer's inputs (act_unsigned), which no ordinary "
            "model has",
            remedy="drop=... leaves it out; allow_unknown=True copies it as it is stored",
        )
        ledger.refuse([bias.name], error)
    return LowRank(codes.name, shape, (*parts, smooth, down, up), (stored,))


def _part(role: str, codes: StoredTensor, ledger: Ledger) -> StoredTensor:
    """Return what lies beside codes, by one of its names."""
    names = [one.named(codes.name) for one in ComfySvdQuant.fields if one.role == role]
    found = [part for name in names if (part := ledger.find(name)) is not None]
    if len(found) != 1 or found[0].dtype.name not in SCALES:
        raise codes.unsupported(f"{codes} must have {' or '.join(names)} of floats beside it")
    return found[0]


def _untiled(
    codes: StoredTensor, found: list[StoredTensor]
) -> tuple[StoredTensor, list[StoredTensor]]:
    """Return codes, scales and what is between by rows."""
    tiles, groups, *tile = codes.shape
    scale, smooth, down, up = found
    rank = up.shape[1] if len(up.shape) == 3 else 0
    if tile != [_TILE // 4, 4 * _HALF_GROUP]:
        raise codes.misshapen(f"[rows / {_TILE}, cols / {_GROUP}, {_TILE // 4}, {4 * _HALF_GROUP}]")
    for part, n in ((scale, groups), (up, rank)):
        if part.shape != (tiles, n, _TILE):
            raise part.misshapen(f"[{tiles}, {n}, {_TILE}]", codes)
    lines = (tiles, _TILE, groups, 2), (groups * 2 * _TILE, 2, 2 * _TILE, 1)
    codes = reordered(codes, *lines, 16)._replace(shape=(tiles * _TILE, groups * _HALF_GROUP))
    shape, strides = (groups, tiles, _TILE), (_TILE, groups * _TILE, 1)
    scale = reordered(scale, shape, strides, scale.dtype.n_bytes(1))
    shape, strides = (tiles, _TILE, rank), (rank * _TILE, 1, _TILE)
    up = reordered(up, shape, strides, up.dtype.n_bytes(1))
    return codes, [
        scale._replace(shape=(groups, tiles * _TILE)),
        *(smooth, down, up._replace(shape=(tiles * _TILE, rank))),
    ]
