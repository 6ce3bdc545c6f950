"""An encoding is a way to write a weight, with its settings: codes in a layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Part
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Codes, Extent, Importance, Loss, NotFinite, Task
from anamnesis.schemes.core.layout import Layout, Moves, Repack, Unmovable
from anamnesis.schemes.core.weight import Scratch, Weight


@dataclass(frozen=True)
class Encoding:
    """What can be asked for by a name: numbers of one kind, stored in one producer's way.

    Attributes
    ----------
    id : str
        Its stable name, with its settings: what plans and runs are compared by.
    layout : Layout
    codes : Codes or None
        None if it only takes codes that are there already, and quantises nothing.
    """

    id: str
    layout: Layout
    codes: Codes | None = None

    @property
    def encoder(self) -> Codes:
        """The codes, of weights that were not refused."""
        if self.codes is None:
            raise UnsupportedError(f"{self.id} only takes codes that are there already")
        return self.codes

    @property
    def values(self) -> DType:
        return DTYPES["F32"] if self.codes is None else self.codes.values

    def fitted(self, dtype: DType) -> Encoding:
        codes = None if self.codes is None else self.codes.fitted(dtype)
        layout = self.layout.fitted(dtype)
        if codes is self.codes and layout is self.layout:
            return self
        return replace(self, codes=codes, layout=layout)

    def with_importance(self, importance: Importance | None) -> Encoding:
        """Return the encoding of a weight whose columns are so important, if it looks at that."""
        codes = None if self.codes is None else self.codes.with_importance(importance)
        return self if codes is self.codes else replace(self, codes=codes)

    def refuses(self, name: str, shape: tuple[int, ...], dtype: DType) -> str | None:
        """Return why a weight, turned where that is so, cannot be written so; None if it can."""
        if self.codes is None:
            return f"not in codes that {self.id} holds"
        return self.layout.refuses(name, shape, dtype) or self.codes.refuses(shape)

    def parts(self, name: str, shape: tuple[int, ...], found: bytes = b"") -> tuple[Part, ...]:
        """Return the tensors that a weight is written as, so that headers go before data.

        Before the survey was made, `found` is empty: names, dtypes and number of the parts are
        right even so, and shapes and sizes about.
        """
        return self.layout.parts(name, shape, self.encoder.outs(shape, found), found)

    def laid_out(
        self, name: str, shape: tuple[int, ...], found: bytes = b""
    ) -> tuple[tuple[Part, ...], dict[int, bytes]]:
        """Return the parts, and the bytes, by their places, of those that no band writes to."""
        outs = self.encoder.outs(shape, found)
        try:
            by_role = self.encoder.constants(shape, found)
        except NotFinite as error:
            raise error.named(name, self.id) from None
        made = {i: by_role[out.role] for i, out in enumerate(outs) if out.role in by_role}
        parts = self.layout.parts(name, shape, outs, found)
        own = [raw for _, raw in self.layout.beside(name, shape, found)]
        return parts, made | dict(enumerate(own, len(outs)))

    def extents(self, shape: tuple[int, ...], band: Band) -> tuple[Extent, ...]:
        """Return which bytes of each part a band fills; of a constant one `Extent(0, 0)`."""
        own = [Extent(0, 0)] * len(self.layout.beside("", shape))
        return (*self.encoder.extents(shape, band), *own)

    def encode(self, values: memoryview, task: Task, outs: Sequence[memoryview]) -> Loss:
        """Encode a band of values into one buffer for each part; measure what it takes."""
        try:
            return self.encoder.encode(values, task, outs)
        except NotFinite as error:
            raise error.named(error.of, self.id) from None

    def take(
        self, weight: Weight, task: Task, scratch: Scratch, outs: Sequence[memoryview]
    ) -> Loss:
        """Decode a band of a weight, and encode it; name the weight if that cannot be done."""
        try:
            return self.encoder.take(weight, task, scratch, outs)
        except NotFinite as error:
            raise error.named(weight.name, self.id) from None

    def repacks(self, weights: Iterable[Weight]) -> Moves:
        """Return the codes of those weights of a model that can be moved, by their names.

        Of those whose codes are of the layout's kind, but cannot be moved, the error says why.
        """
        views: dict[str, Any] = {}
        unseen: dict[str, Repack | Unmovable] = {}
        for weight in weights:
            try:
                view = self.layout.view(weight)
            except Unmovable as error:
                unseen[weight.name] = error
            else:
                views |= {} if view is None else {weight.name: view}
        return {**unseen, **(self.layout.write_all(views, self) if views else {})}


# --- ids, and words behind names: both from one table of settings ------------------------------

# `fp8-block-64x64-e5m2` is `fp8-block` with a block size of (64, 64) and the format E5M2. An id has
# a word for each setting that is not as usual, in the order of the table; a name may have them in
# any order.

_NUMBER = re.compile(r"[0-9]{1,6}")
_BLOCK = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")


class Setting(NamedTuple):
    """A setting of some encodings, and the words for it."""

    name: str
    usual: Any
    words: Mapping[Any, str] = {}
    form: Literal["", "number", "block"] = ""
    is_always_said: bool = False
    ids_alone: Mapping[Any, str] = {}

    def spelt(self, value: Any) -> str:
        for words in (self.words, self.ids_alone):
            if value in words:
                return words[value]
        return "x".join(map(str, value)) if self.form == "block" else str(value)

    def read(self, word: str) -> tuple[Any] | None:
        """Return the value that a word stands for, in a tuple; None if it is for another one."""
        for value, own in self.words.items():
            if word == own:
                return (value,)
        if self.form == "number" and _NUMBER.fullmatch(word):
            return (int(word),)
        block = _BLOCK.fullmatch(word) if self.form == "block" else None
        return None if block is None else ((int(block[1]), int(block[2])),)


def spelt(name: str, settings: Mapping[str, Any], table: Sequence[Setting]) -> str:
    """Return the id of an encoding: its name, and words for settings that are not as usual."""
    said = [
        one.spelt(settings[one.name])
        for one in table
        if one.name in settings and (one.is_always_said or settings[one.name] != one.usual)
    ]
    return "-".join([name, *filter(None, said)])


def parsed(words: str, table: Sequence[Setting]) -> dict[str, Any] | None:
    """Return what words behind a name say; None if they say nothing, or one thing twice."""
    settings: dict[str, Any] = {}
    for word in words.split("-"):
        found = [(s.name, value) for s in table if (value := s.read(word))]
        if len(found) != 1 or found[0][0] in settings:
            return None
        name, (settings[name],) = found[0]
    return settings
