"""Files that hold a model again as a variant: `model.fp16.safetensors`.

So publishers name a copy in another precision, or one of other weights (`non_ema`), which loaders
take only where it is asked for. Nothing is a variant by its name alone: what it is one of must lie
beside it, in this format or in PyTorch's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable

# Before or behind the word: model.fp16-00001-of-00002.safetensors, model-00001-of-00002.fp16.….
_NUMBER = re.compile(r"-[0-9]{5}-of-[0-9]{5}(?=\.|\Z)")


def _stem(name: str) -> str:
    """Return what shards of one model have in common, in either format."""
    return os.path.splitext(_NUMBER.sub("", name))[0].removeprefix("pytorch_")


def _is_word(text: str) -> bool:
    """Return whether it may be a variant's name: `Qwen2.5` is none of `Qwen2`."""
    return text.isidentifier() or (text.isalnum() and not text.isdigit())


def variants(names: Iterable[str], indexed: Iterable[Collection[str]] = ()) -> dict[str, str]:
    """Return those of some files that are variants of others, and which."""
    stems = {name: _stem(name) for name in names}
    there = set(stems.values())
    heads = {name: stem.rpartition(".") for name, stem in stems.items()}
    found = {n: word for n, (head, _, word) in heads.items() if head in there and _is_word(word)}
    for shards in indexed:
        if not found.keys() >= stems.keys() & set(shards):
            found = {name: word for name, word in found.items() if name not in shards}
    return found


def of_variant(names: Iterable[str], variant: str) -> tuple[set[str], set[str]]:
    """Return the files of one variant, and those of others that it takes the place of."""
    stems = {name: _stem(name) for name in names}
    wanted = {name for name, stem in stems.items() if stem.endswith(f".{variant}")}
    heads = {stems[name].removesuffix(f".{variant}") for name in wanted}
    others = {n for n, stem in stems.items() if {stem, stem.rpartition(".")[0]} & heads}
    return wanted, others - wanted


def without_variant(name: str, variant: str | None) -> str:
    """Return what a file of a variant, or an index of such, is called without it."""
    if variant is None:
        return name
    return re.sub(rf"\.{re.escape(variant)}(?=[.-]|\Z)", "", name, count=1)
