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
from math import prod
from struct import pack
from typing import ClassVar

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Repack, unmovable
from anamnesis.schemes.core.naming import Setting, spelt
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.fp8.weight import Fp8Weight, Mxfp8Codes
from anamnesis.schemes.parts.grid import MX_BLOCK, ScaleGrid
from anamnesis.schemes.parts.tiles import tiled, untiled
from anamnesis.schemes.parts.views import constant
from anamnesis.schemes.says.libraries import OfComfyUi
from anamnesis.sources.strided import shared_strips

__all__ = ["SETTINGS", "ComfyMxfp8Layout", "ComfyUi", "mxfp8", "scaled"]

_FORMATS = {"E4M3": "float8_e4m3fn", "E5M2": "float8_e5m2"}
_INPUTS = Field("inputs", "{module}input_scale", ("F32",))
_ONE = pack("<f", 1)
_GROUP = MX_BLOCK[1]


@dataclass(frozen=True)
class ComfyUi(OfComfyUi):
    """ComfyUI's scaled FP8.

    Attributes
    ----------
    format : str
        `E4M3` or `E5M2`.
    """

    format: str = "E4M3"

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}"),
        Field("scales", "{weight}_scale", ("F32",)),
        OfComfyUi.marker,
    )

    @property
    def comfy_format(self) -> str:
        """What ComfyUI calls it."""
        return _FORMATS[self.format]

    def said(self, shape: tuple[int, ...]) -> bytes:
        """Return the marker's JSON, as comfy-quants writes it."""
        told = {"format": self.comfy_format, "full_precision_matrix_mult": True}
        return json.dumps(told, separators=(",", ":")).encode()

    def beside(self, name: str, shape: tuple[int, ...]) -> list[tuple[Part, bytes]]:
        """Return the scale of activations, which is 1, and the marker."""
        inputs = _INPUTS.part(name, DTYPES["F32"], ())
        return [(inputs, _ONE), *super().beside(name, shape)]

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and the scale as they are read."""
        n = prod(shape)
        return Fp8Weight(name, shape, parts[:2], ScaleGrid("tensor", 1, 1, n, 1, max(n, 1)))


class ComfyMxfp8Layout(OfComfyUi):
    """ComfyUI's MXFP8: scales in tiles of 128 x 4, rows and columns of whole groups."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{weight}", ("F8_E4M3",)),
        Field("scales", "{weight}_scale", ("U8", "F8_E8M0")),
        OfComfyUi.marker,
    )
    takes = Mxfp8Codes
    comfy_format = "mxfp8"

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes, and scales out of their tiles."""
        rows, cols = shape
        scales = untiled(parts[1], rows, cols // _GROUP, shared_strips())
        grid = ScaleGrid("block", 1, rows, cols, *MX_BLOCK)
        return Fp8Weight(name, shape, (parts[0], scales), grid)

    def write(self, view: Mxfp8Codes, encoding: Encoding) -> Repack | None:
        """Return codes, scales in tiles, and the marker.

        Raises
        ------
        UnsupportedError
            If it is no matrix, or columns are not of whole groups.
        """
        codes, name = view.codes, view.name
        if len(codes.shape) != 2:
            why = f"ComfyUI has matrices, not {list(codes.shape)}"
            raise unmovable(codes, name, codes.shape, why)
        if codes.shape[0] % _GROUP:
            why = f"columns end within a group of {_GROUP}"
            raise unmovable(codes, name, codes.shape, why)
        own = [self.fields[0].moved(codes, name), self.fields[1].moved(tiled(view.scales), name)]
        said = [constant(part, raw, codes) for part, raw in self.beside(name, codes.shape)]
        return Repack((encoding,), (*own, *said))


SETTINGS = (Setting("format", "E4M3", {"E5M2": "e5m2"}),)


def scaled(format: str = "E4M3") -> Encoding:
    """Return `comfy-fp8`, or `comfy-fp8-e5m2`.

    Raises
    ------
    ValueError
        If there is no such format.
    """
    from anamnesis.schemes.fp8.encode import ComfyFp8  # only here: readers encode nothing

    if format not in _FORMATS:
        raise ValueError(f"format must be E4M3 or E5M2; got {format!r}")
    name = spelt("comfy-fp8", {"format": format}, SETTINGS)
    return Encoding(name, ComfyUi(format), ComfyFp8(format=format))


def mxfp8() -> Encoding:
    """Return `comfy-mxfp8`."""
    from anamnesis.schemes.fp8.encode import COMFY_MXFP8  # only here: readers encode nothing

    return Encoding("comfy-mxfp8", ComfyMxfp8Layout(), COMFY_MXFP8)
