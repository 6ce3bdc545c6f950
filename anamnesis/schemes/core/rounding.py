"""What the library that defines an encoding rounds on the way to its values.

Every weight is decoded in float32, and rounded once. Some libraries compute in a 16-bit dtype
instead, and round scales, products or sums to it. Where that is so, `math="reference"` gives the
library's own bits: its roundings are data, of one row for each encoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import anamnesis._core as _core

if TYPE_CHECKING:
    from anamnesis.base.dtypes import DType
    from anamnesis.schemes.core.weight import Weight

MathName = Literal["float32", "reference"]
MATHS: tuple[MathName, ...] = get_args(MathName)


class Rounding(NamedTuple):
    """One library's way. Scales, zero points and biases are always rounded to its dtype."""

    steps: tuple[str, ...] = ()
    in_output: bool = False

    def dtype(self, scales: DType, target: DType) -> DType | None:
        """Return what is rounded to; None if that is float32, as everything is anyway."""
        dtype = target if self.in_output else scales
        return None if dtype.name == "F32" else dtype

    @property
    def mask(self) -> int:
        """The steps, as the kernels take them."""
        return sum(_core.ROUNDINGS[step] for step in self.steps)


# The library multiplies in the dtype that is asked for. Products of 4 or 8 bits and a 16-bit scale
# are exact in float32, so that nothing but the scale makes a difference.
IN_OUTPUT = Rounding(in_output=True)


def by_math(weight: Weight, math: str, dtype: DType) -> Weight:
    """Return a weight as it is decoded to `dtype` by a math."""
    if math not in MATHS:
        raise ValueError(f"math must be {' or '.join(map(repr, MATHS))}, not {math!r}")
    return weight.by_reference(dtype) if math == "reference" else weight
