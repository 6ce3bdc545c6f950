"""Something that is left out of the output, and why."""

from __future__ import annotations

from dataclasses import dataclass

ASKED = "as asked"
OUTSIDE = "outside the selection"


@dataclass(frozen=True, slots=True)
class Dropped:
    """Something that is left out of the output, and why."""

    name: str
    reason: str
