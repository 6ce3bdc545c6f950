"""bitsandbytes: NF4 and FP4, plain and double-quantised, and INT8.

    weight              U8, or what it was put into (quant_storage)   ceil(elements / 2) bytes
    weight.absmax       F32 | F16 | BF16, or U8 if double-quantised   one for every `blocksize`
    weight.quant_map    F32 [16]
    weight.nested_absmax, weight.nested_quant_map                     F32, F32 [256]
    weight.quant_state.bitsandbytes__nf4 | fp4                        U8: JSON, the shape among it

    result = round(quant_map[nibble] * absmax), the high nibble of a byte first
    absmax = nested_quant_map[code] * nested_absmax + nested_offset, if double-quantised

    weight I8 [rows, cols], SCB F32 [rows], weight_format U8 (0: rows)

    result = round(float32(code) * SCB * float32(1 / 127))

As its own `dequantize_4bit` and `int8_vectorwise_dequant` have it, product by product in float32.
FP4 has two zeros, and quant_map gives both as +0; the one whose nibble has its high bit set comes
out as -0, as from bitsandbytes' own kernels, so that an encoder can give the same nibbles again.

The shape is that of quant_state. (`dequantize_4bit` itself transposes what is in one byte, [1, 1].)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis import _core, _parse
from anamnesis.base.dtypes import DTYPES, DType, output_dtype
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.levels import resolve_level
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.base import Band, Bands, Run, Scratch, TiledWeight, Weight, convert_part, cut
from anamnesis.schemes.facts import QuantFacts
from anamnesis.schemes.ledger import Claim
from anamnesis.schemes.names import sibling

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from anamnesis.base.dtypes import DTypeLike
    from anamnesis.base.levels import LevelName

__all__ = ["FourBitWeight", "Int8Weight", "Nested", "claim", "dequantize_4bit", "dequantize_int8"]

BNB_MAX_QUANT_STATE = 65_536  # bytes; a real one has fewer than 300

_QUANT_STATE = ".quant_state.bitsandbytes__"
_FOUR_BIT_PARTS = ("absmax", "quant_map")
_NESTED_PARTS = ("nested_absmax", "nested_quant_map")
_CODEBOOK4 = _core.ABSMAX["CODEBOOK4"]
_INT8 = _core.ABSMAX["INT8"]
_STORAGE = ("U8", "I8", "BF16", "F16", "F32", "F64")
_ABSMAX = ("F32", "BF16", "F16")
_KEPT, _VALUES = 6, 7  # slots of a worker's scratch, behind those of the parts
_BETWEEN = 1 << 18  # values, or absmax, recovered at a time of which only some columns are wanted
_VALUES_PER_ABSMAX = 8  # of codes that are read at a time, at most
_WORTH_A_CALL = 1024  # values that are not wanted of a row: as many take as long as a call
_END = 2**63  # of sizes: any larger one is a lie


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
        """For instance `bnb-nf4-64`; with the nested block and offset: `bnb-nf4-64-256-0.05`."""
        nested = f"-{self.nested.block}-{self.nested.offset!r}" if self.nested else ""
        return f"bnb-{self.kind.lower()}-{self.block}{nested}"

    @property
    def scheme(self) -> str:
        """For instance `BitsAndBytes NF4, double-quantised`."""
        return f"BitsAndBytes {self.kind}" + (", double-quantised" if self.nested else "")

    @property
    def family(self) -> str:
        """`NF4` or `FP4`."""
        return self.kind

    def bands(self, target: DType, n_bytes: int) -> Bands:
        """Cut between any two bytes."""
        return cut(1, self.n_elements, n_bytes // target.n_bytes(1), step=2)

    def decode(
        self, band: Band, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the band's nibbles and the absmax that belong to them."""
        codes, _, codebook = self.parts[:3]
        start = band.start // 2
        first, phase = divmod(band.start, self.block)
        absmax, dtype = self._absmax(first, (band.stop - 1) // self.block + 1, scratch)
        return _core.dequantize_absmax(
            _CODEBOOK4,
            _core.OUTPUTS[target.name],
            scratch.read(0, codes, start, (band.stop + 1) // 2 - start),
            out,
            band.stop - band.start,
            scratch.read(2, codebook, 0, codebook.n_bytes),
            absmax,
            _core.FLOATS[dtype],
            self.block,
            phase,
            level,
        )

    @property
    def column_step(self) -> int:
        """A block, if those of each row begin with it."""
        return self.block if self._rows_are_blocks else 1

    @property
    def _rows_are_blocks(self) -> bool:
        return self.shape[1] % self.block == 0 and self.block % 2 == 0

    def decode_tile(
        self, rows: Run, cols: Run, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode whole blocks of some columns; or else row by row, or what is between rows too."""
        width = self.shape[1]
        decode, between = self._decode_between, width
        if self._rows_are_blocks and cols.start % self.block == 0 == cols.n % self.block:
            decode, between = self._decode_blocks, width // self.block
        elif width - cols.n > _WORTH_A_CALL:
            decode, between = self._decode_rows, width // min(self.block, _VALUES_PER_ABSMAX)
        at_once = max(1, _BETWEEN // between)
        overflows = 0
        for start in range(rows.start, rows.stop, at_once):
            some = Run(start, min(start + at_once, rows.stop))
            begin, end = (target.n_bytes((row - rows.start) * cols.n) for row in some)
            overflows += decode(some, cols, target, scratch, out[begin:end], level)
        return overflows

    def _decode_blocks(
        self, rows: Run, cols: Run, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        codes, _, codebook = self.parts[:3]
        stride, per_row = self.shape[1] // 2, self.shape[1] // self.block
        n_blocks = cols.n // self.block
        first = rows.start * per_row + cols.start // self.block
        last = first + (rows.n - 1) * per_row + n_blocks
        absmax, dtype = self._absmax(first, last, scratch)
        item = DTYPES[dtype].n_bytes(1)
        kept = scratch.room(_KEPT, rows.n * n_blocks * item)
        _parse.copy_rows(absmax, 0, per_row * item, n_blocks * item, kept)
        first = rows.start * stride + cols.start // 2
        return _core.dequantize_absmax(
            _CODEBOOK4,
            _core.OUTPUTS[target.name],
            scratch.read_rows(0, codes, first, stride, cols.n // 2, rows.n),
            out,
            rows.n * cols.n,
            scratch.read(2, codebook, 0, codebook.n_bytes),
            kept,
            _core.FLOATS[dtype],
            self.block,
            0,
            level,
        )

    def _decode_rows(
        self, rows: Run, cols: Run, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read all rows at once, and decode of each what is wanted."""
        codes, _, codebook = self.parts[:3]
        width = self.shape[1]
        first, end = rows.start * width + cols.start, (rows.stop - 1) * width + cols.stop
        first -= first % 2  # two to a byte
        first_block = first // self.block
        read = scratch.read(0, codes, first // 2, (end + 1) // 2 - first // 2)
        absmax, dtype = self._absmax(first_block, (end - 1) // self.block + 1, scratch)
        book = scratch.read(2, codebook, 0, codebook.n_bytes)
        item, row_bytes = DTYPES[dtype].n_bytes(1), target.n_bytes(cols.n)
        values = scratch.room(_VALUES, 4 * (1 + cols.n))
        overflows = 0
        for i in range(rows.n):
            start = (rows.start + i) * width + cols.start
            odd = start % 2
            start, stop = start - odd, start + cols.n
            block, phase = divmod(start, self.block)
            place = out[i * row_bytes :][:row_bytes]
            n_infinite = _core.dequantize_absmax(
                _CODEBOOK4,
                _core.OUTPUTS["F32" if odd else target.name],
                read[(start - first) // 2 : (stop - first + 1) // 2],
                values if odd else place,
                stop - start,
                book,
                absmax[(block - first_block) * item :],
                _core.FLOATS[dtype],
                self.block,
                phase,
                level,
            )
            if odd:
                n_infinite = _core.convert(
                    _core.FLOATS["F32"], _core.OUTPUTS[target.name], values[4:], place, level
                )
            overflows += n_infinite
        return overflows

    def _decode_between(
        self, rows: Run, cols: Run, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        width = self.shape[1]
        first, n = rows.start * width + cols.start, (rows.n - 1) * width + cols.n
        odd = first % 2  # two to a byte
        values = scratch.room(_VALUES, 4 * (odd + n))
        self.decode(Band(first - odd, first + n), DTYPES["F32"], scratch, values, level)
        kept = scratch.room(_KEPT, 4 * rows.n * cols.n)
        return convert_part(values, odd, width, cols.n, target, kept, out, level)

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
        _core.recover_absmax(
            absmax,
            recovered,
            scratch.read(4, nested_codebook, 0, nested_codebook.n_bytes),
            scratch.read(3, nested_absmax, 4 * first, 4 * n_nested),
            self.nested.block,
            self.nested.offset,
            phase,
        )
        return recovered, "F32"


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

    def bands(self, target: DType, n_bytes: int) -> Bands:
        """Cut by rows."""
        rows, cols = self.shape
        return cut(rows, cols, n_bytes // target.n_bytes(1), step=64)

    def decode(
        self, band: Band, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the band's codes and the absmax of its rows."""
        codes, absmax = self.parts[:2]
        cols = self.shape[1]
        first, phase = divmod(band.start, cols)
        n_rows = (band.stop - 1) // cols + 1 - first
        return _core.dequantize_absmax(
            _INT8,
            _core.OUTPUTS[target.name],
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
        self, rows: Run, cols: Run, target: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read some codes of each row and the absmax of these rows."""
        codes, absmax = self.parts[:2]
        width = self.shape[1]
        return _core.dequantize_absmax(
            _INT8,
            _core.OUTPUTS[target.name],
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


# --- claiming ---------------------------------------------------------------------------------


class _State(NamedTuple):
    """What a quant_state says."""

    kind: str
    shape: tuple[int, ...]
    block: int
    nested: Nested | None


def claim(claim: Claim, facts: QuantFacts) -> None:
    """Take what has a quant_state or an SCB beside it; no config is asked."""
    for stored in claim.free():
        if claim.find(stored.name) is None:
            continue
        if _QUANT_STATE in stored.name:
            _claim(claim, stored, _four_bit_names(stored.name, claim), _four_bit)
        elif stored.name.rpartition(".")[2] == "SCB":
            _claim(claim, stored, _int8_names(stored.name, claim), _int8)


def _four_bit_names(state: str, claim: Claim) -> list[str]:
    name = state.rpartition(_QUANT_STATE)[0]
    nested = f"{name}.nested_absmax" in claim.stored
    parts = _FOUR_BIT_PARTS + (_NESTED_PARTS if nested else ())
    return [name, *(f"{name}.{part}" for part in parts), state]


def _int8_names(scb: str, claim: Claim) -> list[str]:
    marker = sibling(scb, "weight_format")
    return [sibling(scb, "weight"), scb, *([marker] if marker in claim.stored else ())]


def _claim(
    claim: Claim, key: StoredTensor, names: list[str], make: Callable[[list[StoredTensor]], Weight]
) -> None:
    """Take the weight that these stored tensors make, or refuse those that are there."""
    found = [claim.find(name) for name in names]
    parts = [part for part in found if part is not None]
    try:
        if len(parts) < len(names):
            raise UnsupportedError(
                f"{key.source.name}: {names[found.index(None)]}, which belongs to {key.name}, is "
                "missing, maybe with a shard, or a part of another weight; --allow-unknown passes "
                "the rest through as it is"
            )
        weight = make(parts)
    except AnamnesisError as error:
        claim.refuse([part.name for part in parts], error)
    except ValueError as error:
        problem = ParseError(f"{names[0]}: {error}", offset=key.offset, source=key.source.name)
        claim.refuse([part.name for part in parts], problem)
    else:
        claim.take(weight)


def _four_bit(parts: list[StoredTensor]) -> FourBitWeight:
    """Return the weight of parts that are all there, the quant_state last."""
    state = _read_state(parts[-1])
    nested = len(parts) > 4
    _expect(parts[0], _STORAGE)
    _expect(parts[1], ("U8",) if nested else _ABSMAX)
    for part in parts[2:-1]:
        _expect(part, ("F32",))
    if not nested:
        state = state._replace(nested=None)
    elif state.nested is None:
        raise ValueError("quant_state has no nested_blocksize and nested_offset for nested_absmax")
    _check_four_bit(parts, state)
    kind = state.kind.upper()
    return FourBitWeight(parts[0].name, state.shape, tuple(parts), kind, state.block, state.nested)


def _read_state(stored: StoredTensor) -> _State:
    """Return what the JSON of a quant_state says, its types and ranges checked."""
    if stored.n_bytes > BNB_MAX_QUANT_STATE:
        raise LimitExceeded(
            "BNB_MAX_QUANT_STATE",
            f"{stored.source.name}: {stored.name}: {stored.n_bytes:,} bytes of JSON",
        )
    try:
        told = json.loads(stored.read())
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ValueError("quant_state must hold a JSON object")
    kind, shape = told.get("quant_type"), told.get("shape")
    if not stored.name.endswith(f"{_QUANT_STATE}{kind}") or kind not in ("nf4", "fp4"):
        raise ValueError(f"quant_type {kind!r:.40} is not what {stored.name} is called after")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < _END for n in shape):
        raise ValueError("quant_state must have a shape: a list of sizes")
    nested = None
    if "nested_offset" in told:
        offset = told["nested_offset"]
        if type(offset) is not float and not (type(offset) is int and abs(offset) < _END):
            raise ValueError("nested_offset of quant_state must be a number")
        nested = Nested(_block_size(told, "nested_blocksize"), float(offset))
    return _State(kind, tuple(shape), _block_size(told, "blocksize"), nested)


def _block_size(told: dict[str, Any], key: str) -> int:
    block = told.get(key)
    if type(block) is not int or not 0 < block < _END:
        raise ValueError(f"{key} of quant_state must be a positive whole number")
    return block


def _int8(parts: list[StoredTensor]) -> Int8Weight:
    """Return the weight of its codes, its SCB and maybe its weight_format."""
    codes, scb, *marker = parts
    _expect(codes, ("I8",))
    _expect(scb, ("F32",))
    if marker and (marker[0].n_bytes > 8 or any(marker[0].read())):
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name} is not in rows, as {marker[0].name} says; "
            "bitsandbytes itself no longer reads its other layouts"
        )
    _check_int8(codes, scb)
    return Int8Weight(codes.name, codes.shape, tuple(parts))


def _expect(stored: StoredTensor, dtypes: tuple[str, ...]) -> None:
    if stored.dtype.name not in dtypes:
        raise UnsupportedError(
            f"{stored.source.name}: {stored.name} has dtype {stored.dtype}; "
            f"{' or '.join(dtypes)} is expected"
        )


# --- sizes, for files and for arrays ----------------------------------------------------------


def _check_four_bit(parts: Sequence[StoredTensor], state: _State) -> None:
    """Raise ValueError unless all parts have the size that shape and block sizes ask for."""
    codes, absmax, codebook, *nested = parts
    n = prod(state.shape)
    if codes.n_bytes != (n + 1) // 2:
        raise ValueError(
            f"{codes.name} of {codes.n_bytes:,} bytes does not hold the {n:,} values of 4 bits "
            f"that shape {list(state.shape)} has"
        )
    _check_count(absmax, -(-n // state.block), f"{n:,} values in blocks of {state.block:,}")
    _check_count(codebook, 16, "4-bit codes")
    if state.nested is not None:
        n, block = absmax.n_elements, state.nested.block
        _check_count(nested[0], -(-n // block), f"{n:,} absmax in blocks of {block:,}")
        _check_count(nested[1], 256, "8-bit codes")


def _check_int8(codes: StoredTensor, scb: StoredTensor) -> None:
    if len(codes.shape) != 2:
        raise ValueError(f"{codes.name} of shape {list(codes.shape)} is not a matrix")
    _check_count(scb, codes.shape[0], f"the rows of shape {list(codes.shape)}")


def _check_count(stored: StoredTensor, n: int, of_what: str) -> None:
    if stored.n_elements != n:
        raise ValueError(
            f"{stored.name} of shape {list(stored.shape)} has {stored.n_elements:,} values, but "
            f"{of_what} need {n:,}"
        )


# --- in memory --------------------------------------------------------------------------------


def dequantize_4bit(
    weight: NDArray[Any],
    absmax: ArrayLike,
    quant_map: ArrayLike,
    *,
    shape: tuple[int, ...],
    blocksize: int = 64,
    nested_absmax: ArrayLike | None = None,
    nested_quant_map: ArrayLike | None = None,
    nested_blocksize: int = 256,
    nested_offset: float = 0.0,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the values of NF4 or FP4 codes: codebook entry times absmax, then one rounding.

    Parameters
    ----------
    weight : ndarray of uint8, int8, bfloat16, float16, float32 or float64
        Two codes to a byte, the first in the high nibble; of any shape.
    absmax : array_like of float32, float16 or bfloat16
        The largest magnitude of every `blocksize` values; uint8 codes if there are `nested_absmax`.
    quant_map : array_like of float32
        [16], what the codes stand for.
    shape : tuple of int
        Of the result.
    blocksize : int
        Values that share an absmax; any, though bitsandbytes has powers of two from 32 to 4096.
    nested_absmax : array_like of float32, optional
        The largest magnitude of every `nested_blocksize` of the absmax themselves.
    nested_quant_map : array_like of float32, optional
        [256], what the codes of the absmax stand for; goes with `nested_absmax`.
    nested_blocksize : int
        Absmax that share a nested one.
    nested_offset : float
        Added to each absmax that was recovered so.
    dtype : str, numpy.dtype, scalar type or torch.dtype
        `bf16` (ml_dtypes.bfloat16), `f16` or `f32`.
    out : ndarray, optional
        C-contiguous, of `shape` and of `dtype`; written and returned.
    threads : int, optional
        By default one for each CPU, at most 8 and at most one for each megabyte.
    level : str, optional
        Kernel level, see `anamnesis.base.levels`.

    Returns
    -------
    ndarray
        Of `shape`. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If a dtype is none of those above, or a size no whole number.
    ValueError
        If sizes do not go together, or one of the nested arrays is missing.

    Notes
    -----
    Equal to the bit to bitsandbytes' `functional.dequantize_4bit` on a CPU, whose codebooks are
    those that its files have as quant_map. With another one, an entry that is +0 and whose code has
    its high bit set comes out as -0 all the same.
    """
    from anamnesis.schemes import arrays as memory

    shape = tuple(map(index, shape))
    blocksize, nested_blocksize = index(blocksize), index(nested_blocksize)
    parts = [memory.stored(weight, "weight", _STORAGE)]
    nested = None
    if nested_absmax is None and nested_quant_map is None:
        parts.append(memory.stored(memory.as_scale(absmax), "absmax", _ABSMAX))
    elif nested_absmax is None or nested_quant_map is None:
        raise ValueError("nested_absmax and nested_quant_map go together; one of them is missing")
    else:
        parts.append(memory.stored(memory.as_scale(absmax), "absmax", ("U8",)))
        nested = Nested(nested_blocksize, float(nested_offset))
    for what, values in (
        ("quant_map", quant_map),
        ("nested_absmax", nested_absmax),
        ("nested_quant_map", nested_quant_map),
    ):
        if values is not None:
            parts.append(memory.stored(memory.as_scale(values), what, ("F32",)))
    if not 0 < blocksize < _END or not 0 < nested_blocksize < _END:
        raise ValueError(f"block sizes must be positive, not {blocksize} and {nested_blocksize}")
    if any(n < 0 for n in shape):
        raise ValueError(f"shape must not have negative sizes, got {list(shape)}")
    _check_four_bit(parts, _State("", shape, blocksize, nested))
    built = FourBitWeight("weight", shape, tuple(parts), "4-bit", blocksize, nested)
    return memory.decode(built, output_dtype(dtype), out, threads, resolve_level(level))


def dequantize_int8(
    weight: NDArray[Any],
    scb: ArrayLike,
    *,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the values of LLM.int8() codes: code times row maximum times 1/127, in float32.

    Parameters
    ----------
    weight : ndarray of int8
        Codes, [rows, cols].
    scb : array_like of float32
        The largest magnitude of each row, [rows].
    dtype : str, numpy.dtype, scalar type or torch.dtype
        `bf16` (ml_dtypes.bfloat16), `f16` or `f32`.
    out : ndarray, optional
        C-contiguous, of the same shape and of `dtype`; written and returned.
    threads : int, optional
        By default one for each CPU, at most 8 and at most one for each megabyte.
    level : str, optional
        Kernel level, see `anamnesis.base.levels`.

    Returns
    -------
    ndarray
        [rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If a dtype is none of those above.
    ValueError
        If `weight` is not a matrix, or there is not one of `scb` for each row.

    Notes
    -----
    In float32 equal to the bit to bitsandbytes' `functional.int8_vectorwise_dequant(weight, scb)`;
    then rounded to nearest, ties to even.
    """
    from anamnesis.schemes import arrays as memory

    codes = memory.stored(weight, "weight", ("I8",))
    maxima = memory.stored(memory.as_scale(scb), "scb", ("F32",))
    _check_int8(codes, maxima)
    built = Int8Weight("weight", codes.shape, (codes, maxima))
    return memory.decode(built, output_dtype(dtype), out, threads, resolve_level(level))
