"""Integers in words as a weight: what it is called, and seen otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from anamnesis.schemes.families.integers.words import PackedWords
from anamnesis.schemes.views.kinds import Integers, Words

_LISTED = 3  # among the parts, if each column names its group

V = TypeVar("V")


@dataclass(slots=True, eq=False)
class PackedWeight(PackedWords):
    """Integers in words of GPTQ and AWQ."""

    @property
    def family(self) -> str:
        if self.producer:
            return f"INT{self.packing.bits}"
        return "AWQ" if self.packing.along_rows else "GPTQ"

    @property
    def id(self) -> str:
        if self.producer:
            return f"{self.producer.lower()}-{self.coding}-{self.group_size}"
        version = "" if self.zeros_less_one else "v2"
        return f"{self.packing.kernel.lower()}{version}-{self.group_size or 'listed'}"

    @property
    def scheme(self) -> str:
        if self.producer:
            return f"{self.family}, {self._grouping()} ({self.producer})"
        version = " v2" if not (self.packing.along_rows or self.zeros_less_one) else ""
        version = " planar" if self.packing.planar else version
        return f"{self.family}{version} {self.packing.bits}-bit, {self._grouping()}"

    def _grouping(self) -> str:
        if self.n_groups == 1:
            return "one group"
        if self.group_size is None:
            return f"{self.n_groups:,} groups"
        return f"groups of {self.group_size}"

    def view(self, kind: type[V]) -> V | None:
        if kind is Integers:
            from anamnesis.schemes.families.integers.seen import of_packed, of_words

            words = self._words()
            is_whole = words is not None and 32 % words.bits == 0
            view: Any = of_words(words) if is_whole and words else of_packed(self)
        else:
            view = self._words() if kind is Words else None
        return view if isinstance(view, kind) else None

    def _words(self) -> Words | None:
        bits = self.packing.bits
        if bits != 4 and (self.producer or self.packing.kernel != f"GPTQ{bits}"):
            return None
        codes, zeros, scales = self.parts[:_LISTED]
        listed = self.parts[_LISTED] if len(self.parts) > _LISTED else None
        kind = "across" if self.packing.along_rows else "columns"
        size = self.group_size
        group = size or -(-self.shape[1] // max(self.n_groups, 1))
        return Words(
            *(self.name, self.shape, kind, codes, scales, zeros, self.zeros_less_one),
            *(listed, group, False, bits, size),
        )
