"""Vectors out of codebooks: a code stands for several values at once. AQLM and VPTQ."""

from __future__ import annotations

from anamnesis.schemes.codebooks.read import claim

__all__ = ["claim"]
