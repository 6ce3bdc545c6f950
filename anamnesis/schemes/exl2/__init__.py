"""EXL2 of exllamav2: integers of 2 to 8 bits, mixed within a weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamnesis.base.lazy import lazily

__all__ = ["dequantize"]

if TYPE_CHECKING:
    from anamnesis.schemes.exl2.arrays import dequantize
else:
    __getattr__, __dir__ = lazily(__name__, __all__, "arrays")
