"""MLX's codes of arrays in words: integers with a scale and a bias for each group; small floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

from anamnesis.base.dtypes import output_dtype
from anamnesis.base.levels import resolve_level

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from anamnesis.schemes.core.weight import Weight

__all__ = ["Floats", "Quantized", "dequantize", "quantize"]


# Of each mode of floats: the bits, and the group.
_FLOATS = {"mxfp4": (4, 32), "nvfp4": (4, 16), "mxfp8": (8, 32)}


class Quantized(NamedTuple):
    """What `mx.quantize` returns in its mode `affine`.

    Attributes
    ----------
    weight : ndarray of uint32
        [..., rows, cols * bits / 32], a dense stream of bits.
    scales, biases : ndarray
        [..., rows, groups], of the array's dtype.
    """

    weight: NDArray[Any]
    scales: NDArray[Any]
    biases: NDArray[Any]


class Floats(NamedTuple):
    """What `mx.quantize` returns in its other modes.

    Attributes
    ----------
    weight : ndarray of uint32
        [..., rows, cols * bits / 32], the first code in the lowest bits.
    scales : ndarray of uint8
        [..., rows, groups]: E8M0, or E4M3 in the mode `nvfp4`.
    """

    weight: NDArray[Any]
    scales: NDArray[Any]


@overload
def quantize(
    array: NDArray[Any],
    bits: int | None = ...,
    *,
    group_size: int | None = ...,
    mode: Literal["affine"] = ...,
    threads: int = ...,
    level: str | None = ...,
) -> Quantized: ...


@overload
def quantize(
    array: NDArray[Any],
    bits: int | None = ...,
    *,
    group_size: int | None = ...,
    mode: str,
    threads: int = ...,
    level: str | None = ...,
) -> Quantized | Floats: ...


def quantize(
    array: NDArray[Any],
    bits: int | None = None,
    *,
    group_size: int | None = None,
    mode: str = "affine",
    threads: int = 1,
    level: str | None = None,
) -> Quantized | Floats:
    """Return codes in words, with their scales, and the biases of integers.

    Parameters
    ----------
    array : ndarray of float32, float16 or ml_dtypes.bfloat16
        [..., rows, cols], finite.
    bits : int, optional
        2, 3, 4, 5, 6 or 8 of integers, 4 by default. Floats have those of their mode.
    group_size : int, optional
        Columns that share a scale, of which a row is a whole number of groups: 32, 64 or 128 of
        integers, 64 by default. Floats have that of their mode, 16 or 32.
    mode : str
        `affine`, of integers; or `mxfp4`, `nvfp4` or `mxfp8`, of floats.
    threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    Quantized, or Floats of another mode than `affine`

    Raises
    ------
    TypeError
        If the array has another dtype.
    ValueError
        If it is no matrix or stack of them, is empty, or not of whole groups; if MLX has no such
        mode, bits or groups.
    UnsupportedError
        If a value is infinite or a NaN; in the modes `mxfp4` and `mxfp8` also if the largest
        magnitude of a group, divided by 6 or 448, is below 2^-127, where MLX's scales wrap around.

    Notes
    -----
    Byte for byte what `mx.quantize` of MLX gives on a CPU, without a global scale. In the mode
    `nvfp4`, whose scales have none, a group of magnitudes below 0.006 becomes zeros.
    """
    from anamnesis.schemes.core import arrays as memory
    from anamnesis.schemes.fp4.mlx import MlxFloats
    from anamnesis.schemes.integers.mlx_encode import Affine

    matrices = memory.matrices(array)
    dtype = memory.float_dtype(matrices)
    encoding: Affine | MlxFloats
    width, size = _settings(mode, bits, group_size)
    if mode == "affine":
        encoding = Affine(size, bits=width, dtype=dtype)
    else:
        encoding = MlxFloats(mode.upper(), dtype=dtype)
    if matrices.shape[-1] % size:
        raise ValueError(f"{matrices.shape[-1]} columns are not a whole number of groups of {size}")
    made = memory.encode(encoding, matrices, threads, resolve_level(level))
    return Quantized(*made) if mode == "affine" else Floats(*made)


def dequantize(
    weight: NDArray[Any],
    scales: NDArray[Any],
    biases: NDArray[Any] | None = None,
    bits: int | None = None,
    *,
    group_size: int | None = None,
    mode: str = "affine",
    dtype: str = "bf16",
    out: NDArray[Any] | None = None,
    threads: int = 1,
    level: str | None = None,
) -> NDArray[Any]:
    """Return codes times their scales, plus the biases of integers.

    Parameters
    ----------
    weight : ndarray of uint32
        [..., rows, cols * bits / 32], a dense stream of bits.
    scales, biases : ndarray of float32, float16 or ml_dtypes.bfloat16
        [..., rows, groups], of one dtype; of floats uint8, and no biases.
    bits : int, optional
        1, 2, 3, 4, 5, 6 or 8 of integers, 4 by default. Floats have those of their mode.
    group_size : int, optional
        Columns that share a scale: 32, 64 or 128 of integers, 64 by default. Floats have that of
        their mode.
    mode : str
        `affine`, of integers; or `mxfp4`, `nvfp4` or `mxfp8`, of floats.
    dtype, out, threads, level
        What all such functions take: see `anamnesis.schemes`.

    Returns
    -------
    ndarray
        [..., rows, cols]. NaNs are the one quiet NaN.

    Raises
    ------
    TypeError
        If an array has another dtype.
    ValueError
        If the shapes do not go together, or MLX has no such mode, bits or groups.

    Notes
    -----
    `mx.dequantize` of MLX with float32 scales on a CPU: a product and a sum in float32, one
    rounding. Of floats it is the product.
    """
    from anamnesis.schemes.core import arrays as memory

    found = _weight_of(weight, scales, biases, *_settings(mode, bits, group_size), mode)
    return memory.decode(found, output_dtype(dtype), out, threads, resolve_level(level))


def _settings(mode: str, bits: int | None, group_size: int | None) -> tuple[int, int]:
    """Return the bits and the group size that are asked for, or usual."""
    if mode == "affine":
        return (4 if bits is None else bits, 64 if group_size is None else group_size)
    if mode not in _FLOATS:
        modes = ", ".join(["affine", *_FLOATS])
        raise ValueError(f"mode must be one of {modes}; got {mode!r}")
    width, size = _FLOATS[mode]
    if group_size not in (None, size) or bits not in (None, width):
        raise ValueError(f"{mode} has {width} bits in groups of {size}")
    return width, size


def _weight_of(
    weight: NDArray[Any],
    scales: NDArray[Any],
    biases: NDArray[Any] | None,
    bits: int,
    group_size: int,
    mode: str,
) -> Weight:
    """Return arrays as a weight.

    Raises
    ------
    TypeError, ValueError
        As `dequantize` says.
    """
    from anamnesis.base.errors import AnamnesisError
    from anamnesis.schemes.claim.facts import QuantFacts
    from anamnesis.schemes.claim.ledger import Ledger
    from anamnesis.schemes.core import arrays as memory
    from anamnesis.schemes.integers.checks import SCALES
    from anamnesis.schemes.integers.layouts.mlx import find

    codes = memory.stored(weight, "weight", ("U32",))
    if mode != "affine":
        if biases is not None:
            raise ValueError(f"{mode} has no biases")
        return _floats_of(weight, scales, mode)
    if biases is None:
        raise ValueError("affine has biases, which are missing")
    parts = {
        "weight": codes,
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
        found = find(parts["weight"], Ledger(parts), facts)
    except AnamnesisError as error:
        raise ValueError(str(error).removeprefix(": ")) from None
    if found is None:
        raise ValueError(f"weight has shape {parts['weight'].shape}, but must be a matrix")
    return found


def _floats_of(weight: NDArray[Any], scales: NDArray[Any], mode: str) -> Weight:
    import ml_dtypes
    import numpy as np

    from anamnesis.schemes.fp4.arrays import mxfp8_of_arrays, of_arrays

    codes = np.ascontiguousarray(weight)
    if mode == "mxfp8":
        return mxfp8_of_arrays(codes.view(ml_dtypes.float8_e4m3fn), scales)
    producer = "MLX" if mode == "nvfp4" else ""
    return of_arrays(mode.upper(), producer, codes.view(np.uint8), scales, None)
