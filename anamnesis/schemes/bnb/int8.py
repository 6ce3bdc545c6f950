"""LLM.int8(): rows of codes, and one absmax for each."""

from __future__ import annotations

from anamnesis import _core
from anamnesis.base.dtypes import DType
from anamnesis.schemes.core.weight import Band, Bands, Run, Scratch, TiledWeight, cut

__all__ = ["Int8Weight"]

_INT8 = _core.ABSMAX["INT8"]


class Int8Weight(TiledWeight):
    """Rows of codes, and one absmax for each."""

    __slots__ = ()

    @property
    def id(self) -> str:
        """`bnb-int8`."""
        return "bnb-int8"

    @property
    def scheme(self) -> str:
        """`BitsAndBytes INT8`."""
        return "BitsAndBytes INT8"

    @property
    def family(self) -> str:
        """`INT8`."""
        return "INT8"

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut by rows."""
        rows, cols = self.shape
        return cut(rows, cols, n_bytes // dtype.n_bytes(1), step=64)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the band's codes and the absmax of its rows."""
        codes, absmax = self.parts[:2]
        cols = self.shape[1]
        first, phase = divmod(band.start, cols)
        n_rows = (band.stop - 1) // cols + 1 - first
        return _core.dequantize_absmax(
            _INT8,
            _core.OUTPUTS[dtype.name],
            scratch.read(0, codes, band.start, band.stop - band.start),
            out,
            band.stop - band.start,
            b"",
            scratch.read(1, absmax, 4 * first, 4 * n_rows),
            _core.FLOATS["F32"],
            cols,
            phase,
            level,
        )

    @property
    def column_step(self) -> int:
        """Any will do."""
        return 1

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read some codes of each row and the absmax of these rows."""
        codes, absmax = self.parts[:2]
        width = self.shape[1]
        return _core.dequantize_absmax(
            _INT8,
            _core.OUTPUTS[dtype.name],
            scratch.read_rows(0, codes, rows.start * width + cols.start, width, cols.n, rows.n),
            out,
            rows.n * cols.n,
            b"",
            scratch.read(1, absmax, 4 * rows.start, 4 * rows.n),
            _core.FLOATS["F32"],
            cols.n,
            0,
            level,
        )
