"""What exllamav2 calls the parts of a weight, and what it stores them in."""

from __future__ import annotations

from typing import ClassVar

from anamnesis.schemes.core.layout import Field


class Exl2:
    """exllamav2's, which makes the last two parts itself as it loads the others."""

    # They are claimed, and not looked into.

    fields: ClassVar[tuple[Field, ...]] = (
        Field("codes", "{module}q_weight", ("I32",)),
        Field("scales", "{module}q_scale", ("I32",)),
        Field("largest scales", "{module}q_scale_max", ("F16",)),
        Field("groups", "{module}q_groups", ("I16",)),
        Field("order", "{module}q_invperm", ("I32",)),
        Field(
            "inverse order", "{module}q_perm", ("I32", "I16"), unless="the order alone is stored"
        ),
        Field(
            "groups of rows", "{module}q_group_map", ("I16",), unless="the groups alone are stored"
        ),
    )
