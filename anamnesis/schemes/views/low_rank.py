"""Weights with smooth columns to which a product of two thin matrices is added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import anamnesis._core as _core
from anamnesis.base.dtypes import OUTPUT_DTYPES, DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Run
from anamnesis.schemes.core.seen import Seen
from anamnesis.schemes.core.weight import Scratch, Weight

_F32 = OUTPUT_DTYPES["f32"]
_VALUES, _SMOOTH, _DOWN, _UP = 16, 17, 18, 19  # of a scratch, behind those of what is stored
_AT_ONCE = 1 << 19  # numbers of the thin matrix of columns
_LARGEST = 7.0  # code of an activation
_LEAST = 1e-10


def panels(right: Any) -> Any:
    """Return a matrix in panels of columns, the last of which ends with zeros."""
    rank, n = right.shape
    padded = np.zeros((rank, -(-n // _core.PANEL) * _core.PANEL), np.float32)
    padded[:, :n] = right
    return np.ascontiguousarray(padded.reshape(rank, -1, _core.PANEL).transpose(1, 0, 2)).reshape(
        -1
    )


@dataclass(slots=True, eq=False)
class LowRank(Seen[Weight]):
    """`round(stored[o, i] * factor[i] + (up @ down.T)[o, i])`; the last parts are these three."""

    has_ranges: ClassVar[bool] = True
    way: ClassVar[str] = "low-rank"

    @property
    def scheme(self) -> str:
        return f"{self.stored.scheme}, smooth, rank {self.parts[-1].shape[1]} added"

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return self.stored.bands(_F32, n_bytes)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        rows, cols = band.tile(self.shape[1])
        raw = scratch.room(_VALUES, _F32.n_bytes(rows.n * cols.n))
        overflows = self.stored.decode(band, _F32, scratch, raw)
        values = np.frombuffer(raw, np.float32).reshape(rows.n, cols.n)
        with np.errstate(all="ignore"):
            # What a layer's input of 1 becomes, in 4 bits with a scale of its own.
            smooth = _lines(scratch, _SMOOTH, self.parts[-3], cols)
            inputs = np.float32(1) / smooth.astype(np.float32)
            scales = np.maximum(np.abs(inputs), _LEAST) / _LARGEST
            values *= np.clip(np.rint(inputs / scales), -_LARGEST, _LARGEST) * scales
            values += np.float32(0)  # as sums begin with it
            self._add_product(values, rows, cols, scratch)
        return overflows + scratch.convert(raw, dtype, out)

    def _add_product(self, values: NDArray[Any], rows: Run, cols: Run, scratch: Scratch) -> None:
        down, up = self.parts[-2:]
        rank = up.shape[1]
        left = _lines(scratch, _UP, up, rows).astype(np.float32).reshape(-1, rank)
        of_columns = _lines(scratch, _DOWN, down, Run(0, self.shape[1])).reshape(-1, rank)
        step = max(_AT_ONCE // rank // _core.PANEL, 1) * _core.PANEL
        # So many products are added up before the sum is added to others, as BLAS does it.
        some = -(-rank // 2) if 192 < rank <= 384 else 192
        for first in range(cols.start, cols.stop, step):
            last = min(first + step, cols.stop)
            sums = np.zeros((rows.n, last - first), np.float32)
            for at in range(0, rank, some):
                thin, right = left[:, at : at + some], of_columns[first:last, at : at + some]
                factors = np.ascontiguousarray(thin).reshape(-1), panels(right.T)
                size = (1, last - first, thin.shape[1], 0, scratch.level)
                _core.add_product(sums.reshape(-1), *factors, *size)
            values[:, first - cols.start : last - cols.start] += sums


def _lines(scratch: Scratch, slot: int, part: StoredTensor, some: Run) -> NDArray[Any]:
    """Return some rows of a part; those that were read last are not read again."""
    line = part.n_bytes // part.shape[0]
    raw = scratch.read_rows(slot, part, some.start * line, line, line, some.n)
    return np.frombuffer(raw, part.dtype.numpy())
