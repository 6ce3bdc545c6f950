"""Whatever holds tensors or arrays in a torch file: all that torch.load makes of it is told."""

from __future__ import annotations

import argparse
import functools
import types
from collections import Counter, OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

import anamnesis as an
from helpers.torch_cases import loaded, raw, saved

PROTOCOLS = (2, 3, 4, 5)
WAYS = [(zipped, protocol) for zipped in (True, False) for protocol in PROTOCOLS]

Pair = namedtuple("Pair", "weight bias")


class Thing:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Slotted:
    __slots__ = ("weight",)


class Reduced:
    """Keeps its arguments and tells them as arguments."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def __reduce__(self) -> Any:
        return Reduced, self.args


class Stateful(Reduced):
    """Tells arguments and a state that is no dictionary."""

    state: Any = None

    def __reduce__(self) -> Any:
        return Stateful, self.args, self.state

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Keywords(Thing):
    def __new__(cls, **attributes: Any) -> Keywords:
        made = super().__new__(cls)
        made.__dict__.update(attributes)
        return made

    def __getnewargs_ex__(self) -> Any:
        return (), self.__dict__

    def __getstate__(self) -> Any:
        return None


class ListOfThings(list):  # type: ignore[type-arg]
    pass


class TableOfThings(dict):  # type: ignore[type-arg]
    pass


class Subclass(torch.Tensor):
    pass


@dataclass
class Record:
    weight: torch.Tensor


def tensor(*shape: int) -> torch.Tensor:
    """Return one of a kind, so that its bytes tell it from all others."""
    return torch.randn(*(shape or (3,)))


def attributed(made: Any, **attributes: Any) -> Any:
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def slotted() -> Slotted:
    made = Slotted()
    made.weight = tensor()  # type: ignore[attr-defined]
    return made


def stateful(state: Any) -> Stateful:
    made = Stateful(tensor())
    made.state = state
    return made


def objects(*items: Any) -> np.ndarray:
    made = np.empty(len(items), object)
    made[:] = items
    return made


def trained() -> Any:
    layer = torch.nn.Linear(3, 2)
    optimiser = torch.optim.Adam(layer.parameters())
    layer(torch.ones(3)).sum().backward()
    optimiser.step()
    return {"model": layer, "optimiser": optimiser, "state": optimiser.state_dict()}


# What torch.load(weights_only=True) knows, and arrays.
PLAIN: dict[str, Callable[[], Any]] = {
    "an attribute of a parameter": lambda: attributed(torch.nn.Parameter(tensor()), s=tensor(4)),
    "attributes of parameters": lambda: [
        attributed(torch.nn.Parameter(tensor()), scale=tensor(), n=3, more={"x": [tensor()]})
        for _ in range(3)
    ],
    "an attribute of an ordered dictionary": lambda: attributed(
        OrderedDict(a=tensor()), x=tensor()
    ),
    "a key of a pair": lambda: {(1, "a"): tensor(), (2, "b"): tensor()},
    "tensors as keys": lambda: {tensor(): tensor(), tensor(): tensor(), "x": tensor()},
    "a tuple of a tensor as a key": lambda: {(tensor(), 1): 2},
    "dtypes as keys": lambda: {torch.float32: tensor(), torch.int8: tensor()},
    "a counter": lambda: Counter({"a": 2, "b": 1}) | {"x": tensor()},
    "a set": lambda: {"x": {tensor()}},
    "a storage": lambda: {"x": tensor().untyped_storage(), "y": tensor().storage()},
    "views of a storage": lambda: (lambda t: [t[2:], t.T, t[:, 1]])(tensor(4, 5)),
    "a module's state": lambda: torch.nn.BatchNorm1d(3).state_dict(),
    "a tensor alone": tensor,
    "a quantised tensor": lambda: torch.quantize_per_tensor(tensor(), 0.1, 0, torch.qint8),
    "a sparse tensor": lambda: {"x": tensor(3, 3).to_sparse(), "y": tensor()},
    "a compressed tensor": lambda: {"x": tensor(3, 3).to_sparse_csr(), "y": tensor()},
    "a conjugate": lambda: {"x": torch.randn(3, dtype=torch.complex64).conj(), "y": tensor()},
    "an array": lambda: np.arange(3.0),
    "an array beside a tensor": lambda: {"x": tensor(), "stats": np.random.rand(3)},
    "an array of no dimension": lambda: {"x": np.array(3.5)},
    "an empty array": lambda: {"x": np.zeros((0, 3)), "y": tensor()},
    "an array by columns": lambda: {"x": np.asfortranarray(np.random.rand(3, 4))},
    "an array by other axes": lambda: {"x": np.random.rand(2, 3, 4).transpose(1, 0, 2)},
    "a part of an array": lambda: {"x": np.random.rand(6, 4)[::2, 1:]},
    "big-endian arrays": lambda: {
        code: np.random.rand(3, 4).astype(f">{code}") for code in ("f4", "f8", "i2", "c8")
    },
    "big-endian by columns": lambda: np.asfortranarray(np.random.rand(3, 4).astype(">f4")),
    "arrays of each dtype": lambda: {
        code: (100 * np.random.rand(5)).astype(code)
        for code in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8")
    },
    "arrays of ml_dtypes": lambda: {
        name: np.random.rand(7).astype(getattr(ml_dtypes, name))
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")
    },
    "arrays that are not read": lambda: {
        "text": np.array(["a", "bc"]),
        "bytes": np.array([b"a"]),
        "dates": np.zeros(2, "M8[s]"),
        "records": np.zeros(2, [("a", "f4"), ("b", "i2")]),
        "long": np.ones(2, "g"),
        "void": np.zeros(2, "V3"),
        "rows": np.zeros(2, [("a", "f4", (2,))]),
    },
    "an array of objects": lambda: {"x": objects(tensor(), np.random.rand(2), {"y": tensor()}, 3)},
    "one array under two names": lambda: (lambda a: {"x": a, "y": a})(np.random.rand(3)),
    "arrays in all kinds of things": lambda: {
        "parameter": attributed(torch.nn.Parameter(tensor()), array=np.random.rand(3)),
        "list": [np.random.rand(3), [np.random.rand(3)]],
        "ordered": attributed(OrderedDict(a=np.random.rand(2)), b=np.random.rand(2)),
    },
}

# What refers to more than that.
FOREIGN: dict[str, Callable[[], Any]] = {
    "an object": lambda: {"m": Thing(weight=tensor(), inner=Thing(x=tensor(), y=[tensor()]))},
    "slots": lambda: {"m": slotted()},
    "an argument": lambda: {"m": Reduced(tensor(), 3, [tensor()], np.random.rand(3))},
    "an argument and a state": lambda: {"m": stateful(tensor())},
    "a state of two": lambda: {"m": stateful((tensor(), {"x": tensor()}))},
    "a state of two dictionaries": lambda: {"m": stateful(({"x": tensor()}, {"y": tensor()}))},
    "a state that is a list": lambda: {"m": stateful([tensor(), [tensor()]])},
    "keyword arguments": lambda: {"m": Keywords(weight=tensor())},
    "a list of one's own": lambda: {"m": attributed(ListOfThings([tensor()]), x=tensor())},
    "a dictionary of one's own": lambda: {"m": attributed(TableOfThings(a=tensor()), x=tensor())},
    "a named tuple": lambda: {"x": tensor(), "m": Pair(tensor(), tensor())},
    "a record": lambda: {"m": Record(tensor())},
    "a default dictionary": lambda: defaultdict(list, {"w": tensor(), tensor(): tensor()}),
    "a queue": lambda: {"m": deque([tensor(), tensor()], 5)},
    "a namespace": lambda: {"m": types.SimpleNamespace(w=tensor()), "n": argparse.Namespace(x=1)},
    "a partial call": lambda: {"m": functools.partial(max, tensor(), key=tensor())},
    "a user's dictionary": lambda: {"m": UserDict(w=tensor())},
    "a frozen set as a key": lambda: {frozenset([1]): tensor(), frozenset([2]): tensor()},
    "a frozen set": lambda: {"x": frozenset([tensor()])},
    "an object as a key": lambda: {Reduced(tensor()): tensor(), Reduced(tensor()): tensor()},
    "a subclass": lambda: {"m": attributed(tensor().as_subclass(Subclass), extra=tensor())},
    "a module": lambda: torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3)),
    "a module of attributes": lambda: attributed(
        torch.nn.Linear(2, 3), extra=tensor(), l=[tensor()]
    ),
    "a model and its optimiser": trained,
    "a matrix": lambda: {"x": np.matrix(np.random.rand(2, 2))},
    "a masked array": lambda: {"x": np.ma.array(np.random.rand(2), mask=[False, True])},
    "an array of objects of one's own": lambda: {"x": objects(Thing(w=tensor()))},
}


def within(value: Any) -> Iterator[Any]:
    """Yield what a value holds: items, keys, attributes, slots."""
    if isinstance(value, dict):
        yield from value.keys()
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        yield from value
    elif isinstance(value, np.ndarray) and value.dtype == object:
        yield from value.flat
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    if not isinstance(value, (type, np.ndarray, np.generic)):
        yield from getattr(value, "__dict__", {}).values()
        for name in getattr(value, "__slots__", ()):
            if isinstance(name, str) and hasattr(value, name):
                yield getattr(value, name)


def holders(value: Any) -> list[Any]:
    """Return all tensors, storages and arrays that can be reached."""
    found, left, seen = [], [value], {}
    while left:
        value = left.pop()
        if id(value) in seen:
            continue
        seen[id(value)] = value
        if isinstance(value, torch.TypedStorage):
            value = value.untyped()
        if isinstance(value, (torch.Tensor, torch.UntypedStorage, np.ndarray)):
            found.append(value)
        left.extend(within(value))
    return found


def told(value: Any) -> tuple[str, tuple[int, ...], bytes] | None:
    """Return dtype, shape and bytes, row-major and little-endian; None if they cannot be had."""
    if isinstance(value, torch.UntypedStorage):
        return "", (), bytes(value)
    if isinstance(value, np.ma.MaskedArray):
        return None
    if isinstance(value, np.ndarray):
        known = value.dtype.kind in "?biufc" or value.dtype.name in dir(ml_dtypes)
        if not known or value.dtype.itemsize > 8:
            return None
        little = (
            value.astype(value.dtype.newbyteorder("<")) if value.dtype.isnative is False else value
        )
        return value.dtype.newbyteorder("=").name, value.shape, little.tobytes()
    if value.layout is not torch.strided or value.is_quantized or value.is_conj():
        return None
    plain = value.detach().as_subclass(torch.Tensor)
    return str(plain.dtype).removeprefix("torch."), tuple(plain.shape), raw(plain)


def check(data: bytes, expected: Any, **options: Any) -> None:
    """Compare what is read of a file with all that its value holds."""
    found = [told(holder) for holder in holders(expected)]
    with an.parse(data, **options) as model:
        refused = model._checkpoint.unreadable
        read = [t for name, t in model.stored.items() if name not in refused]
        tensors = {(t.dtype.torch_name, t.shape, t.read()) for t in read}
    every = {("", (), content) for _, _, content in tensors}
    assert found
    assert {one for one in found if one} <= tensors | every
    assert len(refused) == found.count(None)


def by_torch(value: Any, data: bytes) -> Any:
    """Return what torch loads; what was saved, where torch cannot read what it wrote."""
    if b"UntypedStorage" in data and not data.startswith(b"PK"):
        return value
    return loaded(data, weights_only=False)


@pytest.mark.parametrize(("zipped", "protocol"), WAYS)
@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.filterwarnings("ignore")
def test_plain(kind: str, zipped: bool, protocol: int) -> None:
    value = PLAIN[kind]()
    options: dict[str, Any] = {"allow_foreign": True} if kind == "a set" and protocol == 3 else {}
    data = saved(value, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    check(data, by_torch(value, data), **options)


@pytest.mark.parametrize(("zipped", "protocol"), WAYS)
@pytest.mark.parametrize("kind", FOREIGN)
@pytest.mark.filterwarnings("ignore")
def test_foreign(kind: str, zipped: bool, protocol: int) -> None:
    value = FOREIGN[kind]()
    data = saved(value, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped)
    check(data, by_torch(value, data), allow_foreign=True)


ONLY_TOLD_OF = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8),
    "meta": lambda: torch.ones(4, device="meta"),
    "objects": lambda: np.array([None, "a"], object),
}


@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor:UserWarning")
@pytest.mark.parametrize("kind", ONLY_TOLD_OF)
def test_what_has_no_bytes_to_pass_on_is_dropped_and_listed(kind: str) -> None:
    data = saved({"kept": torch.arange(3.0), "odd": ONLY_TOLD_OF[kind]()})
    passed: list[str] = []
    with an.parse(data) as model:
        with pytest.raises(an.UnsupportedError, match="'odd'"):
            model.remember(lambda *_: None)
        report = model.remember(lambda name, _: passed.append(name), allow_unknown=True)
        written = an.parse(model.remember_to_bytes(allow_unknown=True))
    assert passed == list(written.stored) == ["kept"]
    assert [(d.name, d.reason) for d in report.dropped] == [
        ("odd", "unreadable, without bytes to pass on")
    ]
    assert (report.n_in, report.n_out, report.unknown) == (2, 1, ())
