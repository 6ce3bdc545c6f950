"""What the name of a model says: its basename, size, finetune and version.

`Mixtral-8x7B-Instruct-v0.1` is the basename Mixtral, the size 8x7B, the finetune Instruct and the
version v0.1. llama.cpp's converter reads names so, and so do the keys `general.*` of its files.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import prod
from typing import NamedTuple

_VERSION = re.compile(r"(v|iter)?\d+(\.\d+)*", re.IGNORECASE)
_TYPE = re.compile(r"i?q\d(_\w)*|b?fp?(16|32)", re.IGNORECASE)
_SIZE = re.compile(r"(a|\d+x)?\d+([._]\d+)?[kmbt]\d?|small|mini|medium|large|x?xl", re.IGNORECASE)
_FINETUNE = re.compile(r"chat|instruct|vision|lora", re.IGNORECASE)
_AS_IT_IS = re.compile(r"(v\d+(\.\d+)*|\d.*)$")  # a version, or what starts with a digit
_UNITS = " KMBT"


class NameParts(NamedTuple):
    """Parts of a name; None where it says nothing of one."""

    name: str
    organization: str | None = None
    basename: str | None = None
    finetune: str | None = None
    version: str | None = None
    size_label: str | None = None


class Sizes(NamedTuple):
    """Numbers of parameters: of all, of what every token passes, of one expert in each layer."""

    n_all: int
    n_shared: int
    n_expert: int
    n_experts: int


def title(text: str) -> str:
    """Return a name as people write it: words apart, those in small letters with a capital."""
    words = text.strip().replace("-", " ").split()
    return " ".join(
        word.title() if word.islower() and not _AS_IT_IS.match(word) else word for word in words
    )


def name_parts(model_id: str, n_parameters: int) -> NameParts:
    """Return the parts of a name, or of an id `organization/name`."""
    # A size that is far from `n_parameters`, if these are known (not 0), is a context length.
    if " " in model_id:
        return NameParts(model_id)
    before, slash, name = model_id.partition("/")
    if not slash:
        before, name = name, before
    organization = before if slash and not before.startswith(".") else None
    words = [word for word in name.split("-") if word]
    given = [_kind(word, i, n_parameters) for i, word in enumerate(words)]
    words = [word for word, _ in given]
    kinds = [kind for _, kind in given]
    if any(letter.isdecimal() for word in _all(words, kinds, "size") for letter in word):
        for i, word in enumerate(words):  # then `mini` and the like are no size
            kinds[i] = "" if kinds[i] == "size" and word.isalpha() else kinds[i]
    is_base = _mark_basename(words, kinds)

    of_base = [word for word, base in zip(words, is_base, strict=True) if base]
    others = [kind for kind, base in zip(kinds, is_base, strict=True) if not base]
    behind = [word for word, base in zip(words, is_base, strict=True) if not base]
    basename = "-".join(of_base) or None
    finetune = "-".join(_all(behind, others, "finetune")) or None
    version = "-".join(_all(behind, others, "version")) or None
    size = "-".join(dict.fromkeys(_all(behind, others, "size"))) or None
    if size is None and finetune is None and version is None:
        basename = None
    return NameParts(name, organization, basename, finetune, version, size)


def _all(words: list[str], kinds: list[str], wanted: str) -> list[str]:
    return [word for word, kind in zip(words, kinds, strict=True) if kind == wanted]


def _kind(word: str, i: int, n_parameters: int) -> tuple[str, str]:
    """Return a word, tidied, and what it is: empty if that is not seen by itself."""
    if _VERSION.fullmatch(word):
        return word, "version"
    if _TYPE.fullmatch(word):
        return word.upper(), "type"
    if i == 0 or not _SIZE.fullmatch(word):
        return word, "finetune" if i > 0 and _FINETUNE.fullmatch(word) else ""
    word = word.replace("_", ".")
    if word[-1].isdecimal():  # 7b1 is 7.1b
        word = f"{word[:-2]}.{word[-1]}{word[-2]}"
    if word[-2:-1].isdecimal() and word[-1] in "kmbt":
        word = word[:-1] + word[-1].upper()
    if n_parameters and _is_far(word, n_parameters):
        return word[:-1] + word[-1].lower(), "finetune"
    return word, "size"


def _is_far(word: str, n_parameters: int) -> bool:
    try:
        given = float(word[:-1]) * 1000.0 ** _UNITS.find(word[-1])
    except ValueError:  # 8x7B, mini
        return False
    return abs(given - n_parameters) > 7 * n_parameters // 8


def _mark_basename(words: list[str], kinds: list[str]) -> list[bool]:
    """Return which words are the basename: the first unknown ones, and versions among them."""
    # Unknown ones after that are a finetune. Versions at the very end are none of the basename.
    is_base = [False] * len(words)
    at_start = True
    for i, word in enumerate(words):
        at_start = at_start and (kinds[i] == "version" or (kinds[i] == "" and word[0].isalpha()))
        is_base[i] = at_start
        if not at_start:
            kinds[i] = kinds[i] or "finetune"
    for i in reversed(range(len(words))):
        if not (is_base[i] and kinds[i] == "version"):
            break
        is_base[i] = False
    return is_base


# --- sizes ----------------------------------------------------------------------------------------


def sizes(shapes: Mapping[str, Collection[int]]) -> Sizes:
    """Return numbers of parameters; `shapes` are those of a GGUF's tensors, outermost first."""
    n_all = n_shared = n_expert = 0
    counts = []
    for name, shape in shapes.items():
        dims = tuple(shape)
        size = prod(dims)
        n_all += size
        if "_exps." in name and len(dims) >= 3:
            counts.append(dims[-2 if ".bias" in name else -3])
            n_expert += size // counts[-1]
        else:
            n_shared += size
    n_experts = sum(counts) // len(counts) if counts else 0
    return Sizes(n_all, n_shared, n_expert, n_experts)


def size_label(found: Sizes) -> str:
    """Return `8x7B`, `1.1B` and the like."""
    if found.n_experts:
        return f"{found.n_experts}x{_rounded(found.n_shared + found.n_expert)}"
    return _rounded(found.n_all)


def _rounded(n: int) -> str:
    """Return a number of parameters in its unit, with a decimal if it has one digit."""
    factor, unit = next(((scale, unit) for over, scale, unit in _SCALES if n > over), (1e-3, "K"))
    scaled = n * factor
    n_decimals = max(2 - len(str(round(scaled)).lstrip("0")), 0)
    return f"{scaled:.{n_decimals}f}{unit}"


_SCALES = ((1e12, 1e-12, "T"), (1e9, 1e-9, "B"), (1e6, 1e-6, "M"))
