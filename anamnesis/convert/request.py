"""The options of a conversion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict, Unpack

from anamnesis.base.dtypes import DType, DTypeLike, output_dtype
from anamnesis.base.levels import LevelName, resolve_level
from anamnesis.base.workers import default_threads
from anamnesis.convert.pipeline import Progress

__all__ = ["Options", "RememberOptions", "resolve_options"]


class RememberOptions(TypedDict, total=False):
    """The keyword options of `Model.remember`, whose docstring explains them."""

    threads: int | None
    progress: Progress | Literal[True] | None
    force: bool
    resume: bool
    sync: bool
    cast_all: bool
    allow_unknown: bool
    max_shard_size: int | None
    level: LevelName | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of `Model.remember`, resolved.

    Raises
    ------
    ValueError
        If `threads` or `max_shard_size` is less than 1.
    """

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

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads must be at least 1, got {self.threads}")
        if self.max_shard_size is not None and self.max_shard_size < 1:
            raise ValueError(f"max_shard_size must be at least 1, got {self.max_shard_size}")


def resolve_options(dtype: DTypeLike | str, **options: Unpack[RememberOptions]) -> Options:
    """Return the options of a conversion, with what is usual for those that are not given.

    Raises
    ------
    TypeError
        If there is no such option.
    ValueError
        If a value is none that the option takes.
    """
    for name in options:
        if name not in RememberOptions.__annotations__:
            known = ", ".join(RememberOptions.__annotations__)
            raise TypeError(f"remember has no option {name!r}; it has {known}")
    given: dict[str, Any] = {"threads": None, "level": None, **options}
    if given["threads"] is None:
        given["threads"] = default_threads()
    given["level"] = resolve_level(given["level"])
    return Options(dtype=output_dtype(dtype), **given)
