"""GGUF's blocks, under the name of a weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Field, Layout, Repack
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.ggml.weight import GgmlWeight

__all__ = ["Blocks"]


@dataclass(frozen=True)
class Blocks(Layout):
    """Blocks of one type, under the name of the weight.

    Attributes
    ----------
    block_type : str
        ggml's name, such as `Q4_K`.
    """

    block_type: str

    fields: ClassVar[tuple[Field, ...]] = (Field("codes", "{weight}"),)

    def view(self, weight: Weight) -> Any:
        """Return blocks of the type as they are."""
        if isinstance(weight, GgmlWeight) and weight.parts[0].dtype.name == self.block_type:
            return weight.parts[0]._replace(name=weight.name)
        return super().view(weight)

    def write(self, view: Any, encoding: Encoding) -> Repack | None:
        """Return blocks as they are."""
        return Repack((encoding,), (view,)) if isinstance(view, StoredTensor) else None

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        """Return blocks as they are read."""
        return GgmlWeight(name, shape, parts)
