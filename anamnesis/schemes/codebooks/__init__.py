"""Vectors out of codebooks: a code stands for several values at once. AQLM and VPTQ."""

from __future__ import annotations

from anamnesis.schemes.codebooks.read import find_all

__all__ = ["find_all"]
