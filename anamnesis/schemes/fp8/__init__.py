"""8-bit floats with scales: FP8 and MXFP8, whoever wrote them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamnesis.base.lazy import lazily

__all__ = ["dequantize", "quantize"]

if TYPE_CHECKING:
    from anamnesis.schemes.fp8.arrays import dequantize, quantize
else:
    __getattr__, __dir__ = lazily(__name__, __all__, "arrays")
