"""The keys `general.*`: what a model's directory says of it beside its shape.

Its README.md says the most (`front_matter`), the name of the model or of its directory the rest
(`model_names`); generation_config.json recommends how to sample.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from anamnesis.architectures.front_matter import Entries, Scalar, Value, read_card
from anamnesis.architectures.model_names import NameParts, name_parts, size_label, sizes, title
from anamnesis.base.errors import ParseError
from anamnesis.base.limits import Budget
from anamnesis.checkpoint.json_file import read_json

# By the end of the key: names in generation_config.json, the first there counts, and the type.
_SAMPLING: dict[str, tuple[tuple[str, ...], str]] = {
    "sequence": (("sequence",), "string"),
    "top_k": (("top_k",), "int32"),
    "top_p": (("top_p",), "float32"),
    "min_p": (("min_p",), "float32"),
    "xtc_probability": (("xtc_probability",), "float32"),
    "xtc_threshold": (("xtc_threshold",), "float32"),
    "temp": (("temperature",), "float32"),
    "penalty_last_n": (("penalty_last_n",), "int32"),
    "penalty_repeat": (("penalty_repeat", "repetition_penalty"), "float32"),
    "mirostat": (("mirostat",), "int32"),
    "mirostat_tau": (("mirostat_tau",), "float32"),
    "mirostat_eta": (("mirostat_eta",), "float32"),
}
_KINDS = {
    "string": "text",
    "int32": "a whole number of 32 bits",
    "float32": "a number that float32 holds",
}
# By the end of the key, in their order: entries of a card, the first that says something counts.
TEXTS: dict[str, tuple[str, ...]] = {
    "name": ("name", "model_name"),
    "author": ("author", "model_author", "model_creator"),
    "version": ("version", "model_version"),
    "organization": ("organization", "model_organization"),
    "finetune": ("finetune", "model_finetune"),
    "basename": ("basename", "model_basename", "model_type"),
    "description": ("description", "model_description"),
    "size_label": ("size_label", "model_size_label"),
    "license": ("license",),
    "license.name": ("license_name",),
    "license.link": ("license_link",),
    "source.url": ("url", "model_url"),
    "source.doi": ("doi", "model_doi"),
    "source.uuid": ("uuid", "model_uuid"),
    "source.repo_url": ("repo_url", "model_repo_url"),
}
_FROM_NAMES = ("organization", "basename", "finetune", "version", "size_label")
PARENTS = {
    "base_model": ("base_model", "base_models", "base_model_sources"),
    "dataset": ("datasets", "dataset", "dataset_sources"),
}
OF_PARENT = (
    *("name", "author", "version", "organization", "description"),
    *("url", "doi", "uuid", "repo_url"),
)
LISTS = {"tags": ("tags", "pipeline_tag"), "languages": ("languages", "language")}
_HUB = "https://huggingface.co/"
_ON_HUB = re.compile(r"https?://huggingface.co/([^/]+/[^/]+)$")


def general_keys(
    root: Path,
    config: Mapping[str, Any],
    shapes: Mapping[str, Collection[int]],
    budget: Budget,
) -> dict[str, Any]:
    """Return the keys `general.*` that a directory decides, typed, in llama.cpp's order."""
    card = read_card(root / "README.md", budget)
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
    keys.update((f"general.{key}", _typed("string", texts[key])) for key in TEXTS if key in texts)
    for kind, names in PARENTS.items():
        keys.update(_parents(kind, card, names, counted.n_all))
    for key, entries in LISTS.items():
        keys[f"general.{key}"] = _typed("string", _list(card, entries))
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
        name = next((name for name in spellings if name in given), None)
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
    for key, names in TEXTS.items():
        given = [card[name] for name in names if isinstance(card.get(name), str)]
        if given:
            found[key] = str(given[0])
    licenses = card.get("license")
    if isinstance(licenses, list):
        found["license"] = ",".join(each for each in licenses if isinstance(each, str))
    return found


def _list(card: Mapping[str, Value], names: Collection[str]) -> list[str]:
    return [each for name in names for each in _as_list(card.get(name)) if isinstance(each, str)]


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
        for field in OF_PARENT:
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
        parts = name_parts(given, n_parameters)
        found = (
            {}
            if parts.organization is None
            else {"repo_url": f"{_HUB}{parts.organization}/{parts.name}"}
        )
    found["name"] = title(parts.name)
    if parts.organization is not None:
        found["organization"] = title(parts.organization)
    if parts.version is not None:
        found["version"] = parts.version
    return found
