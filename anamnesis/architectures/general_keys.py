"""The keys `general.*`, what a model's directory says beside its shape; and back.

Its README.md says the most (`front_matter`), the name of the model or of its directory the rest
(`model_names`); generation_config.json recommends how to sample. The README.md of a directory that
is made of a GGUF has them as front matter, by the same tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from anamnesis.architectures.front_matter import Entries, Scalar, Value, front_matter, read_card
from anamnesis.architectures.model_names import NameParts, name_parts, size_label, sizes, title
from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.plain_json import json_table
from anamnesis.checkpoint.json_file import read_json

CARD_NAME = "README.md"
_TABLE: Mapping[str, Any] = json_table(__file__)
# By the end of the key: names in generation_config.json, the first there counts, and the type.
_SAMPLING: Mapping[str, tuple[str, str]] = _TABLE["sampling"]
_KINDS = {
    "string": "text",
    "int32": "a whole number of 32 bits",
    "float32": "a number that float32 holds",
}
# By the end of the key, in their order: entries of a card, the first that says something counts.
_TEXTS, _PARENTS, _LISTS = (
    {key: tuple(names.split()) for key, names in _TABLE[kind].items()}
    for kind in ("texts", "parents", "lists")
)
_OF_PARENT: Sequence[str] = _TABLE["of_parent"].split()
_FROM_NAMES = ("organization", "basename", "finetune", "version", "size_label")
_HUB = "https://huggingface.co/"
_ON_HUB = re.compile(r"https?://huggingface.co/([^/]+/[^/]+)$")


def general_keys(
    root: Path,
    config: Mapping[str, Any],
    shapes: Mapping[str, Collection[int]],
    budget: Budget,
) -> dict[str, Any]:
    """Return the keys `general.*` that a directory decides, typed, in llama.cpp's order."""
    card = read_card(root / CARD_NAME, budget)
    counted = sizes(shapes)
    texts = _texts(card)
    for parts in _named(root, config, counted.n_all):
        texts.setdefault("name", title(parts.name))
        for field in _FROM_NAMES:
            found = getattr(parts, field)
            if found is not None:
                texts.setdefault(field, title(found) if field == "organization" else found)
    if counted.n_all:
        texts.setdefault("size_label", size_label(counted))
    keys: dict[str, dict[str, Any]] = dict(_sampling(root, budget))
    keys.update((f"general.{key}", _typed("string", texts[key])) for key in _TEXTS if key in texts)
    for kind, names in _PARENTS.items():
        keys.update(_parents(kind, card, names, counted.n_all))
    for key, entries in _LISTS.items():
        given = [one for name in entries for one in _as_list(card.get(name))]
        keys[f"general.{key}"] = _typed("string", [one for one in given if isinstance(one, str)])
    return {key: given for key, given in keys.items() if given["value"] not in ("", [])}


def _typed(kind: str, value: Any) -> dict[str, Any]:
    return {"type": kind, "value": value}


def _named(root: Path, config: Mapping[str, Any], n_parameters: int) -> Iterator[NameParts]:
    given = config.get("_name_or_path")
    if isinstance(given, str) and given.count("/") <= 1:  # else a path on somebody's machine
        yield name_parts(given, n_parameters)
    yield name_parts(root.name or root.resolve().name, n_parameters)


def _sampling(root: Path, budget: Budget) -> Iterator[tuple[str, dict[str, Any]]]:
    path = root / "generation_config.json"
    if not path.is_file():
        return
    try:
        given = read_json(path, budget)
    except ParseError:
        return  # some models have one that is not valid, and work without it
    for key, (spellings, kind) in _SAMPLING.items():
        name = next((name for name in spellings.split() if name in given), None)
        value = None if name is None else given[name]
        if value is None:
            continue
        if not _is(kind, value):
            raise ParseError(f"{name} must be {_KINDS[kind]}, not {value!r}", source=str(path))
        yield f"general.sampling.{key}", _typed(kind, float(value) if kind == "float32" else value)


def _is(kind: str, value: Any) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if isinstance(value, bool):
        return False
    if kind == "float32":
        return isinstance(value, (int, float)) and abs(value) < 2**127
    return isinstance(value, int) and -(2**31) <= value < 2**31


# --- the card -------------------------------------------------------------------------------------


def _texts(card: Mapping[str, Value]) -> dict[str, str]:
    found = {}
    for key, names in _TEXTS.items():
        given = [card[name] for name in names if isinstance(card.get(name), str)]
        if given:
            found[key] = str(given[0])
    licenses = card.get("license")
    if isinstance(licenses, list):
        found["license"] = ",".join(each for each in licenses if isinstance(each, str))
    return found


def _as_list(given: Value) -> list[Scalar | Entries]:
    if isinstance(given, list):
        return given
    return [given] if isinstance(given, str) else []


def _parents(
    kind: str, card: Mapping[str, Value], names: Collection[str], n_parameters: int
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the keys of a model's sources; for an unknown form, only that it is there."""
    name = next((name for name in names if name in card), None)
    if name is None:
        return
    parents = _as_list(card[name])
    yield f"general.{kind}.count", _typed("uint32", len(parents))
    for i, given in enumerate(parents):
        found = parent(given, n_parameters) if isinstance(given, str) else given or {}
        for field in _OF_PARENT:
            value = found.get(field)
            if value is not None:
                yield f"general.{kind}.{i}.{field}", _typed("string", value)


def parent(given: str, n_parameters: int) -> dict[str, str]:
    """Return what an id on the hub, or an address, says."""
    if given.startswith(("http://", "https://", "ssh://")):
        found = {"repo_url": given}
        on_hub = _ON_HUB.match(given)
        if on_hub is None:
            return found
        parts = name_parts(on_hub[1], n_parameters)
    else:
        parts, found = name_parts(given, n_parameters), {}
        if parts.organization is not None:
            found["repo_url"] = f"{_HUB}{parts.organization}/{parts.name}"
    found["name"] = title(parts.name)
    if parts.organization is not None:
        found["organization"] = title(parts.organization)
    if parts.version is not None:
        found["version"] = parts.version
    return found


_SPELLINGS = {"languages": "language"}  # the hub's, where it is not the first in the tables
# What ends a line, or must not stand in YAML, and is no escape of JSON's.
_PLAIN = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


def model_card(metadata: Mapping[str, Any], n_parameters: int) -> tuple[bytes, set[str]]:
    """Return README.md, and the keys that it says; empty if there are none."""
    entries: dict[str, Any] = {}
    known: set[str] = set()
    for end, names in _TEXTS.items():
        value = metadata.get(f"general.{end}")
        if isinstance(value, str) and value:
            entries[names[0]] = value
            known.add(f"general.{end}")
    for end, names in _LISTS.items():
        value = metadata.get(f"general.{end}")
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            entries[_SPELLINGS.get(end, names[0])] = value
            known.add(f"general.{end}")
    for kind, names in _PARENTS.items():
        found, keys = _parents_of(metadata, f"general.{kind}", n_parameters)
        if keys:
            entries[names[0]] = found
            known |= keys
    if not known:
        return b"", known
    lines = [line for key, value in entries.items() for line in _lines(key, value)]
    return "\n".join(["---", *lines, "---", ""]).encode(), known


def _parents_of(
    metadata: Mapping[str, Any], prefix: str, n_parameters: int
) -> tuple[list[str | dict[str, str]], set[str]]:
    """Return what a model comes from: as an id on the hub, where that says it all."""
    n = metadata.get(f"{prefix}.count")
    given: list[str | dict[str, str]] = []
    keys = {f"{prefix}.count"}
    for i in range(n if type(n) is int and n < len(metadata) else 0):
        fields = {field: metadata.get(f"{prefix}.{i}.{field}") for field in _OF_PARENT}
        texts = {k: value for k, value in fields.items() if isinstance(value, str) and value}
        address = texts.get("repo_url", "")
        names = (address.removeprefix(_HUB), address)
        given.append(next((name for name in names if parent(name, n_parameters) == texts), texts))
        keys |= {f"{prefix}.{i}.{field}" for field in texts}
    return given, keys if given and all(given) else set()


def _lines(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield f"{key}: {_scalar(value)}"
        return
    yield f"{key}:"
    for item in value:
        if isinstance(item, str):
            yield f"- {_scalar(item)}"
            continue
        for i, (name, text) in enumerate(item.items()):
            yield f"{'  ' if i else '- '}{name}: {_scalar(text)}"


def _scalar(text: str) -> str:
    """Return text in YAML: plain, where that is read as it stands."""
    is_plain = _PLAIN.fullmatch(text) is not None
    if is_plain and front_matter(f"---\nx: {text}\n---") == {"x": text}:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)
