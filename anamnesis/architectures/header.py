"""What the header of a GGUF says of the shapes of its tensors.

llama.cpp reads a file so, and both directions are checked by it. Rows of `arch` name the tensors,
and say what differs; header.json and check.json have what all have in common.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anamnesis.architectures.arch import Arch, split, tail_of
from anamnesis.architectures.keys import fact_of
from anamnesis.architectures.model_facts import CONFIG, Facts
from anamnesis.base.errors import ParseError
from anamnesis.base.plain_json import json_table

VOCABULARY, TYPES = "vocab", "types"  # which no key says

_TABLE: Mapping[str, Any] = json_table(__file__)
# What stands for the value of a key behind the architecture's name.
KEYS: Mapping[str, str] = _TABLE["keys"]
# By a tensor's name without `blk.N.` and `.weight`, outermost first; `?` is any number. A bias has
# the shape of its weight without the columns.
SHAPES: Mapping[str, str] = _TABLE["shapes"]
_TERM, _FACTOR = re.compile(r"([+-]?)([^+-]+)"), re.compile(r"([*/]?)([^*/]+)")
_SYMBOL = re.compile(r"[a-z_]+")


@dataclass(frozen=True, slots=True)
class Header:
    """What a model says of itself, by the keys of a GGUF header."""

    arch: Arch
    find: Callable[[str], Any]
    facts: Facts
    vocabulary: int | None
    source: str | None = CONFIG

    def word(self, key: str) -> str:
        """Return what the file calls the fact behind a key."""
        if self.source != CONFIG:
            return f"{self.arch.gguf}.{key}"
        return fact_of(self.arch, key)

    def count(self, key: str, layer: int = 0) -> int | None:
        """Return a number, or that of a layer."""
        value = self.find(key)
        if isinstance(value, list):
            if len(value) != self.find("block_count"):
                raise self.error(f"{self.word(key)} has {len(value):,} numbers, not one a layer")
            value = value[layer]
        if value is None or (isinstance(value, int) and value >= 0):
            return value
        raise self.error(f"{self.word(key)} is {value!r}, not a number")

    def error(self, text: str) -> ParseError:
        return ParseError(text, source=self.source)


def tensor_shape(header: Header, name: str) -> tuple[int | None, ...] | None:
    """Return the shape of a GGUF's tensor, outermost first; None for any number, or if unknown."""
    layer, pattern = split(name)
    tail = tail_of(pattern)
    return tuple(_evaluated(header, dim, layer) for dim in _dims(header.arch, tail)) or None


def _dims(arch: Arch, tail: str) -> tuple[str, ...]:
    known = {**SHAPES, **arch.shapes}
    stem = tail.removesuffix(".weight")
    if stem in known:
        return tuple(known[stem].split())
    if stem.endswith(".bias"):
        of_weight = known.get(stem.removesuffix(".bias"), "").split()
        return tuple(of_weight[:-1] or of_weight)
    return ()


def _evaluated(header: Header, dim: str, layer: int) -> int | None:
    """Return a sum of products; None of `?`."""
    if dim == "?":
        return None
    if dim == TYPES:
        return header.facts.number("type_vocab_size")
    total = 0
    for sign, term in _TERM.findall(dim):
        product = 1
        for operator, factor in _FACTOR.findall(term):
            n = int(factor) if factor.isdecimal() else _number(header, factor, layer)
            product = product // max(n, 1) if operator == "/" else product * n
        total += -product if sign == "-" else product
    return total


def _number(header: Header, symbol: str, layer: int) -> int:
    if symbol == VOCABULARY:
        if header.vocabulary is None:
            raise header.error("has no vocab_size, by which the rows of the embedding are known")
        return header.vocabulary
    key = KEYS[symbol]
    if symbol in ("key", "value") and is_windowed(header, layer):
        key += "_swa"
    value = header.count(key, layer)
    if value is None:
        value = _implied(header, symbol, layer)
    if value is None:
        raise header.error(f"has no {header.word(key)}, by which tensors' shapes are known")
    return value


def _implied(header: Header, symbol: str, layer: int) -> int | None:
    """Return what llama.cpp takes a number to be that a file does not say."""

    def of(name: str) -> int:
        return _number(header, name, layer)

    if symbol == "kv":
        return of("heads")
    if symbol in ("key", "value"):
        return of("h") // max(of("heads"), 1)
    if symbol == "fe":
        return of("f")
    return of("shared") * of("fe") if symbol == "fs" else None


def is_windowed(header: Header, layer: int) -> bool:
    """Return whether a layer has a window, with lengths of its own."""
    pattern = header.find("attention.sliding_window_pattern")
    has_own = header.find("attention.key_length_swa") is not None
    return has_own and isinstance(pattern, list) and layer < len(pattern) and bool(pattern[layer])


def check_shape(
    header: Header, layer: int, tail: str, shape: tuple[int, ...], called: Callable[[], str]
) -> None:
    """Refuse another shape of a tensor."""
    dims = _dims(header.arch, tail)
    if not dims:
        return
    wanted = [_evaluated(header, dim, layer) for dim in dims]
    while len(wanted) > len(shape) and wanted[0] == 1:  # ggml drops outer dimensions of 1
        dims, wanted = dims[1:], wanted[1:]
    if len(wanted) != len(shape):
        raise header.error(
            f"{called()!r} has {len(shape)} dimensions, {list(shape)}, not {len(wanted)}"
        )
    for dim, n, has in zip(dims, wanted, shape, strict=True):
        if n not in (None, has):
            raise header.error(f"{_words(header, dim)} is {n:,}, and {called()!r} has {has:,}")


def _words(header: Header, dim: str) -> str:
    """Return a dimension of the table in the words of the file."""

    def word(found: re.Match[str]) -> str:
        symbol = found[0]
        if symbol == VOCABULARY and header.source != CONFIG:
            return "the number of tokens"
        if symbol in (VOCABULARY, TYPES):
            return "vocab_size" if symbol == VOCABULARY else "type_vocab_size"
        return header.word(KEYS[symbol])

    return _SYMBOL.sub(word, dim).replace("*", " * ").replace("+", " + ").replace("-", " - ")
