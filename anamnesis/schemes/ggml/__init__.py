"""ggml's block types: the tensors of GGUF files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamnesis.base.lazy import lazily

__all__ = ["dequantize", "quantize"]

if TYPE_CHECKING:
    from anamnesis.schemes.ggml.arrays import dequantize, quantize
else:
    __getattr__, __dir__ = lazily(__name__, __all__, "arrays")
