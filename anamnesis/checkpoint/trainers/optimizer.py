"""A trainer's own state, which is left out unless it is selected."""

from __future__ import annotations

import re

STATE = "the trainer's own state"  # why it is left out
# Of several optimizers, Megatron calls one chained_0, and Lightning optimizer_0. PyTorch's tutorial
# has all below app. The others are torchtitan's.
_TENSOR = re.compile(
    r"(?:app\.)?(?:chained_[0-9]+|optim(?:izers?)?(?:_state(?:_dict)?)?(?:_[0-9]+)?"
    r"|lr_schedulers?|train_state|dataloader)(?:\.|$)"
)
_FILE = re.compile(r"optim|extra_state|sched|rng|dataloader", re.IGNORECASE)


def leaves_out(name: str, select: str | None) -> bool:
    """Tell whether a tensor is a part of a trainer's state, of which none is selected."""
    is_selected = select is not None and _TENSOR.match(select)
    return not is_selected and _TENSOR.match(name) is not None


def is_file_of_states(stem: str) -> bool:
    """Tell whether what ranks' files are called means states, and not a model."""
    return _FILE.search(stem) is not None
