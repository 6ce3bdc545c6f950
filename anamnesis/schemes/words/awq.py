"""AWQ in its GEMM layout: 4 bits, a zero point and a scale for each group of in features.

    qweight I32  [in features, out features / 8]: a word holds eight out features, as `qzeros` does,
                 0 2 4 6 1 3 5 7 of them from its lowest bits on
    qzeros  I32  [groups, out features / 8]
    scales  F16 | BF16 | F32  [groups, out features]

    result[o, i] = round((float32)(code[i, o] - zero[g, o]) * float32(scale[g, o]))

The integers are those of AutoAWQ's `packing_utils.dequantize_gemm`, which multiplies in the dtype
of `scales`; here the product is in float32. Its other layouts are told by their shapes and dtypes:
GEMV and GEMV-fast in `awq_gemv.py`, Marlin in `marlin.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.words import awq_gemv
from anamnesis.schemes.words import weight as packed
from anamnesis.schemes.words.weight import (
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

__all__ = ["PACKING", "Quantized", "dequantize", "find_all", "quantize"]

PACKING = Packing("AWQ4", 4, along_rows=True)
_WORD_BITS = 32
_IN_WORD = _WORD_BITS // PACKING.bits
_OTHER_WIDTHS = range(1, 17)

# Where AWQ could not fold scales into the weights before (after GELU), it divides activations by
# them: a separate module does, which ordinary models lack.
_SCALED_ACTIVATIONS = (".act.scales", ".gelu_impl.scales")


# --- claiming ---------------------------------------------------------------------------------


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take what GPTQ left of the modules with `qweight`, `qzeros` and `scales`, or refuse it."""
    found = False
    for parts in gather(ledger, facts):
        try:
            weight = awq_gemv.find(parts, facts) or _weight(parts, facts)
        except AnamnesisError as error:
            refuse_all(ledger, parts, error)
        else:
            ledger.take(weight)
            found = True
    if found:
        _refuse_scaled_activations(ledger)


def _refuse_scaled_activations(ledger: Ledger) -> None:
    for scales in ledger.free():
        if scales.name.endswith(_SCALED_ACTIVATIONS):
            error = UnsupportedError(
                f"{scales.source.name}: {scales.name} ({scales.describe()}): AWQ divides "
                "activations by these, as no ordinary model does",
                remedy="allow_unknown=True passes them through as they are",
            )
            ledger.refuse([scales.name], error)


def _weight(parts: Parts, facts: QuantFacts) -> PackedWeight:
    check_dtypes(parts)
    _check_layout(parts, facts)
    check_layout(parts, facts)
    if facts.bits and PACKING.bits not in facts.bits:
        widths = " or ".join(str(bits) for bits in sorted(facts.bits))
        raise parts.mismatch(f"the shapes are those of AWQ in 4 bits, but the config says {widths}")
    if parts.g_idx is not None:
        raise parts.refusal("AWQ has no g_idx")
    in_features = parts.qweight.shape[0]
    size = find_group_size(parts, in_features, facts.group_sizes)
    shape = (parts.scales.shape[1], in_features)
    return PackedWeight(parts.weight_name, shape, parts.stored, PACKING, False, size)


def _check_layout(parts: Parts, facts: QuantFacts) -> None:
    """Refuse all but GEMM in 4 bits, if possible by name."""
    n_words = parts.qweight.shape[1]
    n_groups, out_features = parts.scales.shape
    shapes = ((n_groups, n_words), out_features)
    if (parts.qzeros.shape, n_words * _IN_WORD) == shapes:
        return
    if n_words == 2 * out_features or n_words == 4 * out_features:
        raise parts.unread("Marlin with zero points", facts)
    bits, rest = divmod(_WORD_BITS * n_words, max(out_features, 1))
    if parts.qzeros.shape == (n_groups, n_words) and bits in _OTHER_WIDTHS and not rest:
        raise parts.unread(f"AWQ in {bits} bits", facts)
    raise parts.mismatch("the shapes fit neither GPTQ nor AWQ")


# --- in memory --------------------------------------------------------------------------------


class Quantized(NamedTuple):
    """What a matrix is packed into.

    Attributes
    ----------
    qweight : ndarray of int32
        [in features, out features / 8].
    qzeros : ndarray of int32
        [groups, out features / 8].
    scales : ndarray of float16
        [groups, out features].
    """

    qweight: NDArray[Any]
    qzeros: NDArray[Any]
    scales: NDArray[Any]


def dequantize(
    qweight: NDArray[Any],
    qzeros: NDArray[Any],
    scales: NDArray[Any],
    *,
    group_size: int | None = None,
    dtype: DTypeLike = "bf16",
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
) -> NDArray[Any]:
    """Return the weight that AWQ's packed integers encode: the GEMM layout in 4 bits.

    Parameters
    ----------
    qweight : ndarray of int32
        [in features, out features / 8].
    qzeros : ndarray of int32
        [groups, out features / 8].
    scales : ndarray of float16, ml_dtypes.bfloat16 or float32
        [groups, out features].
    group_size : int, optional
        In features of a group, -1 for all of them; by default what the shapes imply.
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
        If the shapes do not go together, or more than one group size would fit.

    Notes
    -----
    `(code - zero) * scale` in float32, rounded once; the integers are those of AutoAWQ's
    `dequantize_gemm`, which multiplies in the dtype of `scales`.
    """
    facts = QuantFacts(group_sizes=packed.declared_sizes(group_size))
    arrays = (qweight, qzeros, scales, None)
    return packed.dequantize(arrays, lambda p: _weight(p, facts), dtype, out, threads, level)


def quantize(
    array: NDArray[Any],
    *,
    group_size: int = 128,
    threads: int = 1,
    level: LevelName | None = None,
) -> Quantized:
    """Return rounded integers in AWQ's layout, of 4 bits, with zero points.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [out features, in features], finite; both are multiples of 32.
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
        If it is not a matrix, is empty, or not of whole words and groups.
    UnsupportedError
        If a value is infinite or a NaN, or no half float.

    Notes
    -----
    Byte for byte what `pseudo_quantize_tensor` and `WQLinear_GEMM.from_linear` of AutoAWQ give. The
    codes are those of plain rounding: no activations are looked at.
    """
    from anamnesis.schemes.words import encode as encodings

    return Quantized(*encodings.quantize(encodings.Awq(group_size), array, threads, level))
