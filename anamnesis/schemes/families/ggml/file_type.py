"""`general.file_type`: the number by which a GGUF says what mix it is of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from anamnesis.schemes.families.ggml import mixes
from anamnesis.schemes.families.ggml.header import Told, Typed

GUESSED = 1024  # added to the number if a source does not say it
MOSTLY = {"NVFP4": 39, "MXFP4": 38}  # what the converter says of files that are mostly of a type
_UNASKED = {"NVFP4": 39}  # of types that llama-quantize makes no mix of


def mix_of(number: Any) -> str | None:
    """Return the name of the mix that has a number; None if none has it."""
    if type(number) is not int:
        return None
    return next((n for n, mix in mixes.MIXES.items() if mix.number == number & ~GUESSED), None)


def file_type(
    mix: str,
    metadata: Mapping[str, Any],
    overrides: Mapping[str, Typed] | None = None,
    dtypes: Iterable[str] = (),
) -> int:
    """Return what `general.file_type` says of a mix, or of a copy."""
    if mix != mixes.COPY:
        return mixes.MIXES[mix].number
    if mixes.FILE_TYPE in metadata or mixes.FILE_TYPE in (overrides or {}):
        return Told(metadata, overrides or {}).number(mixes.FILE_TYPE)
    counts: Counter[str] = Counter()
    most, common = 0, "F32"
    for dtype in dtypes:
        counts[dtype] += 1
        if counts[dtype] > most:
            most, common = counts[dtype], dtype
    name = common.lower()
    found = mixes.MIXES.get(mixes.ALIASES.get(name, name))
    return GUESSED | (found.number if found else _UNASKED.get(common, 0))
