"""What other tools and papers call a target, where that can be one thing only."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeAlias

from anamnesis.base.arguments import word
from anamnesis.base.dtypes import DTYPE_WORDS, DTypeLike, dtype_name
from anamnesis.base.plain_json import json_table
from anamnesis.schemes.core.encoding import Encoding

# A target or an encoding: by a name, gguf-py's member of an enum, or any library's dtype.
Named: TypeAlias = "str | Encoding | Enum | DTypeLike"

_TABLE = json_table(__file__)
# With `-` between words, whatever stands there.
_WORDS = {**DTYPE_WORDS, **_TABLE["words"]}
FOLDERS = {"hf", "transformers", "huggingface", "hugging-face"}
CONTAINERS = {"pth": "torch"}  # whose ids no user would guess
# What several targets are meant by; without any separator.
_SEVERAL = {word: tuple(targets.split()) for word, targets in _TABLE["several"].items()}


def several(text: str) -> tuple[str, ...]:
    """Return the targets that a word may mean, if there are several."""
    return _SEVERAL.get(_bare(text.strip().lower()), ())


def worded(name: str, value: Any, of_gguf: str = "") -> str:
    """Return what a target or an encoding is called; `of_gguf` goes before gguf-py's names."""
    dtype = dtype_name(value)
    if dtype is not None:
        return dtype
    return of_gguf * isinstance(value, Enum) + word(name, value)


def spelt(text: str, known: Iterable[str]) -> str:
    """Return the name that a text spells differently; else the text in lower case."""
    lowered = text.strip().lower()
    names = {_folded(name): name for name in known}
    folded = _folded(lowered)
    whole = names.get(folded) or _WORDS.get(folded) or names.get(f"gguf-{folded}")
    if whole is None and folded and not folded.endswith("-"):  # q4km
        bare = {_bare(name): whole for name, whole in names.items()}
        whole = bare.get(_bare(folded)) or bare.get(f"gguf{_bare(folded)}")
    if whole is not None:
        return whole
    head, rest = folded, ""
    while "-" in head:  # settings stand behind a name, and a name behind a container
        head, _, last = head.rpartition("-")
        rest = f"{last}-{rest}".removesuffix("-")
        name = names.get(head) or _WORDS.get(head)
        if name is not None:
            return f"{name}-{spelt(rest, names.values())}"
    return lowered


def _bare(text: str) -> str:
    return _folded(text).replace("-", "")


def _folded(text: str) -> str:
    return text.replace("_", "-").replace(" ", "-")
