"""Which stored tensors are parts of a tensor of torchao's classes, and its floats."""

from __future__ import annotations

from math import prod

import anamnesis._core as _core
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Finder, Ledger
from anamnesis.schemes.families.torchao.parts import parts_of, refuse_misdescribed
from anamnesis.schemes.views.grid import MX_BLOCK
from anamnesis.schemes.views.tiles import is_tiled, untiled


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights that torchao stores as several tensors."""
    refuse_misdescribed(ledger, facts)
    ledger.take_found(_FINDERS, facts)


def _float8(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Float8Tensor, and MXTensor of 8-bit floats, whose scales may be in tiles."""
    from anamnesis.schemes.families.fp8.read import Pair, weight_of

    parts = parts_of(codes.name, facts)
    if parts is None or not parts.is_one_of("Float8Tensor", "PrototypeFloat8Tensor", "MXTensor"):
        return None
    scale = ledger.find(f"{parts.prefix}scale")
    if scale is None or scale.dtype.kind == "int":
        return None
    if scale.dtype.name == "F8_E8M0" and len(codes.shape) > 1:
        # Where the file does not say whether scales are in tiles, shapes tell.
        said = parts.described
        size = said.block[0] if len(said.block) == 1 else MX_BLOCK[1]
        rows, groups = prod(codes.shape[:-1]), -(-codes.shape[-1] // size)
        grid, is_mx = (*codes.shape[:-1], groups), said.kind == "MXTensor"
        may_be = scale.shape != grid and (is_mx or is_tiled(scale, rows, groups))
        if said.is_tiled or may_be:
            scale = untiled(scale, rows, groups, ledger.strips)._replace(shape=grid)
    parts.drop_activation_scales(ledger)
    return weight_of(Pair(codes, scale, parts.weight, is_even=True))


def _float4(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """MXTensor of 4-bit floats and NVFP4Tensor, whose scales may be in tiles; their shape tells."""
    from anamnesis.schemes.families.fp4.formats import FORMATS, GROUPS
    from anamnesis.schemes.families.fp4.read import Found

    parts = parts_of(codes.name, facts)
    if parts is None or len(codes.shape) < 2:
        return None
    scale = ledger.find(f"{parts.prefix}scale")
    if scale is None:
        return None
    second = None
    if scale.dtype.name == "F8_E4M3" and parts.is_one_of("NVFP4Tensor"):
        format = FORMATS["torchao-nvfp4"]
        second = ledger.find(f"{parts.prefix}per_tensor_scale")
    elif scale.dtype.name in ("U8", "F8_E8M0") and parts.is_one_of("MXTensor"):
        format = FORMATS["torchao-mxfp4"]
    else:
        return None
    group = GROUPS[format.kind]
    if parts.described.block not in ((), (group,)):
        return None
    rows, groups = prod(codes.shape[:-1]), 2 * codes.shape[-1] // group
    grid = (*codes.shape[:-1], groups)
    if scale.shape != grid or parts.described.is_tiled:
        scale = untiled(scale, rows, groups, ledger.strips)._replace(shape=grid)
    weight = Found(format, parts.weight, codes, scale, second).made()
    if weight is not None:
        parts.drop_activation_scales(ledger)
    return weight


def _integers(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    from anamnesis.schemes.families.torchao.int_tensors import find

    return find(codes, ledger, facts)


_FINDERS: dict[str, tuple[Finder, ...]] = {
    "I8": (_integers,),
    "U8": (_float4,),
    **dict.fromkeys(_core.CODES, (_float8,)),
}
