"""Integers of up to 8 bits, one to a byte, and their scales.

    weight I8 [..., rows, cols]
    weight_scale F32 | F16 | BF16: one, [rows], [rows, 1], or a grid of blocks
    weight_zero_point I8 of the scales' shape, if any

compressed-tensors, ModelOpt, Quark and ComfyUI have these names; quanto (qint8) has others, and so
has torchao, in `torchao.py`. One multiplication and one rounding, as each of them has it; but
ModelOpt's `from_quantized_weight` first rounds the scale to the dtype that is asked for.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod
from typing import NamedTuple

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field, missing, stored_parts
from anamnesis.schemes.core.rounding import IN_OUTPUT, Rounding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.markers import drop_marker, layer_of
from anamnesis.schemes.detect.unread import refuse_encoding
from anamnesis.schemes.families.integers.checks import check_scale_dtype
from anamnesis.schemes.families.integers.layouts import svdquant
from anamnesis.schemes.families.integers.layouts.comfy import find_awq
from anamnesis.schemes.families.integers.layouts.compressed_tensors import IntQuantized
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.views.grid import AmbiguousBlock, resolve


class _Names(NamedTuple):
    """What the parts of a weight are called, and by whom."""

    fields: tuple[Field, ...]
    method: str
    producer: str
    more: tuple[str, ...]
    reference: Rounding | None = None


QUANTO = (
    Field("codes", "{weight}._data", ("I8",)),
    Field("scales", "{weight}._scale"),
    Field("zeros", "{weight}._zeropoint", ("I8",), unless="symmetric"),
)
_MORE = ("weight_g_idx", "weight_global_scale", "weight_scale_2", "bitmask")
_USUAL = _Names(IntQuantized.fields, "compressed-tensors", "", _MORE)
_NAMES = (
    _USUAL,
    _USUAL._replace(method="modelopt", producer="ModelOpt", reference=IN_OUTPUT),
    _USUAL._replace(method="quark", producer="Quark"),
    _Names(QUANTO, "", "quanto", ("weight._shift",)),
)


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    if len(codes.shape) < 2 or codes.n_elements == 0:
        return None
    method = (facts.method or _USUAL.method).lower()
    layer = layer_of(codes.name, ledger, facts.comfy_layers)
    if layer is not None:
        if not codes.name.endswith("weight"):
            return None
        weight: Weight | None
        if layer.format == "awq_w4a16" and len(codes.shape) == 2:
            weight = find_awq(codes, layer, ledger)
        elif layer.format == "svdquant_w4a4":
            weight = svdquant.find(codes, layer, ledger)
        elif layer.format not in ("int8_tensorwise", "int8_blockwise", ""):
            raise refuse_encoding(codes, f"{layer.format} (ComfyUI)", facts)
        else:
            own = {(layer.block, layer.block)} if layer.block else set()
            weight = _find(codes, ledger, _USUAL._replace(producer="ComfyUI"), own)
        if weight is not None:
            drop_marker(codes.name, ledger)
        return weight
    blocks = {*facts.blocks, *((1, n) for n in facts.group_sizes if n > 0)}
    for names in _NAMES:
        name = names.fields[0].weight_of(codes.name) if names.method in ("", method) else None
        if name is not None and f".{name}".endswith(".weight"):
            return _find(codes, ledger, names, blocks)
    return None


def _find(
    codes: StoredTensor, ledger: Ledger, names: _Names, blocks: Collection[tuple[int, int]]
) -> IntegerWeight | None:
    name = names.fields[0].weight_of(codes.name) or ""
    head, found = name.removesuffix("weight"), stored_parts(names.fields, name, ledger.find)
    if missing(names.fields, found) or any(head + end in ledger.stored for end in names.more):
        return None
    scale, zeros = found["scales"], found.get("zeros")
    check_scale_dtype(scale, codes)
    if names.fields is QUANTO and scale.n_elements not in (1, codes.shape[0]):
        raise scale.misshapen(f"one, or [{codes.shape[0]}, 1]", codes)
    block = _block(codes, scale, blocks)
    if zeros is not None and (zeros.dtype.name, zeros.shape) != ("I8", scale.shape):
        raise zeros.misshapen(f"I8 {list(scale.shape)}", codes)
    parts = (codes, scale) if zeros is None else (codes, scale, zeros)
    own = name, codes.shape, parts, "INT8", block, zeros
    return IntegerWeight(*own, producer=names.producer, reference=names.reference)


def _block(
    codes: StoredTensor, scale: StoredTensor, given: Collection[tuple[int, int]]
) -> tuple[int, int]:
    """Return rows and columns that share a scale."""
    rows, cols = codes.shape[-2:]
    if scale.n_elements == 1 and prod(codes.shape[:-2]) == 1:
        return rows, cols
    fitting = {b for b in given if (-(-rows // b[0]), -(-cols // b[1])) == scale.shape[-2:]}
    try:
        grid = resolve(codes.shape, scale.shape, frozenset(fitting))
    except AmbiguousBlock as error:
        raise codes.unsupported(f"{codes.name}: {error}; say which") from None
    except ValueError as error:
        raise scale.malformed(f"{codes.name}: {error}") from None
    if grid.kind == "channel" and grid.rows == prod(codes.shape[:-1]):
        return 1, cols
    if grid.kind != "block":
        raise scale.misshapen(f"[{rows}, 1]", codes)
    return grid.block_rows, grid.block_cols
