"""MLX's affine integers of arrays: codes in words, with a scale and a bias for each group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dtypes import output_dtype
from anamnesis.base.levels import resolve_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Quantized", "dequantize", "quantize"]


class Quantized(NamedTuple):
    """What `mx.quantize` returns.

    Attributes
    ----------
    weight : ndarray of uint32
        [rows, cols * bits / 32], a dense stream of bits.
    scales, biases : ndarray
        [rows, groups], of the matrix's dtype.
    """

    weight: NDArray[Any]
    scales: NDArray[Any]
    biases: NDArray[Any]


def quantize(
    array: NDArray[Any],
    bits: int = 4,
    *,
    group_size: int = 64,
    threads: int = 1,
    level: str | None = None,
) -> Quantized:
    """Return integers in words, with their scales and biases.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, cols], finite.
    bits : int
        2, 3, 4, 5, 6 or 8.
    group_size : int
        Columns that share a scale, of which a row is a whole number of groups: 32, 64 or 128.
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
        If it is not a matrix, is empty, or not of whole groups; if MLX has no such bits or groups.
    UnsupportedError
        If a value is infinite or a NaN.

    Notes
    -----
    Byte for byte what `mx.quantize` of MLX gives on a CPU in its mode `affine`.
    """
    from anamnesis.schemes import arrays as memory
    from anamnesis.schemes.integers.mlx_encoding import Affine

    matrix = memory.matrix(array)
    encoding = Affine(group_size, bits=bits, dtype=memory.float_dtype(matrix))
    if matrix.shape[1] % group_size:
        raise ValueError(
            f"{matrix.shape[1]} columns are not a whole number of groups of {group_size}"
        )
    return Quantized(*memory.encode(encoding, matrix, threads, resolve_level(level)))


def dequantize(
    weight: NDArray[Any],
    scales: NDArray[Any],
    biases: NDArray[Any],
    bits: int = 4,
    *,
    group_size: int = 64,
    dtype: str = "bf16",
    out: NDArray[Any] | None = None,
    threads: int = 1,
    level: str | None = None,
) -> NDArray[Any]:
    """Return integers times their scales, plus their biases.

    Parameters
    ----------
    weight : ndarray of uint32
        [rows, cols * bits / 32], a dense stream of bits.
    scales, biases : ndarray of float32, float16 or ml_dtypes.bfloat16
        [rows, groups], of one dtype.
    bits : int
        1, 2, 3, 4, 5, 6 or 8.
    group_size : int
        Columns that share a scale: 32, 64 or 128.
    dtype, out, threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the shapes do not go together.

    Notes
    -----
    `mx.dequantize` of MLX with float32 scales on a CPU: a product and a sum in float32, one
    rounding.
    """
    from anamnesis.base.errors import AnamnesisError
    from anamnesis.schemes import arrays as memory
    from anamnesis.schemes.facts import QuantFacts
    from anamnesis.schemes.integers.checks import SCALES
    from anamnesis.schemes.integers.mlx import find
    from anamnesis.schemes.ledger import Claim

    parts = {
        "weight": memory.stored(weight, "weight", ("U32",)),
        "scales": memory.stored(scales, "scales", SCALES),
        "biases": memory.stored(biases, "biases", SCALES),
    }
    (words, groups) = (parts[name].shape[-1:] for name in ("weight", "scales"))
    if [32 * n for n in words] != [bits * group_size * n for n in groups]:
        raise ValueError(
            f"weight of shape {parts['weight'].shape} and scales of shape"
            f" {parts['scales'].shape} are not of {bits} bits in groups of {group_size}"
        )
    facts = QuantFacts(layers={"": (bits, group_size)})
    try:
        found = find(parts["weight"], Claim(parts), facts)
    except AnamnesisError as error:
        raise ValueError(str(error).removeprefix(": ")) from None
    if found is None:
        raise ValueError(f"weight has shape {parts['weight'].shape}, but must be a matrix")
    return memory.decode(found, output_dtype(dtype), out, threads, resolve_level(level))
