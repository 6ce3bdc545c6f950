"""4-bit codes in bytes: neighbours in one, or ggml's halves of a block."""

from __future__ import annotations

from typing import Any

from anamnesis.base.lazy import NDArray, np


def paired(halves: NDArray[Any]) -> NDArray[Any]:
    """Return rows of bytes whose low nibbles are the first half, with two neighbours in a byte."""
    # Rows are of 2 to 16 bytes, a power of two.
    half = halves.shape[1] // 2
    number, low, high = _masks(half)
    bytes_ = np.ascontiguousarray(halves).reshape(-1, 2)
    even, odd = (np.ascontiguousarray(bytes_[:, i]).view(number) for i in (0, 1))
    pairs = np.empty((len(halves), 2), number)
    pairs[:, 0] = (even & low) | ((odd & low) << 4)
    pairs[:, 1] = ((even & high) >> 4) | (odd & high)
    return pairs.view(np.uint8)


def halved(pairs: NDArray[Any]) -> NDArray[Any]:
    """Return bytes of neighbours as ggml's halves of a block: the inverse of `paired`."""
    half = pairs.shape[1] // 2
    number, low, high = _masks(half)
    both = np.ascontiguousarray(pairs).view(number)
    first, second = both[:, 0], both[:, 1]
    halves = np.empty((len(pairs) * half, 2), np.uint8)
    halves[:, 0] = ((first & low) | ((second & low) << 4)).view(np.uint8)
    halves[:, 1] = (((first & high) >> 4) | (second & high)).view(np.uint8)
    return halves.reshape(pairs.shape)


def _masks(n_bytes: int) -> tuple[str, Any, Any]:
    """Return the dtype of numbers of so many bytes, and what masks all low and high nibbles."""
    number = np.dtype(f"<u{n_bytes}")
    low = np.frombuffer(b"\x0f" * n_bytes, number)[0]
    return number.str, low, low << 4


def swapped(codes: NDArray[Any]) -> NDArray[Any]:
    """Return bytes with their nibbles in the other order."""
    other: NDArray[Any] = (codes << 4) | (codes >> 4)
    return other
