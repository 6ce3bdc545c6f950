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

from anamnesis.base.errors import AnamnesisError
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import TABLES
from anamnesis.schemes.integers.words import (
    OF_A_FILE,
    PackedWeight,
    Packing,
    Parts,
    check_dtypes,
    check_layout,
    find_group_size,
    gather,
    refuse_all,
)

__all__ = ["PACKINGS", "PLANAR", "WIDTHS", "find_all", "weight_of"]

PACKINGS = {bits: Packing(f"GPTQ{bits}", bits, along_rows=False) for bits in (2, 3, 4, 8)}
PLANAR = {bits: Packing(f"GPTQP{bits}", bits, False, planar=True) for bits in (3, 5, 6, 7)}

WIDTHS = range(2, 9)
_SMALL = 32  # in features, of which words may be filled in part
PLANAR_LAYOUT = "gptq_p"  # GPTQModel's planes of bits; of 2, 4 and 8 bits there is one, as ever
_GEMV = "gemv"  # AWQ's, whose shapes may be those of groups of 8
_PLAIN_ZEROS = frozenset({"gptq_v2", PLANAR_LAYOUT})  # whose zero points are stored as they are


# --- claiming ---------------------------------------------------------------------------------


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take what has a column of `qweight` for each column of `scales`, as no other layout has."""
    for parts in gather(ledger, facts):
        if not _is_gptq(parts) or _is_gemv(parts, facts):
            continue
        try:
            weight = weight_of(parts, facts)
        except AnamnesisError as error:
            refuse_all(ledger, parts, error)
        else:
            ledger.take(weight)


def _is_gptq(parts: Parts) -> bool:
    """Tell GPTQ from AWQ, whose `qweight` has fewer columns than `scales`, or whose zeros are no
    words."""
    is_fast = (parts.qweight.dtype.name, parts.qzeros.dtype.name) == ("I16", "F16")
    return parts.qweight.shape[1:] == parts.scales.shape[1:] and not is_fast


def _is_gemv(parts: Parts, facts: QuantFacts) -> bool:
    return facts.layout == _GEMV and parts.qweight.shape[:1] == parts.scales.shape[:1]


def weight_of(parts: Parts, facts: QuantFacts) -> PackedWeight:
    """Return the weight that parts make, or raise what speaks against it."""
    check_layout(parts, facts)
    check_dtypes(parts)
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
    size = find_group_size(parts, in_features, facts.group_sizes)
    shape = (parts.scales.shape[1], in_features)
    name, stored = parts.weight_name, parts.stored
    less_one = facts.layout not in _PLAIN_ZEROS and not is_planar
    packing = PLANAR[bits] if is_planar else PACKINGS[bits]
    return PackedWeight(name, shape, stored, packing, less_one, size)


def _bits(parts: Parts, facts: QuantFacts) -> int:
    """Return the width that the shapes imply; where several fit, the one that the config has.

    A width that alone fits needs no config: it may be one of a layer that the config forgets.
    """
    fitting = {bits for bits in WIDTHS if _fits(parts, bits)}
    if not fitting:
        raise parts.mismatch("the shapes fit no width from 2 to 8 bits")
    told = fitting if len(fitting) == 1 else fitting & (facts.bits or fitting)
    if len(told) != 1:
        widths = " or ".join(str(bits) for bits in sorted(fitting))
        raise parts.refusal(f"{widths} bits would fit; say which with bits{OF_A_FILE}")
    return told.pop()


def _fits(parts: Parts, bits: int) -> bool:
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


def _in_features(parts: Parts, bits: int) -> int:
    if parts.g_idx is not None:
        return parts.g_idx.shape[0]
    return parts.qweight.shape[0] * 32 // bits
