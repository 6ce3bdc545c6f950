"""Vectors out of codebooks, AQLM and VPTQ: a code stands for several values."""

from __future__ import annotations

from anamnesis.schemes.families.codebooks.read import find_all

__all__ = ["find_all"]
