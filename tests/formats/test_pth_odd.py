"""Torch files of odd sizes and names: beyond 64 bits, a name twice, an empty one."""

from __future__ import annotations

import io
import pickle
import struct
from collections import OrderedDict
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

import pytest
import safetensors
import torch
from safetensors.torch import load

import anamnesis as an
from helpers.handmade import safetensors_bytes
from helpers.pickle_handmade import torch_saved, zipped

VALUES = struct.pack("<8f", *range(8))


class _Storage:
    """A reference to the one storage of eight floats."""


class _Tensor:
    def __init__(self, shape: tuple[int, ...], first: int = 0) -> None:
        self.shape, self.first = shape, first

    def __reduce__(self) -> Any:
        strides = (1,) * len(self.shape)
        told: tuple[Any, ...] = (_Storage(), self.first, self.shape, strides, False, OrderedDict())
        return torch._utils._rebuild_tensor_v2, told


class _Pairs:
    """A dictionary that is given these items, one after the other."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self.pairs = pairs

    def __reduce__(self) -> Any:
        return OrderedDict, (), None, None, iter(self.pairs)


class _Pickler(pickle.Pickler):
    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, _Storage):
            return "storage", torch.FloatStorage, "0", "cpu", 8
        return None


def pth(value: Any) -> bytes:
    out = io.BytesIO()
    _Pickler(out, 2).dump(value)
    members = {"data.pkl": out.getvalue(), "byteorder": b"little", "data/0": VALUES}
    return zipped({f"archive/{name}": raw for name, raw in (members | {"version": b"3\n"}).items()})


SIZES = [
    *((2**33, 2**33, 0), (0, 2**33, 2**33), (2**31, 2**31, 0), (2**31 - 1,) * 3 + (0,)),
    *((2**40, 0, 2**40), (2**63 - 1, 0), (2**63, 0), (2**64, 0), (0, 2**64), (0, 2**63 - 1)),
    *((2**33, 2**33, 2**33, 0), (2**32, 2**32, 0), (2**32, 2**31, 0)),
]


@pytest.mark.against("torch")
@pytest.mark.parametrize("shape", SIZES, ids=str)
def test_sizes_without_elements(shape: tuple[int, ...], tmp_path: Path) -> None:
    """What torch opens is opened; and what is written of it, its library opens."""
    raw = pth({"w": _Tensor(shape), "v": _Tensor((4,))})
    try:
        theirs = torch.load(io.BytesIO(raw), weights_only=True)
    except (RuntimeError, TypeError, pickle.UnpicklingError):
        with pytest.raises(an.ParseError, match="larger than torch has"):
            an.parse(raw)
        return
    path = tmp_path / "a.safetensors"
    with an.parse(raw) as model:
        assert model.stored["w"].shape == tuple(theirs["w"].shape)
        check_as_torch(model, shape, tmp_path / "a.pth")
        if max(accumulate((*shape, 32), mul)) >= 2**64:
            with pytest.raises(an.UnsupportedError, match="'w' cannot be written: sizes"):
                model.convert(path, "f32")
            return
        model.convert(path, "f32")
    with safetensors.safe_open(path, "pt") as file:
        assert tuple(file.get_slice("w").get_shape()) == shape
    with an.parse(path) as again:
        assert again.stored["w"].shape == shape


def check_as_torch(model: an.Model, shape: tuple[int, ...], path: Path) -> None:
    """What torch makes of a shape is written, and what it refuses is refused by name."""
    try:
        torch.empty(shape)
    except (RuntimeError, TypeError, OverflowError):
        with pytest.raises(an.UnsupportedError, match=r"'w' cannot be written: .* larger than"):
            model.convert(path, "pth")
        return
    model.convert(path, "pth")
    assert tuple(torch.load(path)["w"].shape) == shape


@pytest.mark.parametrize("shape", [(2**63, 0), (2**63 - 1, 0), (2**62, 2, 0), (0, 2**62, 2)])
def test_sizes_of_safetensors(shape: tuple[int, ...], tmp_path: Path) -> None:
    with an.parse(safetensors_bytes({"w": ("U8", shape, b"")})) as model:
        check_as_torch(model, shape, tmp_path / "a.pth")


TWICE = [("w", _Tensor((4,))), ("w", _Tensor((4,), 4))]
MANY = [(f"n{i}", i) for i in range(998)]  # a thousand are set at once


@pytest.mark.parametrize(
    "value",
    [
        _Pairs(TWICE),
        _Pairs([TWICE[0], ("v", 1), TWICE[1]]),
        _Pairs([TWICE[0], *MANY, ("v", 1), TWICE[1]]),
        _Pairs([TWICE[0], *MANY, ("v", 1), TWICE[1], ("u", 2)]),
        {"state": _Pairs(TWICE)},
        _Pairs([(1, _Tensor((4,))), (1, _Tensor((4,), 4))]),
    ],
)
def test_a_key_twice(value: Any) -> None:
    """Of two views of one storage the first would be lost, and no storage be left over."""
    with pytest.raises(an.ParseError, match=r"a dictionary is given the key '.' twice"):
        an.parse(pth(value))


def test_a_name_of_nothing() -> None:
    """It is a name, other than that of a tensor which is the whole file."""
    one, other = torch.arange(3.0), torch.arange(4.0)
    for value in ({"": one}, {"": one, "tensor": other}, {"": {"": one, "x": other}, "x": one}):
        with an.parse(torch_saved(value)) as model:
            out = io.BytesIO()
            model.remember(out)
        found = load(out.getvalue())
        assert found.keys() == set(model)
        assert torch.equal(found["." if "x" in value else ""], one)
        assert found.keys() <= {"", "tensor", ".", ".x", "x"}
        assert len(found) == len(value) + ("x" in value)
    with an.parse(torch_saved(one)) as model:
        assert list(model) == ["tensor"]
    with (
        an.parse(torch_saved({"": one})) as model,
        pytest.raises(an.UnsupportedError, match="its name is empty"),
    ):
        model.convert(io.BytesIO(), "pth")


def test_an_attribute_twice() -> None:
    """Of an object that is given its state twice, too."""
    name = b"X\x01\x00\x00\x00w"
    state = b"}" + name + b"K%csb"
    for second, fails in ((name, True), (b"X\x01\x00\x00\x00v", False)):
        built = b"\x80\x02cmodule\nClass\n)R" + state % 1 + (state % 2).replace(name, second) + b"."
        raw = zipped({"archive/data.pkl": built, "archive/version": b"3\n"})
        if fails:
            with pytest.raises(an.ParseError, match="an attribute of 'the value' is set twice"):
                an.parse(raw, allow_foreign=True)
        else:
            with an.parse(raw, allow_foreign=True) as model:
                assert dict(model.metadata) == {"w": 1, "v": 2}
