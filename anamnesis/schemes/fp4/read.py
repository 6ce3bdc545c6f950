"""Which stored tensors are 4-bit floats, whose, and which scales belong to them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Finder, Ledger
from anamnesis.schemes.claim.markers import drop_marker, layer_of
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.claim.unread import refuse_encoding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.fp4.formats import FORMATS, Fp4Format
from anamnesis.schemes.fp4.weight import Fp4Weight
from anamnesis.schemes.parts.tiles import untiled
from anamnesis.schemes.parts.transposed import Transposed
from anamnesis.schemes.says.torchao import parts_of

__all__ = ["find_all"]

_GROUPS = {"NVFP4": 16, "MXFP4": 32}
_E8M0 = ("U8", "F8_E8M0")
_FP4 = "float4_e2m1fn_x2"  # torch's name


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of 4-bit floats with their scales."""
    ledger.take_found(_FINDERS, facts)


def _compressed_tensors(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """`weight_packed`, with AutoRound's export to the same layout."""
    head, _, last = codes.name.rpartition(".")
    if last != "weight_packed":
        return None
    scale = ledger.find(f"{head}.weight_scale")
    if scale is None:
        return None
    second = ledger.find(f"{head}.weight_global_scale")
    kind = "ct-nvfp4" if scale.dtype.name == "F8_E4M3" else "mxfp4"
    return _made(sibling(codes.name, "weight"), FORMATS[kind], codes, scale, second)


def _modelopt(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """`weight`, or a stack of experts; Quark and others give MXFP4 the same names."""
    for suffix in ("_scale", "_weight_scale"):
        scale = ledger.find(codes.name + suffix)
        if scale is None:
            continue
        if scale.dtype.name == "F8_E4M3":
            second = ledger.find(f"{codes.name}{suffix}_2")
            groups = _said_groups(facts)
            return _made(codes.name, FORMATS["modelopt-nvfp4"], codes, scale, second, groups)
        if scale.dtype.name in _E8M0:
            return _made(codes.name, FORMATS["mxfp4"], codes, scale, None)
    return None


def _comfy(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """ModelOpt's names, but scales in tiles, and rows and columns of padding."""
    scale = ledger.find(f"{codes.name}_scale")
    second = ledger.find(f"{codes.name}_scale_2")
    if scale is None or second is None or len(codes.shape) != 2:
        return None
    layer = layer_of(codes.name, ledger, facts.comfy_layers)
    if layer is None:
        return None
    if layer.format != "nvfp4":
        raise refuse_encoding(codes, f"{layer.format} (ComfyUI)", facts)
    rows, cols = codes.shape[0], 2 * codes.shape[1]
    kept = layer.shape or (rows, cols)
    if kept[0] > rows or kept[1] > cols:
        raise ParseError(
            f"{codes.name} ({codes.describe()}) is smaller than its orig_shape {list(kept)}",
            offset=codes.offset,
            source=codes.source.name,
        )
    grid = untiled(scale, rows, -(-cols // 16), ledger.strips)
    weight = _made(codes.name, FORMATS["comfy-nvfp4"], codes, grid, second)
    if weight is not None:
        weight.shape = kept
        drop_marker(codes.name, ledger)
    return weight


def _torchao(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """`MXTensor` and `NVFP4Tensor`, whose scales may be in tiles; their shape tells."""
    parts = parts_of(codes.name, facts)
    if parts is None or len(codes.shape) < 2:
        return None
    scale = ledger.find(f"{parts.prefix}scale")
    if scale is None:
        return None
    second = None
    if scale.dtype.name == "F8_E4M3" and parts.is_one_of("NVFP4Tensor"):
        kind, group = "torchao-nvfp4", 16
        second = ledger.find(f"{parts.prefix}per_tensor_scale")
    elif scale.dtype.name in _E8M0 and parts.is_one_of("MXTensor"):
        kind, group = "torchao-mxfp4", 32
    else:
        return None
    if _element(parts.data) not in ("", _FP4) or parts.data.get("block_size", group) != group:
        return None  # codes of 6 bits, one to a byte; other blocks
    rows, groups = prod(codes.shape[:-1]), 2 * codes.shape[-1] // group
    grid = (*codes.shape[:-1], groups)
    if scale.shape != grid:
        scale = untiled(scale, rows, groups, ledger.strips)._replace(shape=grid)
    weight = _made(parts.weight, FORMATS[kind], codes, scale, second)
    if weight is not None:
        parts.drop_activation_scales(ledger)
    return weight


def _element(data: Mapping[str, Any]) -> str:
    """Return the dtype of codes that torchao's metadata say, if they do."""
    told = data.get("elem_dtype", "")
    return str(told.get("_data") if isinstance(told, dict) else told)


def _gpt_oss(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Blocks of 16 bytes; transformers has the result as [experts, in, out], OpenAI not."""
    for suffix, scales in (("_blocks", "_scales"), (".blocks", ".scales")):
        name = codes.name.removesuffix(suffix)
        if name == codes.name or codes.shape[-1:] != (16,):
            continue
        scale = ledger.find(name + scales)
        if scale is None or scale.dtype.name != "U8" or scale.shape != codes.shape[:-1]:
            return None
        flat = codes._replace(shape=(*codes.shape[:-2], prod(codes.shape[-2:])))
        weight = _made(name, FORMATS["gpt-oss-mxfp4"], flat, scale, None)
        if weight is None or suffix == ".blocks":
            return weight
        turned = (*weight.shape[:-2], *weight.shape[:-3:-1])
        return Transposed(name, turned, weight.parts, weight)
    return None


def _deepseek(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Experts of DeepSeek-V4: nibbles in I8."""
    scale = ledger.find(sibling(codes.name, "scale"))
    if scale is None or scale.dtype.name != "F8_E8M0":
        return None
    return _made(codes.name, FORMATS["deepseek-fp4"], codes, scale, None)


def _mlx(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Words of eight codes, low nibble first, with scales of bytes and without biases."""
    scale = ledger.find(sibling(codes.name, "scales"))
    if scale is None or scale.dtype.name != "U8":
        return None
    if not codes.shape or ledger.find(sibling(codes.name, "biases")) is not None:
        return None
    *rows, words = codes.shape
    # Of 16 and of 32 codes of 4 bits, and of 32 of 8 bits, which another scheme reads.
    if scale.shape not in [(*rows, words // n) for n in (2, 4, 8) if words % n == 0]:
        raise _ungrouped(scale, codes)
    as_bytes = codes._replace(dtype=DTYPES["U8"], shape=(*rows, 4 * words))
    per_scale = _codes_per_scale(as_bytes, scale)
    if per_scale == 32:
        return _made(codes.name, FORMATS["mxfp4"], as_bytes, scale, None)
    if per_scale == 16:
        second = ledger.find(sibling(codes.name, "global_scale"))
        if second is not None and second.shape not in ((), codes.shape[:-2]):
            raise _misshapen(second, codes, list(codes.shape[:-2]))
        return _made(codes.name, FORMATS["mlx-nvfp4"], as_bytes, scale, second)
    return None


def _gguf(blocks: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """GGUF's blocks, if a second scale lies beside them."""
    second = ledger.find(sibling(blocks.name, "scale"))
    if second is None:
        return None
    _check_second(second, blocks)
    if len(blocks.shape) < 2:
        raise _misshapen(second, blocks, [])
    from anamnesis.schemes.fp4.scaled_blocks import scaled_blocks  # only for GGUF

    return scaled_blocks(blocks, second)


_FINDERS: dict[str, tuple[Finder, ...]] = {
    "U8": (
        _compressed_tensors,
        _comfy,  # before ModelOpt, whose names these are
        _modelopt,
        _gpt_oss,
        _torchao,
    ),
    "I8": (_deepseek,),
    "U32": (_mlx,),
    "NVFP4": (_gguf,),
}


def _codes_per_scale(codes: StoredTensor, scale: StoredTensor) -> int | None:
    """Return how many 4-bit codes of a row share a scale; None if that is no whole number."""
    if len(codes.shape) < 2 or len(scale.shape) < 2 or scale.n_elements == 0:
        return None
    count, rest = divmod(2 * prod(codes.shape), prod(scale.shape))
    return count if rest == 0 else None


def _made(
    name: str,
    format: Fp4Format,
    codes: StoredTensor,
    scale: StoredTensor,
    second: StoredTensor | None,
    groups: frozenset[int] = frozenset(),
) -> Fp4Weight | None:
    """Return the weight, if codes and scales fit; None if they are of another width.

    Groups are those of the format, or others that the config says.
    """
    if len(codes.shape) < 2:
        return None
    group = _codes_per_scale(codes, scale)
    if codes.n_elements and group != _GROUPS[format.kind] and group not in groups:
        return None
    shape = (*codes.shape[:-1], 2 * codes.shape[-1])
    group = group or 32
    if codes.n_elements:
        grid = (*shape[:-1], shape[-1] // group)
        if tuple(n for n in scale.shape if n != 1) != tuple(n for n in grid if n != 1):
            raise _misshapen(scale, codes, list(grid))
    parts: tuple[StoredTensor, ...] = (codes, scale)
    if second is None and format.needs_second and format.kind == "NVFP4":
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name} ({codes.describe()}) is {format.words}, but its "
            "global scale is missing; give the whole directory if it lies in another shard"
        )
    if second is not None:
        _check_second(second, codes)
        parts = (codes, scale, second)
    return Fp4Weight(name, shape, parts, format, group, shape[-1])


def _said_groups(facts: QuantFacts) -> frozenset[int]:
    """Return the groups that ModelOpt says: 32 of W4A8_NVFP4_FP8."""
    blocks = [told.block for _, told in facts.said if told.block is not None]
    return frozenset(cols for rows, cols in blocks if rows == 1) & frozenset({16, 32})


def _check_second(second: StoredTensor, codes: StoredTensor) -> None:
    n = prod(codes.shape[:-2])
    if second.dtype.name != "F32" or second.n_elements not in (1, n):
        raise ParseError(
            f"{second.name} ({second.describe()}) must be one F32, or one for each of the {n:,} "
            f"matrices of {codes.name} ({codes.describe()})",
            offset=second.offset,
            source=second.source.name,
        )


def _ungrouped(scale: StoredTensor, codes: StoredTensor) -> ParseError:
    return ParseError(
        f"{scale.name} ({scale.describe()}) does not fit {codes.name} ({codes.describe()}); a "
        "scale for each 16 or 32 codes of 4 bits, or each 32 of 8 bits, is expected",
        offset=scale.offset,
        source=scale.source.name,
    )


def _misshapen(scale: StoredTensor, codes: StoredTensor, expected: list[int]) -> ParseError:
    return ParseError(
        f"{scale.name} ({scale.describe()}) does not fit {codes.name} ({codes.describe()}); "
        f"shape {expected} is expected",
        offset=scale.offset,
        source=scale.source.name,
    )
