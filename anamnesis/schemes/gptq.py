"""GPTQ of arrays: integers of 2 to 8 bits in words, with zero points and scales."""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

from numpy.typing import NDArray

from anamnesis.schemes.core import in_memory as memory
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.families.integers.arrays import (
    declared_sizes,
    dequantize_words,
    quantize_words,
)
from anamnesis.schemes.families.integers.layouts import gptq
from anamnesis.schemes.families.integers.layouts.gptq_and_awq import Parts
from anamnesis.schemes.families.integers.words import PackedWeight

__all__ = ["Quantized", "dequantize", "quantize"]


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


@memory.dequantizer
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
    **options: Unpack[memory.DequantizeOptions],
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
    **options
        `dtype`, `out`, `threads` and `level`: see `anamnesis.schemes`.

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
    if bits not in gptq.WIDTHS:
        raise ValueError(f"bits must be from {gptq.WIDTHS[0]} to {gptq.WIDTHS[-1]}; got {bits!r}")
    layout = "gptq" if zeros_plus_one else "gptq_v2"
    facts = QuantFacts(
        layout=gptq.PLANAR_LAYOUT if planar else layout,
        bits=frozenset({bits}),
        group_sizes=declared_sizes(group_size),
    )

    def build(parts: Parts) -> PackedWeight:
        weight = gptq.weight_of(parts, facts)
        if weight.packing.bits != bits:
            raise parts.mismatch(f"the shapes are those of {weight.packing.bits} bits, not {bits}")
        return weight

    return dequantize_words((qweight, qzeros, scales, g_idx), build, **options)


@memory.quantizer
def quantize(
    array: NDArray[Any],
    *,
    bits: int = 4,
    group_size: int = 128,
    **options: Unpack[memory.QuantizeOptions],
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
    **options
        `threads` and `level`: see `anamnesis.schemes`.

    Returns
    -------
    Quantized

    Raises
    ------
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
    return Quantized(*quantize_words(gptq.encoding(bits, group_size), array, **options))
