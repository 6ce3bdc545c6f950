"""What is asked of each weight: its encodings, and why one stays plain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.base.dtypes import DType
from anamnesis.base.patterns import unfitting
from anamnesis.convert.ask.request import Request
from anamnesis.schemes.claim.orientation import as_linear
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain import plain_dtype
from anamnesis.schemes.core.weight import Weight

if TYPE_CHECKING:
    from anamnesis.convert.plan.mixing import Mixing

_EXCLUDED = "excluded"
_NO_FLOATS = "no floats"
_CONV1D = "Conv1D"
_MAY_BE_CONV1D = "Conv1D or nn.Linear; conv1d=True or conv1d=False says which"


class Asked:
    """What a request asks of each weight of a model."""

    def __init__(self, request: Request, names_beside: Callable[[str], tuple[str, ...]]) -> None:
        self.request = request
        given = [request.encoding, *(encoding for _, encoding in request.overrides)]
        self.encodings = [encoding for encoding in given if encoding is not None]
        self.left: Mapping[str, str] = {}
        self.others: Mapping[str, Encoding] = {}
        self.conv1d: Mapping[str, bool | None] = {}
        self.mixing: Mixing | None = None
        self._names_beside = names_beside
        self._fits: dict[tuple[int, str], tuple[Encoding, Encoding]] = {}  # asked for, and fitted

    def follow(self, mixing: Mixing) -> None:
        """Take in what a mix of GGUF's types makes of a model."""
        self.mixing = mixing
        self.left, self.others = mixing.left, mixing.encodings

    def hear(self, weights: list[Weight], config: Mapping[str, Any]) -> None:
        """Take in what the tool of the encoding does with a model: what it leaves, and how else."""
        if self.request.encoding is None or self.mixing is not None:
            return
        shapes = {weight.name: weight.shape for weight in weights}
        layout = self.request.encoding.layout
        self.left = layout.leaves(shapes, config)
        self.others = _encodings_of(layout.others(shapes, config))

    # --- names ---------------------------------------------------------------------------------

    def override(self, weight: Weight) -> tuple[str, Encoding | None] | None:
        """Return the first override that fits the name of a weight or of its stack."""
        if self.mixing is not None and self.mixing.is_told(weight.name):
            return None
        return self.request.override(*self._names(weight)) if self.request.overrides else None

    def wants(self, weight: Weight) -> bool:
        """Tell whether a weight is to be encoded, by its name or that of its stack."""
        return self.request.wants(*self._names(weight))

    def check_patterns(self, names: list[str]) -> None:
        """Refuse patterns that fit no weight: they are misspelt."""
        options = {
            "include": self.request.include,
            "exclude": self.request.exclude,
            "overrides": tuple(pattern for pattern, _ in self.request.overrides),
        }
        for option, patterns in options.items():
            for pattern in unfitting(patterns, names):
                raise ValueError(f"{option}: no weight matches {pattern!r}")

    def _names(self, weight: Weight) -> tuple[str, ...]:
        return (weight.name, *self._names_beside(weight.name))

    # --- encodings -----------------------------------------------------------------------------

    def encodings_of(self, weight: Weight) -> list[Encoding]:
        """Return the encodings whose codes a weight may have already, the one of its own last."""
        override = self.override(weight)
        if override is not None:
            ways = [override[1]]
        elif self.wants(weight):
            own = self.request.encoding if self.mixing is None else None  # one of several there
            both = (own, self.others.get(weight.name))
            is_left = weight.name in self.left
            ways = [
                way for way in both if way is not None and (way.layout.moves_left or not is_left)
            ]
        else:
            ways = []
        return [way for way in ways if way is not None]

    def fitted(self, weight: Weight, encoding: Encoding) -> Encoding:
        """Return the encoding of values as they would come out plain."""
        if self.request.imatrix is not None:
            importance = self.request.imatrix.importance(weight.name, weight.shape)
            encoding = encoding.with_importance(importance)
        dtype = plain_dtype(weight, self.request.dtype, cast=False)
        if dtype.kind != "float":
            return encoding
        key = id(encoding), dtype.name
        if key not in self._fits:
            self._fits[key] = encoding, encoding.fitted(dtype)
        return self._fits[key][1]

    def why_plain(self, weight: Weight, encoding: Encoding) -> str | None:
        """Return why a weight is not encoded; None if it is."""
        if not self.wants(weight):
            return _EXCLUDED
        named = (self.left[name] for name in self._names(weight) if name in self.left)
        return next(named, None) or self.why_unfit(weight, encoding)

    def why_unfit(self, weight: Weight, encoding: Encoding) -> str | None:
        """Return why an encoding does not suit a weight; None if it does."""
        dtype = weight.own_dtype or encoding.values
        if dtype.kind != "float":
            return _NO_FLOATS
        if encoding.layout.turns(weight.name, weight.shape):
            turned = as_linear(weight)
            return (
                "cannot be turned"
                if turned is None
                else encoding.refuses(weight.name, turned.shape, dtype)
            )
        if encoding.layout.conv1d == "as stored" or not self._is_conv1d(weight):
            unsure = encoding.layout.conv1d != "as stored" and self._is_conv1d(weight) is None
            why = encoding.refuses(weight.name, weight.shape, dtype)
            return why or (_MAY_BE_CONV1D if unsure else None)
        turned = as_linear(weight)
        if encoding.layout.conv1d == "left" or turned is None:
            return encoding.refuses(weight.name, weight.shape, dtype) or _CONV1D
        return encoding.refuses(weight.name, turned.shape, dtype)

    def why_values(self, weight: Weight) -> str:
        """Return why a mix writes a weight as values."""
        assert self.mixing is not None  # nothing else does
        return self.mixing.why[weight.name]

    def turned(self, weight: Weight, encoding: Encoding) -> Weight:
        """Return a weight with the rows and columns that the encoding takes."""
        is_turned = encoding.layout.conv1d != "as stored" and self._is_conv1d(weight)
        if not is_turned and not encoding.layout.turns(weight.name, weight.shape):
            return weight
        turned = as_linear(weight)
        assert turned is not None  # else it would have been refused
        return turned

    def dtype_of_piece(self, weight: Weight) -> DType:
        """Return what a matrix is written as that becomes a piece of a stack."""
        return plain_dtype(weight, self.request.dtype, cast=self.request.cast_all)

    def _is_conv1d(self, weight: Weight) -> bool | None:
        return self.conv1d.get(weight.name, False)


def _encodings_of(names: Mapping[str, str]) -> dict[str, Encoding]:
    """Return the encodings of weights, given their names; one object for each name."""
    if not names:
        return {}
    from anamnesis.schemes.encodings import find, made  # only here, for the sake of a quick start

    rows = {name: find(name) for name in names.values()}
    ways = {name: made(row) for name, row in rows.items() if row is not None}
    return {weight: ways[name] for weight, name in names.items()}
