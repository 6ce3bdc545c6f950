"""How each producer stores 6-bit floats, which are read and not written."""

from __future__ import annotations

from typing import NamedTuple

from anamnesis.schemes.core.layout import Field

_POWERS = ("U8", "F8_E8M0")


class Mxfp6Layout(NamedTuple):
    """One producer's way."""

    producer: str
    fields: tuple[Field, Field]
    kind: str = ""


LAYOUTS = (
    Mxfp6Layout(
        "Quark",
        (
            Field("codes", "{module}weight", ("U8",)),
            Field("scales", "{module}weight_scale", _POWERS),
        ),
    ),
    Mxfp6Layout(
        "compressed-tensors",
        (
            Field("codes", "{module}weight_packed", ("U8",)),
            Field("scales", "{module}weight_scale", _POWERS),
        ),
        "fp6_e2m3",
    ),
)
