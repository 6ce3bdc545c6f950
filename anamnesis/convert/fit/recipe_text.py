"""The text of a recipe: one type for most weights, patterns for others."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from textwrap import wrap
from typing import Any

from anamnesis.base.patterns import chooser

_COLUMNS = 77
_LAYER = re.compile(r"(.*?\.)([0-9]{1,9})\.(.+)")  # the first number is that of a layer
_SPECIAL = re.compile(r"([\[*?])")


def recipe_text(
    to: str,
    base: str,
    types: Mapping[str, str],
    head: Iterable[str] = (),
    options: Mapping[str, Any] | None = None,
    own: Mapping[str, str] | None = None,
) -> str:
    """Return the text of a recipe by which `convert` gives weights these types."""
    lines = [f"# {part}" for line in head for part in wrap(line, _COLUMNS)]
    given = {"to": to, "pure": True, **(options or {})}
    plain = {name: value for name, value in given.items() if not isinstance(value, Mapping)}
    lines += [f"{name.replace('_', '-')} = {_toml(value)}" for name, value in plain.items()]
    tensors: dict[str, str] = {}
    for pattern, type in (*(own or {}).items(), *_patterns(base, types)):
        tensors.setdefault(pattern, type.lower())
    for name, table in given.items():
        if name not in plain:
            lines += _table(f"[{name.replace('_', '-')}]", table)
    lines += _table("[tensors]  # the first that fits decides", tensors)
    return "\n".join(lines) + "\n"


def _table(head: str, rows: Mapping[str, Any]) -> Iterator[str]:
    """Yield a table with its rows; None is left out, for TOML has no word for it."""
    said = {key: value for key, value in rows.items() if value is not None}
    if said:
        yield from ("", head)
    yield from (f"{_toml(key)} = {_toml(value)}" for key, value in said.items())


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{_toml(key)} = {_toml(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _patterns(base: str, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield patterns with their types; exceptions to a pattern come before it."""
    rows = list(_by_layers(base, types))
    fits = [(chooser((pattern,)), type) for pattern, type in rows]
    for name, type in types.items():
        if next((found for fit, found in fits if fit(name)), base) != type:
            yield literal(name), type
    yield from rows


def _by_layers(base: str, types: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield patterns with their types; among layers, rarer types come first."""
    kinds: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for name, type in types.items():
        found = _LAYER.fullmatch(name)
        if found is None and type != base:
            yield literal(name), type
        elif found is not None:
            kinds[found[1], found[3]][int(found[2])] = type
    for (front, rest), by_layer in kinds.items():
        counts = Counter(by_layer.values()).most_common()
        for type, _ in reversed(counts[1:]):
            layers = [layer for layer, own in by_layer.items() if own == type]
            for glob in _globs(layers):
                yield f"{literal(front)}{glob}.{literal(rest)}", type
        if counts[0][0] != base:
            yield f"{literal(front)}*.{literal(rest)}", counts[0][0]


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


def literal(name: str) -> str:
    """Return the glob that fits one name."""
    return _SPECIAL.sub(r"[\1]", name)
