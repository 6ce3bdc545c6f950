"""Recipes, read and written: the options of a conversion in a TOML file."""

from __future__ import annotations

import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from textwrap import wrap
from typing import Any, NoReturn

from anamnesis.base.arguments import checked
from anamnesis.base.nearest import did_you_mean
from anamnesis.base.patterns import chooser
from anamnesis.convert.request.options import OPTIONS
from anamnesis.convert.request.request import ConvertOptions

KEYS = {row.key: row.kind for row in OPTIONS if row.recipe}
_DROP = "drop"  # of a tensor: it is left out
_MOST_BYTES = 1 << 20
_TOO_DEEP = "is nested too deep"
_TYPED = {"type", "value"}  # of one of GGUF's metadata
_COLUMNS = 77
_LAYER = re.compile(r"(.*?\.)([0-9]{1,9})\.(.+)")  # the first number is that of a layer
_SPECIAL = re.compile(r"([\[*?])")


class Recipe(ConvertOptions, total=False):
    """The keys of a recipe: a target, and options of `Model.convert`."""

    to: str


@checked
def read_recipe(path: str | os.PathLike[str]) -> Recipe:
    """Return a recipe as arguments for `convert` and `plan`.

    It is a TOML file. The keys `to`, `dtype`, `include`, `exclude`, `drop`, `cast-all`, `math`,
    `experts`, `verify`, `lossless`, `strict`, `loss`, `max-shard-size`, `split-max-size`,
    `allow-unknown`, `imatrix`, `pure`, `output-tensor-type`, `token-embedding-type`,
    `leave-output-tensor`, `prune-layers`, `keep-split`, `names` and `tokenizer-pre` mean what the
    options of `Model.convert` do, and so do the tables `[rename]`, `[metadata]` and
    `[override-kv]`.
    In `[tensors]` names of weights, with wildcards, have an encoding, `keep` or `drop`: the first
    match decides, but `drop` wins wherever it stands.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict
        `an.convert(model, out, **an.read_recipe(path))` follows the recipe.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is not a recipe; the message names the file, and the line if it can be found.
    """
    name = os.fspath(path)
    with open(path, "rb") as file:
        raw = file.read(_MOST_BYTES + 1)
    if len(raw) > _MOST_BYTES:
        raise ValueError(f"{name}: is too long for a recipe")
    return _Reader(name, raw).read()


class _Reader:
    """One recipe on its way to options."""

    def __init__(self, name: str, raw: bytes) -> None:
        import tomllib

        self._name = name
        try:
            self._text = raw.decode()
            self._values = tomllib.loads(self._text)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        except RecursionError:
            raise ValueError(f"{name}: {_TOO_DEEP}") from None

    def read(self) -> Recipe:
        made: Any = {}
        for key, value in self._values.items():
            known = key.replace("_", "-")
            if known not in KEYS:
                self._fail("", key, f"there is no key {key!r}{did_you_mean(known, KEYS)}")
            option = known.replace("-", "_")
            if option in made:
                self._fail("", key, f"{key}: is there already, as {option!r} or {known!r}")
            take = self._table if KEYS[known].is_table else partial(self._checked, "")
            made[option] = take(key, value, KEYS[known].taken)
        tensors = made.pop("tensors", {})
        dropped = [pattern for pattern, what in tensors.items() if what == _DROP]
        if dropped:
            made["drop"] = (*made.get("drop", ()), *dropped)
        if len(tensors) > len(dropped):
            made["overrides"] = {name: what for name, what in tensors.items() if what != _DROP}
        recipe: Recipe = made
        return recipe

    def _table(self, key: str, value: Any, check: Callable[[Any], Any]) -> dict[str, Any]:
        """Return the rows of a table; names without quotes are nested at their dots."""
        if not isinstance(value, dict):
            self._fail("", key, f"{key} must be a table")
        try:
            rows = list(_flat(value))
        except RecursionError:
            self._fail("", key, f"{key}: {_TOO_DEEP}")
        return {name: self._checked(key, name, item, check) for name, item in rows}

    def _checked(self, table: str, key: str, value: Any, check: Callable[[Any], Any]) -> Any:
        try:
            return check(value)
        except (TypeError, ValueError) as error:
            self._fail(table, key, f"{key}: {error}")

    def _fail(self, table: str, key: str, what: str) -> NoReturn:
        line = _line_of(self._text, table, key) or _line_of(self._text, "", table or key)
        where = self._name if line is None else f"{self._name}, line {line}"
        raise ValueError(f"{where}: {what}") from None


def _flat(table: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict) and value.keys() != _TYPED:
            yield from _flat(value, f"{above}{name}.")
        else:
            yield f"{above}{name}", value


def _line_of(text: str, table: str, key: str) -> int | None:
    """Return the line of a key, or of the table that it is; None if it is written otherwise."""
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if line.startswith("["):
            current = line[1:].partition("]")[0].strip()
            if not table and current == key:
                return number
        elif current == table and line.partition("=")[0].strip().strip("\"'") == key:
            return number
    return None


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
