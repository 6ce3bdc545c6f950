"""Which second scale of one layout stands for another's, to the bit."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, NamedTuple

from anamnesis.base.lazy import NDArray, np
from anamnesis.schemes.families.fp4.formats import LARGEST_NVFP4, Fp4Format

_CODES = 8  # the magnitudes; the sign bit changes nothing else


class Match(NamedTuple):
    """How codes of one format are read in another."""

    second: bytes
    differing: bytes
    is_exact: bool


@lru_cache(maxsize=4096)
def match(
    old: Fp4Format, second: bytes, new: Fp4Format, always_second: bool = False
) -> Match | None:
    """Return how the codes of a weight are read in another format; None if they cannot be."""
    # Where one layout divides by its second scale and another multiplies, few numbers have a
    # partner by which all products of a code and a scale are equal in float32. If none has, one is
    # taken by which all are equal when they are rounded to BF16 and to F16.
    if old.kind != new.kind:
        return None
    if old.id == new.id and (second or not always_second):
        return Match(second, b"", True)
    ours = _products(old, second)
    always = _odd(old) | _odd(new)
    is_lone = old.kind == "MXFP4" or not (new.needs_second or always_second)
    candidates = [b""] if is_lone else []
    if old.kind == "NVFP4" and new.second:
        candidates += _candidates(old, second, new)
    for candidate in candidates:
        differing = _differing(ours, _products(new, candidate), always)
        if not differing or old.kind == "MXFP4":
            return Match(candidate, bytes(sorted(differing | always)), True)
    for candidate in candidates:
        both = zip(_rounded(ours), _rounded(_products(new, candidate)), strict=True)
        if not any(_differing(one, other, always) for one, other in both):
            return Match(candidate, bytes(sorted(always)), False)
    return None


@lru_cache(maxsize=4096)
def same_scales(
    old: Fp4Format, second: bytes, new: Fp4Format, other: bytes
) -> tuple[int | None, ...]:
    """Return for each byte of a scale the one of another format that gives the same values."""
    # All products with a code are equal to the bit; None where no byte does that.
    theirs = _products(new, other)
    known = [byte for byte in range(256) if not (byte in _odd(new) or np.isnan(theirs[0, byte]))]
    bytes_ = {theirs[:, byte].tobytes(): byte for byte in reversed(known)}
    ours, odd = _products(old, second), _odd(old)
    return tuple(
        [None if byte in odd else bytes_.get(ours[:, byte].tobytes()) for byte in range(256)]
    )


def _odd(format: Fp4Format) -> frozenset[int]:
    """Return the bytes of scales that ggml reads as nobody else does: without a sign bit."""
    return frozenset(range(127, 256)) if format.id == "gguf-nvfp4" else frozenset()


def _products(format: Fp4Format, second: bytes) -> NDArray[Any]:
    """Return every magnitude times every scale: float32 [8, 256], as `Fp4Weight` computes it."""
    codes = np.frombuffer(format.codebook, "<f4")[:_CODES, None]
    with np.errstate(all="ignore"):
        products: NDArray[Any] = codes * np.frombuffer(format.scales(second).table, "<f4")
    return products


def _candidates(old: Fp4Format, second: bytes, new: Fp4Format) -> list[bytes]:
    """Return the float32 nearest to what the new format needs, and its neighbours."""
    factor = np.frombuffer(second, "<f4")[0] if second else np.float32(1)
    with np.errstate(all="ignore"):
        if second and old.second == "mlx":
            factor = factor / np.float32(LARGEST_NVFP4)
        factor = np.float64(factor)
        if second and old.second == "divide":
            factor = 1.0 / factor
        wanted = {
            "divide": np.float64(1.0) / np.float64(factor),
            "mlx": np.float64(factor) * LARGEST_NVFP4,
        }.get(new.second, np.float64(factor))
        nearest = np.float32(wanted)
        above, below = (np.nextafter(nearest, np.float32(end)) for end in (np.inf, -np.inf))
    return [struct.pack("<f", value) for value in (nearest, above, below)]


def _differing(ours: NDArray[Any], theirs: NDArray[Any], always: frozenset[int]) -> frozenset[int]:
    """Return the scales of which a product differs by a bit; all NaNs are one."""
    item = np.dtype(f"u{ours.itemsize}")
    same = (ours.view(item) == theirs.view(item)) | ((ours != ours) & (theirs != theirs))
    return frozenset(np.flatnonzero(~same.all(0)).tolist()) - always


def _rounded(products: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return products as BF16 and F16."""
    import ml_dtypes

    with np.errstate(all="ignore"):
        return products.astype(ml_dtypes.bfloat16), products.astype(np.float16)
