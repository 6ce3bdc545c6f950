"""Budgets for untrusted input: unbounded by default, below the permanent caps.

They only tighten these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from anamnesis.base.arguments import Size, number, size
from anamnesis.base.errors import LimitExceeded

__all__ = ["Budget", "ParseLimits", "hold"]

_SIZES = ("max_single_alloc", "max_total_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseLimits:
    """What parsing one input may cost; `None` means no limit beyond the format's own caps.

    What is made of the input is held against them too, call by call: an array of `Tensor.numpy`,
    all of `Model.state_dict` together, the file of `Model.remember_to_bytes`. Of a file that is
    what `Inspection.n_bytes_out` says.

    Parameters
    ----------
    max_single_alloc : int or str, optional
        Bytes, or a text such as "500MB", of any one allocation: a header, a string, an array of a
        tensor's values.
    max_total_bytes : int or str, optional
        Bytes, or a text, of all allocations of one `parse` together, and of what one call makes.
    max_item_count : int, optional
        Tensors, metadata entries, array items and the like, all together.
    max_decompression_ratio : float, optional
        Decompressed bytes per compressed byte, for compressed archive members.

    Raises
    ------
    TypeError, ValueError
        If a limit is no number, or negative.
    """

    max_single_alloc: int | None = None
    max_total_bytes: int | None = None
    max_item_count: int | None = None
    max_decompression_ratio: float | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            max_single_alloc: Size | None = None,
            max_total_bytes: Size | None = None,
            max_item_count: int | None = None,
            max_decompression_ratio: float | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, str) and f.name in _SIZES:
                value = size(f.name, value)
                object.__setattr__(self, f.name, value)
            if value is not None and not number(f.name, value) >= 0:  # NaN is not, either
                raise ValueError(f"{f.name} must not be negative, got {value}")

    @classmethod
    def untrusted(cls) -> ParseLimits:
        """Return limits for files of strangers, which the models of today stay below.

        A gigabyte of memory, half of it at a time, two million items, and archives that grow by a
        factor of 100 at most.
        """
        return cls(
            max_single_alloc=500_000_000,
            max_total_bytes=1_000_000_000,
            max_item_count=2_000_000,
            max_decompression_ratio=100,
        )


UNLIMITED = ParseLimits()


@dataclass(slots=True)
class Budget:
    """What is left of a `ParseLimits` while one input is parsed. Ask before allocating."""

    limits: ParseLimits = field(default=UNLIMITED)
    bytes_used: int = 0
    items_used: int = 0

    def alloc(self, n_bytes: int, what: str) -> None:
        """Account for an allocation of `n_bytes`; raise `LimitExceeded` if it is not allowed."""
        single, total = self.limits.max_single_alloc, self.limits.max_total_bytes
        if single is not None and n_bytes > single:
            raise LimitExceeded(
                "max_single_alloc",
                f"{n_bytes:,} bytes for {what}, more than the {single:,} allowed",
            )
        self.bytes_used += n_bytes
        if total is not None and self.bytes_used > total:
            raise LimitExceeded(
                "max_total_bytes",
                f"{self.bytes_used:,} bytes with {what}, more than the {total:,} allowed in all",
            )

    def items(self, n: int, what: str) -> None:
        """Account for `n` items; raise `LimitExceeded` if there are too many."""
        self.items_used += n
        most = self.limits.max_item_count
        if most is not None and self.items_used > most:
            raise LimitExceeded(
                "max_item_count", f"more than the {most:,} items allowed with {what}"
            )


def hold(limits: ParseLimits, sizes: Iterable[tuple[str, int]]) -> None:
    """Hold against limits what a call is about to make, before it makes any of it."""
    budget = Budget(limits)
    for what, n_bytes in sizes:
        budget.alloc(n_bytes, what)
