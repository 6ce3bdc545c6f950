"""MLX's affine integers, as `mx.quantize` writes them on a CPU.

    weight U32 [rows, cols * bits / 32], a dense stream of bits
    scales, biases in the weight's dtype [rows, groups]

Of a group, the edge is what is farthest from 0 of its least and its largest value. Its distance
from 0 becomes a whole number of steps of about range / largest code: so 0 has a code, and the
edge has one. All is computed in float32; codes come from scales and biases before these are rounded
to the weight's dtype.

What is decoded need not be encoded to the same codes: the far end of a group may have no code of
its own, and its distance is what the next scale comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.core.encoding import Extent, Repack
from anamnesis.schemes.core.packing import Packing
from anamnesis.schemes.core.weight import Band, Weight
from anamnesis.schemes.ggml.read import GgmlWeight
from anamnesis.schemes.ggml.repack import affine_of_q4_1
from anamnesis.schemes.integers.layouts.mlx import GROUP_SIZES
from anamnesis.schemes.integers.weight import IntegerWeight
from anamnesis.schemes.says.mlx_layers import MlxLayers, mlx_refusal

__all__ = ["WIDTHS", "Affine"]

WIDTHS = (2, 3, 4, 5, 6, 8)


@dataclass(frozen=True)
class Affine(MlxLayers, Packing):
    """Integers of some bits, with a scale and a bias for each group.

    Attributes
    ----------
    group_size : int
        32, 64 or 128.
    bits : int
        2, 3, 4, 5, 6 or 8.
    """

    group_size: int = 64
    bits: int = 4

    rule: ClassVar[str] = "edge"
    group_sizes: ClassVar[tuple[int, ...]] = GROUP_SIZES

    def __post_init__(self) -> None:
        """Check bits and group size.

        Raises
        ------
        ValueError
            If MLX does not know them.
        """
        Packing.__post_init__(self)
        if self.bits not in WIDTHS:
            known = ", ".join(map(str, WIDTHS))
            raise ValueError(f"bits must be one of {known}; got {self.bits}")

    needs_config: ClassVar[bool] = True  # shapes leave bits and groups open

    @property
    def kernel(self) -> str:
        """That of its bits."""
        return f"PACKED{self.bits}"

    @property
    def id(self) -> str:
        """For instance `mlx-4bit`, `mlx-6bit-32`."""
        return f"mlx-{self.bits}bit" + ("" if self.group_size == 64 else f"-{self.group_size}")

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave what mlx-lm's `quantize_model` leaves, as far as names tell."""
        return mlx_refusal(name, shape, dtype) or self._refuses_rows(shape)

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return words of codes, scales and biases."""
        *rows, cols = shape
        grid = (*rows, cols // self.group_size)
        return (
            Part(name, DTYPES["U32"], (*rows, cols * self.bits // 32)),
            Part(sibling(name, "scales"), self.dtype, grid),
            Part(sibling(name, "biases"), self.dtype, grid),
        )

    def repack(self, weight: Weight) -> Repack | None:
        """Return MLX's own codes of these bits as they are, and those of ggml's Q4_1."""
        if isinstance(weight, GgmlWeight) and weight.parts[0].dtype.name == "Q4_1":
            if self.bits != 4:
                return None
            return Repack((replace(self, group_size=32),), affine_of_q4_1(weight))
        if not isinstance(weight, IntegerWeight):
            return None
        if (weight.producer, weight.kernel) != ("MLX", self.kernel):
            return None
        return Repack((replace(self, group_size=weight.block[1]),), weight.parts)

    def grain(self, shape: tuple[int, ...]) -> int:
        """Return whole rows."""
        return shape[-1]

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return what belongs to some rows."""
        n_rows = prod(shape[:-1])
        row_bytes = [part.n_bytes // n_rows for part in self.parts("weight", shape)]
        first, last = band.start // shape[-1], band.stop // shape[-1]
        return tuple([Extent(first * n, (last - first) * n) for n in row_bytes])

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return mlx-lm's section: it quantises the layers that have scales."""
        return {"group_size": self.group_size, "bits": self.bits, "mode": "affine"}

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return words, scales and biases as they are read."""
        block = (1, self.group_size)
        return IntegerWeight(
            name, shape, parts, self.kernel, block, biases=parts[2], producer="MLX"
        )
