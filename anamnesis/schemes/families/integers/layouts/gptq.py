"""GPTQ: 2 to 8 bits, a zero point and a scale for each group of in features.

    qweight I32  [in features * bits / 32, out features]: bits run on from word to word of a column,
                 or, of 5, 6 and 7, lie in planes of some bits of 32 features each
    qzeros  I32  [groups, out features * bits / 32]: zero points less 1 (v1), or as they are (v2)
    scales  F16 | BF16 | F32  [groups, out features]
    g_idx   I32  [in features], the group of each: permuted (act-order), in runs, or not there

    result[o, i] = round((float32)(code[i, o] - zero[g, o]) * float32(scale[g, o]))

The integers are those of GPTQModel's `TorchLinear` after its conversion of v1 to v2; the product is
in float32, as in its `convert_gptq_file`. AutoRound's `auto_round:auto_gptq` is v1, its other
packings of GPTQ's layout are v2. GPTQModel's `gptq_p`, which 5, 6 and 7 bits always are, is v2 in
planes, those of `planar_unpack_rows` in its utils/planar_packing.py; 3 bits may be. Embeddings,
which GPTQModel does not transpose, are refused.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding, Setting, spelt
from anamnesis.schemes.core.layout import Beside, Layers
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import TABLES
from anamnesis.schemes.families.integers.checks import check_one_of
from anamnesis.schemes.families.integers.layouts import gptq_and_awq
from anamnesis.schemes.families.integers.words import PackedWeight, Packing
from anamnesis.schemes.views.kinds import Words

BITS = (2, 4, 8)  # that are written: of those whose codes fill words

PACKINGS = {bits: Packing(f"GPTQ{bits}", bits, along_rows=False) for bits in (2, 3, 4, 8)}
PLANAR = {bits: Packing(f"GPTQP{bits}", bits, False, planar=True) for bits in (3, 5, 6, 7)}

WIDTHS = range(2, 9)
_SMALL = 32  # in features, of which words may be filled in part
PLANAR_LAYOUT = "gptq_p"  # GPTQModel's planes of bits; of 2, 4 and 8 bits there is one, as ever
_GEMV = "gemv"  # AWQ's, whose shapes may be those of groups of 8
_PLAIN_ZEROS = frozenset({"gptq_v2", PLANAR_LAYOUT})  # whose zero points are stored as they are

_EXPERT = re.compile(r"(.*experts)\.[0-9]+\.")
# Where transformers looks for blocks by itself (`BLOCK_PATTERNS` of optimum's gptq/constants.py).
_KNOWN_BLOCKS = (
    *("transformer.h", "model.decoder.layers", "gpt_neox.layers", "model.layers"),
    *("model.language_model.layers", "h", "decoder.layers", "layers"),
)


@dataclass(frozen=True)
class Gptq(gptq_and_awq.InModules):
    """GPTQ's first format, as GPTQModel saves it."""

    bits: int = 4
    group_size: int = 128
    is_symmetric: bool = True
    is_act_order: bool = False

    def beside(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> Beside:
        listed = self.fields[3].part(name, DTYPES["I32"], shape[1:])
        return [(listed, _runs(shape[1], self.group_size))]

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return PackedWeight(name, shape, parts, PACKINGS[self.bits], True, self.group_size)

    def encoding_of(self, words: Words, group_size: int) -> Encoding:
        is_act_order = words.listed is not None
        return _encoding(Gptq(self.bits, group_size, words.is_symmetric, is_act_order))

    def declare(self, layers: Layers) -> dict[str, Any]:
        from anamnesis.schemes.libraries.mtp import plain_drafts

        repeated = [n for n in layers.plain if any(map(str.isdecimal, n.split(".")[1:-1]))]
        left: dict[str, Any] = {f"-:^{re.escape(name)}$": {} for name in repeated}
        drafts = tuple(f"{name}." for name in plain_drafts(layers))
        left |= {f"-:^{re.escape(name)}.*": {} for name in drafts}
        return {
            "quant_method": "gptq",
            "bits": self.bits,
            "group_size": self.group_size,
            "desc_act": self.is_act_order,
            "sym": self.is_symmetric,
            "lm_head": False,
            "checkpoint_format": "gptq",
            "pack_dtype": "int32",
            **({"dynamic": left} if left else {}),
            **_quantised_layers(
                layers._replace(plain=[n for n in layers.plain if not n.startswith(drafts)])
            ),
        }


@lru_cache(maxsize=8)  # asked for each band of a weight
def _runs(n: int, group_size: int) -> bytes:
    return struct.pack(f"<{n}i", *[i // group_size for i in range(n)])


def _quantised_layers(layers: Layers) -> dict[str, Any]:
    """Return the part of GPTQ's config that transformers reads where it does not guess right."""
    # `modules_in_block_to_quantize` names the layers if not all in the blocks are quantised, since
    # transformers and optimum know no `dynamic`; vLLM reads both.
    from anamnesis.schemes.libraries.left_plain import IN_BLOCK

    found = [match for match in map(IN_BLOCK.fullmatch, layers.quantised) if match]
    left = [match[0] for match in map(IN_BLOCK.fullmatch, layers.plain) if match]
    config: dict[str, Any] = {}
    blocks = {match[1] for match in found}
    if len(blocks) == 1 and not any(block.startswith(_KNOWN_BLOCKS) for block in blocks):
        config["block_name_to_quantize"] = blocks.pop()
    if found and left:
        named = list(dict.fromkeys(match[2] for match in found))
        if any(name.endswith(tuple(named)) for name in left):
            named = [match[0] for match in found]
        # vLLM asks for the place of all experts.
        places = [m[1] if (m := _EXPERT.match(layer)) else layer for layer in named]
        config["modules_in_block_to_quantize"] = [list(dict.fromkeys(places))]
    return config


# --- encodings --------------------------------------------------------------------------------

SETTINGS = (
    Setting("group_size", 128, form="number", ids_alone={-1: "channel"}),
    Setting("is_symmetric", True, ids_alone={False: "asym"}),
    Setting("is_act_order", False, ids_alone={True: "actorder"}),
)


def _encoding(layout: Gptq) -> Encoding:
    return Encoding(spelt(f"gptq-{layout.bits}bit", vars(layout), SETTINGS), layout)


def encoding(bits: int = 4, group_size: int = 128) -> Encoding:
    """Return symmetric integers, as GPTQModel's round-to-nearest gives and packs them."""
    from anamnesis.schemes.families.integers.encode import Columns

    check_one_of("group_size", group_size, gptq_and_awq.GROUP_SIZES)
    check_one_of("bits", bits, BITS)
    return replace(_encoding(Gptq(bits, group_size)), codes=Columns(bits, group_size, "mirrored"))


# --- reading ----------------------------------------------------------------------------------


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take what has a column of `qweight` for each column of `scales`, as no other layout has."""
    for parts in gptq_and_awq.gather(ledger, facts):
        has_awq_rows = parts.qweight.shape[:1] == parts.scales.shape[:1]
        if not _is_gptq(parts) or (facts.layout == _GEMV and has_awq_rows):
            continue
        with ledger.refusing(part.name for part in parts.stored):
            ledger.take(weight_of(parts, facts))


def _is_gptq(parts: gptq_and_awq.Parts) -> bool:
    """Tell GPTQ from AWQ: of that `qweight` has fewer columns than `scales`, or zeros no words."""
    is_fast = (parts.qweight.dtype.name, parts.qzeros.dtype.name) == ("I16", "F16")
    return parts.qweight.shape[1:] == parts.scales.shape[1:] and not is_fast


def weight_of(parts: gptq_and_awq.Parts, facts: QuantFacts) -> PackedWeight:
    """Return the weight that parts make, or raise what speaks against it."""
    gptq_and_awq.check_layout(parts, facts)
    gptq_and_awq.check_dtypes(parts)
    if parts.module.removesuffix(".").rpartition(".")[2] in TABLES:
        raise parts.unread("GPTQ of an embedding", facts)
    if not _is_gptq(parts):
        raise parts.mismatch("qweight and scales differ in their out features")
    if parts.qzeros.shape[0] != parts.scales.shape[0]:
        raise parts.mismatch("qzeros and scales differ in their groups")
    bits = _bits(parts, facts)
    is_planar = bits not in PACKINGS or (facts.layout == PLANAR_LAYOUT and bits == 3)
    if is_planar and "round" in (facts.method or "").lower():  # AutoRound's are laid out otherwise
        raise parts.unread(f"GPTQ in {bits} bits", facts)
    in_features = _in_features(parts, bits)
    if is_planar and (in_features % 32 or parts.scales.shape[1] % 32):
        raise parts.mismatch(f"GPTQ in planes of {bits} bits takes multiples of 32 features")
    size = gptq_and_awq.find_group_size(parts, in_features, facts.group_sizes)
    shape = (parts.scales.shape[1], in_features)
    name, stored = parts.weight_name, parts.stored
    less_one = facts.layout not in _PLAIN_ZEROS and not is_planar
    packing = PLANAR[bits] if is_planar else PACKINGS[bits]
    return PackedWeight(name, shape, stored, packing, less_one, size)


def _bits(parts: gptq_and_awq.Parts, facts: QuantFacts) -> int:
    """Return the width that the shapes imply; where several fit, the one that the config has."""
    # A width that alone fits needs no config: it may be one of a layer that the config forgets.
    fitting = {bits for bits in WIDTHS if _fits(parts, bits)}
    if not fitting:
        raise parts.mismatch("the shapes fit no width from 2 to 8 bits")
    given = fitting if len(fitting) == 1 else fitting & (facts.bits or fitting)
    if len(given) != 1:
        widths = " or ".join(str(bits) for bits in sorted(fitting))
        raise parts.refusal(f"{widths} bits would fit; say which with bits{gptq_and_awq.OF_A_FILE}")
    return given.pop()


def _fits(parts: gptq_and_awq.Parts, bits: int) -> bool:
    n_words, out_features = parts.qweight.shape
    in_features = _in_features(parts, bits)
    if bits not in PACKINGS and (in_features % 32 or out_features % 32):
        return False  # those come in whole blocks of 32
    if in_features > _SMALL and in_features * bits % 32:
        return False  # words are full
    return (
        -(-out_features * bits // 32) == parts.qzeros.shape[1]
        and -(-in_features * bits // 32) == n_words
    )


def _in_features(parts: gptq_and_awq.Parts, bits: int) -> int:
    if parts.g_idx is not None:
        return parts.g_idx.shape[0]
    return parts.qweight.shape[0] * 32 // bits
