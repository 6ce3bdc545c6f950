"""Which codes are moved, not decoded: what a model has already that is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anamnesis.base.stored import StoredTensor
from anamnesis.convert.plan.asked import Asked
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Repack, Unmovable, unmovable
from anamnesis.schemes.core.weight import Weight

_SHORT = 1 << 20  # bytes of what a layout makes anew: shapes, second scales, markers, orders


class Moves:
    """The weights whose own codes are stored as in another layout."""

    def __init__(self, asked: Asked, stored: Mapping[str, StoredTensor]) -> None:
        self._asked = asked
        self._stored = stored
        self.repacks: dict[str, Repack] = {}
        self.unmovable: dict[str, Unmovable] = {}

    def find(self, weights: list[Weight]) -> None:
        """Find them among the weights of a model; an encoding is asked of all its own at once."""
        self.repacks, self.unmovable = {}, {}
        if not self._asked.encodings:
            return
        asked: dict[str, tuple[Encoding, list[Weight]]] = {}
        for weight in weights:
            for encoding in self._asked.encodings_of(weight):
                asked.setdefault(encoding.id, (encoding, []))[1].append(weight)
        for encoding, some in asked.values():
            for name, found in encoding.repacks(some).items():
                if isinstance(found, Repack):
                    self.repacks[name] = found
                elif encoding.codes is None and not found.is_cast:
                    raise found
                else:
                    self.unmovable[name] = found

    def beside_what_is_asked(self, weights: Iterable[Weight]) -> list[Weight]:
        """Return those that are moved in groups of their own, and could be in others."""
        return [weight for weight in weights if self._is_beside_what_is_asked(weight)]

    def _is_beside_what_is_asked(self, weight: Weight) -> bool:
        repack = self.repacks.get(weight.name)
        asked = self._asked.encodings_of(weight) if repack is not None else []
        if repack is None or any(e.id == way.id for e in repack.encodings for way in asked):
            return False
        return asked[0].codes is not None

    def give_up(self, weights: list[Weight], why: str) -> None:
        """Move the codes of some weights no more."""
        for weight in weights:
            del self.repacks[weight.name]
            codes = weight.parts[0]
            self.unmovable[weight.name] = unmovable(codes, weight.name, weight.shape, why)

    def is_as_stored(self, weight: Weight, repack: Repack) -> bool:
        """Tell whether a weight is written as it is stored: the same bytes under the same names."""
        names = {part.name for part in repack.parts}
        return all(part.name in names for part in weight.parts) and all(
            _is_same(part, self._stored.get(part.name)) for part in repack.parts
        )


def _is_same(part: StoredTensor, stored: StoredTensor | None) -> bool:
    """Tell whether a tensor is one that is stored: by where it lies; if it is short, by bytes."""
    if stored is None or (part.dtype.name, part.shape) != (stored.dtype.name, stored.shape):
        return False
    if part.source is stored.source and part.offset == stored.offset:
        return True
    return part.n_bytes <= _SHORT and part.read() == stored.read()
