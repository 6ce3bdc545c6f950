"""README.md of a directory made of a GGUF: `general.*` as front matter.

`general` reads it again, so that both ways go by the same tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from anamnesis.architectures.front_matter import front_matter
from anamnesis.architectures.general_keys import LISTS, OF_PARENT, PARENTS, TEXTS, parent

CARD_NAME = "README.md"
_SPELLINGS = {"languages": "language"}  # the hub's, where it is not the first in the tables
# What ends a line, or must not stand in YAML, and is no escape of JSON's.
_PLAIN = re.compile(r"[A-Za-z0-9][\w./-]*", re.ASCII)
_UNPRINTABLE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]")


def model_card(metadata: Mapping[str, Any], n_parameters: int) -> tuple[bytes, set[str]]:
    """Return README.md, and the keys that it says; empty if there are none."""
    entries: dict[str, Any] = {}
    known: set[str] = set()
    for end, names in TEXTS.items():
        value = metadata.get(f"general.{end}")
        if isinstance(value, str) and value:
            entries[names[0]] = value
            known.add(f"general.{end}")
    for end, names in LISTS.items():
        value = metadata.get(f"general.{end}")
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            entries[_SPELLINGS.get(end, names[0])] = value
            known.add(f"general.{end}")
    for kind, names in PARENTS.items():
        found, keys = _parents(metadata, f"general.{kind}", n_parameters)
        if keys:
            entries[names[0]] = found
            known |= keys
    if not known:
        return b"", known
    lines = [line for key, value in entries.items() for line in _lines(key, value)]
    return "\n".join(["---", *lines, "---", ""]).encode(), known


def _parents(
    metadata: Mapping[str, Any], prefix: str, n_parameters: int
) -> tuple[list[str | dict[str, str]], set[str]]:
    """Return what a model comes from: as an id on the hub, where that says it all."""
    n = metadata.get(f"{prefix}.count")
    given: list[str | dict[str, str]] = []
    keys = {f"{prefix}.count"}
    for i in range(n if type(n) is int and n < len(metadata) else 0):
        fields = {field: metadata.get(f"{prefix}.{i}.{field}") for field in OF_PARENT}
        texts = {k: value for k, value in fields.items() if isinstance(value, str) and value}
        address = texts.get("repo_url", "")
        names = (address.removeprefix("https://huggingface.co/"), address)
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
