"""ComfyUI's 8-bit floats: scaled FP8, of which all share a scale, and MXFP8.

    weight       F8_E4M3 | F8_E5M2 [rows, cols]
    weight_scale F32, one; of MXFP8 U8 in tiles of 128 x 4, padded with zeros
    input_scale  F32, one; MXFP8 has none
    comfy_quant  U8: JSON with the format

They are as comfy-quants writes them, which ComfyUI's loader reads. What ComfyUI saves itself has no
`input_scale` and no `full_precision_matrix_mult`, by which weights multiply as they decode.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from struct import pack
from typing import ClassVar

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import Beside, Field, Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.fp8.layout import OfFloats
from anamnesis.schemes.families.fp8.mx_layouts import OfMxfp8
from anamnesis.schemes.libraries.libraries import OfComfyUi
from anamnesis.schemes.views.grid import MX_BLOCK
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.tiles import tiled, untiled

_FORMATS = {"E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2"}
_INPUTS = Field("inputs", "{module}input_scale", ("F32",))
_ONE = pack("<f", 1)
_GROUP = MX_BLOCK[1]


@dataclass(frozen=True)
class ComfyUi(OfComfyUi, OfFloats):
    """ComfyUI's scaled FP8."""

    format: str = "E4M3"

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}"),
        Field("scales", "{weight}_scale", ("F32",)),
        OfComfyUi.marker,
    )
    kind = "tensor"

    @property
    def comfy_format(self) -> str:  # type: ignore[override]  # a setting
        return _FORMATS[self.format]

    def said(self, shape: tuple[int, ...]) -> bytes:
        given = {"format": self.comfy_format, "full_precision_matrix_mult": True}
        return json.dumps(given, separators=(",", ":")).encode()

    def beside(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> Beside:
        inputs = _INPUTS.part(name, DTYPES["F32"], ())
        return [(inputs, _ONE), *super().beside(name, shape)]

    @property
    def element(self) -> str:  # type: ignore[override]  # of others it is always E4M3
        return f"F8_{self.format}"

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return super().weight(name, shape, parts[:2])

    def write(self, view: Floats, encoding: Encoding) -> Repack | None:
        self.check_matrix(view)
        format = view.element.removeprefix("F8_")
        if format in _FORMATS and format != self.format:
            other = scaled(format)
            return other.layout.write(view, other)
        return super().write(view, encoding)


@dataclass(frozen=True)
class ComfyMxfp8Layout(OfComfyUi, OfMxfp8):
    """ComfyUI's MXFP8: scales in tiles of 128 x 4, rows and columns of whole groups."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("F8_E4M3",)),
        Field("scales", "{weight}_scale", ("U8", "F8_E8M0")),
        OfComfyUi.marker,
    )
    comfy_format = "mxfp8"
    needs_method = False  # markers say it

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        rows, cols = shape
        scales = untiled(parts[1], rows, cols // _GROUP)
        return super().weight(name, shape, (parts[0], scales))

    def write(self, view: Floats, encoding: Encoding) -> Repack | None:
        self.check_matrix(view)
        if view.shape[0] % _GROUP:
            raise view.refused(f"columns end within a group of {_GROUP}")
        return super().write(view, encoding)

    def arranged(self, scales: StoredTensor) -> StoredTensor:
        return tiled(scales)


SETTINGS = (Setting("format", "E4M3", {"E5M2": "e5m2"}),)


def scaled(format: str = "E4M3") -> Encoding:
    """Return `comfy-fp8`, or `comfy-fp8-e5m2`."""
    from anamnesis.schemes.families.fp8.encode import ComfyFp8

    if format not in _FORMATS:
        raise ValueError(f"format must be E4M3 or E5M2; got {format!r}")
    name = spelt("comfy-fp8", {"format": format}, SETTINGS)
    codes = ComfyFp8(f"F8_{format}", "divided", 0, is_fitted=False, dtype=DTYPES["F32"])
    return Encoding(name, ComfyUi(format), codes)


def mxfp8() -> Encoding:
    """Return `comfy-mxfp8`."""
    from anamnesis.schemes.families.fp8.encode import COMFY_MXFP8

    return Encoding("comfy-mxfp8", ComfyMxfp8Layout(), COMFY_MXFP8)
