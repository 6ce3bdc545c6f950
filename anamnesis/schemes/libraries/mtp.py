"""Layers that draft tokens beside a model's own, in no class of transformers.

    mtp.fc.weight, mtp.layers.0.mlp.…    Qwen3-Next, Qwen3.5, DeepSeek-V4, Ernie 4.5, LongCat, MiMo
    model.layers.61.eh_proj.weight, …    DeepSeek-V3, GLM-4.5: behind the last of its layers

Tools that quantise a model of transformers never see them. llm-compressor and ModelOpt copy them as
they are, and list them as plain: a regular expression, or a pattern. vLLM builds them by the config
of the model, and gives them other names inside (`model.layers.61.mtp_block`), or one name for all
experts, so that names of layers alone would not do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from anamnesis.schemes.core.layout import Layers

_CALLED = re.compile(r"((?:[^.]+\.)*?(?:mtp(?:_[a-z]+)*|eagle_module|medusa_heads?))\.")
_NUMBERED = re.compile(r"((?:[^.]+\.)*?layers)\.([0-9]{1,9})\.(.+)")
_OF_A_TOWER = re.compile(r"vis(ion|ual)|audio|encoder")
# Of DeepSeek's kind: what joins a hidden state and an embedding, its norms, a head of its own.
_HALLMARK = re.compile(r"layers\.[0-9]{1,9}\.(eh_proj|enorm|hnorm|shared_head)\.")
_COUNTS = (
    *("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers"),
    *("mtp_num_layers", "num_mtp_modules"),
)


def left_drafts(names: Iterable[str], config: Mapping[str, Any], tool: str) -> dict[str, str]:
    """Return the weights of drafting layers, and why a tool leaves them."""
    return dict.fromkeys(drafts_of(names, config), f"it drafts tokens, and {tool} does not load it")


def drafts_of(names: Iterable[str], config: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the weights of drafting layers, and the module that each belongs to."""
    return drafting(tuple(names), tuple(_counts(config)))


def plain_drafts(layers: Layers) -> list[str]:
    """Return the modules of drafting layers of which nothing is quantised: `mtp`."""
    found = drafts_of((f"{name}.weight" for name in layers.plain), layers.config)
    return [
        root
        for root in dict.fromkeys(found.values())
        if not any(name.startswith(f"{root}.") for name in layers.quantised)
    ]


@lru_cache(maxsize=4)
def drafting(names: tuple[str, ...], counts: tuple[tuple[int, int], ...]) -> Mapping[str, str]:
    """Return the weights of drafting layers, and the module that each belongs to."""
    found: dict[str, str] = {}
    for name in names:
        if match := _CALLED.match(name):
            found[name] = match[1]
    is_marked = any(_HALLMARK.search(name) for name in names)
    numbered = [m for m in map(_NUMBERED.fullmatch, names) if m] if counts or is_marked else []
    marked = {f"{match[1]}.{match[2]}" for match in numbered if _HALLMARK.search(match[0])}
    for match in numbered:
        layer, number = f"{match[1]}.{match[2]}", int(match[2])
        is_behind = any(first <= number < first + n for first, n in counts)
        if layer in marked or (is_behind and not _OF_A_TOWER.search(match[1])):
            found.setdefault(match[0], layer)
    return found


def _counts(config: Mapping[str, Any], depth: int = 2) -> Iterator[tuple[int, int]]:
    first = config.get("num_hidden_layers")
    drafts = [n for key in _COUNTS if type(n := config.get(key)) is int and n > 0]
    if type(first) is int and first > 0 and drafts:
        yield first, max(drafts)
    if depth:
        for section in config.values():
            if isinstance(section, dict):
                yield from _counts(section, depth - 1)
