"""Modules of models of several parts, such as a language model that sees.

transformers gives their parts other places than files do: `visual.` is `model.visual.`, and
`language_model.model.` is `model.language_model.` or the other way round. What a list means is
settled by how names end.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries.mtp import plain_drafts
from anamnesis.schemes.libraries.sections import has_parts


def as_patterns(layers: Layers) -> list[str]:
    """Return what compressed-tensors' `ignore` is to say of the modules that are plain."""
    # Names; of a model of several parts regular expressions, which vLLM and SGLang read, too. So
    # are layers that draft tokens, and stacks of experts: vLLM has other names in there, and asks
    # for those of single experts.
    drafts = plain_drafts(layers)
    drafting = tuple(f"{draft}." for draft in drafts)
    stacks = [
        name
        for name in layers.plain
        if f".{name}".endswith(".experts")
        and not name.startswith(drafting)
        and not any(one.startswith(f"{name}.") for one in layers.quantised)
    ]
    inside = [f"{re.escape(name)}\\..*" for name in (*stacks, *drafts)]
    if not has_parts(layers.config):
        return [*layers.plain, *(f"re:^{pattern}" for pattern in inside)]
    ends = zip(layers.plain, _endings(layers), strict=True)
    names = [name if end is None else f"re:.*{re.escape(end)}$" for name, end in ends]
    return [*names, *(f"re:.*{pattern}" for pattern in inside)]


def as_endings(layers: Layers) -> list[str]:
    """Return what the ends of names are compared with, of a model of several parts."""
    if not has_parts(layers.config):
        return list(layers.plain)
    return [end or name for name, end in zip(layers.plain, _endings(layers), strict=True)]


def _endings(layers: Layers) -> Iterator[str | None]:
    """Yield the shortest end of each plain module's name that no quantised one's has."""
    turned = sorted(name[::-1] for name in layers.quantised)

    def ends_one(end: str) -> bool:
        at = bisect_left(turned, end[::-1])
        return at < len(turned) and turned[at].startswith(end[::-1])

    for name in layers.plain:
        parts = name.split(".")
        ends = (".".join(parts[at:]) for at in range(len(parts) - 1, -1, -1))
        yield next((end for end in ends if not ends_one(end)), None)
