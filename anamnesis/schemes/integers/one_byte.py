"""8-bit integers, one to a byte, and their scales: compressed-tensors, ModelOpt, Quark, ComfyUI.

    weight I8 [..., rows, cols]
    weight_scale F32 | F16 | BF16: one, [rows], [rows, 1], or a grid of blocks
    weight_zero_point I8 of the scales' shape, if any

One multiplication and one rounding, as each of them has it.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.comfy import drop_marker, layer_of
from anamnesis.schemes.facts import QuantFacts
from anamnesis.schemes.grid import AmbiguousBlock, resolve
from anamnesis.schemes.integers.checks import check_scale_dtype, misshapen
from anamnesis.schemes.integers.weight import IntegerWeight
from anamnesis.schemes.ledger import Claim

__all__ = ["find"]

# Those who mean this by the names; the config says who wrote them.
_METHODS = {
    "compressed-tensors": "",
    "modelopt": "ModelOpt",
    "quark": "Quark",
}
_COMFY = ("int8_tensorwise", "int8_blockwise")


def find(codes: StoredTensor, claim: Claim, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind.

    Raises
    ------
    UnsupportedError, ParseError
        If its parts do not fit.
    """
    if codes.name.rpartition(".")[2] != "weight" or codes.dtype.name != "I8":
        return None
    name = codes.name
    scale, zeros = claim.find(f"{name}_scale"), claim.find(f"{name}_zero_point")
    if scale is None or len(codes.shape) < 2 or codes.n_elements == 0:
        return None
    layer = layer_of(name, claim, facts.comfy_layers)
    method = (facts.method or "").lower()
    if layer is not None:
        if layer.format not in _COMFY:
            return None
        producer = "ComfyUI"
        blocks = {(layer.block, layer.block)} if layer.block else set()
    elif method in _METHODS:
        producer = _METHODS[method]
        blocks = {*facts.blocks, *((1, n) for n in facts.group_sizes if n > 0)}
    else:
        return None
    if any(f"{name.rpartition('.')[0]}.{other}" in claim.stored for other in _OTHERS):
        return None
    check_scale_dtype(scale, codes)
    block = _block(codes, scale, blocks)
    if zeros is not None and (zeros.dtype.name, zeros.shape) != ("I8", scale.shape):
        raise misshapen(zeros, codes, f"I8 {list(scale.shape)}")
    parts = (codes, scale) if zeros is None else (codes, scale, zeros)
    weight = IntegerWeight(name, codes.shape, parts, "INT8", block, zeros, producer=producer)
    if layer is not None:
        drop_marker(name, claim)
    return weight


# What means more than a scale: it is refused by name.
_OTHERS = ("weight_g_idx", "weight_global_scale", "weight_scale_2", "bitmask", "pre_quant_scale")


def _block(
    codes: StoredTensor, scale: StoredTensor, told: Collection[tuple[int, int]]
) -> tuple[int, int]:
    """Return rows and columns that share a scale."""
    rows, cols = codes.shape[-2:]
    if scale.n_elements == 1 and prod(codes.shape[:-2]) == 1:
        return rows, cols
    fitting = {b for b in told if (-(-rows // b[0]), -(-cols // b[1])) == scale.shape[-2:]}
    try:
        grid = resolve(codes.shape, scale.shape, frozenset(fitting))
    except AmbiguousBlock as error:
        raise UnsupportedError(f"{codes.source.name}: {codes.name}: {error}; say which") from None
    except ValueError as error:
        raise ParseError(
            f"{codes.name}: {error}", offset=scale.offset, source=scale.source.name
        ) from None
    if grid.kind == "channel" and grid.rows == prod(codes.shape[:-1]):
        return 1, cols
    if grid.kind != "block":
        raise misshapen(scale, codes, f"[{rows}, 1]")
    return grid.block_rows, grid.block_cols
