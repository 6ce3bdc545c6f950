"""Vectors out of codebooks, AQLM and VPTQ: a code stands for several values."""
