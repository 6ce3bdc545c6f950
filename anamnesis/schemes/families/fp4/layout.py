"""What all layouts of 4-bit floats have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import (
    Field,
    Layout,
    Moves,
    Repack,
    Unmovable,
    module_of,
    unmovable,
)
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.families.fp4.equal_scales import Match, match
from anamnesis.schemes.families.fp4.formats import FORMATS, GROUPS, Fp4Format
from anamnesis.schemes.families.fp4.mxfp4_nvfp4 import Cast, to_mxfp4, to_nvfp4
from anamnesis.schemes.families.fp4.view import Fp4Codes, seen
from anamnesis.schemes.families.fp4.weight import Fp4Weight
from anamnesis.schemes.views.views import constant, forbidding


@dataclass(frozen=True)
class Fp4Layout(Layout):
    """One producer's way to store what `format` means."""

    format: str
    fields: tuple[Field, ...]  # type: ignore[misc]  # each has its own
    bare: tuple[Field, ...] = ()
    called: str = ""

    takes = Fp4Codes

    @property
    def meaning(self) -> Fp4Format:
        """What codes and scales stand for."""
        return FORMATS[self.format]

    @property
    def group(self) -> int:
        """Codes of a row that share a scale."""
        return GROUPS[self.meaning.kind]

    @property
    def has_second(self) -> bool:
        return any(one.role == "second" for one in self.fields)

    def weight(self, name: str, shape: tuple[int, ...], parts: tuple[StoredTensor, ...]) -> Weight:
        codes = parts[0]._replace(dtype=DTYPES["U8"], shape=(*shape[:-1], shape[-1] // 2))
        stored = (codes, *parts[1:])
        return Fp4Weight(name, shape, stored, self.meaning, self.group, shape[-1])

    def view(self, weight: Weight) -> Fp4Codes | None:
        return seen(weight)

    def write(self, view: Fp4Codes, encoding: Encoding) -> Repack | None:
        if view.format.kind != self.meaning.kind:
            return None
        if view.group != self.group:
            why = f"{view.group} codes share a scale, and {self.group} in {encoding.id}"
            raise view.refused(why)
        self._check(view)
        matches = [self._matched(view, second) for second in _seconds(view)]
        differing = bytes(sorted({byte for one in matches for byte in one.differing}))
        why = f"which {encoding.id} reads as another scale than {view.format.words}"
        scales = forbidding(view.scales, differing, why)
        second = b"".join(one.second for one in matches)
        if len(second) not in (0, 4 * len(matches)):  # some need one, so that all are given one
            matches = [self._matched(view, second, always=True) for second in _seconds(view)]
            second = b"".join(one.second for one in matches)
        parts = self.tensors(view._replace(scales=scales), second)
        return Repack((encoding,), tuple(parts), all(one.is_exact for one in matches))

    def write_all(self, views: Mapping[str, Fp4Codes], encoding: Encoding) -> Moves:
        kind = self.meaning.kind
        own = {name: view for name, view in views.items() if view.format.kind == kind}
        others = {name: view for name, view in views.items() if name not in own}
        found = dict(super().write_all(own, encoding))
        # Those that have one second scale are cast together; of most, each by itself.
        named = {view.name_as_stored: name for name, view in others.items()}
        groups = [tuple(named[one] for one in group) for group in self.together(tuple(named))]
        grouped = {name for group in groups for name in group}
        for names in (*groups, *((name,) for name in others if name not in grouped)):
            found |= self._cast({name: others[name] for name in names}, encoding)
        return found

    def _cast(self, views: Mapping[str, Fp4Codes], encoding: Encoding) -> Moves:
        """Return the codes of weights that have one second scale; all of them, or none."""
        try:
            for view in views.values():
                self._check(view)
            if self.meaning.kind == "NVFP4":
                casts = to_nvfp4(list(views.values()), self.meaning)
            else:
                casts = [to_mxfp4(one, _seconds(one), self.meaning) for one in views.values()]
            parts = [tuple(self.tensors(*self._for_each(cast))) for cast in casts]
        except Unmovable as error:
            return {
                name: unmovable(view.codes, view.name, view.shape, error.why, is_cast=True)
                for name, view in views.items()
            }
        made = [Repack((encoding,), some, is_cast=True) for some in parts]
        return dict(zip(views, made, strict=True))

    def _for_each(self, cast: Cast) -> Cast:
        """Return codes with as many second scales as the layout has."""
        return cast

    def _check(self, view: Fp4Codes) -> None:
        """Refuse what this layout cannot hold."""
        if view.shape[-1] % view.group:
            raise view.refused(f"rows of {view.shape[-1]:,} codes end within a group")

    def _matched(self, view: Fp4Codes, second: bytes, *, always: bool = False) -> Match:
        one = match(view.format, second, self.meaning, always)
        if one is None:
            ours, theirs = self.meaning.words, view.format.words
            raise view.refused(f"no second scale of {ours} gives the values of {theirs}")
        return one

    def tensors(self, view: Fp4Codes, second: bytes) -> list[StoredTensor]:
        name = view.name_as_stored
        is_bare = self.bare and module_of(name) == f"{name}."
        fields = self.bare if is_bare else self.fields
        return self._under(fields, name, view, second)

    def _under(
        self, fields: Sequence[Field], name: str, view: Fp4Codes, second: bytes
    ) -> list[StoredTensor]:
        """Return codes, scales, and the second scale if there is one, under a weight's names."""
        found = [fields[0].moved(view.codes, name), fields[1].moved(view.scales, name)]
        return found + self._second(name, view, second, fields)

    def _second(
        self, name: str, view: Fp4Codes, second: bytes, fields: Sequence[Field]
    ) -> list[StoredTensor]:
        """Return the second scale; or nothing."""
        n = len(second) // 4
        if not n:
            return []
        own = next(one for one in fields if one.role == "second")
        part = own.part(name, DTYPES["F32"], () if n == 1 else (n,))
        return [constant(part, second, view.codes)]


def _seconds(view: Fp4Codes) -> list[bytes]:
    """Return each second scale; one empty one where there is none."""
    if view.second is None or not view.second.n_elements:
        return [b""]
    raw = view.second.read()
    return [raw[i : i + 4] for i in range(0, len(raw), 4)]
