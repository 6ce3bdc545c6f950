"""8-bit floats with scales in a grid, or bare.

    result = round(float32(code) * float32(scale))

One multiplication in float32 and one rounding, as DeepSeek's `inference/fp8_cast_bf16.py` and
compressed-tensors' `dequantize` have it. (The latter multiplies in the scale's dtype; a product of
an 8-bit float and a BF16 scale is exact in float32, so that one rounding to BF16 gives its bits.)
The scale always multiplies, also under the name `weight_scale_inv`.

ModelOpt's `FP8QTensor.dequantize` and ComfyUI's `dequantize_per_tensor_fp8` multiply in the dtype
that is asked for, by a scale that is rounded to it first. `math="reference"` gives their bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import ClassVar, Self

from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.views.grid import MX_BLOCK, ScaleGrid
from anamnesis.schemes.views.kinds import Floats
from anamnesis.schemes.views.scaled import Scaled, scale_dtype


@dataclass(slots=True, eq=False)
class Fp8Weight(Scaled):
    """Codes, with scales if there is a second part."""

    reference: Rounding | None = None

    always_as_linear: ClassVar[bool] = False
    family: ClassVar[str] = "FP8"

    @property
    def id(self) -> str:
        grid = self.grid
        rounded = f"-in-{self.rounded.name.lower()}" if self.rounded else ""
        return f"fp8-{grid.kind}-{grid.block_rows}x{grid.block_cols}{rounded}"

    @property
    def scheme(self) -> str:
        scale = self.parts[1].dtype if len(self.parts) > 1 else None
        return _describe(self.parts[0].dtype, scale, self.grid)

    @property
    def shown(self) -> Shown:
        scale = self.parts[1].dtype if len(self.parts) > 1 else None
        return _shown(self.shape, scale, self.grid)

    def by_reference(self, dtype: DType) -> Self:
        if self.reference is None or len(self.parts) < 2:
            return self
        rounded = self.reference.dtype(self.parts[1].dtype, dtype)
        return self if rounded is None else replace(self, rounded=rounded)

    def seen_as(self, kind: type) -> Floats | None:
        if kind is not Floats:
            return None
        codes = self.codes._replace(shape=self.shape)
        scales = self.scales
        if scales is not None:
            scales = scales._replace(dtype=scale_dtype(scales.dtype))
        return Floats(self.name, self.shape, codes.dtype.name, codes, scales, self.grid)


@lru_cache(maxsize=1024)  # a model has many weights, but few kinds of them
def _shown(shape: tuple[int, ...], scale: DType | None, grid: ScaleGrid) -> Shown:
    is_each = grid.kind == "channel" and len(shape) > 2 and grid.rows == prod(shape[:-2])
    if len(shape) > 1 and (grid.kind == "tensor" or is_each):
        return Shown("float", 8, (shape[-2], shape[-1]), (1, 1))
    is_power = scale is not None and scale_dtype(scale).name == "F8_E8M0"
    is_mx = grid[-2:] == MX_BLOCK and is_power
    return Shown("float", 8, (grid.rows, grid.cols), (grid.grid_rows, grid.grid_cols), is_mx)


@lru_cache(maxsize=1024)
def _describe(codes: DType, scale: DType | None, grid: ScaleGrid) -> str:
    code = f"({codes.name.removeprefix('F8_')})"
    if scale is None:
        return f"unscaled FP8 {code}"
    if grid.kind != "block":
        return f"per-{grid.kind} FP8 {code}"
    block = (grid.block_rows, grid.block_cols)
    if block == MX_BLOCK and scale_dtype(scale).name == "F8_E8M0":
        return f"MXFP8 {code}"
    return f"fine-grained FP8 {code}, {block[0]}x{block[1]} blocks"
