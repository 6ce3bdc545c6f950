"""Why a conversion cannot begin: tensors that cannot be read, or cannot be written."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.formats.base import Writer
from anamnesis.schemes.base import Weight
from anamnesis.schemes.plain import Plain

__all__ = ["first_of", "unwritable_weights"]


def first_of(problems: dict[str, AnamnesisError]) -> AnamnesisError:
    """Return the first problem; its message says how many more there are."""
    first = copy.copy(next(iter(problems.values())))
    if len(problems) > 1:
        rest = len(problems) - 1
        more = f"(and {rest:,} more such tensor{'s' if rest > 1 else ''})"
        first.args = (f"{first.message} {more}",)
    return first


def unwritable_weights(weights: Iterable[Weight], writer: Writer) -> dict[str, AnamnesisError]:
    """Return the weights that can be read, but that no file of a format can hold, and why."""
    return {
        weight.name: UnsupportedError(
            f"{part.source.name}: tensor {part.name!r} has dtype {part.dtype.name}, which"
            f" {writer.id} cannot store",
            remedy="allow_unknown=True writes its bytes as they are",
        )
        for weight in weights
        for part in weight.parts[:1]
        if isinstance(weight, Plain) and not writer.holds(part.dtype)
    }
