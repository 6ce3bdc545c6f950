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

from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.errors import AnamnesisError
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import TABLES
from anamnesis.schemes.words import weight as packed
from anamnesis.schemes.words.weight import (
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

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anamnesis.base.dtypes import DTypeLike
    from anamnesis.base.levels import LevelName

__all__ = ["PACKINGS", "PLANAR", "WIDTHS", "Quantized", "dequantize", "find_all", "quantize"]

PACKINGS = {bits: Packing(f"GPTQ{bits}", bits, along_rows=False) for bits in (2, 3, 4, 8)}
PLANAR = {bits: Packing(f"GPTQP{bits}", bits, False, planar=True) for bits in (3, 5, 6, 7)}

WIDTHS = range(2, 9)
_SMALL = 32  # in features, of which words may be filled in part
_PLANAR = "gptq_p"  # GPTQModel's planes of bits; of 2, 4 and 8 bits there is one, as ever
_GEMV = "gemv"  # AWQ's, whose shapes may be those of groups of 8
_PLAIN_ZEROS = frozenset({"gptq_v2", _PLANAR})  # layouts whose zero points are stored as they are


# --- claiming ---------------------------------------------------------------------------------


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take what has a column of `qweight` for each column of `scales`, as no other layout has."""
    for parts in gather(ledger, facts):
        if not _is_gptq(parts) or _is_gemv(parts, facts):
            continue
        try:
            weight = _weight(parts, facts)
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


def _weight(parts: Parts, facts: QuantFacts) -> PackedWeight:
    check_layout(parts, facts)
    check_dtypes(parts)
    if parts.module.removesuffix(".").rpartition(".")[2] in TABLES:
        raise parts.unread("GPTQ of an embedding", facts)
    if not _is_gptq(parts):
        raise parts.mismatch("qweight and scales differ in their out features")
    if parts.qzeros.shape[0] != parts.scales.shape[0]:
        raise parts.mismatch("qzeros and scales differ in their groups")
    bits = _bits(parts, facts)
    is_planar = bits not in PACKINGS or (facts.layout == _PLANAR and bits == 3)
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


# --- in memory --------------------------------------------------------------------------------


class Quantized(NamedTuple):
    """What a matrix is packed into.

    Attributes
    ----------
    qweight : ndarray of int32
        [in features * bits / 32, out features].
    qzeros : ndarray of int32
        [groups, out features * bits / 32]: the zero points, half the number of codes, less 1.
    scales : ndarray of float16
        [groups, out features].
    g_idx : ndarray of int32
        [in features], the group of each: runs.
    """

    qweight: NDArray[Any]
    qzeros: NDArray[Any]
    scales: NDArray[Any]
    g_idx: NDArray[Any]


def dequantize(
    qweight: NDArray[Any],
    qzeros: NDArray[Any],
    scales: NDArray[Any],
    g_idx: NDArray[Any] | None = None,
    *,
    bits: int = 4,
    group_size: int | None = None,
    zeros_plus_one: bool = True,
    planar: bool = False,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the weight that GPTQ's packed integers encode.

    Parameters
    ----------
    qweight : ndarray of int32
        [in features * bits / 32, out features].
    qzeros : ndarray of int32
        [groups, out features * bits / 32].
    scales : ndarray of float16, ml_dtypes.bfloat16 or float32
        [groups, out features].
    g_idx : ndarray of int32, optional
        [in features], the group of each; by default groups are runs of `group_size`.
    bits : int
        2 to 8.
    group_size : int, optional
        In features of a group, -1 for all of them; by default what the shapes imply.
    zeros_plus_one : bool
        Whether zero points are stored less 1, as in `checkpoint_format` `gptq`; False for
        `gptq_v2`. Of 5, 6 and 7 bits, and of `planar` ones, they are stored as they are.
    planar : bool
        Whether 3 bits lie in planes too, as in `gptq_p`.
    dtype, out, threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [out features, in features]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If a dtype is none of those above, or `group_size` no whole number.
    ValueError
        If the shapes do not go together, `g_idx` has an index that is no group, or more than one
        group size would fit.

    Notes
    -----
    `(code - zero) * scale` in float32, rounded once; the integers are those of GPTQModel's
    `TorchLinear.dequantize_weight`, which multiplies in the dtype of `scales`.
    """
    if bits not in WIDTHS:
        raise ValueError(f"bits must be from {WIDTHS[0]} to {WIDTHS[-1]}; got {bits!r}")
    layout = "gptq" if zeros_plus_one else "gptq_v2"
    facts = QuantFacts(
        layout=_PLANAR if planar else layout,
        bits=frozenset({bits}),
        group_sizes=packed.declared_sizes(group_size),
    )

    def weight_of(parts: Parts) -> PackedWeight:
        weight = _weight(parts, facts)
        if weight.packing.bits != bits:
            raise parts.mismatch(f"the shapes are those of {weight.packing.bits} bits, not {bits}")
        return weight

    return packed.dequantize(
        (qweight, qzeros, scales, g_idx), weight_of, dtype, out, threads, level
    )


def quantize(
    array: NDArray[Any],
    *,
    bits: int = 4,
    group_size: int = 128,
    threads: int = 1,
    level: LevelName | None = None,
) -> Quantized:
    """Return rounded integers in GPTQ's layout, symmetric.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [out features, in features], finite; both are multiples of 32.
    bits : int
        2, 4 or 8.
    group_size : int
        In features that share a scale: 32, 64, 128, 256, 512 or 1024.
    threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    Quantized

    Raises
    ------
    TypeError
        If the array has another dtype.
    ValueError
        If it is not a matrix, is empty, or not of whole words and groups, or there is no such
        setting.
    UnsupportedError
        If a value is infinite or a NaN, or a range of a group is.

    Notes
    -----
    Byte for byte what GPTQModel's `RTN`, `TorchLinear.pack_block` and its conversion to the first
    format give. The codes are those of plain rounding: no activations are looked at.
    """
    from anamnesis.schemes.words import encode as encodings

    encoding = encodings.Gptq(group_size, bits)
    return Quantized(*encodings.quantize(encoding, array, threads, level))
