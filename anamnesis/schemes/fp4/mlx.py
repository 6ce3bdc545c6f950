"""MLX's floats with a small scale for each group of a row, as `mx.quantize` writes them on a CPU.

    weight U32 [..., rows, words], codes of four or eight bits, the first in the lowest bits
    scales U8  [..., rows, groups]: E8M0 for each 32 (mxfp4, mxfp8), E4M3 for each 16 (nvfp4)

Scales come from numbers rounded to the weight's own dtype, and 4-bit codes are those of the first
of the nearest numbers. Its `nvfp4` has no second scale, so that a group whose largest magnitude is
below 0.006 becomes zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.core.encoding import Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.fp4.encode import GroupFloats
from anamnesis.schemes.fp4.formats import FORMATS
from anamnesis.schemes.parts.views import retyped
from anamnesis.schemes.says.mlx_layers import MlxLayers, mlx_refusal

__all__ = ["MlxFloats"]


@dataclass(frozen=True)
class MlxFloats(MlxLayers, GroupFloats):
    """The modes `mxfp4`, `nvfp4` and `mxfp8` of MLX."""

    flavour: str = "MLX"

    @property
    def unencodable(self) -> str:
        """What no code is for: MLX has no defined exponent below that of its scales either."""
        what = "an infinity or a NaN is in it"
        if self.kind == "NVFP4":
            return what
        most = "448" if self.kind == "MXFP8" else "6"
        return f"{what}, or a group whose largest magnitude, divided by {most}, is below 2^-127"

    @property
    def mode(self) -> str:
        """As MLX calls it."""
        return self.kind.lower()

    @property
    def id(self) -> str:
        """`mlx-mxfp4`, `mlx-nvfp4` or `mlx-mxfp8`."""
        return f"mlx-{self.mode}"

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave what mlx-lm's `quantize_model` leaves, as far as names tell."""
        why = mlx_refusal(name, shape, dtype)
        if why is None and shape[-1] % self.group:
            return f"rows are not in whole groups of {self.group}"
        return why

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return words of codes, and scales."""
        words = shape[-1] // (8 if self.is_4bit else 4)
        return (
            Part(name, DTYPES["U32"], (*shape[:-1], words)),
            Part(sibling(name, "scales"), DTYPES["U8"], (*shape[:-1], shape[-1] // self.group)),
        )

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return mlx-lm's section: it quantises the layers that have scales."""
        return {"group_size": self.group, "bits": 4 if self.is_4bit else 8, "mode": self.mode}

    def repack(self, weight: Weight) -> Repack | None:
        """Return the codes of such floats in this layout."""
        from anamnesis.schemes.fp4 import layouts

        return layouts.repack(weight, self, layouts.LAYOUTS[self.id])

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and scales as they are read."""
        codes, scales = parts
        per_byte = 2 if self.is_4bit else 1
        bytes_of = (*shape[:-1], shape[-1] // per_byte)
        if self.is_4bit:
            from anamnesis.schemes.fp4.weight import Fp4Weight

            form = FORMATS[self._way.format]
            as_bytes = retyped(codes, codes.name, "U8", bytes_of)
            return Fp4Weight(name, shape, (as_bytes, scales), form, self.group, shape[-1])
        from anamnesis.schemes.fp8.weight import Fp8Weight
        from anamnesis.schemes.parts.grid import ScaleGrid

        rows, cols = shape[-2:]
        grid = ScaleGrid("block", prod(shape[:-2]), rows, cols, 1, self.group)
        as_bytes = retyped(codes, codes.name, "F8_E4M3", bytes_of)
        return Fp8Weight(name, shape, (as_bytes, scales), grid)
