"""A tree of values as a flat list of leaves with dotted names, as deep as the tree goes.

Keys of dictionaries and positions in lists become names: `optimizer.state.0.exp_avg`. A list of
plain values only is one leaf.
"""

from __future__ import annotations

from typing import Any

from anamnesis.errors import LimitExceeded, ParseError
from anamnesis.formats.pickle_costs import PICKLE_MAX_DEPTH
from anamnesis.formats.pickle_nodes import SCALARS, Call, Global, Key, PickledSet, in_words
from anamnesis.formats.torch_globals import Refused, Storage, TorchTensor, whole
from anamnesis.limits import Budget

__all__ = ["Flattened", "flatten"]

# Characters of all names and all text together, and as many again as the pickle has bytes: each
# may be shared, and is told anew wherever it is referred to.
PTH_MAX_NAMES = 4 << 20

# A module's attributes in which its tensors are; its state dictionary does without them.
_TRANSPARENT = ("_parameters", "_buffers", "_modules")

_BOOKKEEPING = ("training", "_is_full_backward_hook")  # of every module


class Flattened:
    """The leaves of a tree.

    Attributes
    ----------
    tensors : dict of str to TorchTensor or Refused
    others : dict of str to anything
        Plain values, lists of them, and what stands for foreign objects in words.
    """

    def __init__(self, name: str, budget: Budget, working_set: int) -> None:
        self.tensors: dict[str, TorchTensor | Refused] = {}
        self.others: dict[str, Any] = {}
        self._source_name = name
        self._budget = budget
        # Shared values are told anew wherever they are referred to, so that what a pickle
        # replays must stay in proportion to what it holds.
        self._visits_left = working_set // 4 + 1000
        self._characters_left = PTH_MAX_NAMES + working_set
        self._open: set[int] = set()  # the values that are being walked

    def walk(self, value: Any, name: str) -> None:
        """Add all leaves of a value."""
        self._visit(1)
        kind = type(value)
        if kind is TorchTensor or kind is Refused:
            self._add(self.tensors, name or "tensor", value)
        elif kind is Storage:
            self._add(self.tensors, name or "storage", whole(value))
        elif kind in SCALARS or isinstance(value, Global):
            self._add(self.others, name or "value", _plain(value))
        elif id(value) in self._open:
            self._add(self.others, name, "(refers to what it is in)")
        else:
            self._walk_container(value, name)

    def _walk_container(self, value: Any, name: str) -> None:
        if len(self._open) >= PICKLE_MAX_DEPTH:
            raise LimitExceeded(
                "PICKLE_MAX_DEPTH",
                f"{self._source_name}: values more than {PICKLE_MAX_DEPTH} deep",
            )
        self._open.add(id(value))
        if type(value) is dict:
            self._walk_pairs(value, name)
        elif type(value) is Call:
            self._walk_object(value, name)
        else:
            self._walk_items(value.items if type(value) is PickledSet else value, name)
        self._open.discard(id(value))

    def _walk_pairs(self, pairs: dict[Any, Any], name: str) -> None:
        if not pairs and name:
            self._add(self.others, name, "{}")
        for key, value in pairs.items():
            self.walk(value, self._joined(name, key))

    def _walk_items(self, items: Any, name: str) -> None:
        self._visit(len(items))
        if all(type(item) in SCALARS for item in items):
            self._add(self.others, name or "value", [_plain(item) for item in items])
            return
        for i, item in enumerate(items):
            self.walk(item, self._joined(name, i))

    def _walk_object(self, made: Call, name: str) -> None:
        """Add what is in an object; its class is told only if there is nothing in it."""
        state = made.state
        parts = state if type(state) is tuple and len(state) == 2 else (state,)
        dictionaries = [part for part in parts if type(part) is dict]
        if state is None and not made.items and not made.pairs:
            self._add(self.others, name or "value", f"({in_words(made.function)})")
        elif state is not None and not dictionaries:
            self.walk(state, name)
        for pairs in (*dictionaries, made.pairs):
            for key, value in pairs.items():
                is_inner = key in _TRANSPARENT and type(value) is dict
                if is_inner:
                    self._visit(1)
                    for inner, item in value.items():
                        self.walk(item, self._joined(name, inner))
                elif key not in _BOOKKEEPING:
                    self.walk(value, self._joined(name, key))
        if made.items:
            self._walk_items(made.items, name)

    def _joined(self, name: str, key: Any) -> str:
        text = key if type(key) is str else _key_text(key)
        return f"{name}.{text}" if name else text

    def _add(self, leaves: dict[str, Any], name: str, value: Any) -> None:
        self._characters_left -= len(name) + _n_characters(value)
        if self._characters_left < 0:
            raise LimitExceeded(
                "PTH_MAX_NAMES",
                f"{self._source_name}: the values have too long names and texts",
            )
        if name in self.tensors or name in self.others:
            raise ParseError(f"two values would both be called {name!r}", source=self._source_name)
        self._budget.items(1, "the values")
        self._budget.alloc(len(name), "a name")
        leaves[name] = value

    def add_tensor(self, name: str, tensor: TorchTensor | Refused) -> None:
        """Add a tensor of another tree."""
        self._add(self.tensors, name, tensor)

    def _visit(self, n: int) -> None:
        self._visits_left -= n
        if self._visits_left < 0:
            raise LimitExceeded(
                "PICKLE_MAX_WORKING_SET",
                f"{self._source_name}: shared values would be told too many times",
            )


def flatten(value: Any, name: str, budget: Budget, working_set: int) -> Flattened:
    """Return the leaves of a value.

    Parameters
    ----------
    value : anything that a pickle machine returns
    name : str
        What error messages call its file.
    budget : Budget
    working_set : int
        What the machine counted, which bounds how often shared values may be told.

    Raises
    ------
    ParseError
        If two leaves come to the same name.
    LimitExceeded
        If a limit or a permanent cap would be exceeded.
    """
    flattened = Flattened(name, budget, working_set)
    flattened.walk(value, "")
    return flattened


def _n_characters(value: Any) -> int:
    if type(value) is str:
        return len(value)
    return sum([len(item) for item in value if type(item) is str]) if type(value) is list else 0


def _plain(value: Any) -> Any:
    """Return a leaf as a value that JSON has."""
    if type(value) in (bool, int, float, str):
        return value
    if type(value) is bytes:
        return f"({len(value):,} bytes)"
    return str(value)[:200]


def _key_text(key: Any) -> str:
    if type(key) is bytes:
        return key.decode("latin-1")
    if type(key) is Key:
        key = key.value
        if type(key) is int:
            return str(key)
        if type(key) is tuple and all(type(part) in SCALARS for part in key):
            return ", ".join(str(_plain(part)) for part in key)
        return f"({type(key).__name__})"
    return str(key)
