"""What is asked of a conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from anamnesis.base.dtypes import DType

__all__ = ["Progress", "Request"]

Progress = Callable[[int, int], None]  # bytes done, bytes in all


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """The options of a conversion, resolved.

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
