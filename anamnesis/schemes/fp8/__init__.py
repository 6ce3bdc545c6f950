"""8-bit floats with scales: FP8 and MXFP8, whoever wrote them."""

from __future__ import annotations

from anamnesis.schemes.fp8.read import dequantize, quantize

__all__ = ["dequantize", "quantize"]
