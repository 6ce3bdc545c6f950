"""Values made of others one by one, in float32, by named functions.

Sums are torch's to the bit. Of its exp and log the last bit depends on the CPU, for MKL has several
of each, which differ in one to five of a hundred values: here they are rounded once, from float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.levels import resolve_level
from anamnesis.base.source import DerivedSource
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.weight import Scratch, Weight, decode_run

if TYPE_CHECKING:
    Floats = NDArray[np.float32]

_F32 = DTYPES["F32"]
_AT_ONCE = 1 << 16  # values


FUNCTIONS: dict[str, Callable[[Floats], Floats]] = {
    "plus-one": lambda x: x + np.float32(1),
    "minus-one": lambda x: x - np.float32(1),
    "minus-exp": lambda x: -np.exp(x.astype("f8")).astype("f4"),
    "log-of-minus": lambda x: np.log(-x.astype("f8")).astype("f4"),
}


class ValuesSource(DerivedSource):
    """The values of a weight in float32, row-major, decoded as they are read."""

    def __init__(self, weight: Weight, function: str = "") -> None:
        super().__init__(*(part.source for part in weight.parts))
        self._weight = weight
        self._function = function
        self.size = 4 * weight.n_elements

    def _read_some(self, offset: int, view: memoryview) -> int:
        if offset >= self.size:
            return 0
        first, begin = divmod(offset, 4)
        stop = min(-(-(offset + len(view)) // 4), first + _AT_ONCE, self.size // 4)
        values = np.empty(stop - first, np.float32)
        raw = values.view(np.uint8).data
        decode_run(self._weight, Band(first, stop), _F32, Scratch(), raw, resolve_level())
        part = self._made(values).view(np.uint8).data[begin : begin + len(view)]
        view[: len(part)] = part
        return len(part)

    def _made(self, values: Floats) -> Floats:
        if not self._function:
            return values
        with np.errstate(all="ignore"):
            made = FUNCTIONS[self._function](values)
            own = self._weight.own_dtype
            if own is not None and own.name == "F16":
                made = made.astype(np.float16).astype(np.float32)
        return made

    @property
    def way(self) -> str:
        given = [(part.name, part.offset, part.source.way) for part in self._weight.parts]
        return f"{self._function or 'values'} of {self._weight.id} {given}"
