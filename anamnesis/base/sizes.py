"""Numbers of bytes as people read them: in decimal units, as the hub counts."""

from __future__ import annotations

import re

_UNITS = ("KB", "MB", "GB", "TB", "PB")
_FACTORS = {"": 1, **{unit[0]: 1000 ** (i + 1) for i, unit in enumerate(_UNITS)}}
_SIZE = r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGTP]?)(I?)B?\s*"


def format_size(n_bytes: int) -> str:
    """Return for instance `640 B`, `1.7 KB`, `89.1 MB`, `7.70 GB`."""
    if n_bytes < 1000:
        return f"{n_bytes} B"
    value = float(n_bytes)
    for unit in _UNITS:
        value /= 1000
        digits = 1 if unit in ("KB", "MB") else 2
        if round(value, digits) < 1000 or unit == _UNITS[-1]:
            break
    return f"{value:,.{digits}f} {unit}"


def parse_size(text: str) -> int:
    """Return the bytes that `5GB`, `500 MB`, `2GiB` or `1000` mean."""
    found = re.fullmatch(_SIZE, text, re.IGNORECASE)
    if not found:
        raise ValueError(f"{text!r} is not a size like 5GB, 500MB or 2GiB")
    factor = _FACTORS[found[2].upper()]
    if found[3]:
        power = [*_FACTORS].index(found[2].upper())
        factor = 1024**power
    n_bytes = int(float(found[1]) * factor)
    if n_bytes <= 0:
        raise ValueError(f"{text!r} is not a size greater than zero")
    return n_bytes
