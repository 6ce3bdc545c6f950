"""What is asked of a weight: by an override, by patterns, by a tool or a mix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.patterns import UnmatchedError, unfitting
from anamnesis.convert.request.request import Request
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain_encoding import PlainEncoding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.orientation import as_linear

if TYPE_CHECKING:
    from anamnesis.convert.decide.mix import Mix
    from anamnesis.schemes.core.layout import ExpertsTool

OVERRIDDEN = "as an override asks"
_CONV1D = {  # by whether it is one
    True: "Conv1D",
    False: None,
    None: "Conv1D or nn.Linear; conv1d=True or conv1d=False says which",
}


class Wish(NamedTuple):
    """What is asked of a weight; without an encoding its values, or what it is stored as."""

    # An override has a pattern, and is an error where it cannot be done.

    encoding: Encoding | None = None
    pattern: str | None = None
    refused: str | None = None  # why the encoding is not for this weight
    values: str | None = None  # why the wish itself is for values
    ways: tuple[Encoding, ...] = ()  # whose codes it may have already, the one of its own last

    @property
    def keeps(self) -> bool:
        """Whether an override keeps the weight as it is stored."""
        return self.pattern is not None and self.encoding is None


NOTHING = Wish()


@dataclass(frozen=True)
class Asked:
    """What is asked of a model: by a request, by the encoding's tool or a mix."""

    request: Request
    mix: Mix | None = None
    left: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Encoding] = field(default_factory=dict)
    conv1d: Mapping[str, bool | None] = field(default_factory=dict)
    _fits: dict[tuple[int, str], tuple[Encoding, Encoding]] = field(default_factory=dict)

    @cached_property
    def encodings(self) -> list[Encoding]:
        given = (self.request.encoding, *(encoding for _, encoding in self.request.overrides))
        return [encoding for encoding in given if encoding is not None]

    @property
    def experts_tool(self) -> ExpertsTool | None:
        """Whose way of saving experts is followed, if the request does not say one."""
        tools = [] if self.request.experts else [e.layout.experts_tool for e in self.encodings]
        return next((tool for tool in tools if tool is not None), None)

    def by_tool(self, weights: list[Weight], config: Mapping[str, Any]) -> Asked:
        """Return it with what the tool of the encoding leaves, and what it writes otherwise."""
        if self.request.encoding is None or self.mix is not None:
            return self
        shapes = {weight.name: weight.shape for weight in weights}
        layout, others = self.request.encoding.layout, dict[str, Encoding]()
        names = layout.others(shapes, config)
        if names:
            from anamnesis.schemes.encodings import find, made

            rows = ((name, find(name)) for name in set(names.values()))
            ways = {name: made(row) for name, row in rows if row is not None}  # one object for each
            others = {weight: ways[name] for weight, name in names.items()}
        return replace(self, left=layout.leaves(shapes, config), others=others)

    def wish(self, weight: Weight, alias: str | None = None) -> Wish:
        """Return what is asked of a weight, by its name and another that patterns may mean."""
        request, name = self.request, weight.name
        names = (name,) if alias is None else (name, alias)
        typed = None if self.mix is None else self.mix.types.get(name)
        override = request.override(*names) if request.overrides and typed is None else None
        if override is not None:
            pattern, encoding = override
            is_values = isinstance(encoding, PlainEncoding)
            if encoding is None:
                is_values = weight.own_dtype is not None
            why = OVERRIDDEN if is_values and request.encoding is not None else None
            return Wish(encoding, pattern, values=why, ways=() if encoding is None else (encoding,))
        encoding, is_left = self.others.get(name, request.encoding), name in self.left
        if encoding is None:
            return NOTHING
        if not request.wants(*names):
            return Wish(encoding, refused="excluded")
        own = request.encoding if self.mix is None else None  # of a mix one of several
        both = own, self.others.get(name)
        is_values = request.encoding is not None and isinstance(encoding, PlainEncoding)
        return Wish(
            encoding,
            refused=next((self.left[one] for one in names if one in self.left), None),
            values=typed.why if typed is not None and is_values else None,
            ways=tuple([w for w in both if w and (w.layout.moves_left or not is_left)]),
        )

    def fitted(self, weight: Weight, encoding: Encoding) -> tuple[Encoding, Weight, str | None]:
        """Return an encoding for a weight's values, and the weight with the rows that it takes."""
        # Last comes why that is not for it; None if it is.
        own, name = weight.own_dtype, weight.name
        if self.request.imatrix is not None:
            importance = self.request.imatrix.importance(name, weight.shape)
            encoding = encoding.with_importance(importance)
        dtype = own or self.request.dtype
        if dtype.kind != "float":
            return encoding, weight, "no floats"
        key = id(encoding), dtype.name
        if key not in self._fits:
            self._fits[key] = encoding, encoding.fitted(dtype)
        encoding = self._fits[key][1]
        layout, dtype = encoding.layout, own or encoding.values
        is_conv1d = False if layout.conv1d == "as stored" else self.conv1d.get(name, False)
        turns = layout.turns(name, weight.shape)
        is_linear = turns or (is_conv1d and layout.conv1d == "as linear")
        turned = as_linear(weight) if is_linear else None
        if turned is not None:
            return encoding, turned, encoding.refuses(name, turned.shape, dtype)
        if turns:
            return encoding, weight, "cannot be turned"
        why = encoding.refuses(name, weight.shape, dtype)
        return encoding, weight, why or _CONV1D[is_conv1d]

    def check_patterns(self, names: list[str]) -> None:
        """Refuse patterns that fit no weight: they are misspelt."""
        request = self.request
        overridden = tuple([pattern for pattern, _ in request.overrides])
        options = {"include": request.include, "exclude": request.exclude, "overrides": overridden}
        for option, patterns in options.items():
            for pattern in unfitting([p for p in patterns if p not in request.spelt], names):
                raise UnmatchedError(option, pattern)
