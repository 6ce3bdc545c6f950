"""The options of a conversion."""

from __future__ import annotations

from dataclasses import dataclass

from anamnesis.dtypes import DType
from anamnesis.pipeline import Progress

__all__ = ["Options"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `Model.remember`, resolved."""

    dtype: DType
    threads: int
    level: int
    progress: Progress | None = None
    force: bool = False
    resume: bool = False
    sync: bool = False
    cast_all: bool = False
    allow_unknown: bool = False
    max_shard_size: int | None = None
