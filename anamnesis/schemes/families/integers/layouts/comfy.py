"""ComfyUI's INT8, `int8_tensorwise`: a scale for each row, or one for all.

weight       I8 [rows, cols]
weight_scale F32 [rows, 1], or one
comfy_quant  U8: JSON with the format
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.libraries.libraries import OfComfyUi
from anamnesis.schemes.views.integer_casts import by_row, in_float32
from anamnesis.schemes.views.kinds import Integers
from anamnesis.schemes.views.views import constant


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
        if len(view.shape) != 2:
            raise view.refused(f"ComfyUI has matrices, not {list(view.shape)}")
        codes, found, view = by_row(view, 1.0)
        scales = in_float32(found)
        if self.has_one_scale:
            raw = scales.source.read(scales.offset, scales.n_bytes)
            if raw != raw[:4] * (len(raw) // 4):
                raise view.refused("scales of rows differ, and one is for all")
            part = self.fields[1].part(view.name, scales.dtype, ())
            scales = constant(part, bytes(raw[:4]), scales)
        parts = self.moved(view.name, {"codes": codes, "scales": scales})
        beside = self.beside(view.name, view.shape)
        own = [constant(part, raw, codes) for part, raw in beside]
        return Repack((encoding,), (*parts, *own), view.is_exact, view.is_cast)


def encoding(has_one_scale: bool = False) -> Encoding:
    """Return `comfy-int8`, or `comfy-int8-tensor`, of which all of a weight share a scale."""
    from anamnesis.schemes.families.integers.encode import ComfyInt8

    name = "comfy-int8-tensor" if has_one_scale else "comfy-int8"
    codes = ComfyInt8(has_one_scale=has_one_scale)
    return Encoding(name, ComfyInt8Layout(has_one_scale), codes)
