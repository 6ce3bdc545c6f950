"""How much is made at a time: the bytes of a band, and of a stripe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

THREAD_BYTES = 16 << 20  # the most that each thread takes


class _Sizes(NamedTuple):
    band: int
    stripe: int


_BANDS_IN_A_STRIPE = 8

# Output of one band: small enough to be in cache still when it is written, large enough that the
# interpreter's part in it does not show.
_USUAL = _Sizes(1 << 20, _BANDS_IN_A_STRIPE << 20)

_now = [_USUAL]


def band_bytes() -> int:
    """Return about how many bytes of output one band has."""
    return _now[-1].band


def encoded_band_bytes() -> int:
    """Return about how many bytes of values a band has that is encoded for a file."""
    # Twice the usual: codes are fewer bytes, and the interpreter's part is the same for any band.
    return 2 * band_bytes()


def stripe_bytes() -> int:
    """Return the most bytes of all parts that are read at once, where many bands share them."""
    return _now[-1].stripe


@contextmanager
def cut_into(band: int, stripe: int | None = None) -> Iterator[None]:
    """Cut otherwise in this process, while the block runs; a partial run is of one size."""
    _now.append(_Sizes(band, band * _BANDS_IN_A_STRIPE if stripe is None else stripe))
    try:
        yield
    finally:
        _now.pop()
