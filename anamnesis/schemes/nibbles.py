"""4-bit codes in bytes: neighbours in one, as most have them, or ggml's halves of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["halved", "paired", "swapped"]


def paired(halves: NDArray[Any]) -> NDArray[Any]:
    """Return rows of bytes whose low nibbles are the first half, with two neighbours in a byte."""
    import numpy as np  # only here, for the sake of a quick start

    codes = np.concatenate((halves & 15, halves >> 4), axis=1)
    pairs: NDArray[Any] = codes[:, ::2] | (codes[:, 1::2] << 4)
    return pairs


def halved(pairs: NDArray[Any]) -> NDArray[Any]:
    """Return the same the other way."""
    import numpy as np

    n = pairs.shape[1]
    codes = np.empty((len(pairs), 2 * n), np.uint8)
    codes[:, ::2], codes[:, 1::2] = pairs & 15, pairs >> 4
    halves: NDArray[Any] = codes[:, :n] | (codes[:, n:] << 4)
    return halves


def swapped(codes: NDArray[Any]) -> NDArray[Any]:
    """Return bytes with their nibbles in the other order."""
    other: NDArray[Any] = (codes << 4) | (codes >> 4)
    return other
