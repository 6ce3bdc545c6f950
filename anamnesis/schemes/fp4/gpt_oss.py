"""gpt-oss's MXFP4: stacks of experts as transformers quantises them.

    NAME_blocks U8 [experts, out, groups, 16], two codes to a byte, the first in its low bits
    NAME_scales U8 [experts, out, groups], E8M0 for each 32 inputs

transformers has the stacks the other way round, [experts, in, out]. They are rounded to bfloat16
first, whatever they are in; then `downcast_to_mxfp_torch` of Triton's kernels encodes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.encoding import Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.fp4.encode import GroupFloats
from anamnesis.schemes.fp4.formats import FORMATS
from anamnesis.schemes.says.sections import model_types
from anamnesis.schemes.says.stacks import is_stack, stacks_of

__all__ = ["GptOss"]

_MODEL_TYPE = "gpt_oss"


@dataclass(frozen=True)
class GptOss(GroupFloats):
    """MXFP4 of gpt-oss's experts, and of nothing else."""

    kind: str = "MXFP4"
    flavour: str = "gpt-oss"

    @property
    def id(self) -> str:
        """Always `gptoss-mxfp4`."""
        return "gptoss-mxfp4"

    def fitted(self, dtype: DType) -> GptOss:
        """Return itself: of every dtype, bfloat16 is encoded."""
        return self

    def turns(self, name: str, shape: tuple[int, ...]) -> bool:
        """Turn the stacks that it takes, which are [experts, in, out]."""
        return is_stack(name, shape)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Leave all but stacks whose inputs, the last of a turned one's, are whole groups."""
        if dtype.kind != "float":
            return dtype.name
        if not is_stack(name, shape) or name.endswith(".weight"):
            return "no stack of gpt-oss's experts"
        if shape[-1] % self.group:
            return f"inputs are not in whole groups of {self.group}"
        return "no values" if 0 in shape else None

    def leaves(
        self, shapes: Mapping[str, tuple[int, ...]], config: Mapping[str, Any]
    ) -> Mapping[str, str]:
        """Return the stacks that are not as gpt-oss has them: turned, and with biases.

        No other model's experts are loaded from these codes; the config says whose they are, and
        where there is none, biases do.
        """
        told = model_types(config)
        is_other = bool(told) and _MODEL_TYPE not in told
        found = {}
        for stacks in stacks_of(shapes).values():
            if is_other or not stacks.has_biases:
                found.update(dict.fromkeys(stacks.names, "experts of another model than gpt-oss"))
            elif stacks.orientation != "transposed":
                found.update(dict.fromkeys(stacks.names, "experts that are [out, in], or may be"))
        return found

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return blocks of codes, and scales."""
        grid = (*shape[:-1], shape[-1] // self.group)
        return (
            Part(f"{name}_blocks", DTYPES["U8"], (*grid, self.group // 2)),
            Part(f"{name}_scales", DTYPES["U8"], grid),
        )

    def declare(self, plain: Sequence[str]) -> dict[str, Any]:
        """Return what transformers looks for."""
        return {"quant_method": "mxfp4", "modules_to_not_convert": list(plain)}

    def repack(self, weight: Weight) -> Repack | None:
        """Return the codes of MXFP4 in this layout."""
        from anamnesis.schemes.fp4 import layouts

        return layouts.repack(weight, self, layouts.LAYOUTS[self.id])

    def reopen(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return codes and scales as they are read, but not turned back."""
        from anamnesis.schemes.fp4.weight import Fp4Weight

        form = FORMATS[self._way.format]
        return Fp4Weight(name, shape, parts, form, self.group, shape[-1])
