"""What GPTQ and AWQ share: integers in 32-bit words, stored [in, out] for a weight [out, in].

    qweight I32  the codes; a word holds several of them, along in or along out features
    qzeros  I32  [groups, out features * bits / 32], a word holds the zero points of several outputs
    scales  F16 | BF16 | F32  [groups, out features]
    g_idx   I32  [in features], the group of each; without it groups are runs of one length

    result[o, i] = round((float32)(code[i, o] - zero[g, o]) * float32(scale[g, o]))

A band is some whole rows of the result, which are some columns of each stored matrix: their bytes
lie in pieces all over the file. So that a piece is longer than what asking for it costs, the parts
are read a stripe at a time, which is the rows of several bands; one thread decodes all of them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from anamnesis import _core
from anamnesis.base.dtypes import DType
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.unread import unread_error
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.sizes import stripe_bytes
from anamnesis.schemes.core.weight import (
    TILE_STEP,
    Band,
    Bands,
    Run,
    Scratch,
    TiledWeight,
    convert_part,
    cut,
)
from anamnesis.schemes.parts.grid import block_candidates

__all__ = [
    "OF_A_FILE",
    "PACKED_MAX_GROUPS",
    "SCALE_DTYPES",
    "PackedWeight",
    "Packing",
    "Parts",
    "check_dtypes",
    "check_layout",
    "find_group_size",
    "gather",
    "refuse_all",
]

PACKED_MAX_GROUPS = 32_768  # that act-order may choose from; a band holds all scales of its rows
SCALE_DTYPES = ("F16", "BF16", "F32")
OF_A_FILE = " (of a file: in the quantization_config of a config.json beside it)"

# Layouts that cannot be decoded yet: as configs call them, and in words.
_FOREIGN_LAYOUTS = {
    "llm-awq": "LLM-AWQ",
    "bitblas": "BitBLAS",
    "qqq": "QQQ",
    "paroquant": "ParoQuant",
    "ipex": "IPEX",
    "fp_quant": "FP-Quant",
}

# Layouts that are decoded, but show in other shapes than those of GPTQ and of AWQ's GEMM.
_SHOWN = frozenset({"marlin", "gemv", "gemv_fast"})

# Those of GPTQ, whose zero points differ by one.
_GPTQ_LAYOUTS = frozenset({"gptq", "gptq_v2", "gptq_p"})

_WORD_DTYPES = ("I32", "U32")
_WORD_BITS = 32
_WORD_BYTES = 4

_BANDS_IN_ONE = 2  # of the usual size: words along rows have 128 of them in a cache line
_TILE_ROWS = _core.TILE_ROWS  # bands of whole rows are a multiple, where they fit

# Slots of a worker's scratch: the parts, in their order, then a tile of the result.
_CODES, _ZEROS, _SCALES, _GROUPS, _TILE, _KEPT = range(6)


class Packing(NamedTuple):
    """How integers lie in words.

    Attributes
    ----------
    kernel : str
        Its name in `_core.PACKINGS`.
    bits : int
    along_rows : bool
        Whether a word of `qweight` holds several rows of the result (AWQ), or several columns.
    planar : bool
        Whether words hold some bits of each value, of 32 values in all.
    """

    kernel: str
    bits: int
    along_rows: bool
    planar: bool = False

    @property
    def step(self) -> int:
        """The fewest values that fill whole words."""
        return _WORD_BITS if self.planar else _WORD_BITS // gcd(_WORD_BITS, self.bits)

    def words(self, n_values: int) -> int:
        """Words that this many values take, the last one partly filled."""
        return -(-n_values * self.bits // _WORD_BITS)


@dataclass(slots=True, eq=False)
class PackedWeight(TiledWeight):
    """`qweight`, `qzeros`, `scales`, and `g_idx` if there is a fourth part.

    Attributes
    ----------
    packing : Packing
    zeros_less_one : bool
        Whether stored zero points are less 1.
    group_size : int or None
        In features that share a scale. With `g_idx` it is a guess, which is compared with every
        stretch of `g_idx` and spares the gathering where it holds; None where there is none.
    producer : str
        Whose way it is, if neither GPTQ's nor AWQ's.
    coding : str
        What the codes were before their words were recoded, if they were.
    """

    packing: Packing
    zeros_less_one: bool
    group_size: int | None
    producer: str = ""
    coding: str = ""

    @property
    def family(self) -> str:
        """`GPTQ` or `AWQ`; of others `INT4`."""
        if self.producer:
            return f"INT{self.packing.bits}"
        return "AWQ" if self.packing.along_rows else "GPTQ"

    @property
    def id(self) -> str:
        """For instance `gptq4-128`, and `gptq4v2-128` where stored zero points need no 1."""
        if self.producer:
            return f"{self.producer.lower()}-{self.coding}-{self.group_size}"
        version = "" if self.zeros_less_one else "v2"
        return f"{self.packing.kernel.lower()}{version}-{self.group_size or 'listed'}"

    @property
    def scheme(self) -> str:
        """For instance `GPTQ 4-bit, groups of 128`; stored zero points that need no 1: `v2`."""
        if self.producer:
            return f"{self.family}, {self._grouping()} ({self.producer})"
        version = " v2" if not (self.packing.along_rows or self.zeros_less_one) else ""
        version = " planar" if self.packing.planar else version
        return f"{self.family}{version} {self.packing.bits}-bit, {self._grouping()}"

    def _grouping(self) -> str:
        if self.n_groups == 1:
            return "one group"
        if self.group_size is None:
            return f"{self.n_groups:,} groups"
        return f"groups of {self.group_size}"

    @property
    def shown(self) -> Shown:
        """The bits, and the groups of a row.

        A `g_idx` proves how many columns there are, and so the bits, which configs may forget.
        """
        rows, cols = self.shape
        bits = self.packing.bits if len(self.parts) <= _GROUPS else 0
        return Shown("int", bits, (rows, cols), (rows, self.n_groups))

    @property
    def n_groups(self) -> int:
        """Rows of `scales`."""
        return self.parts[_SCALES].shape[0]

    @property
    def out_features(self) -> int:
        """Columns of `scales`."""
        return self.parts[_SCALES].shape[1]

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut between rows that start a word, into stripes of bands `_BANDS_IN_ONE` times as large.

        If few rows are too much, into pieces of one row.
        """
        rows, cols = self.shape
        if rows * cols == 0:
            return Bands(rows, cols, 1, 1)
        row_bytes = dtype.n_bytes(cols)
        if self.is_held:
            tiles = max(1, n_bytes // row_bytes // _TILE_ROWS)
            return cut(rows, cols, tiles * _TILE_ROWS * cols)
        per_band, stripe = n_bytes * _BANDS_IN_ONE // row_bytes, self._rows_in_stripe()
        if min(per_band, stripe) >= _TILE_ROWS:
            return Bands(rows, cols, per_band // _TILE_ROWS * _TILE_ROWS, cols, stripe=stripe)
        step = self.packing.step
        if (n := min(per_band, stripe)) >= step:
            return cut(rows, cols, n // step * step * cols)
        # Of all rows of a tile one is kept. It passes through float32, and groups may be short.
        per_column = dtype.n_bytes(1) + self.packing.bits / 8 + self._bytes_of_group() + 4
        piece = int(stripe_bytes() / step / per_column)
        return cut(rows, cols, min(piece, cols - 1), step=_WORD_BITS)

    def _rows_in_stripe(self) -> int:
        """How many rows are read at once: whole tiles, unless there are fewer."""
        rows, cols = self.shape
        per_row = cols * self.packing.bits / 8 + self.n_groups * self._bytes_of_group()
        most = int(stripe_bytes() / per_row)
        if most < _TILE_ROWS:
            return most
        tiles = -(-rows // _TILE_ROWS)
        n_stripes = -(-tiles // (most // _TILE_ROWS))  # of about the same size
        return -(-tiles // n_stripes) * _TILE_ROWS

    def _bytes_of_group(self) -> float:
        return self.parts[_SCALES].dtype.n_bytes(1) + self.packing.bits / 8

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read and decode whole words; keep the rows that are wanted."""
        row, col = divmod(band.start, self.shape[1])
        cols = Run(col, min(self.shape[1], col + band.stop - band.start))
        rows = Run(row, row + (band.stop - band.start) // cols.n)
        whole = self._whole_words(rows)
        if whole == rows:
            return self._decode_rows(rows, cols, dtype.name, scratch, out, level)
        row_bytes = 4 * cols.n
        tile = scratch.room(_TILE, whole.n * row_bytes)
        self._decode_rows(whole, cols, "F32", scratch, tile, level)
        kept = tile[(row - whole.start) * row_bytes :][: rows.n * row_bytes]
        return _core.convert(_core.FLOATS["F32"], _core.OUTPUTS[dtype.name], kept, out, level)

    @property
    def column_step(self) -> int:
        """Columns that fill whole words."""
        return TILE_STEP

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode as many rows at a time as there is room for the scales of."""
        at_once = max(self._rows_in_stripe() // TILE_STEP, 1) * TILE_STEP
        overflows = 0
        for start in range(rows.start, rows.stop, at_once):
            some = Run(start, min(start + at_once, rows.stop))
            begin, end = (dtype.n_bytes((row - rows.start) * cols.n) for row in some)
            overflows += self._decode_tile(some, cols, dtype, scratch, out[begin:end], level)
        return overflows

    def _decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode columns that fill whole words; of others, keep those that are wanted."""
        start, stop = cols.start // TILE_STEP * TILE_STEP, -(-cols.stop // TILE_STEP) * TILE_STEP
        whole = Run(start, min(stop, self.shape[1]))
        if whole == cols:
            return self._decode_rows(rows, cols, dtype.name, scratch, out, level)
        values = scratch.room(_TILE, 4 * rows.n * whole.n)
        self._decode_rows(rows, whole, "F32", scratch, values, level)
        kept = scratch.room(_KEPT, 4 * rows.n * cols.n)
        first = cols.start - whole.start
        return convert_part(values, first, whole.n, cols.n, dtype, kept, out, level)

    def _whole_words(self, rows: Run) -> Run:
        step = self.packing.step
        start, stop = rows.start // step * step, -(-rows.stop // step) * step
        return Run(start, min(stop, self.out_features))

    def _read_with(self, rows: Run, cols: Run, reads_ahead: bool) -> Run:
        """Return the rows that are read with these: a stripe's, or all if that reads nothing."""
        n = self.out_features
        is_tiled = rows.start % _TILE_ROWS == 0 and (rows.n % _TILE_ROWS == 0 or rows.stop == n)
        if cols.n < self.shape[1] or not is_tiled:
            return rows
        if self.is_held:
            return Run(0, n)
        stripe = self._rows_in_stripe()
        if stripe < _TILE_ROWS or not reads_ahead:
            return rows
        start = rows.start // stripe * stripe
        within = Run(start, min(start + stripe, n))
        return within if rows.stop <= within.stop else rows

    def _decode_rows(
        self, rows: Run, cols: Run, out_dtype: str, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Decode out features `rows` by in features `cols`, both from a word's start on."""
        groups, listed = self._groups(cols, scratch)
        within = self._read_with(rows, cols, scratch.reads_ahead)
        try:
            return _core.dequantize_packed(
                _core.PACKINGS[self.packing.kernel],
                _core.OUTPUTS[out_dtype],
                self._read_codes(within, cols, scratch),
                out,
                within.n,
                cols.n,
                self._read_zeros(within, groups, scratch),
                self._read_scales(within, groups, scratch),
                _core.SCALES[self.parts[_SCALES].dtype.name],
                self.zeros_less_one,
                self.group_size or 1,
                cols.start,
                listed,
                level,
                rows.start - within.start,
                rows.n,
            )
        except ValueError:
            self._check_listed(cols, listed)
            raise

    def _groups(self, cols: Run, scratch: Scratch) -> tuple[Run, memoryview]:
        """Return the groups of some columns, and the group of each if they are not simply runs."""
        size = self.group_size
        if len(self.parts) > _GROUPS:
            g_idx = self.parts[_GROUPS]
            listed = scratch.copy(_GROUPS, g_idx, cols.start * _WORD_BYTES, cols.n * _WORD_BYTES)
            if size is None or bytes(listed) != _runs(cols, size):
                return Run(0, self.n_groups), listed
        assert size is not None
        return Run(cols.start // size, (cols.stop - 1) // size + 1), memoryview(b"")

    def _check_listed(self, cols: Run, listed: memoryview) -> None:
        """Raise what names the first index that is no group."""
        for i, (group,) in enumerate(struct.iter_unpack("<i", listed)):
            if not 0 <= group < self.n_groups:
                g_idx = self.parts[_GROUPS]
                raise ParseError(
                    f"{g_idx.name}: in feature {cols.start + i:,} is in group {group:,}, but there "
                    f"are {self.n_groups:,} groups",
                    offset=g_idx.offset + (cols.start + i) * _WORD_BYTES,
                    source=g_idx.source.name,
                )

    def _read_codes(self, rows: Run, cols: Run, scratch: Scratch) -> memoryview:
        packing, qweight = self.packing, self.parts[_CODES]
        lines, across = cols, rows
        if packing.along_rows:
            across = Run(packing.words(rows.start), packing.words(rows.stop))
        else:
            lines = Run(packing.words(cols.start), packing.words(cols.stop))
        return _read_block(scratch, _CODES, qweight, lines, across)

    def _read_zeros(self, rows: Run, groups: Run, scratch: Scratch) -> memoryview:
        across = Run(self.packing.words(rows.start), self.packing.words(rows.stop))
        return _read_block(scratch, _ZEROS, self.parts[_ZEROS], groups, across)

    def _read_scales(self, rows: Run, groups: Run, scratch: Scratch) -> memoryview:
        return _read_block(scratch, _SCALES, self.parts[_SCALES], groups, rows)


def _read_block(
    scratch: Scratch, slot: int, tensor: StoredTensor, lines: Run, across: Run
) -> memoryview:
    """Read items `across` of `lines` of a stored matrix."""
    item = tensor.dtype.n_bytes(1)
    stride = tensor.shape[1] * item
    first = lines.start * stride + across.start * item
    return scratch.read_rows(slot, tensor, first, stride, across.n * item, lines.n)


def _runs(cols: Run, size: int) -> bytes:
    """Return the g_idx of these columns if groups are runs of `size`."""
    pieces = []
    for group in range(cols.start // size, (cols.stop - 1) // size + 1):
        n = min(cols.stop, (group + 1) * size) - max(cols.start, group * size)
        pieces.append(group.to_bytes(_WORD_BYTES, "little", signed=True) * n)
    return b"".join(pieces)


# --- claiming ---------------------------------------------------------------------------------


class Parts(NamedTuple):
    """What is stored under one module's name, in any file."""

    module: str  # with its dot
    qweight: StoredTensor
    qzeros: StoredTensor
    scales: StoredTensor
    g_idx: StoredTensor | None

    @property
    def weight_name(self) -> str:
        """The name of what they make."""
        return f"{self.module}weight"

    @property
    def stored(self) -> tuple[StoredTensor, ...]:
        """Those that are there, in the order of a weight's parts."""
        return tuple(part for part in self[1:] if isinstance(part, StoredTensor))

    def describe(self) -> str:
        """Return all dtypes and shapes, for messages: the first part by its name, then by role."""
        return self.module + ", ".join(
            f"{part.name.removeprefix(self.module)} {part.describe()}" for part in self.stored
        )

    def refusal(self, why: str) -> UnsupportedError:
        """Return an error that names the file, the parts and what is wrong with them."""
        where = f"{self.qweight.source.name}: " if self.qweight.source.name else ""
        return UnsupportedError(f"{where}{self.describe()}: {why}")

    def unread(self, layout: str, facts: QuantFacts) -> UnsupportedError:
        """Return the error for a layout that cannot be decoded yet."""
        where = f"{self.qweight.source.name}: " if self.qweight.source.name else ""
        return unread_error(f"{where}{self.describe()}", layout, facts)

    def mismatch(self, why: str) -> ParseError:
        """Return the error for shapes that contradict each other."""
        at, source = self.qweight.offset, self.qweight.source.name
        return ParseError(f"{self.describe()}: {why}", offset=at, source=source)


def gather(ledger: Ledger, facts: QuantFacts) -> Iterator[Parts]:
    """Yield what is unclaimed and has `qweight`, `qzeros` and `scales` in one module.

    A module with two of the three is refused. (`qweight` alone belongs to other encodings.)
    """
    for qweight in ledger.free():
        module, dot, last = qweight.name.rpartition(".")
        if last != "qweight":
            continue
        module += dot
        names = [f"{module}{part}" for part in ("qzeros", "scales", "g_idx")]
        qzeros, scales, g_idx = (ledger.find(name) for name in names)
        if qzeros is None and scales is None:
            continue
        if qzeros is None or scales is None:
            here, missing = names[:2] if scales is None else names[1::-1]
            found = (part.name for part in (qweight, qzeros, scales, g_idx) if part)
            ledger.refuse(found, _incomplete(qweight, here, missing, facts))
            continue
        parts = Parts(module, qweight, qzeros, scales, g_idx)
        if parts.weight_name in ledger.stored:
            ledger.refuse(
                (part.name for part in parts.stored),
                parts.refusal(f"{parts.weight_name} is stored as well"),
            )
            continue
        yield parts


def _incomplete(
    qweight: StoredTensor, here: str, missing: str, facts: QuantFacts
) -> AnamnesisError:
    """Return the error for a module that lacks zero points or scales."""
    what = f"{qweight.source.name}: {qweight.name} ({qweight.describe()})"
    layout = _foreign_layout(facts)
    if layout is not None:
        return unread_error(what, layout, facts)
    told = f"; the config says {facts.declared}" if facts.declared else ""
    return UnsupportedError(
        f"{what} has {here}, but no {missing}: it may be in another shard, or the layout is one"
        f" without it{told}"
    )


def _foreign_layout(facts: QuantFacts) -> str | None:
    names = (_FOREIGN_LAYOUTS.get(name or "") for name in (facts.layout, facts.method))
    return next(filter(None, names), None)


def check_layout(parts: Parts, facts: QuantFacts) -> None:
    """Refuse what the config says is laid out for the kernels of one library, or in two ways."""
    told = sorted(facts.layouts & _GPTQ_LAYOUTS)
    if len(told) > 1:
        raise parts.refusal(
            f"one config says {told[0]!r}, another {told[1]!r}; correct one of them"
        )
    layout = _foreign_layout(facts)
    if layout is not None:
        raise parts.unread(layout, facts)
    if facts.layout in _SHOWN:
        raise parts.mismatch(f"the config says {facts.layout}, but the shapes do not")


def check_dtypes(parts: Parts) -> None:
    """Refuse words of other widths, and scales that are no plain floats."""
    for part in parts.stored:
        allowed = SCALE_DTYPES if part is parts.scales else _WORD_DTYPES
        if part.dtype.name not in allowed:
            raise parts.refusal(f"{part.name} is {part.dtype}, {' or '.join(allowed)} is expected")
    for part in parts.stored:
        n_dims = 1 if part is parts.g_idx else 2
        if len(part.shape) != n_dims:
            raise parts.refusal(f"{part.name} should have {n_dims} dimensions")


def find_group_size(parts: Parts, in_features: int, declared: Iterable[int]) -> int | None:
    """Return the length of groups that the shapes imply, or of those the one that is declared.

    None where only `g_idx` can tell.

    Raises
    ------
    ParseError
        If no length fits.
    UnsupportedError
        If several fit, and the config does not settle it.
    LimitExceeded
        If `g_idx` has more groups to choose from than `PACKED_MAX_GROUPS`.
    """
    n_groups = parts.scales.shape[0]
    if in_features == 0:
        return 1
    if n_groups == 0:
        raise parts.mismatch("there are no groups")
    told = {in_features if size < 0 else min(size, in_features) for size in declared if size}
    candidates = {size for size in told if -(-in_features // size) == n_groups}
    if not told or parts.g_idx is not None:
        candidates = candidates or block_candidates(in_features, n_groups)
    if parts.g_idx is not None:
        if n_groups > PACKED_MAX_GROUPS:
            raise LimitExceeded("PACKED_MAX_GROUPS", f"{parts.describe()}: {n_groups:,} groups")
        return candidates.pop() if len(candidates) == 1 else None
    if not candidates:
        sizes = " or ".join(f"of {size}" for size in sorted(told)) or "of one length"
        raise parts.mismatch(f"{in_features:,} in features do not make {n_groups:,} groups {sizes}")
    if len(candidates) > 1:
        sizes = " or ".join(str(size) for size in sorted(candidates))
        raise parts.refusal(f"groups may be of {sizes}; say which with group_size{OF_A_FILE}")
    return candidates.pop()


def refuse_all(ledger: Ledger, parts: Parts, error: AnamnesisError) -> None:
    """Refuse a module for `error`."""
    ledger.refuse((part.name for part in parts.stored), error)
