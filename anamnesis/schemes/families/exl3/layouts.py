"""What EXL3 calls the parts of a weight."""

from __future__ import annotations

from typing import ClassVar

from anamnesis.schemes.core.layout import Field

_AS_SIGNS = "signs are there instead"
_AS_SCALES = "scales are there instead"


class Exl3:
    """EXL3's: tiles of codes, scales or signs of both sides, and what marks another codebook."""

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{module}trellis", ("I16",)),
        Field("in scales", "{module}suh", ("F16",), unless=_AS_SIGNS),
        Field("out scales", "{module}svh", ("F16",), unless=_AS_SIGNS),
        Field("in signs", "{module}su", ("I16",), unless=_AS_SCALES),
        Field("out signs", "{module}sv", ("I16",), unless=_AS_SCALES),
        Field("multiplier", "{module}mcg", ("I32",), (), unless="the codebook is another"),
        Field("multiplier", "{module}mul1", ("I32",), (), unless="the codebook is another"),
    )
