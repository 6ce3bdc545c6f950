"""Integers in rows, with scales, zero points and biases for blocks of them, whoever wrote them.

    result = round((float32(code) - zero) * float32(scale) + float32(bias))

Each operation rounds to float32, the last one to the output. What differs from producer to producer
is names, how codes are packed, and where zero points lie: a file for each finds them, and
`weight.py` decodes them all.
"""

from __future__ import annotations

from anamnesis.schemes.integers.read import find_all
from anamnesis.schemes.integers.weight import IntegerWeight

__all__ = ["IntegerWeight", "find_all"]
