"""A tree of values as a flat list of leaves with dotted names.

Keys of dictionaries and positions in lists become names: `optimizer.state.0.exp_avg`. A list of
plain values and empty tuples only is one leaf. Attributes are named like keys, be they an object's,
a tensor's or a dictionary's; arguments like positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.limits import PICKLE_MAX_DEPTH, PICKLE_MAX_WORKING_SET
from anamnesis.formats.pickle.machine import PickleMachine
from anamnesis.formats.pickle.nodes import (
    ENTRY,
    NUMBER,
    SCALARS,
    SLOT,
    Call,
    Global,
    Key,
    PickledSet,
    in_words,
    text_cost,
)
from anamnesis.formats.torch.values import (
    Attributed,
    Refused,
    Storage,
    TorchTensor,
    Wrapper,
    is_of_slots,
    plain,
    plain_list,
    value_cost,
    whole,
)

if TYPE_CHECKING:
    from anamnesis.formats.torch.dtensor import Sharding
    from anamnesis.formats.torch.pickled_arrays import PickledArray

# Bytes of all names and all text together, and as many again as the pickle's values take: each may
# be shared, and is listed again wherever it is referred to.
PTH_MAX_NAMES = 4 << 20

# How often values may be listed: in any case, and per byte of the pickle. A value that is not
# shared takes at least one byte and is counted at most twice.
PTH_MAX_VISITS, _VISITS_PER_BYTE = 50_000, 3
_NAME_BYTES = 256  # of a name that counts as one visit
_LEAF = ENTRY + 2 * NUMBER  # bytes that a leaf takes beside the characters of its name

# What is listed in one leaf, of tuples the empty one.
_PLAIN = SCALARS | {tuple}

# A module's attributes in which its tensors are; its state dictionary does without them.
_TRANSPARENT = ("_parameters", "_buffers", "_modules")

# Of every module; what is in the last, an attribute of state dictionaries, has no tensors.
_BOOKKEEPING = ("training", "_is_full_backward_hook", "_metadata")


class Flattened:
    """The leaves of a tree."""

    def __init__(self, name: str, budget: Budget, machine: PickleMachine) -> None:
        self.tensors: dict[str, TorchTensor | PickledArray | Refused] = {}
        self.others: dict[str, Any] = {}
        self.described: dict[str, Mapping[str, Any]] = {}
        self.sharded: dict[str, Sharding] = {}
        self.spent: list[Any] = []  # that is understood, and its storages no longer needed
        self._source_name = name
        self._budget = budget
        self._attributes = machine.attributes
        self._arrays: dict[int, PickledArray | Refused] = {}  # by the `id` of the call
        # Shared values are listed again wherever they are referred to, so that what a pickle
        # replays must stay in proportion to what it holds.
        self._visits_left = PTH_MAX_VISITS + _VISITS_PER_BYTE * machine.pos
        self._text_left = PTH_MAX_NAMES + machine.working_set
        self._bytes_left = PICKLE_MAX_WORKING_SET - machine.working_set
        self._open: set[int] = set()  # the values that are being walked

    def walk(self, value: Any, name: str | None) -> None:
        """Add all leaves of a value; the file's own has no name, which is not an empty one."""
        self._visit(1 + len(name or "") // _NAME_BYTES)
        kind = type(value)
        if kind is TorchTensor or kind is Refused:
            self.add(self.tensors, _called(name, "tensor"), value)
            if self._attributes and id(value) in self._attributes and id(value) not in self._open:
                self._walk_container(value, name)
        elif kind is Storage:
            self.add(self.tensors, _called(name, "storage"), whole(value))
        elif kind is Wrapper:
            self._walk_wrapper(value, _called(name, "tensor"))
        elif kind in SCALARS or isinstance(value, Global):
            self.add(self.others, _called(name, "value"), plain(value))
        elif id(value) in self._open:
            self.add(self.others, _called(name, "value"), "(refers to its own container)")
        else:
            self._walk_container(value, name)

    def _walk_wrapper(self, made: Wrapper, name: str) -> None:
        """Add the parts of a library's tensor, by the names that the library gives them."""
        # Only here, for few files have either.
        if made.kind.module.startswith("torch.distributed."):
            from anamnesis.formats.torch import dtensor

            self.spent.append(made.state)
            found = dtensor.read(made)
            if isinstance(found, Refused):
                self.add(self.tensors, name, found)
                return
            local, self.sharded[name] = found
            self.add(self.tensors, name, local)
            return
        from anamnesis.formats.torch import torchao

        if id(made) in self._attributes:
            what = f"{made.kind}, which is given more attributes"
            flat: torchao.Flat | Refused = Refused(what, made.shape, (made.state,))
        else:
            flat = torchao.read(made, self._visit)
        if isinstance(flat, Refused):
            self.add(self.tensors, name, flat)
            return
        head, dot, last = name.rpartition(".")
        for part, tensor in flat.tensors.items():
            self.add(self.tensors, f"{head}{dot}_{last}_{part}", tensor)
        self.add(self.others, name, flat.text)
        self.described[name] = flat.described

    def _walk_container(self, value: Any, name: str | None) -> None:
        if len(self._open) >= PICKLE_MAX_DEPTH:
            raise self.too_deep()
        self._open.add(id(value))
        kind = type(value)
        if kind is dict:
            if not value and name is not None:
                self.add(self.others, name, "{}")
            self._walk_pairs(value.items(), name)
        elif kind is Call:
            self._walk_call(value, name)
        elif kind is Attributed:
            self.walk(value.tensor, name)
            self._walk_states([value.state], name)
        elif kind is not TorchTensor and kind is not Refused:
            self._walk_items(value.items if kind is PickledSet else value, name)
        if self._attributes and id(value) in self._attributes:
            self._walk_states(self._attributes[id(value)][1], name)
        self._open.discard(id(value))

    def too_deep(self) -> LimitExceeded:
        return LimitExceeded(
            "PICKLE_MAX_DEPTH", f"{self._source_name}: values more than {PICKLE_MAX_DEPTH} deep"
        )

    def _walk_pairs(self, pairs: Iterable[tuple[Any, Any]], name: str | None) -> None:
        n_unnamed = 0
        for key, value in pairs:
            text = key if type(key) is str else self._key_text(key)
            if text is None:
                text = f"(key {n_unnamed})"
                n_unnamed += 1
                self.walk(key.value, self._joined(name, f"{text}.itself"))
            self.walk(value, text if name is None else f"{name}.{text}")

    def _key_text(self, key: Any) -> str | None:
        """Return what a key is called; None for one that is more than a plain value."""
        if type(key) is bytes:
            return key.decode("latin-1")
        if type(key) is not Key:
            return str(key)
        key = key.value
        if isinstance(key, Global):
            return str(key)
        if type(key) is tuple:
            self._visit(len(key))
            if not all(type(part) in SCALARS for part in key):
                return None
        elif type(key) is not int:
            return None
        self._tell(value_cost(key) + (SLOT * len(key) if type(key) is tuple else 0))
        return str(key) if type(key) is int else ", ".join(str(plain(part)) for part in key)

    def _walk_items(self, items: Any, name: str | None) -> None:
        self._visit(len(items))
        kinds = set(map(type, items))
        if kinds <= _PLAIN and (
            tuple not in kinds or not any(type(one) is tuple and one for one in items)
        ):
            # Text and numbers are shared with the pickle's values, but those that are described.
            n_made = 0 if kinds.isdisjoint((bytes, complex)) else len(items)
            self._budget.items(len(items), "the values")
            self._charge(NUMBER + SLOT * len(items) + 2 * NUMBER * n_made, "a list of values")
            self._tell(value_cost(items))
            self.add(self.others, _called(name, "value"), plain_list(items, kinds), is_given=True)
            return
        self._foresee(len(items))
        for i, item in enumerate(items):
            self.walk(item, self._joined(name, str(i)))

    def _walk_call(self, made: Call, name: str | None) -> None:
        if _is_of_numpy(made):
            from anamnesis.formats.torch.pickled_arrays import is_array, read_array, read_value

            if is_array(made):
                array = self._arrays.get(id(made))
                if array is None:
                    array = self._arrays[id(made)] = self._read(read_array, made, name)
                self.add(self.tensors, _called(name, "array"), array)
                for part in array.parts if type(array) is Refused else ():
                    if type(part) is list:  # of objects, which are not read, but what is in them
                        self._walk_items(part, self._joined(name, "items"))
                return
            value = self._read(read_value, made, name)
            if value is not None:
                self.add(self.others, _called(name, "value"), plain(value))
                return
        self._walk_object(made, name)

    def _read(self, read: Callable[[Call], Any], made: Call, name: str | None) -> Any:
        try:
            return read(made)
        except (TypeError, ValueError) as error:
            raise ParseError(f"value {name or ''!r}: {error}", source=self._source_name) from None

    def add_lost_arrays(self, calls: Iterable[Call]) -> None:
        """List the arrays among the objects of a pickle that no name leads to."""
        given = {id(p) for t in self.tensors.values() if type(t) is Refused for p in t.parts}
        n_lost = 0
        for made in calls:
            if _is_of_numpy(made) and id(made) not in self._arrays and id(made) not in given:
                from anamnesis.formats.torch.pickled_arrays import is_array

                if is_array(made):
                    lost = Refused("a NumPy array without a name")
                    self.add(self.tensors, f"(array {n_lost})", lost)
                    n_lost += 1

    def _walk_object(self, made: Call, name: str | None) -> None:
        """Add what is in an object; its class is listed only if it is empty."""
        self._visit(len(made.args))
        self._foresee(sum(1 for arg in made.args if _has_parts(arg)))
        parts = [(str(i), arg) for i, arg in enumerate(made.args) if _has_parts(arg)]
        if not isinstance(made.function, Global):
            parts.append(("function", made.function))
        states = [state for state in made.states if state is not None]
        if not parts and not states and not made.items and not made.pairs:
            value = f"({in_words(made.function)})"
            if len(made.args) == 1 and type(made.args[0]) in SCALARS:  # as a member of an enum is
                value = plain(made.args[0])
            self.add(self.others, _called(name, "value"), value)
        inner = self._joined(name, "args") if states or made.items or made.pairs else name
        for part, value in parts:
            self.walk(value, self._joined(inner, part))
        self._walk_states(states, name)
        self._walk_pairs(made.pairs.items(), name)
        if made.items:
            self._walk_items(made.items, name)

    def _walk_states(self, states: Iterable[Any], name: str | None) -> None:
        """Add what `__setstate__` would be given: attributes mostly."""
        attributes: dict[str, Any] = {}
        for state in states:
            parts = state if is_of_slots(state) else (state,)
            for part in parts:
                if type(part) is dict:
                    self._visit(len(part))
                    if not attributes.keys().isdisjoint(part):
                        raise ParseError(
                            f"an attribute of {_called(name, 'the value')!r} is set twice",
                            source=self._source_name,
                        )
                    attributes.update(part)
                elif part is not None:
                    self.walk(part, name)
        self._walk_pairs(self._told_of(attributes), name)

    def _told_of(self, attributes: dict[Any, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield attributes, except uninformative ones; of a module's tables, their items."""
        for key, value in attributes.items():
            if key in _TRANSPARENT and type(value) is dict:
                self._visit(len(value))
                yield from value.items()
            elif key not in _BOOKKEEPING:
                yield key, value

    def _joined(self, name: str | None, text: str) -> str:
        return text if name is None else f"{name}.{text}"

    def add(self, leaves: dict[str, Any], name: str, value: Any, *, is_given: bool = False) -> None:
        is_given = is_given or leaves is not self.others
        self._tell(text_cost(name) + (0 if is_given else value_cost(value)))
        if name in self.tensors or name in self.others:
            raise ParseError(f"two values would both be called {name!r}", source=self._source_name)
        self._budget.items(1, "the values")
        self._charge(_LEAF + text_cost(name), "a name")
        leaves[name] = value

    def _charge(self, n_bytes: int, what: str) -> None:
        """Account for what a leaf takes, together with the values of the pickle."""
        self._budget.alloc(n_bytes, what)
        self._bytes_left -= n_bytes
        if self._bytes_left < 0:
            raise self._too_many()

    def _foresee(self, n_leaves: int) -> None:
        """Refuse values that will be a leaf each, before the first of too many is listed."""
        n_bytes = _LEAF * n_leaves
        replace(self._budget).items(n_leaves, "the values")
        total = self._budget.limits.max_total_bytes
        if total is not None and self._budget.bytes_used + n_bytes > total:
            self._budget.alloc(n_bytes, "the values and their names")
        if n_bytes > self._bytes_left:
            raise self._too_many()

    def _too_many(self) -> LimitExceeded:
        return LimitExceeded(
            "PICKLE_MAX_WORKING_SET",
            f"{self._source_name}: the values of the pickle and their names take more than the"
            f" {PICKLE_MAX_WORKING_SET:,} bytes that are allowed",
        )

    def _tell(self, n_bytes: int) -> None:
        self._text_left -= n_bytes
        if self._text_left < 0:
            raise LimitExceeded(
                "PTH_MAX_NAMES",
                f"{self._source_name}: the names and texts of its values are too long",
            )

    def _visit(self, n: int) -> None:
        self._visits_left -= n
        if self._visits_left < 0:
            raise LimitExceeded(
                "PTH_MAX_VISITS",
                f"{self._source_name}: shared values would be listed too many times",
            )


def flatten(value: Any, name: str, budget: Budget, machine: PickleMachine) -> Flattened:
    """Return the leaves of a value."""
    flattened = Flattened(name, budget, machine)
    try:
        flattened.walk(value, None)
    except RecursionError:  # whoever calls this may be deep in calls already
        raise flattened.too_deep() from None
    if machine.calls:
        flattened.add_lost_arrays(machine.calls)
    if any(name.endswith("W_q") for name in flattened.tensors):
        from anamnesis.formats.torch import hqq  # only here: few files have its layers

        hqq.as_parts(flattened.tensors, flattened.others)
    return flattened


def _called(name: str | None, usual: str) -> str:
    return usual if name is None else name


def _has_parts(arg: Any) -> bool:
    """Return whether an object's argument is more than a plain value."""
    return type(arg) not in SCALARS and arg != () and not isinstance(arg, Global)


def _is_of_numpy(made: Call) -> bool:
    return isinstance(made.function, Global) and made.function.module.startswith("numpy.")
