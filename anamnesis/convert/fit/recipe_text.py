"""A recipe of types, as people write it: one for most, patterns for others."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping

__all__ = ["recipe_text"]

_LAYER = re.compile(r"blk\.([0-9]+)\.(.+)")
_SPECIAL = re.compile(r"([\[*?])")


def recipe_text(to: str, base: str, types: Mapping[str, str], head: Iterable[str] = ()) -> str:
    """Return the text of a recipe by which `convert` gives weights these types.

    Parameters
    ----------
    to : str
        The target.
    base : str
        Its type, which weights have that nothing else is said of.
    types : mapping of str to str
        By weight, in the order of the model.
    head : iterable of str
        Lines that stand above it, as comments.
    """
    lines = [*(f"# {line}".rstrip() for line in head), f"to = {json.dumps(to)}", "pure = true", ""]
    rows = list(_patterns(base, types))
    if rows:
        lines.append("[tensors]  # the first that fits decides")
    lines += [f"{json.dumps(pattern)} = {json.dumps(type.lower())}" for pattern, type in rows]
    return "\n".join(lines) + "\n"


def _patterns(base: str, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield patterns with their types; of layers' weights the rarer types come first."""
    kinds: dict[str, dict[int, str]] = defaultdict(dict)
    for name, type in types.items():
        found = _LAYER.fullmatch(name)
        if found is None and type != base:
            yield _literal(name), type
        elif found is not None:
            kinds[found[2]][int(found[1])] = type
    for rest, by_layer in kinds.items():
        counts = Counter(by_layer.values()).most_common()
        for type, _ in reversed(counts[1:]):
            layers = [layer for layer, own in by_layer.items() if own == type]
            for glob in _globs(layers):
                yield f"blk.{glob}.{_literal(rest)}", type
        if counts[0][0] != base:
            yield f"blk.*.{_literal(rest)}", counts[0][0]


def _globs(layers: Iterable[int]) -> Iterator[str]:
    """Yield globs for numbers, one for those that differ in their last digit: `1[0-37]`."""
    tens: dict[str, list[int]] = defaultdict(list)
    for layer in sorted(layers):
        tens[str(layer)[:-1]].append(layer % 10)
    for front, digits in tens.items():
        yield front + (str(digits[0]) if len(digits) == 1 else f"[{''.join(_runs(digits))}]")


def _runs(digits: list[int]) -> Iterator[str]:
    start = last = digits[0]
    for digit in [*digits[1:], 99]:
        if digit != last + 1:
            yield str(start) if start == last else f"{start}{'-' if last > start + 1 else ''}{last}"
            start = digit
        last = digit


def _literal(name: str) -> str:
    return _SPECIAL.sub(r"[\1]", name)
