"""How each producer stores MXFP8: E4M3 in groups of 32, powers of two as scales."""

from __future__ import annotations

from typing import Any, ClassVar

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Layers, Layout, Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.fp8.layout import CODES, POWERS, SCALE, OfFloats
from anamnesis.schemes.libraries.libraries import OfCompressedTensors, OfMlx, OfModelOpt
from anamnesis.schemes.views.grid import MX_BLOCK
from anamnesis.schemes.views.kinds import Floats

_GROUP = MX_BLOCK[1]


class OfMxfp8(OfFloats):
    """MXFP8 under any names."""

    fields: ClassVar[tuple[Field, ...]] = (
        CODES._replace(dtypes=("F8_E4M3",)),
        SCALE._replace(dtypes=POWERS),
    )
    scale_dtypes = ("F8_E8M0",)
    kind, block_size = "block", MX_BLOCK
    needs_method = True  # ComfyUI's is called alike

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        codes = parts[0]._replace(dtype=DTYPES["F8_E4M3"], shape=shape)
        return super().weight(name, shape, (codes, parts[1]))

    def write(self, view: Floats, encoding: Encoding) -> Repack | None:
        made = super().write(view, encoding)
        if made is not None and view.shape[-1] % _GROUP:
            raise view.refused(f"rows end within a group of {_GROUP}")
        return made


class Mxfp8OfCompressedTensors(OfMxfp8, OfCompressedTensors):
    """compressed-tensors' `mxfp8-quantized`."""

    def declare(self, layers: Layers) -> dict[str, Any]:
        return self.config_of_floats(8, _GROUP, DTYPES["U8"], "mxfp8-quantized", layers)


class Mxfp8OfModelOpt(OfMxfp8, OfModelOpt):
    """ModelOpt's `MXFP8`."""

    algorithm = "MXFP8"
    group = _GROUP


class Mxfp8OfMlx(OfMxfp8, OfMlx):
    """MLX's mode `mxfp8`: codes in words of four."""

    needs_method = False

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{module}weight", ("U32",)),
        Field("scales", "{module}scales", ("U8",)),
    )

    def declare(self, layers: Layers) -> dict[str, Any]:
        return {"group_size": _GROUP, "bits": 8, "mode": "mxfp8"}


MLX = Mxfp8OfMlx()
_MXFP8: dict[str, tuple[str, Layout]] = {
    "compressed-tensors": ("mxfp8", Mxfp8OfCompressedTensors()),
    "ModelOpt": ("mxfp8-modelopt", Mxfp8OfModelOpt()),
    "MLX": ("mlx-mxfp8", MLX),
}


def mxfp8(producer: str) -> Encoding:
    """Return MXFP8 as one producer writes it: `compressed-tensors`, `ModelOpt` or `MLX`."""
    from anamnesis.schemes.families.fp8.encode import MXFP8

    name, layout = _MXFP8[producer]
    return Encoding(name, layout, MXFP8[producer])
