"""Values in the place of a stored tensor's, and floats seen as another dtype."""

from __future__ import annotations

from collections.abc import Callable

import anamnesis._core as _core
from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.base.lazy import np
from anamnesis.base.levels import resolve_level
from anamnesis.base.source import DerivedSource, Source
from anamnesis.base.stored import StoredTensor


class ReplacedSource(DerivedSource):
    """The bytes of a tensor whose values come from elsewhere, in a dtype of its own.

    Floats are rounded to it as they are read: to nearest, ties to even, float64 by way of float32.
    Others are of that dtype.
    """

    def __init__(
        self,
        values: Callable[[int, int], StoredTensor],
        dtype: DType,
        n_elements: int,
        instead_of: Source,
    ) -> None:
        super().__init__(like=instead_of)
        self._values = values
        self._dtype = dtype
        self.path = instead_of.path
        self.size = dtype.n_bytes(n_elements)

    def _read_some(self, offset: int, view: memoryview) -> int:
        item = self._dtype.n_bytes(1) or 1  # of packed ones bytes are counted
        first, last = offset // item, -(-(offset + len(view)) // item)
        if self._dtype.kind != "float":
            values = self._values(first, last)
            values.source.read_into(values.offset + offset, view)
        elif (last - first) * item == len(view):
            self.fill(first, last, self._dtype, view)
        else:
            items = memoryview(bytearray((last - first) * item))
            self.fill(first, last, self._dtype, items)
            view[:] = items[offset - first * item :][: len(view)]
        return len(view)

    def fill(self, first: int, last: int, dtype: DType, out: memoryview) -> int:
        """Fill `out` with the floats `first` to `last`, rounded from what they are.

        Returns how many became infinite.
        """
        values = self._values(first, last)
        begin, end = (values.offset + values.dtype.n_bytes(n) for n in (first, last))
        if values.dtype is dtype:
            values.source.read_into(begin, out)
            return 0
        raw = values.source.held(begin, end - begin)
        if raw is None:
            raw = memoryview(values.source.read(begin, end - begin))
        if dtype in OUTPUT_DTYPES.values():
            source, target = _core.FLOATS[values.dtype.name], _core.OUTPUTS[dtype.name]
            return _core.convert(source, target, raw, out, resolve_level())
        np.frombuffer(out, np.float64)[:] = np.frombuffer(raw, values.dtype.numpy())
        return 0
