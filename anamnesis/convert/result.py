"""What a conversion did: the account that it ends with."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from anamnesis.base.dropped import Dropped

__all__ = ["Report"]


@dataclass(frozen=True, slots=True)
class Report:
    """What a conversion did.

    Attributes
    ----------
    path : str or None
        The output, if it has a path.
    dtype : str
        What quantised weights came out as.
    n_in, n_out, n_quantized : int
        Stored tensors read, tensors written, and how many of these were quantised.
    n_bytes : int
        Size of the safetensors files written.
    n_consumed : int
        Stored tensors that went into others: the scales of weights.
    dropped : tuple of Dropped
        Tensors and files that the output leaves out, and why.
    unknown : tuple of str
        Tensors that could not be accounted for and passed through as they are.
    still_quantized : tuple of str
        Files of the output that go on describing the quantisation, because of these.
    overflows : dict of str to int
        For tensors with values beyond the range of `dtype`: how many became infinite.
    seconds : float
    """

    path: str | None
    dtype: str
    n_in: int
    n_out: int
    n_quantized: int
    n_bytes: int
    n_consumed: int
    dropped: tuple[Dropped, ...]
    unknown: tuple[str, ...] = ()
    still_quantized: tuple[str, ...] = ()
    overflows: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
        return asdict(self)

    def __str__(self) -> str:
        line = f"in {self.n_in:,} tensors, out {self.n_out:,}, dropped {len(self.dropped):,}"
        reasons = Counter(d.reason for d in self.dropped)
        if reasons:
            line += f" ({', '.join(f'{n:,} {reason}' for reason, n in reasons.most_common())})"
        if self.n_consumed:
            line += f"; {self.n_consumed:,} scale{'' if self.n_consumed == 1 else 's'} applied"
        if self.unknown:
            line += f"; passed through unread: {', '.join(self.unknown)}"
        if self.still_quantized:
            line += f"; {', '.join(self.still_quantized)} still describing the quantisation"
        if self.overflows:
            n = sum(self.overflows.values())
            line += f"; {n:,} values overflowed {self.dtype} in {', '.join(self.overflows)}"
        return line
