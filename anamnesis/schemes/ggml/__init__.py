"""ggml's block types: the tensors of GGUF files."""

from __future__ import annotations

from anamnesis.schemes.ggml.read import dequantize

__all__ = ["dequantize"]
