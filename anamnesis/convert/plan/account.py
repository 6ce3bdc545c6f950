"""What becomes of a model's stored tensors, counted when a conversion is planned."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Self

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import AnamnesisError

__all__ = ["Account"]


@dataclass(slots=True)
class Account:
    """What becomes of a model's stored tensors.

    Attributes
    ----------
    n_in, n_bytes_in : int
        How many there are, and the bytes that they take.
    n_parameters : int
        Values of all weights that can be read.
    dropped : list of Dropped
        Tensors, metadata and files that the output leaves out.
    passed : tuple of str
        Tensors that could not be accounted for and pass through as they are.
    problems : dict of str to AnamnesisError
        Tensors that cannot be read or cannot be written; they stop the run unless they may pass.
    still_quantized : list of str
        Files that still describe the quantisation, because not all of it could be read.
    plain : dict of str to str
        Weights that are left plain although an encoding is asked for, and why.
    repacked : dict of str to str
        Weights whose own codes are moved to another layout, and the encoding that has it.
    recast : list of str
        Those of them whose codes become others that stand for the same values.
    unchanged : list of str
        Those of them that are written as they are stored: the same bytes under the same names.
    inexact : list of str
        Those of them whose float32 may differ in its last bits; BF16 and F16 come out equal.
    taken_apart : dict of str to int
        Tensors that become several, such as stacks of experts, and into how many pieces.
    put_together : dict of str to int
        Tensors that are made of several, such as stacks of experts, and of how many pieces.
    made : tuple of str
        Tensors that are made of config.json.
    requantised : dict of str to str
        Weights that are encoded out of other codes, by what these are in words.
    unmovable : dict of str to str
        Those of them whose codes are of the kind that is asked for, and why they are not moved.
    cast : dict of str to (str, str)
        Plain weights that are cast, and their dtypes before and after.
    kept : dict of str to str
        Weights that stay in the blocks that they are stored in, and what these are called.
    edited : tuple of str
        Weights that have other values than those that are stored.
    n_bytes_edited : int
        What those of them that functions make take in float32, as far as they are in memory at
        once: the largest, or two of several threads.
    """

    n_in: int = 0
    n_bytes_in: int = 0
    n_parameters: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    passed: tuple[str, ...] = ()
    problems: dict[str, AnamnesisError] = field(default_factory=dict)
    still_quantized: list[str] = field(default_factory=list)
    plain: dict[str, str] = field(default_factory=dict)
    repacked: dict[str, str] = field(default_factory=dict)
    recast: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    inexact: list[str] = field(default_factory=list)
    taken_apart: dict[str, int] = field(default_factory=dict)
    put_together: dict[str, int] = field(default_factory=dict)
    made: tuple[str, ...] = ()
    requantised: dict[str, str] = field(default_factory=dict)
    unmovable: dict[str, str] = field(default_factory=dict)
    cast: dict[str, tuple[str, str]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    n_bytes_edited: int = 0

    def copy(self) -> Self:
        """Return one that is counted on by itself."""
        return replace(self, **{one.name: copy(getattr(self, one.name)) for one in fields(self)})
