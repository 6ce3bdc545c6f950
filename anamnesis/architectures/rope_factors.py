"""Factors of rotary frequencies, which llama.cpp takes as tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from anamnesis.architectures.model_facts import Facts, malformed, real
from anamnesis.base.lazy import NDArray, np

LONGROPE = ("longrope", "su")  # the second is Phi-3's older word
ORIGINAL, ATTENTION_FACTOR = "rope.scaling.original_context_length", "rope.scaling.attn_factor"
LONG = {"rope_factors_long.weight": "long_factor", "rope_factors_short.weight": "short_factor"}
LENGTHS = (8192, *(1 << i for i in range(6, 21)))  # Meta's first
ENDS = {"low_freq_factor": 1.0, "high_freq_factor": 4.0}  # of the ramp, in all published models


def llama3_scalings(factors: NDArray[np.float32]) -> Iterator[dict[str, Any]]:
    """Yield scalings that may give such factors; the longest wavelengths tell by how much."""
    # The ends of the ramp are those of all published models, and lengths are powers of 2.
    for length in LENGTHS:
        yield {
            "rope_type": "llama3",
            "factor": float(factors[-1]),
            **ENDS,
            "original_max_position_embeddings": length,
        }


def scaled_factors(facts: Facts) -> Mapping[str, Any]:
    """Return the factors of a model that scales as Llama 3 does, or by longrope."""
    if facts.rope.get("rope_type") in LONGROPE:
        return longrope_factors(facts.rope, facts.head_dim // 2)
    return llama3_factors(facts)


def longrope_factors(rope: Mapping[str, Any], n: int) -> Mapping[str, Any]:
    """Return what divides `n` frequencies beyond the original length, and within it."""
    for name in LONG.values():
        if not isinstance(rope.get(name), list) or len(rope[name]) != n:
            raise malformed(f"{name} is no list of {n} numbers")
    return {
        tensor: np.array([_positive({name: one}, name, 1.0) for one in rope[name]], np.float32)
        for tensor, name in LONG.items()
    }


def longrope_keys(facts: Facts) -> Mapping[str, Any]:
    """Return from which length on a model takes the long factors, and what scales its attention."""
    length = facts.number("max_position_embeddings")
    original = original_length(facts.rope, length)
    factor = real(facts.rope, "factor", length / original)
    given = real(facts.rope, "attention_factor", longrope_scale(factor, original))
    return {
        ORIGINAL: {"type": "uint32", "value": original},
        ATTENTION_FACTOR: {"type": "float32", "value": given},
    }


def original_length(rope: Mapping[str, Any], length: int) -> int:
    """Return the length that a model is first made for; its own by default."""
    original = rope.get("original_max_position_embeddings") or length
    if type(original) is not int or original < 2:
        name = "original_max_position_embeddings"
        raise malformed(f"{name} is {original!r}, no integer above 1")
    return original


def longrope_scale(factor: float, original: int) -> float:
    """Return what longrope multiplies cosines and sines by."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def llama3_factors(facts: Facts) -> Mapping[str, Any]:
    """Return `rope_freqs.weight` [head_dim / 2] of a model that scales as Llama 3 does."""
    # Short wavelengths stay, long ones are `factor` times as long, between them a ramp. All of it
    # is in float32, and a number divided by an array is the array's reciprocal times it, as torch
    # has it; powers are rounded once, where torch is off by a unit in some of a hundred.
    rope = facts.rope
    if str(rope.get("rope_type", "")).lower() != "llama3":
        return {}
    dim = facts.head_dim
    base, factor = _positive(rope, "rope_theta", 10000.0), _positive(rope, "factor", 8.0)
    low, high = _positive(rope, "low_freq_factor", 1.0), _positive(rope, "high_freq_factor", 4.0)
    length = _positive(rope, "original_max_position_embeddings", 8192)
    if low >= high:
        raise malformed(f"low_freq_factor, {low}, is not below high_freq_factor")
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    freqs = np.float32(1) / np.power(base, exponents.astype(np.float64)).astype(np.float32)
    factors = []
    for freq in freqs:
        wavelength = np.float32(1) / freq * np.float32(2 * math.pi)
        if wavelength < length / high:
            factors.append(np.float32(1))
        elif wavelength > length / low:
            factors.append(np.float32(factor))
        else:
            turns = np.float32(1) / wavelength * np.float32(length)
            smooth = (turns - np.float32(low)) / np.float32(high - low)
            ramp = (np.float32(1) - smooth) / np.float32(factor) + smooth
            factors.append(np.float32(1) / ramp)
    return {"rope_freqs.weight": np.array(factors, np.float32)}


def attention_scale(factor: float, mscale: float = 1.0) -> float:
    """Return what YaRN multiplies cosines and sines by, as llama.cpp does by itself."""
    return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0


def attention_factor(rope: Mapping[str, Any]) -> float | None:
    """Return what transformers multiplies them by; None if nothing says otherwise."""
    if rope.get("attention_factor") is not None:
        return _positive(rope, "attention_factor", 1.0)
    if not rope.get("mscale") or not rope.get("mscale_all_dim"):
        return None
    factor = _positive(rope, "factor", 1.0)
    scales = (_positive(rope, name, 1.0) for name in ("mscale", "mscale_all_dim"))
    of_keys, of_all = (attention_scale(factor, scale) for scale in scales)
    return of_keys / of_all


def _positive(rope: Mapping[str, Any], name: str, default: float) -> float:
    value = real(rope, name, default)
    if value <= 0:
        raise malformed(f"{name} is {value}, not positive")
    return value
