"""bitsandbytes' weights: nibbles with a codebook, or rows of INT8, and absmax."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import anamnesis._core as _core
import anamnesis._io as _io
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.bands import Band, Bands, Run, cut, places
from anamnesis.schemes.core.layout import unmovable
from anamnesis.schemes.core.weight import DecodedByTiles, Scratch, TiledWeight
from anamnesis.schemes.views.kinds import Integers
from anamnesis.schemes.views.views import made_of

PER_127 = struct.unpack("<f", struct.pack("<f", 1 / 127))[0]  # as a float32

_KEPT, _VALUES = 6, 7  # slots of a worker's scratch, behind those of the parts
_BETWEEN = 1 << 18  # values, or absmax, recovered at a time of which only some columns are wanted
_VALUES_PER_ABSMAX = 8  # of codes that are read at a time, at most
_WORTH_A_CALL = 1024  # values that are not wanted of a row: as many take as long as a call


class Nested(NamedTuple):
    """How the absmax of a double-quantised weight are quantised themselves."""

    block: int
    offset: float


@dataclass(slots=True, eq=False)
class FourBitWeight(TiledWeight):
    """Nibbles, absmax and codebook, and the nested absmax and codebook behind them if `nested`."""

    kind: str
    block: int
    nested: Nested | None

    @property
    def id(self) -> str:
        nested = f"-{self.nested.block}-{self.nested.offset!r}" if self.nested else ""
        return f"bnb-{self.kind.lower()}-{self.block}{nested}"

    @property
    def scheme(self) -> str:
        return f"BitsAndBytes {self.kind}" + (", double-quantised" if self.nested else "")

    @property
    def family(self) -> str:
        return self.kind

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        return cut(1, self.n_elements, n_bytes // dtype.n_bytes(1), step=2)

    def decode(self, band: Band, dtype: DType, scratch: Scratch, out: memoryview) -> int:
        start = band.start // 2
        first, phase = divmod(band.start, self.block)
        codes = scratch.read(0, self.parts[0], start, (band.stop + 1) // 2 - start)
        absmax, kind = self._absmax(first, (band.stop - 1) // self.block + 1, scratch)
        n = band.stop - band.start
        return self._decode_nibbles(codes, n, absmax, kind, phase, dtype, scratch, out)

    def _decode_nibbles(
        self,
        codes: memoryview,
        n: int,
        absmax: memoryview,
        kind: str,
        phase: int,
        dtype: DType,
        scratch: Scratch,
        out: memoryview,
    ) -> int:
        """Decode codes, the first of them `phase` from the beginning of its block."""
        code, output = _core.ABSMAX["CODEBOOK4"], _core.OUTPUTS[dtype.name]
        codebook = scratch.read(2, self.parts[2], 0, self.parts[2].n_bytes)
        scaling = absmax, _core.FLOATS[kind], self.block, phase, scratch.level
        return _core.dequantize_absmax(code, output, codes, out, n, codebook, *scaling)

    @property
    def column_step(self) -> int:
        """A block where each row is of whole ones, which are of whole bytes."""
        return self.block if self.shape[1] % self.block == 0 == self.block % 2 else 1

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        """Decode whole blocks of some columns; or else row by row, or what is between rows too."""
        width = self.shape[1]
        decode, between = self._decode_between, width
        is_of_blocks = cols.start % self.block == 0 == cols.n % self.block
        if is_of_blocks and self.column_step > 1:
            decode, between = self._decode_blocks, width // self.block
        elif width - cols.n > _WORTH_A_CALL:
            decode, between = self._decode_rows, width // min(self.block, _VALUES_PER_ABSMAX)
        at_once = max(1, _BETWEEN // between)
        overflows = 0
        for some, place in places(rows, at_once, dtype.n_bytes(cols.n), out):
            overflows += decode(some, cols, dtype, scratch, place)
        return overflows

    def _decode_blocks(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        stride, per_row = self.shape[1] // 2, self.shape[1] // self.block
        n_blocks = cols.n // self.block
        first = rows.start * per_row + cols.start // self.block
        last = first + (rows.n - 1) * per_row + n_blocks
        absmax, kind = self._absmax(first, last, scratch)
        item = DTYPES[kind].n_bytes(1)
        kept = scratch.room(_KEPT, rows.n * n_blocks * item)
        _io.copy_rows(absmax, 0, per_row * item, n_blocks * item, kept)
        first = rows.start * stride + cols.start // 2
        codes = scratch.read_rows(0, self.parts[0], first, stride, cols.n // 2, rows.n)
        return self._decode_nibbles(codes, rows.n * cols.n, kept, kind, 0, dtype, scratch, out)

    def _decode_rows(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        """Read all rows at once, and decode of each what is wanted."""
        width = self.shape[1]
        first, end = rows.start * width + cols.start, (rows.stop - 1) * width + cols.stop
        first -= first % 2  # two to a byte
        first_block = first // self.block
        read = scratch.read(0, self.parts[0], first // 2, (end + 1) // 2 - first // 2)
        absmax, kind = self._absmax(first_block, (end - 1) // self.block + 1, scratch)
        item, row_bytes = DTYPES[kind].n_bytes(1), dtype.n_bytes(cols.n)
        values = scratch.room(_VALUES, 4 * (1 + cols.n))
        overflows = 0
        for i in range(rows.n):
            start = (rows.start + i) * width + cols.start
            odd = start % 2
            start, stop = start - odd, start + cols.n
            block, phase = divmod(start, self.block)
            place = out[i * row_bytes :][:row_bytes]
            codes = read[(start - first) // 2 : (stop - first + 1) // 2]
            own = absmax[(block - first_block) * item :]
            made, into = (DTYPES["F32"], values) if odd else (dtype, place)
            n_infinite = self._decode_nibbles(
                codes, stop - start, own, kind, phase, made, scratch, into
            )
            if odd:
                n_infinite = scratch.convert(values[4:], dtype, place)
            overflows += n_infinite
        return overflows

    def _decode_between(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        width = self.shape[1]
        first, n = rows.start * width + cols.start, (rows.n - 1) * width + cols.n
        odd = first % 2  # two to a byte
        values = scratch.room(_VALUES, 4 * (odd + n))
        self.decode(Band(first - odd, first + n), DTYPES["F32"], scratch, values)
        return scratch.convert_columns(values, odd, width, cols.n, dtype, out)

    def _absmax(self, start: int, stop: int, scratch: Scratch) -> tuple[memoryview, str]:
        """Return the absmax from `start` to `stop` and their dtype."""
        stored = self.parts[1]
        n_bytes = stored.dtype.n_bytes(stop - start)
        absmax = scratch.read(1, stored, stored.dtype.n_bytes(start), n_bytes)
        if self.nested is None:
            return absmax, stored.dtype.name
        nested_absmax, nested_codebook = self.parts[3:5]
        first, phase = divmod(start, self.nested.block)
        n_nested = (stop - 1) // self.nested.block + 1 - first
        recovered = scratch.room(5, 4 * (stop - start))
        codebook = scratch.read(4, nested_codebook, 0, nested_codebook.n_bytes)
        own = scratch.read(3, nested_absmax, 4 * first, 4 * n_nested)
        _core.recover_absmax(absmax, recovered, codebook, own, *self.nested, phase)
        return recovered, "F32"


def recovered_absmax(weight: FourBitWeight) -> StoredTensor:
    """Return the absmax of a double-quantised weight as float32."""
    codes, nested = weight.parts[1], weight.nested
    assert nested is not None
    n_blocks, rest = divmod(codes.n_elements, nested.block)
    if rest:
        why = f"its {codes.n_elements:,} absmax are not of whole blocks of {nested.block}"
        raise unmovable(weight.parts[0], weight.name, weight.shape, why)
    codebook = weight.parts[4].read()

    def recovered(units: range, codes: NDArray[Any], absmax: NDArray[Any]) -> NDArray[Any]:
        made = np.empty(codes.size, "<f4")
        given = (codebook, absmax.reshape(-1), nested.block, nested.offset, 0)
        _core.recover_absmax(codes.reshape(-1), made.view(np.uint8), *given)
        return made.view(np.uint8).reshape(len(units), -1)

    part = Part(codes.name, DTYPES["F32"], (codes.n_elements,))
    return made_of(part, [codes, weight.parts[3]], n_blocks, recovered)


class Int8Weight(DecodedByTiles):
    """Rows of codes, and one absmax for each."""

    __slots__ = ()

    id: ClassVar[str] = "bnb-int8"
    scheme: ClassVar[str] = "BitsAndBytes INT8"
    family: ClassVar[str] = "INT8"
    column_step: ClassVar[int] = 1

    def seen_as(self, kind: type) -> Integers | None:
        """Return codes, and SCB as scales whose products are divided by 127."""
        if kind is not Integers:
            return None
        codes, absmax = self.parts[:2]
        scales = absmax._replace(shape=(self.shape[0], 1))
        unsigned = made_of(
            *(Part(codes.name, DTYPES["U8"], self.shape), [codes], codes.n_bytes),
            lambda _, lines: lines ^ 128,
        )
        return Integers(
            *(self.name, self.shape, 8, unsigned, self.shape[1], scales, 128),
            unit=PER_127,
            signed=codes,
        )

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        rows, cols = self.shape
        return cut(rows, cols, n_bytes // dtype.n_bytes(1), step=64)

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview
    ) -> int:
        codes, absmax = self.parts[:2]
        read, n = scratch.read_tile(0, codes, rows, cols), rows.n * cols.n
        of_rows = scratch.read(1, absmax, 4 * rows.start, 4 * rows.n), _core.FLOATS["F32"], cols.n
        code, output = _core.ABSMAX["INT8"], _core.OUTPUTS[dtype.name]
        return _core.dequantize_absmax(code, output, read, out, n, b"", *of_rows, 0, scratch.level)
