"""How a model pools embeddings of tokens, as sentence-transformers tells it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anamnesis.architectures.tokenizers.folder import Folder
from anamnesis.base.errors import LimitExceeded, UnsupportedError
from anamnesis.base.limits import Budget

MODULES = "modules.json"
MODULES_MAX_BYTES = 1 << 20

_MEAN, _CLS, _LAST = 1, 2, 3  # as llama.cpp counts them
_SWITCHES = {
    "pooling_mode_mean_tokens": _MEAN,
    "pooling_mode_cls_token": _CLS,
    "pooling_mode_lasttoken": _LAST,
}
_WORDS = {"mean": _MEAN, "cls": _CLS, "lasttoken": _LAST}


def pooling_type(root: Path, budget: Budget) -> int | None:
    """Return llama.cpp's number of a model's pooling; None if nothing says that it pools."""
    folder = Folder(root, budget)
    place = _place(folder)
    if place is None:
        return None
    name = f"{place}/config.json" if place else "config.json"
    given = folder.json(name)
    if given is None:
        raise folder.malformed(MODULES, f"speaks of {name!r}, which is not there")
    return _number(given, name)


def _place(folder: Folder) -> str | None:
    """Return where the first module that pools lies."""
    raw = folder.raw(MODULES)
    if raw is None:
        return None
    if len(raw) > MODULES_MAX_BYTES:
        raise LimitExceeded("MODULES_MAX_BYTES", f"{folder.root / MODULES}: {len(raw):,} bytes")
    try:
        modules = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise folder.malformed(MODULES, f"not valid JSON: {error}") from None
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise folder.malformed(MODULES, "must hold a list of JSON objects")
    for module in modules:
        if str(module.get("type")).endswith("Pooling"):
            path = module.get("path")
            if not isinstance(path, str) or "\0" in path:
                raise folder.malformed(MODULES, f"the path of its pooling is {path!r}, no text")
            return path
    return None


def _number(given: Mapping[str, Any], name: str) -> int:
    for switch, number in _SWITCHES.items():
        if given.get(switch):
            return number
    word = given.get("pooling_mode")
    if isinstance(word, str) and word in _WORDS:
        return _WORDS[word]
    raise UnsupportedError(f"{name}: llama.cpp pools by mean, first or last token only")
