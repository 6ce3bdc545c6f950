"""Tensors by the rules of a row: which belong together, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from anamnesis.architectures.arch import Rule

__all__ = ["IN_LAYER", "Group", "filled", "groups", "patterns", "split"]

IN_LAYER = "blk.{bid}."
_IN_LAYER = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.(.+)")
_SUFFIXES = (".weight", ".bias")


class Group(NamedTuple):
    """Tensors that become some others together.

    Attributes
    ----------
    rule : Rule
    names : tuple of str
        As they are; of experts, in order.
    new : tuple of str
        What they become.
    """

    rule: Rule
    names: tuple[str, ...]
    new: tuple[str, ...]


class _Found(NamedTuple):
    rule: Rule
    layer: str
    expert: int
    suffix: str


def groups(names: Iterable[str], rules: tuple[Rule, ...]) -> tuple[list[Group], list[str]]:
    """Return what the tensors of a model become, in its order; and those that no rule claims.

    Parameters
    ----------
    names : iterable of str
        Hugging Face's.
    rules : tuple of Rule
    """
    places: dict[tuple[Rule, str, str], dict[int, str]] = {}
    unclaimed = []
    for name in names:
        found = _find(name, rules)
        if found is None:
            unclaimed.append(name)
            continue
        places.setdefault((found.rule, found.layer, found.suffix), {})[found.expert] = name
    made = []
    for (rule, layer, suffix), members in places.items():
        ordered = tuple(members[i] for i in sorted(members))
        new = tuple(filled(name, layer) + suffix for name in rule.gguf)
        made.append(Group(rule, ordered, new))
    return made, unclaimed


def filled(pattern: str, layer: str | int, expert: int = 0) -> str:
    """Return a name of a layer, and of an expert."""
    return pattern.replace("{bid}", str(layer)).replace("{xid}", str(expert))


def split(name: str) -> tuple[int, str]:
    """Return which layer a GGUF's tensor is of, -1 if of none, and its name for any layer."""
    found = _IN_LAYER.fullmatch(name)
    return (-1, name) if found is None else (int(found[1]), f"{IN_LAYER}{found[2]}")


@cache
def patterns(rules: tuple[Rule, ...]) -> dict[str, str]:
    """Return the names of GGUF's tensors, for any layer, and what each is made of."""
    found: dict[str, str] = {}
    for rule in rules:
        suffix = "" if rule.exact else ".weight"
        for name in rule.gguf:
            found.setdefault(name + suffix, rule.hf + suffix)
    return found


def _find(name: str, rules: tuple[Rule, ...]) -> _Found | None:
    for suffix in (*_SUFFIXES, ""):
        if suffix and not name.endswith(suffix):
            continue
        stem = name.removesuffix(suffix) if suffix else name
        blank, numbers = _blanked(stem)
        for rule in _by_blank(rules, is_exact=not suffix).get(blank, ()):
            layer, expert = _numbers(rule.hf, numbers)
            return _Found(rule, layer, expert, suffix)
    return None


_HOLE = re.compile(r"\{(bid|xid)\}")
_NUMBER = re.compile(r"(?<=\.)(?:0|[1-9][0-9]{0,5})(?=\.|$)")  # `03` is no 3, and no name


def _blanked(stem: str) -> tuple[str, list[str]]:
    numbers: list[str] = []

    def take(found: re.Match[str]) -> str:
        numbers.append(found[0])
        return "#"

    return _NUMBER.sub(take, stem), numbers


def _numbers(pattern: str, numbers: list[str]) -> tuple[str, int]:
    layer, expert = "", 0
    for hole, number in zip(_HOLE.findall(pattern), numbers, strict=True):
        if hole == "bid":
            layer = number
        else:
            expert = int(number)
    return layer, expert


@cache
def _by_blank(rules: tuple[Rule, ...], *, is_exact: bool) -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for rule in rules:
        if rule.exact is is_exact:
            blank = _HOLE.sub("#", rule.hf)
            found.setdefault(blank, []).append(rule)
    return found
