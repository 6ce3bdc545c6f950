"""ggml's numbers: float32 to blocks, with or without the importance of columns.

BF16, F16 and F32 of a mix are values that are refused if one is not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from hashlib import sha256
from math import isfinite, prod

import anamnesis._core as _core
from anamnesis.base.dtypes import BLOCK_DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.lazy import np
from anamnesis.schemes.core.codes import Codes, Importance, Loss, NotFinite, Out, Task, place_of
from anamnesis.schemes.core.plain_encoding import PlainCodes, PlainEncoding, PlainLayout
from anamnesis.schemes.core.weight import Scratch, Weight

TYPES = tuple(_core.ENCODERS)  # ggml's names of those that can be written
_F32_BYTES = 4
_NOTHING = memoryview(b"")


@dataclass(frozen=True)
class BlockCodes(Codes):
    """Blocks of one type."""

    block_type: str
    importance: Importance | None = None

    @property
    def dtype(self) -> DType:
        return BLOCK_DTYPES[self.block_type]

    @property
    def given(self) -> str:
        return "" if self.importance is None else self.importance.digest

    def with_importance(self, importance: Importance | None) -> BlockCodes:
        is_ignored = _core.encoder_weights(_core.BLOCKS[self.block_type]) == 0
        return self if is_ignored else replace(self, importance=importance)

    @property
    def needs_importance(self) -> bool:
        """Whether the type has no encoder without it."""
        return _core.encoder_weights(_core.BLOCKS[self.block_type]) == 2

    def refuses(self, shape: tuple[int, ...]) -> str | None:
        size = self.dtype.block_elements
        if not shape or shape[-1] % size:
            cols = shape[-1] if shape else 1
            return f"rows of {cols:,} values are no whole {self.block_type} blocks of {size}"
        if self.importance is None:
            needs = self.needs_importance
            return f"{self.block_type} needs an importance matrix" if needs else None
        found, wanted = self.importance.values.nbytes // _F32_BYTES, prod(shape[:-2]) * shape[-1]
        if found != wanted:
            return f"its importance matrix has {found:,} values, and its columns are {wanted:,}"
        return None

    def outs(self, shape: tuple[int, ...], found: bytes = b"") -> tuple[Out, ...]:
        return (Out("codes", self.dtype, shape),)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        cols, dtype = task.shape[-1], self.dtype
        lost = [(0.0, 0.0, 0.0, 0.0)]
        for first, stop, weights in self._runs(task):
            given = values[first * _F32_BYTES : stop * _F32_BYTES]
            out = outs[0][dtype.n_bytes(first) : dtype.n_bytes(stop)]
            found = _core.encode_blocks(
                *(_core.BLOCKS[self.block_type], given, (stop - first) // cols, cols, weights, out),
                *(task.measures, task.level),
            )
            if isinstance(found, int):  # the place of what has no code
                value = given.cast("f")[found]
                where = place_of(task.band.start + first + found, task.shape)
                large = f"the scale of the block at {where} is too large for float16"
                raise NotFinite(large if isfinite(value) else f"{value} at {where}")
            lost.append(found)
        absolute, largest, squared, power = zip(*lost, strict=True)
        return task.measured((sum(absolute), max(largest), sum(squared), sum(power)))

    def _runs(self, task: Task) -> list[tuple[int, int, memoryview]]:
        """Return where the rows of each matrix begin and end in a band, and their importance."""
        if self.importance is None:
            return [(0, task.n, _NOTHING)]
        size = prod(task.shape[-2:])
        n_bytes = task.shape[-1] * _F32_BYTES
        runs, start = [], task.band.start
        while start < task.band.stop:
            matrix = start // size
            stop = min((matrix + 1) * size, task.band.stop)
            weights = self.importance.values[matrix * n_bytes : (matrix + 1) * n_bytes]
            runs.append((start - task.band.start, stop - task.band.start, weights))
            start = stop
        return runs


@dataclass(frozen=True)
class FiniteCodes(PlainCodes):
    """Values of a dtype, none of which is an infinity or a NaN."""

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        loss, dtype = super().take(weight, task, scratch, outs), self.dtype.name
        if _core.amax(_core.SOURCES[dtype], outs[0], task.level) is not None:
            return loss
        values = np.empty(task.n, np.float32)
        kernel = _core.FLOATS[dtype], _core.OUTPUTS["F32"]
        _core.convert(*kernel, outs[0], values.view(np.uint8).data, task.level)
        at = int(np.argmin(np.isfinite(values)))
        where = place_of(task.band.start + at, task.shape)
        is_large = loss.overflows > 0 and not np.isnan(values[at])
        what = "too large a value" if is_large else values[at]
        raise NotFinite(f"{what} at {where}", "which llama-quantize refuses, too")


@cache
def finite_encoding(dtype: DType) -> PlainEncoding:
    """Return the encoding of finite values in a dtype; its id is that: `bf16`."""
    return PlainEncoding(dtype.name.lower(), PlainLayout(), FiniteCodes(dtype), dtype)


@dataclass(frozen=True)
class Imatrix:
    """What a file of llama-imatrix holds."""

    file: str
    entries: Mapping[str, memoryview] = field(repr=False)
    datasets: Sequence[str] = ()
    n_chunks: int = 0
    unused: Mapping[str, int] = field(default_factory=dict, repr=False)

    @property
    def n_entries(self) -> int:
        """How many weights it speaks of."""
        return len(self.entries)

    def importance(self, name: str, shape: tuple[int, ...]) -> Importance | None:
        """Return the importance of a weight's columns; None if it has no entry for it."""
        # One of another size is refused, but for the embeddings', which goes unused, as in
        # llama-quantize. Where all columns of a matrix have importance 0, which would erase it,
        # they have 1: calibration never reached it.
        values = self.entries.get(name)
        if values is None:
            return None
        found, wanted = values.nbytes // _F32_BYTES, prod(shape[:-2]) * shape[-1]
        if found != wanted:
            if name == "token_embd.weight":
                return None
            raise UnsupportedError(
                f"{self.file}: is of another model: {name!r} has {found:,} values, and {wanted:,}"
                " columns in all its matrices"
            )
        rows = np.frombuffer(values, np.float32).reshape(-1, shape[-1])
        is_used = np.asarray(rows.any(1))
        n_zeros = int(np.count_nonzero(rows[is_used] == 0))
        n_unused = len(rows) - int(np.count_nonzero(is_used))
        if n_unused:
            values = np.where(is_used[:, None], rows, np.float32(1)).reshape(-1).view(np.uint8).data
        n_unmeasured = n_unused + self.unused.get(name, 0)
        return Importance(sha256(values).hexdigest(), values, n_unmeasured, n_zeros)
