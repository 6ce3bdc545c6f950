"""ComfyUI's INT8, `int8_tensorwise`, and the INT4 of AWQ, `awq_w4a16`.

    weight       I8 [rows, cols]
    weight_scale F32 [rows, 1], or one
    comfy_quant  U8: JSON with the format

AWQ's codes are unsigned, and zero points floats that are added:

    weight       I8 [rows, cols / 2], the low nibble first
    weight_scale, weight_zeros F32 | F16 | BF16 [groups, rows]; comfy-quants writes `weight_zero`
    comfy_quant  U8: JSON with the format and `group_size`, 64 if it says none

    result = round(float32((code - 8) * scale) + zero)

comfy-kitchen computes in the dtype of the scales, and so rounds the product and the sum to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Repack
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.families.integers.checks import SCALES, check_scale_dtype
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.libraries.comfy_metadata import ComfyLayer
from anamnesis.schemes.libraries.libraries import OfComfyUi
from anamnesis.schemes.views.integer_casts import by_row, in_float32
from anamnesis.schemes.views.kinds import Integers
from anamnesis.schemes.views.views import completed, constant
from anamnesis.sources.altered import recoded
from anamnesis.sources.strided import transposed


@dataclass(frozen=True)
class ComfyInt8Layout(OfComfyUi):
    """ComfyUI's `int8_tensorwise`."""

    has_one_scale: bool = False

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("I8",)),
        Field("scales", "{weight}_scale", ("F32",)),
        OfComfyUi.marker,
    )
    takes = Integers
    comfy_format = "int8_tensorwise"

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        block = (shape[0] if self.has_one_scale else 1, shape[1])
        return IntegerWeight(name, shape, parts[:2], "INT8", block, producer="ComfyUI")

    def write(self, view: Integers, encoding: Encoding) -> Repack | None:
        self.check_matrix(view)
        codes, found, view = by_row(view, 1.0)
        scales = in_float32(found)
        if self.has_one_scale:
            raw = scales.source.read(scales.offset, scales.n_bytes)
            if raw != raw[:4] * (len(raw) // 4):
                raise view.refused("scales of rows differ, and one is for all")
            part = self.fields[1].part(view.name, scales.dtype, ())
            scales = constant(part, bytes(raw[:4]), scales)
        parts = self.moved(view.name, {"codes": codes, "scales": scales})
        whole = completed(parts, self.beside(view.name, view.shape))
        return Repack((encoding,), whole, view.is_exact, view.is_cast)


class ComfyAwq:
    """ComfyUI's `awq_w4a16`, of which nobody but a calibration makes codes."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("I8",)),
        Field("scales", "{weight}_scale", SCALES),
        Field("biases", "{weight}_zeros", SCALES, unless="comfy-quants wrote it"),
        Field("biases", "{weight}_zero", SCALES, unless="others wrote it"),
        OfComfyUi.marker,
    )


_GROUP, _LESS_8 = 64, 0x88888888  # what makes eight codes less 8, of two's complement
_REFERENCE = Rounding(("products", "sums"))


def find_awq(codes: StoredTensor, layer: ComfyLayer, ledger: Ledger) -> IntegerWeight:
    """Return the weight that codes of `awq_w4a16` are of."""
    _, beside, *added, _ = ComfyAwq.fields
    scale = ledger.find(beside.named(codes.name))
    zeros = [part for one in added if (part := ledger.find(one.named(codes.name))) is not None]
    if scale is None or len(zeros) != 1:
        wanted = " and ".join(one.named(codes.name) for one in (beside, added[0]))
        raise codes.unsupported(f"{codes} must have {wanted} beside it, and each once")
    check_scale_dtype(scale, codes)
    if (zeros[0].dtype, zeros[0].shape) != (scale.dtype, scale.shape):
        raise zeros[0].misshapen(f"{scale.dtype} {list(scale.shape)}", codes)
    group, (rows, half) = layer.block or _GROUP, codes.shape
    if 2 * half % group or scale.shape != (2 * half // group, rows):
        raise scale.misshapen(f"[{2 * half / group:g}, {rows}]", codes)
    scales, biases = (transposed(part, ledger.strips) for part in (scale, zeros[0]))
    signed = recoded(codes, _LESS_8)
    return IntegerWeight(
        *(codes.name, (rows, 2 * half), (signed, scales, biases), "INT4", (1, group)),
        biases=biases,
        producer="ComfyUI",
        reference=_REFERENCE,
    )


def encoding(has_one_scale: bool = False) -> Encoding:
    """Return `comfy-int8`, or `comfy-int8-tensor`, of which all of a weight share a scale."""
    from anamnesis.schemes.families.integers.encode import comfy_int8

    name = "comfy-int8-tensor" if has_one_scale else "comfy-int8"
    return Encoding(name, ComfyInt8Layout(has_one_scale), comfy_int8(has_one_scale))
