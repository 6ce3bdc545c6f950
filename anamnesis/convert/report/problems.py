"""Why a conversion cannot begin: tensors that cannot be read or written."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import AnamnesisError, UnsupportedError
from anamnesis.formats.base import Writer
from anamnesis.formats.written import WRITERS, make_writer
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Weight

_BYTES = "allow_unknown=True writes its bytes as they are"


def first_of(problems: Mapping[str, AnamnesisError]) -> AnamnesisError:
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
            remedy=_BYTES if writer.holds(DTYPES["U8"]) else another_format(part.dtype),
        )
        for weight in weights
        for part in weight.parts[:1]
        if isinstance(weight, Plain) and not writer.holds(part.dtype)
    }


def another_format(dtype: DType) -> str | None:
    """Return what to do about a dtype that a format has not: which formats have it."""
    *some, last = [row.title for row in WRITERS.values() if make_writer(row.id).holds(dtype)] or [
        ""
    ]
    return f"write {', '.join(some)}{' or ' * bool(some)}{last} instead" if last else None
