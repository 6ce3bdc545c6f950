"""BF16, F16 and F32 of a mix: values that are refused if one is not finite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import anamnesis._core as _core
from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.schemes.core.codes import Loss, NotFinite, Task, place_of
from anamnesis.schemes.core.plain_encoding import PlainCodes, PlainEncoding, PlainLayout
from anamnesis.schemes.core.weight import Scratch, Weight


@dataclass(frozen=True)
class FiniteCodes(PlainCodes):
    """Values of a dtype, none of which is an infinity or a NaN."""

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        loss = super().take(weight, task, scratch, outs)
        if _core.amax(_core.SOURCES[self.dtype.name], outs[0], task.level) is None:
            why = self._why(outs[0], task, is_overflow=loss.overflows > 0)
            raise NotFinite(why, "which llama-quantize refuses, too")
        return loss

    def _why(self, out: memoryview, task: Task, *, is_overflow: bool) -> str:
        values = np.empty(task.n, np.float32)
        found = _core.FLOATS[self.dtype.name], _core.OUTPUTS["F32"], out
        _core.convert(*found, values.view(np.uint8).data, task.level)
        at = int(np.argmin(np.isfinite(values)))
        where = place_of(task.band.start + at, task.shape)
        is_large = is_overflow and not np.isnan(values[at])
        return f"{'too large a value' if is_large else values[at]} at {where}"


@cache
def finite_encoding(dtype: DType) -> PlainEncoding:
    """Return the encoding of finite values in a dtype; its id is that: `bf16`."""
    return PlainEncoding(dtype.name.lower(), PlainLayout(), FiniteCodes(dtype), dtype)
