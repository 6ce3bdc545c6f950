"""An optimizer's state, which is left out unless it is selected."""

from __future__ import annotations

import re

STATE = "the optimizer's state"  # why it is left out
# Megatron calls several optimizers chained_0 and so on.
_TENSOR = re.compile(r"(?:chained_[0-9]+|optim(?:izers?)?(?:_state(?:_dict)?)?)(?:\.|$)")
_FILE = re.compile(r"optim|extra_state|sched|rng|dataloader", re.IGNORECASE)


def leaves_out(name: str, select: str | None) -> bool:
    """Tell whether a tensor is a part of an optimizer's state, of which none is selected."""
    is_selected = select is not None and _TENSOR.match(select)
    return not is_selected and _TENSOR.match(name) is not None


def is_file_of_states(stem: str) -> bool:
    """Tell whether what ranks' files are called means states, and not a model."""
    return _FILE.search(stem) is not None
