"""Which kernels run: the best that this CPU supports, unless told otherwise."""

from __future__ import annotations

import os
from typing import Literal, cast

import anamnesis._core as _core

__all__ = ["LEVEL_VARIABLE", "LevelName", "resolve_level", "supported_levels"]

LEVEL_VARIABLE = "ANAMNESIS_LEVEL"

LevelName = Literal["scalar", "avx2", "avx512", "neon"]


def supported_levels() -> tuple[LevelName, ...]:
    """Levels that this CPU can run, up to `ANAMNESIS_LEVEL` if that is set, slowest first."""
    return cast("tuple[LevelName, ...]", _core.supported_levels())


def resolve_level(name: str | None = None) -> int:
    """Return the id of a level by its name."""
    supported = _core.supported_levels()
    name = name or os.environ.get(LEVEL_VARIABLE) or supported[-1]
    if name not in supported:
        raise ValueError(f"level {name!r} is not one of {', '.join(supported)}")
    return _core.LEVELS[name]
