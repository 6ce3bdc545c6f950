"""GGUF's blocks, under the name of a weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Layout, Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.ggml.weight import GgmlWeight


@dataclass(frozen=True)
class Blocks(Layout):
    """Blocks of one type, under the name of the weight."""

    block_type: str

    fields: ClassVar[tuple[Field, ...]] = (Field("codes", "{weight}"),)

    def view(self, weight: Weight) -> Any:
        if isinstance(weight, GgmlWeight) and weight.parts[0].dtype.name == self.block_type:
            return weight.parts[0]._replace(name=weight.name)
        return super().view(weight)

    def write(self, view: Any, encoding: Encoding) -> Repack | None:
        return Repack((encoding,), (view,)) if isinstance(view, StoredTensor) else None

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        return GgmlWeight(name, shape, parts)
