"""Encodings of dense integers in groups of a row: MLX, GPTQ, AWQ."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from anamnesis import _core
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.schemes.core.encoding import Encoding, Loss, Task

__all__ = ["Packing"]

_LARGEST_GRAIN = 1 << 24  # values: what a thread holds at once is bounded


@dataclass(frozen=True)
class Packing(Encoding):
    """What all of them share.

    Attributes
    ----------
    group_size : int
        Columns that share a scale.
    dtype : DType
        BF16, F16 or F32: what the weight is in.
    """

    group_size: int
    dtype: DType = field(default=DTYPES["BF16"], kw_only=True)

    conv1d = "left"
    rule: ClassVar[str]  # as `_core.PACKING_RULES` names it
    group_sizes: ClassVar[tuple[int, ...]]  # those that its programs know

    def __post_init__(self) -> None:
        """Check the group size.

        Raises
        ------
        ValueError
            If the programs that read it do not know it.
        """
        if self.group_size not in self.group_sizes:
            known = ", ".join(map(str, self.group_sizes))
            raise ValueError(f"group_size must be one of {known}; got {self.group_size}")

    @property
    @abstractmethod
    def kernel(self) -> str:
        """The id of the kernel, and of the one that reads its codes."""

    @property
    def values(self) -> DType:
        """The weight's own dtype."""
        return self.dtype

    def fitted(self, dtype: DType) -> Packing:
        """Return the same for a weight of a dtype."""
        return replace(self, dtype=dtype) if dtype.name in _core.SOURCES else self

    def _refuses_rows(self, shape: tuple[int, ...]) -> str | None:
        """Return why the rows of a matrix cannot be packed; None if they can."""
        if shape[-1] % self.group_size:
            return f"rows are not in whole groups of {self.group_size}"
        if self.grain(shape) > _LARGEST_GRAIN:
            return f"{self.grain(shape):,} values depend on each other"
        return None

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode whole rows: into codes, scales, and biases or zero points.

        Raises
        ------
        UnsupportedError
            If a value is infinite or a NaN, or too large for the scales.
        """
        codes, scales, shifts = (outs[place] for place in self._places)
        errors = _core.pack(
            _core.SOURCES[self.dtype.name],
            _core.PACKERS[self.kernel],
            _core.PACKING_RULES[self.rule],
            values,
            *task.matrix,
            self.group_size,
            codes,
            scales,
            shifts,
            task.measures,
            task.level,
        )
        return task.loss(errors, self.id)

    @property
    def _places(self) -> tuple[int, int, int]:
        """Where codes, scales, and biases or zero points are among the parts."""
        return 0, 1, 2
