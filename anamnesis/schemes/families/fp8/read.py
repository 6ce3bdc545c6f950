"""Which stored tensors are 8-bit floats, and which scales belong to them.

    weight F8_E4M3 | F8_E5M2 (FNUZ too)     [..., rows, cols]
    scale  F64 | F32 | F16 | BF16 | F8_E8M0 one, [rows], [rows, 1], or [..., grid rows, grid cols]

Codes without any scale are the values themselves.
"""

from __future__ import annotations

from contextlib import suppress
from struct import pack
from typing import NamedTuple

import anamnesis._core as _core
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.rounding import IN_OUTPUT, Rounding
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.markers import drop_marker, has_markers
from anamnesis.schemes.detect.not_weights import TABLES, is_auxiliary, sibling
from anamnesis.schemes.detect.tiled import kept_shape, tiled_layer, with_tiles
from anamnesis.schemes.detect.unread import refuse_encoding
from anamnesis.schemes.families.fp8 import layouts, mx_layouts
from anamnesis.schemes.families.fp8.weight import Fp8Weight
from anamnesis.schemes.views.grid import MX_BLOCK, AmbiguousBlock, ScaleGrid, resolve, resolve_even
from anamnesis.schemes.views.scaled import scale_dtype
from anamnesis.schemes.views.tiles import cropped, untiled

_ONES = {"F32": pack("<f", 1.0), "F16": pack("<e", 1.0), "BF16": pack("<f", 1.0)[2:]}
_MARKER = "scaled_fp8"  # ComfyUI: an empty tensor of the weights' dtype, or F32
_OLD_SCALE = "scale_weight"
_DTYPES = frozenset({*_core.CODES, *mx_layouts.MLX.fields[0].dtypes})
_COMFY_FORMATS = frozenset(
    {"float8_e4m3fn", "float8_e5m2", "float8_e4m3fn_rowwise", "float8_e4m3fn_blockwise"}
)
_COMFY_ROUNDED = frozenset({"float8_e4m3fn", "float8_e5m2"})  # the others multiply in float32
_POWERS = ("U8", "F8_E8M0")
_COMFY_TILED = "mxfp8"  # scales in tiles, rows and columns of padding

_Ends = list[tuple[bool, str]]
# Of each name of scales whether it follows the weight's, not the module's, and how it ends.
_SCALE_ENDS: _Ends = [(field.is_suffix, field.name.partition("}")[2]) for field in layouts.SCALES]

# Methods that leave 8-bit floats alone, so that a bare one may be among their weights; of all
# others one without a scale is broken.
_INTEGER_METHODS = frozenset({"bitsandbytes", "gptq", "awq"})
# Methods whose 8-bit floats and scales look like any others, but may be transposed, cut into
# groups, or the rest of what two low-rank factors give: their own settings tell.
_FOREIGN_METHODS = frozenset({"sdnq"})


class Pair(NamedTuple):
    """Codes and their scale."""

    codes: StoredTensor
    scale: StoredTensor | None
    name: str  # of the weight
    reference: Rounding | None = None
    is_even: bool = False  # whether all blocks are whole


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all 8-bit float weights with their scales, and ComfyUI's markers."""
    ambiguous: list[tuple[Pair, AmbiguousBlock]] = []
    facts = with_tiles(ledger, facts)
    grids: list[ScaleGrid] = []
    lasts = tuple(ledger.by_end)
    ends = [end for end in _SCALE_ENDS if any(last.endswith(end[1]) for last in lasts)]
    is_comfy = has_markers(ledger, facts.comfy_layers)
    markers = [one for one in ledger.called(_MARKER) if one.n_elements <= 2]
    is_marked = bool(markers) and _OLD_SCALE in ledger.by_end
    for marker in markers:
        ledger.drop(marker.name, "marker of scaled 8-bit weights")
    for codes in [one for one in ledger.free() if one.dtype.name in _DTYPES]:
        is_bare = codes.dtype.name in _core.CODES and not is_auxiliary(codes, ledger.stored)
        try:
            wrapped = (_quanto if codes.dtype.name in _core.CODES else _mlx)(codes, ledger)
            if wrapped is None and not is_bare:
                continue
            pair = wrapped or _pair(codes, ledger, facts, ends)
            if is_comfy or (pair.scale is not None and pair.scale.dtype.name in _POWERS):
                pair = _comfy(pair, ledger, facts)
            if is_marked and pair.scale is None and len(codes.shape) == 2 and _is_layer(pair.name):
                raise _unscaled(codes, f"the model is marked as {_MARKER}, and others have one")
            weight = weight_of(pair, facts.blocks)
        except AmbiguousBlock as error:
            ambiguous.append((pair, error))
            continue
        except AnamnesisError as error:
            ledger.refuse([codes.name], error)
            continue
        ledger.take(weight)
        grids.append(weight.grid)
    if grids:
        _drop_ones(ledger)
    different = set(grids) if ambiguous else ()
    several = [g for g in different if g.kind == "block" and g.grid_rows > 1 and g.grid_cols > 1]
    settled = frozenset((g.block_rows, g.block_cols) for g in several)  # a lone one: a lower bound
    for pair, ambiguity in ambiguous:
        _settle(pair, ambiguity, settled, ledger)


def _drop_ones(ledger: Ledger) -> None:
    """Drop the scales of 1 that ComfyUI's older files have beside plain weights."""
    for scale in ledger.called(_OLD_SCALE):
        if scale.n_elements != 1:
            continue
        weight = ledger.find(sibling(scale.name, "weight"))
        is_plain = weight is not None and weight.dtype.kind == "float"
        if is_plain and scale.read() == _ONES.get(scale.dtype.name):
            ledger.drop(scale.name, "scale of 1 of a weight that is not quantised")


def _pair(codes: StoredTensor, ledger: Ledger, facts: QuantFacts, ends: _Ends) -> Pair:
    """Find the scale of a weight, in whichever file it lies."""
    # The first that stands under a name that fits; a second one would be left over, which stops the
    # run. No two weights share one.
    if facts.method in _FOREIGN_METHODS:
        raise refuse_encoding(codes, "FP8 (SDNQ)", facts)
    name, scale = codes.name, None
    is_weight = f".{name}".endswith(".weight")
    heads = {True: name, False: name.removesuffix("weight")}
    for is_suffix, end in ends:
        found = ledger.find(heads[is_suffix] + end) if is_weight or is_suffix else None
        # `x_weight_scale` is that of `x_weight`, and of `x` only where there is none.
        if found and not (end.startswith("_weight") and f"{name}_weight" in ledger.stored):
            scale = found
            break
    if scale is None and facts.method is not None and facts.method not in _INTEGER_METHODS:
        raise _unscaled(codes, f"the config says {facts.method}")
    is_rounded = (facts.method or "").lower() == "modelopt"
    if scale is not None and scale.name.endswith(_OLD_SCALE):
        is_rounded = is_rounded or layouts.COMFY_SCALE.weight_of(scale.name) is not None
    return Pair(codes, scale, name, IN_OUTPUT if is_rounded else None)


def _is_layer(name: str) -> bool:
    """Return whether a name is of a layer's matrix: tables may be in 8 bits without a scale."""
    module, _, last = name.rpartition(".")
    return last == "weight" and module.rpartition(".")[2] not in TABLES


def _unscaled(codes: StoredTensor, why: str) -> UnsupportedError:
    return codes.unsupported(
        f"{codes} has no scale, but {why}: the scale may be in another shard; pass the directory",
        remedy="allow_unknown=True passes the codes through as they are",
    )


def _quanto(codes: StoredTensor, ledger: Ledger) -> Pair | None:
    if not codes.name.endswith("._data"):
        return None
    own, beside = layouts.QUANTO
    name = own.weight_of(codes.name)
    scale = None if name is None else ledger.find(beside.named(name))
    if name is None or not name.endswith(".weight") or scale is None:
        return None
    if scale.n_elements not in (1, *codes.shape[:1]):
        raise scale.malformed(f"{scale} has no scale for each row of {codes}")
    return Pair(codes, scale, name)


def _mlx(codes: StoredTensor, ledger: Ledger) -> Pair | None:
    """MLX's mode mxfp8, whose codes are in words."""
    own, beside = mx_layouts.MLX.fields
    if codes.dtype.name not in own.dtypes or len(codes.shape) < 2:
        return None
    name = own.weight_of(codes.name)
    scale = None if name is None else ledger.find(beside.named(name))
    shape = (*codes.shape[:-1], 4 * codes.shape[-1])
    grid = (*shape[:-1], shape[-1] // MX_BLOCK[1])
    if name is None or scale is None or scale.dtype.name not in beside.dtypes:
        return None
    if scale.shape != grid:
        return None
    return Pair(codes._replace(dtype=DTYPES["F8_E4M3"], shape=shape), scale, name)


def _comfy(pair: Pair, ledger: Ledger, facts: QuantFacts) -> Pair:
    """Return the pair of a ComfyUI layer without tiles and padding, and drop its marker."""
    codes, scale, name = pair[:3]
    layer = tiled_layer(codes, ledger, facts)
    if layer is None:
        return pair
    tells = _COMFY_TILED if scale is not None and scale.dtype.name in _POWERS else "float8_e4m3fn"
    format = layer.format or tells
    if format not in _COMFY_FORMATS and format != _COMFY_TILED:
        raise refuse_encoding(codes, f"{layer.format} (ComfyUI)", facts)
    if scale is None:
        raise _unscaled(codes, f"ComfyUI's marker says {format}")
    if format == _COMFY_TILED and len(codes.shape) == 2:
        rows, cols = codes.shape
        kept = kept_shape(codes, layer, rows, cols)
        grid = untiled(scale, rows, -(-cols // MX_BLOCK[1]), ledger.strips)
        pair = Pair(
            cropped(codes, kept[0], kept[1], ledger.strips),
            cropped(grid, kept[0], -(-kept[1] // MX_BLOCK[1]), ledger.strips),
            name,
        )
    drop_marker(codes.name, ledger)
    return pair._replace(reference=IN_OUTPUT if format in _COMFY_ROUNDED else None)


def weight_of(pair: Pair, blocks: frozenset[tuple[int, int]] = frozenset()) -> Fp8Weight:
    """Return the weight of codes and a scale that fit together."""
    codes, scale, name, reference, is_even = pair
    if scale is None:
        return Fp8Weight(name, codes.shape, (codes,), resolve(codes.shape, (1,)))
    kind = scale_dtype(scale.dtype).name
    if kind not in _core.SCALES:
        raise scale.unsupported(
            f"scale {scale.name} of {codes.name} has dtype {scale.dtype}; one of "
            f"{', '.join(_core.SCALES)} is expected"
        )
    try:
        if is_even and codes.n_elements:
            grid = resolve_even(codes.shape, scale.shape)
        else:
            grid = resolve(codes.shape, scale.shape, plausible_blocks(codes, scale, blocks))
    except AmbiguousBlock:
        raise
    except ValueError as error:
        if scale.dtype.name == "U8":
            raise _bytes_of_blocks(scale, codes) from None
        raise scale.malformed(f"scale {scale.name} of {codes.name}: {error}") from None
    if scale.dtype.name == "U8" and (grid.block_rows > 1 or grid.block_cols > MX_BLOCK[1]):
        raise _bytes_of_blocks(scale, codes)
    if kind == "F8_E8M0":
        reference = None  # nobody rounds powers of two
    return Fp8Weight(name, codes.shape, (codes, scale), grid, reference)


def _bytes_of_blocks(scale: StoredTensor, codes: StoredTensor) -> AnamnesisError:
    return scale.unsupported(
        f"scale {scale} of {codes} is U8, but not one for each 32 columns as in MXFP8",
        remedy="if they are powers of two of larger blocks, store them with their dtype, F8_E8M0",
    )


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
    pair: Pair, ambiguity: AmbiguousBlock, settled: frozenset[tuple[int, int]], ledger: Ledger
) -> None:
    """Use the one block size that the model's other weights have, if it fits."""
    assert pair.scale is not None
    with suppress(ValueError):
        if settled:
            grid = resolve(pair.codes.shape, pair.scale.shape, settled)
            parts = (pair.codes, pair.scale)
            ledger.take(Fp8Weight(pair.name, pair.codes.shape, parts, grid, pair.reference))
            return
    error = pair.codes.unsupported(
        f"{pair.codes.name}: {ambiguity}",
        remedy="say which with block_size=..., or with weight_block_size in config.json",
    )
    ledger.refuse([pair.codes.name, pair.scale.name], error)
