"""The weights of a training checkpoint below one name, such as `state_dict`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

# What programs put a state dictionary under; as the first word of a name it means nothing else.
_WRAPPERS = ("state_dict", "model_state_dict", "module")
# The same, but also what models call their own modules, so that they count in checkpoints only.
_IN_CHECKPOINTS = ("model", "model_state", "net", "network", "params", "weights", "generator")
# What lies beside it there, and is no part of the model.
_BESIDE = re.compile(r"optim|sched|scaler|ema|rng|loss|callback|loops|step|epoch|iteration", re.I)


def wrapped_below(names: Collection[str], *, is_checkpoint: bool) -> str | None:
    """Return below which one name all weights lie, in a sentence that says what strips
    it; or None.
    """
    words = (*_WRAPPERS, *_IN_CHECKPOINTS) if is_checkpoint else _WRAPPERS
    tops: Counter[str] = Counter()
    for name in names:
        top, dot, _ = name.partition(".")
        if top not in words and not _BESIDE.search(top):
            return None  # at the first name of most models
        tops[top if dot else f".{top}"] += 1
        if len(tops) > 20:  # of models, whose names have many first words
            return None
    wrapper = next((word for word in words if word in tops), None)
    if wrapper is None:
        return None
    beside = {top.lstrip("."): n for top, n in tops.items() if top != wrapper}
    told = ", ".join(f"{top} ({n:,})" for top, n in beside.items())
    others = f"; tensors of other things lie beside it: {told}" if beside else ""
    return f"all weights lie below {wrapper!r}; select={wrapper!r} strips it{others}"
