"""Which stored tensors are 4-bit floats, whose, and which scales belong to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Finder, Ledger
from anamnesis.schemes.detect.markers import drop_marker
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.detect.tiled import kept_shape, tiled_layer, with_tiles
from anamnesis.schemes.detect.unread import refuse_encoding
from anamnesis.schemes.families.fp4 import layouts
from anamnesis.schemes.families.fp4.formats import GROUPS, Fp4Format
from anamnesis.schemes.families.fp4.layout import Fp4Layout
from anamnesis.schemes.families.fp4.view import scaled_blocks
from anamnesis.schemes.families.fp4.weight import Fp4Weight
from anamnesis.schemes.libraries.targets import Targets
from anamnesis.schemes.views.tiles import untiled
from anamnesis.schemes.views.transposed import transposed


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of 4-bit floats with their scales."""
    # Each weight asks which blocks are spoken of; some configs have a row for each of many layers.
    by_block = {given.block: (target, given) for target, given in facts.expected}
    formats: dict[str, str] = {}  # of modules whose codes look like others'
    if any(given.format for _, given in facts.expected):
        end = "weight_packed"
        modules = [one.name.removesuffix(f".{end}") for one in ledger.called(end)]
        said = Targets(facts.expected, modules)
        formats = {name: given[0].format for name in modules if (given := said.of(name))}
    rows = tuple(by_block.values())
    facts = replace(with_tiles(ledger, facts), expected=rows, formats=formats)
    ledger.take_found(_FINDERS, facts)


class Found(NamedTuple):
    """The parts of a weight, by the names of a layout."""

    format: Fp4Format
    name: str
    codes: StoredTensor
    scale: StoredTensor
    second: StoredTensor | None
    needs_second: bool = False
    groups: frozenset[int] = frozenset()

    def made(self) -> Fp4Weight | None:
        """Return the weight, if codes and scales fit; None if they are of another width."""
        codes, scale, format = self.codes, self.scale, self.format
        if len(codes.shape) < 2:
            return None
        group = _codes_per_scale(codes, scale)
        if codes.n_elements and group not in (GROUPS[format.kind], *self.groups):
            return None
        shape = (*codes.shape[:-1], 2 * codes.shape[-1])
        group = group or 32
        if codes.n_elements:
            grid = (*shape[:-1], shape[-1] // group)
            if tuple(n for n in scale.shape if n != 1) != tuple(n for n in grid if n != 1):
                raise scale.misshapen(str(list(grid)), codes)
        if self.second is None and self.needs_second:
            raise codes.unsupported(
                f"{codes} is {format.words}, but its global scale is missing; give the whole "
                "directory if it lies in another shard"
            )
        parts: tuple[StoredTensor, ...] = (codes, scale)
        if self.second is not None:
            _check_second(self.second, codes)
            parts = (*parts, self.second)
        return Fp4Weight(self.name, shape, parts, format, group, shape[-1])


_Settle = Callable[[Found, Ledger, QuantFacts], "Weight | None"]


def _by(layout: Fp4Layout, fields: Sequence[Field]) -> Finder:
    """Return what finds a layout's weights, by the names of their parts."""
    own, beside, *more = fields
    second = next((one for one in more if one.role == "second"), None)
    needs_second = second is not None and not second.unless
    settle = _SETTLED.get(type(layout))

    def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
        name = own.weight_of(codes.name)
        scale = None if name is None else ledger.find(beside.named(name))
        if name is None or scale is None or scale.dtype.name not in beside.dtypes:
            return None
        other = None if second is None else ledger.find(second.named(name))
        found = Found(layout.meaning, name, codes, scale, other, needs_second)
        return settle(found, ledger, facts) if settle else found.made()

    return find


# --- what names leave open --------------------------------------------------------------------


def _modelopt(found: Found, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Of ModelOpt's NVFP4, the config may say that 32 share a scale: W4A8_NVFP4_FP8."""
    if found.format.kind != "NVFP4":
        return found.made()
    blocks = [given.block for _, given in facts.expected if given.block is not None]
    groups = frozenset(cols for rows, cols in blocks if rows == 1) & frozenset(GROUPS.values())
    return found._replace(groups=groups).made()


def _comfy(found: Found, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """ModelOpt's names, but scales in tiles, and rows and columns of padding."""
    codes = found.codes
    if found.second is None or len(codes.shape) != 2:
        return None
    layer = tiled_layer(codes, ledger, facts)
    if layer is None:
        return None
    if layer.format not in ("nvfp4", ""):
        raise refuse_encoding(codes, f"{layer.format} (ComfyUI)", facts)
    rows, cols = codes.shape[0], 2 * codes.shape[1]
    kept = kept_shape(codes, layer, rows, cols)
    grid = untiled(found.scale, rows, -(-cols // GROUPS["NVFP4"]), ledger.strips)
    weight = found._replace(scale=grid).made()
    if weight is not None:
        weight.shape = kept
        drop_marker(codes.name, ledger)
    return weight


def _autoround(found: Found, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """compressed-tensors' names, and numbers that only the config tells."""
    if facts.formats.get(found.name.removesuffix(".weight")) != found.format.id:
        return None
    weight = found.made()
    if weight is None:
        group = GROUPS[found.format.kind]
        raise found.scale.misshapen(f"a scale for each {group} codes", found.codes)
    return weight


def _gpt_oss(found: Found, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Blocks of 16 bytes; transformers has the result as [experts, in, out], OpenAI not."""
    codes, scale = found.codes, found.scale
    if codes.shape[-1:] != (GROUPS["MXFP4"] // 2,) or scale.shape != codes.shape[:-1]:
        return None
    flat = codes._replace(shape=(*codes.shape[:-2], prod(codes.shape[-2:])))
    weight = found._replace(codes=flat).made()
    if weight is None or codes.name == f"{found.name}.blocks":
        return weight
    return transposed(weight, found.name)


def _mlx(found: Found, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """Words of eight codes, low nibble first, with scales of bytes and without biases."""
    codes, scale, second = found.codes, found.scale, found.second
    if not codes.shape or ledger.find(sibling(codes.name, "biases")) is not None:
        return None
    *rows, words = codes.shape
    # Of 16 and of 32 codes of 4 bits, and of 32 of 8 bits, which another scheme reads.
    if scale.shape not in [(*rows, words // n) for n in (2, 4, 8) if words % n == 0]:
        expected = "a scale for each 16 or 32 codes of 4 bits, or each 32 of 8 bits,"
        raise scale.misshapen(expected, codes)
    as_bytes = codes._replace(dtype=DTYPES["U8"], shape=(*rows, 4 * words))
    is_ours = _codes_per_scale(as_bytes, scale) == GROUPS[found.format.kind]
    if is_ours and second is not None and second.shape not in ((), codes.shape[:-2]):
        raise second.misshapen(str(list(codes.shape[:-2])), codes)
    return found._replace(codes=as_bytes).made() if is_ours else None


_SETTLED: dict[type[Fp4Layout], _Settle] = {
    layouts.ModelOpt: _modelopt,
    layouts.ComfyUi: _comfy,
    layouts.GptOss: _gpt_oss,
    layouts.Mlx: _mlx,
    layouts.AutoRound: _autoround,
}


# --- other names, and ggml's blocks -----------------------------------------------------------


def _gguf(blocks: StoredTensor, ledger: Ledger, facts: QuantFacts) -> Weight | None:
    """GGUF's blocks, if a second scale lies beside them."""
    own, beside = layouts.LAYOUTS["gguf-nvfp4"].fields
    name = own.weight_of(blocks.name)
    second = None if name is None else ledger.find(beside.named(name))
    if second is None:
        return None
    _check_second(second, blocks)
    if len(blocks.shape) < 2:
        raise second.misshapen("[]", blocks)
    return scaled_blocks(blocks, second)


def _finders() -> dict[str, list[Finder]]:
    """Return what finds the weights of each layout, by the dtype of its codes, in their order."""
    found: dict[str, list[Finder]] = {}
    for layout in (*layouts.READ_ONLY, *layouts.LAYOUTS.values()):
        if layout.fields[1:] and layout.fields[1].role == "scales":
            for fields in filter(None, (layout.fields, layout.bare)):
                found.setdefault(fields[0].dtypes[0], []).append(_by(layout, fields))
    found["NVFP4"] = [_gguf]
    return found


_FINDERS = _finders()


# --- checks -----------------------------------------------------------------------------------


def _codes_per_scale(codes: StoredTensor, scale: StoredTensor) -> int | None:
    """Return how many 4-bit codes of a row share a scale; None if that is no whole number."""
    if len(codes.shape) < 2 or len(scale.shape) < 2 or scale.n_elements == 0:
        return None
    count, rest = divmod(2 * prod(codes.shape), prod(scale.shape))
    return count if rest == 0 else None


def _check_second(second: StoredTensor, codes: StoredTensor) -> None:
    n = prod(codes.shape[:-2])
    if second.dtype.name != "F32" or second.n_elements not in (1, n):
        raise second.malformed(
            f"{second} must be one F32, or one for each of the {n:,} matrices of {codes}"
        )
