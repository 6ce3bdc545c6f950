"""8-bit floats with scales: per tensor, per channel, in blocks, MXFP8, or bare.

    weight F8_E4M3 | F8_E5M2 (FNUZ too)  [..., rows, cols]
    scale  F32 | F16 | BF16 | F8_E8M0    one, [rows], [rows, 1], or [..., grid rows, grid cols]

    result = round(float32(code) * float32(scale))

One multiplication in float32 and one rounding, as DeepSeek's `inference/fp8_cast_bf16.py` and
compressed-tensors' `dequantize` have it. (The latter multiplies in the scale's dtype; a product of
an 8-bit float and a BF16 scale is exact in float32, so that one rounding to BF16 gives its bits.)
The scale always multiplies, also under the name `weight_scale_inv`.

ModelOpt's `FP8QTensor.dequantize` and ComfyUI's `dequantize_per_tensor_fp8` multiply in the dtype
that is asked for, by a scale that is rounded to it first. `math="reference"` gives their bits.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from struct import pack
from typing import ClassVar, NamedTuple, Self

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import AnamnesisError, ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.markers import drop_marker, layer_of
from anamnesis.schemes.claim.names import TABLES, is_auxiliary, sibling
from anamnesis.schemes.claim.unread import refuse_encoding
from anamnesis.schemes.core.rounding import IN_OUTPUT, Rounding
from anamnesis.schemes.core.settings import Shown
from anamnesis.schemes.core.weight import Band, Bands, Run, Scratch, TiledWeight, cut
from anamnesis.schemes.parts.grid import AmbiguousBlock, ScaleGrid, resolve, resolve_even
from anamnesis.schemes.parts.tiles import cropped, is_tiled, untiled
from anamnesis.schemes.says.comfy import MARKER
from anamnesis.schemes.says.torchao import parts_of

__all__ = ["Fp8Weight", "find_all", "plausible_blocks"]

MX_BLOCK = (1, 32)

# Suffixes added to the weight's own name, then last components beside `….weight`.
_SCALE_SUFFIXES = ("_scale_inv", "_scale", "_weight_scale", "_weight_scale_inv")
_COMFY_SCALE = ".scale_weight"  # in its older files
_SCALE_SIBLINGS = ("scale_weight", "qscale_weight", "scale")
_ONES = {"F32": pack("<f", 1.0), "F16": pack("<e", 1.0), "BF16": pack("<f", 1.0)[2:]}
_MARKER = "scaled_fp8"  # ComfyUI: an empty tensor of the weights' dtype, or F32
_LONGEST_MARKER = 2
_COMFY_FORMATS = frozenset(
    {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fn_rowwise", "float8_e4m3fn_blockwise"}
)
_COMFY_ROUNDED = frozenset({"float8_e4m3fn", "float8_e5m2"})  # the others multiply in float32
_COMFY_TILED = "mxfp8"  # scales in tiles, rows and columns of padding

# Methods whose 8-bit floats and scales look like any others, but may be transposed, cut into
# groups, or the rest of what two low-rank factors give: their own settings tell.
_FOREIGN_METHODS = frozenset({"sdnq"})


@dataclass(slots=True, eq=False)
class Fp8Weight(TiledWeight):
    """Codes, with scales if there is a second part, laid out as `grid` says.

    Attributes
    ----------
    grid : ScaleGrid
    reference : Rounding, optional
        What its library rounds in between.
    rounded : DType, optional
        What scales are rounded to first, where that counts.
    """

    grid: ScaleGrid
    reference: Rounding | None = None
    rounded: DType | None = None

    always_as_linear: ClassVar[bool] = False
    has_ranges: ClassVar[bool] = True

    @property
    def id(self) -> str:
        """For instance `fp8-block-128x128`."""
        grid = self.grid
        rounded = f"-in-{self.rounded.name.lower()}" if self.rounded else ""
        return f"fp8-{grid.kind}-{grid.block_rows}x{grid.block_cols}{rounded}"

    @property
    def scheme(self) -> str:
        """For instance `fine-grained FP8 (E4M3), 128x128 blocks`."""
        scale = self.parts[1].dtype if len(self.parts) > 1 else None
        return _describe(self.parts[0].dtype, scale, self.grid)

    @property
    def family(self) -> str:
        """Always `FP8`."""
        return "FP8"

    @property
    def shown(self) -> Shown:
        """The scales of each matrix: experts that have one each are as matrices that do."""
        grid, shape = self.grid, self.shape
        is_each = grid.kind == "channel" and len(shape) > 2 and grid.rows == prod(shape[:-2])
        if len(shape) > 1 and (grid.kind == "tensor" or is_each):
            return Shown("float", 8, (shape[-2], shape[-1]), (1, 1))
        found = (grid.grid_rows, grid.grid_cols)
        is_mx = (grid.block_rows, grid.block_cols) == MX_BLOCK
        return Shown("float", 8, (grid.rows, grid.cols), found, is_mx and self._are_powers)

    @property
    def _are_powers(self) -> bool:
        return len(self.parts) > 1 and _scale_dtype(self.parts[1].dtype).name == "F8_E8M0"

    def by_reference(self, dtype: DType) -> Self:
        """Return it with the roundings of its library, if there are any."""
        if self.reference is None or len(self.parts) < 2:
            return self
        rounded = self.reference.dtype(self.parts[1].dtype, dtype)
        return self if rounded is None else replace(self, rounded=rounded)

    def bands(self, dtype: DType, n_bytes: int) -> Bands:
        """Cut each matrix of the batch by rows."""
        grid = self.grid
        return cut(grid.rows, grid.cols, n_bytes * 8 // dtype.bits, step=64, batch=grid.batch)

    def decode(
        self, band: Band, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read the codes and those rows of the grid that belong to them."""
        grid = self.grid
        codes = scratch.read(0, self.parts[0], band.start, band.stop - band.start)
        matrix, start = divmod(band.start, grid.rows * grid.cols)
        row, col = divmod(start, grid.cols)
        cols = min(grid.cols, band.stop - band.start)
        rows = (band.stop - band.start) // cols
        return self._decode(
            codes, matrix, Run(row, row + rows), Run(col, col + cols), dtype, scratch, out, level
        )

    @property
    def column_step(self) -> int:
        """Any will do."""
        return 1

    def decode_tile(
        self, rows: Run, cols: Run, dtype: DType, scratch: Scratch, out: memoryview, level: int
    ) -> int:
        """Read some codes of each row, and those rows of the grid that belong to them."""
        width = self.shape[1]
        first = rows.start * width + cols.start
        codes = scratch.read_rows(0, self.parts[0], first, width, cols.n, rows.n)
        if self.grid.kind == "tensor":  # one row of values that share their scale
            rows, cols = Run(0, 1), Run(0, rows.n * cols.n)
        return self._decode(codes, 0, rows, cols, dtype, scratch, out, level)

    def _decode(
        self,
        codes: memoryview,
        matrix: int,
        rows: Run,
        cols: Run,
        dtype: DType,
        scratch: Scratch,
        out: memoryview,
        level: int,
    ) -> int:
        """Decode the codes of rows x cols of a matrix of the batch."""
        grid = self.grid
        first_row, row_phase = divmod(rows.start, grid.block_rows)
        first_col, col_phase = divmod(cols.start, grid.block_cols)
        scales, scale_id, stride = _UNSCALED
        if len(self.parts) == 2:
            n_rows = (rows.stop - 1) // grid.block_rows + 1 - first_row
            stride = (cols.stop - 1) // grid.block_cols + 1 - first_col
            item = self.parts[1].dtype.bits // 8
            first = ((matrix * grid.grid_rows + first_row) * grid.grid_cols + first_col) * item
            if n_rows == 1 or stride == grid.grid_cols:
                scales = scratch.read(1, self.parts[1], first, n_rows * stride * item)
            else:
                between = grid.grid_cols * item
                scales = scratch.read_rows(1, self.parts[1], first, between, stride * item, n_rows)
            scale_id = _core.SCALES[_scale_dtype(self.parts[1].dtype).name]
        return _core.dequantize_scaled(
            _core.CODES[self.parts[0].dtype.name],
            _core.OUTPUTS[dtype.name],
            codes,
            out,
            rows.n,
            cols.n,
            scales,
            scale_id,
            stride,
            grid.block_rows,
            grid.block_cols,
            row_phase,
            col_phase,
            level,
            None if self.rounded is None else _core.OUTPUTS[self.rounded.name],
        )


_UNSCALED = (memoryview(b"\x00\x00\x80\x3f"), _core.SCALES["F32"], 1)  # one float32 1.0


@lru_cache(maxsize=1024)  # a model has many weights, but few kinds of them
def _describe(codes: DType, scale: DType | None, grid: ScaleGrid) -> str:
    code = f"({codes.name.removeprefix('F8_')})"
    if scale is None:
        return f"unscaled FP8 {code}"
    if grid.kind != "block":
        return f"per-{grid.kind} FP8 {code}"
    block = (grid.block_rows, grid.block_cols)
    if block == MX_BLOCK and scale.name in ("F8_E8M0", "U8"):
        return f"MXFP8 {code}"
    return f"fine-grained FP8 {code}, {block[0]}x{block[1]} blocks"


def _scale_dtype(stored: DType) -> DType:
    """Return what a scale's bytes mean: the MX formats keep E8M0 codes in U8."""
    return DTYPES["F8_E8M0"] if stored.name == "U8" else stored


# --- claiming ---------------------------------------------------------------------------------


class _Pair(NamedTuple):
    codes: StoredTensor
    scale: StoredTensor | None
    name: str  # of the weight
    reference: Rounding | None = None
    is_even: bool = False  # whether all blocks are whole


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all 8-bit float weights with their scales, and ComfyUI's markers."""
    ambiguous: list[tuple[_Pair, AmbiguousBlock]] = []
    grids: set[ScaleGrid] = set()
    is_comfy = bool(facts.comfy_layers) or any(n.endswith(MARKER) for n in ledger.stored)
    is_marked = any(map(_is_marker, ledger.free())) and any(
        name.endswith(_COMFY_SCALE) for name in ledger.stored
    )
    for codes in ledger.free():
        if _is_marker(codes):
            ledger.drop(codes.name, "marker of scaled 8-bit weights")
            continue
        is_bare = codes.dtype.name in _core.CODES and not is_auxiliary(codes, ledger.stored)
        try:
            wrapped = _as_wrapped(codes, ledger, facts)
            if wrapped is None and not is_bare:
                continue
            pair = wrapped or _pair(codes, ledger, facts)
            if is_comfy:
                pair = _comfy(pair, ledger, facts)
            if is_marked and pair.scale is None and len(codes.shape) == 2 and _is_layer(pair.name):
                raise _unscaled(codes, f"the model is marked as {_MARKER}, and others have one")
            weight = _weight(pair, facts.blocks)
        except AmbiguousBlock as error:
            ambiguous.append((pair, error))
            continue
        except AnamnesisError as error:
            ledger.refuse([codes.name], error)
            continue
        ledger.take(weight)
        grids.add(weight.grid)
    if grids:
        _drop_ones(ledger)
    settled = frozenset((g.block_rows, g.block_cols) for g in grids if g.shows_block)
    for pair, ambiguity in ambiguous:
        _settle(pair, ambiguity, settled, ledger)


def _is_marker(stored: StoredTensor) -> bool:
    return stored.name.endswith(_MARKER) and (
        stored.name.rpartition(".")[2] == _MARKER and stored.n_elements <= _LONGEST_MARKER
    )


def _drop_ones(ledger: Ledger) -> None:
    """Drop the scales of 1 that ComfyUI's older files have beside plain weights."""
    for scale in ledger.free():
        if scale.name.rpartition(".")[2] != "scale_weight" or scale.n_elements != 1:
            continue
        weight = ledger.find(sibling(scale.name, "weight"))
        is_plain = weight is not None and weight.dtype.kind == "float"
        if is_plain and scale.read() == _ONES.get(scale.dtype.name):
            ledger.drop(scale.name, "scale of 1 of a weight that is not quantised")


def _pair(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> _Pair:
    """Find the scale of a weight, in whichever file it lies.

    A second one would be left over, which stops the run.
    """
    if facts.method in _FOREIGN_METHODS:
        raise refuse_encoding(codes, "FP8 (SDNQ)", facts)
    scale = _scale_of(codes.name, ledger)
    if scale is None and facts.declares_scaled_fp8:
        raise _unscaled(codes, f"the config says {facts.method}")
    is_comfy = scale is not None and scale.name.endswith(_COMFY_SCALE)
    is_rounded = is_comfy or (facts.method or "").lower() == "modelopt"
    return _Pair(codes, scale, codes.name, IN_OUTPUT if is_rounded else None)


def _is_layer(name: str) -> bool:
    """Tell whether a name is of the matrix of a layer: tables may be in 8 bits without a scale."""
    module, _, last = name.rpartition(".")
    return last == "weight" and module.rpartition(".")[2] not in TABLES


def _unscaled(codes: StoredTensor, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"{codes.source.name}: {codes.name} ({codes.describe()}) has no scale, but {why}: the "
        "scale may be in another shard; pass the directory",
        remedy="allow_unknown=True passes the codes through as they are",
    )


def _torchao(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> _Pair | None:
    """Float8Tensor, and MXTensor of 8-bit floats, whose scales may be in tiles."""
    parts = parts_of(codes.name, facts)
    if parts is None or not parts.is_one_of("Float8Tensor", "PrototypeFloat8Tensor", "MXTensor"):
        return None
    scale = ledger.find(f"{parts.prefix}scale")
    if scale is None or scale.dtype.kind == "int":
        return None
    if scale.dtype.name == "F8_E8M0" and len(codes.shape) > 1:
        rows, groups = prod(codes.shape[:-1]), -(-codes.shape[-1] // MX_BLOCK[1])
        grid = (*codes.shape[:-1], groups)
        is_whole = scale.shape == grid
        if not is_whole and (parts.kind == "MXTensor" or is_tiled(scale, rows, groups)):
            scale = untiled(scale, rows, groups, ledger.strips)._replace(shape=grid)
    parts.check_blocks(codes, scale)
    parts.drop_activation_scales(ledger)
    return _Pair(codes, scale, parts.weight, is_even=True)


def _as_wrapped(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> _Pair | None:
    """Return codes and scale of those who keep them under names of their own, or in words."""
    head, _, last = codes.name.rpartition(".")
    if last.endswith("_qdata") and codes.dtype.name in _core.CODES:
        return _torchao(codes, ledger, facts)
    if last == "_data" and head.endswith(".weight") and codes.dtype.name in _core.CODES:  # quanto
        scale = ledger.find(f"{head}._scale")
        if scale is not None and scale.n_elements not in (1, *codes.shape[:1]):
            raise ParseError(
                f"{scale.name} ({scale.describe()}) has no scale for each row of {codes.name} "
                f"({codes.describe()})",
                offset=scale.offset,
                source=scale.source.name,
            )
        return _Pair(codes, scale, head) if scale is not None else None
    if last == "weight" and codes.dtype.name == "U32" and len(codes.shape) > 1:  # MLX, mode mxfp8
        scale = ledger.find(f"{head}.scales")
        shape = (*codes.shape[:-1], 4 * codes.shape[-1])
        grid = (*shape[:-1], shape[-1] // MX_BLOCK[1])
        if scale is not None and scale.dtype.name == "U8" and scale.shape == grid:
            as_bytes = codes._replace(dtype=DTYPES["F8_E4M3"], shape=shape)
            return _Pair(as_bytes, scale, codes.name)
    return None


def _scale_of(name: str, ledger: Ledger) -> StoredTensor | None:
    """Return the first scale that stands under a name that fits; no two weights share one."""
    for suffix in _SCALE_SUFFIXES:
        scale = ledger.find(name + suffix)
        # `x_weight_scale` is that of `x_weight`, and of `x` only where there is none.
        if scale and not (suffix.startswith("_weight") and f"{name}_weight" in ledger.stored):
            return scale
    head, dot, last = name.rpartition(".")
    if last == "weight":
        for other in _SCALE_SIBLINGS:
            scale = ledger.find(head + dot + other)
            if scale:
                return scale
    return None


def _comfy(pair: _Pair, ledger: Ledger, facts: QuantFacts) -> _Pair:
    """Return the pair of a ComfyUI layer without tiles and padding, and drop its marker."""
    codes, scale, name = pair[:3]
    layer = layer_of(codes.name, ledger, facts.comfy_layers)
    if layer is None:
        return pair
    if layer.format not in _COMFY_FORMATS and layer.format != _COMFY_TILED:
        raise refuse_encoding(codes, f"{layer.format} (ComfyUI)", facts)
    if scale is None:
        raise _unscaled(codes, f"ComfyUI's marker says {layer.format}")
    if layer.format == _COMFY_TILED and len(codes.shape) == 2:
        rows, cols = codes.shape
        kept = layer.shape or codes.shape
        if kept[0] > rows or kept[1] > cols:
            raise ParseError(
                f"{codes.name} ({codes.describe()}) is smaller than its orig_shape {list(kept)}",
                offset=codes.offset,
                source=codes.source.name,
            )
        grid = untiled(scale, rows, -(-cols // MX_BLOCK[1]), ledger.strips)
        pair = _Pair(
            cropped(codes, kept[0], kept[1], ledger.strips),
            cropped(grid, kept[0], -(-kept[1] // MX_BLOCK[1]), ledger.strips),
            name,
        )
    drop_marker(codes.name, ledger)
    return pair._replace(reference=IN_OUTPUT if layer.format in _COMFY_ROUNDED else None)


def _weight(pair: _Pair, blocks: frozenset[tuple[int, int]]) -> Fp8Weight:
    codes, scale, name, reference, is_even = pair
    if scale is None:
        return Fp8Weight(name, codes.shape, (codes,), resolve(codes.shape, (1,)))
    if _scale_dtype(scale.dtype).name not in _core.SCALES:
        raise UnsupportedError(
            f"{scale.source.name}: scale {scale.name} of {codes.name} has dtype {scale.dtype}; "
            f"one of {', '.join(_core.SCALES)} is expected"
        )
    try:
        if is_even and codes.n_elements:
            grid = resolve_even(codes.shape, scale.shape)
        else:
            grid = resolve(codes.shape, scale.shape, plausible_blocks(codes, scale, blocks))
    except AmbiguousBlock:
        raise
    except ValueError as error:
        raise ParseError(
            f"scale {scale.name} of {codes.name}: {error}",
            offset=scale.offset,
            source=scale.source.name,
        ) from None
    if scale.dtype.name == "U8" and (grid.block_rows > 1 or grid.block_cols > MX_BLOCK[1]):
        raise UnsupportedError(
            f"{scale.source.name}: scale {scale.name} ({scale.describe()}) of {codes.name} "
            f"({codes.describe()}) is U8, but not one per 32 values as in MXFP8"
        )
    if _scale_dtype(scale.dtype).name == "F8_E8M0":
        reference = None  # nobody rounds powers of two
    return Fp8Weight(name, codes.shape, (codes, scale), grid, reference)


def plausible_blocks(
    codes: StoredTensor, scale: StoredTensor, blocks: frozenset[tuple[int, int]]
) -> frozenset[tuple[int, int]]:
    """Return the block sizes to choose from: a power-of-two scale may be an MX one in any model."""
    if scale.dtype.name == "U8":
        return frozenset({MX_BLOCK})
    if scale.dtype.name == "F8_E8M0" and codes.shape:
        mx_shape = (*codes.shape[:-1], -(-codes.shape[-1] // MX_BLOCK[1]))
        if scale.shape == mx_shape:
            return frozenset({MX_BLOCK})
    return blocks


def _settle(
    pair: _Pair, ambiguity: AmbiguousBlock, settled: frozenset[tuple[int, int]], ledger: Ledger
) -> None:
    """Use the one block size that the model's other weights have, if it fits."""
    assert pair.scale is not None
    with suppress(ValueError):
        if settled:
            grid = resolve(pair.codes.shape, pair.scale.shape, settled)
            parts = (pair.codes, pair.scale)
            ledger.take(Fp8Weight(pair.name, pair.codes.shape, parts, grid, pair.reference))
            return
    error = UnsupportedError(
        f"{pair.codes.source.name}: {pair.codes.name}: {ambiguity}",
        remedy="say which with block_size=..., or with weight_block_size in config.json",
    )
    ledger.refuse([pair.codes.name, pair.scale.name], error)
