"""`safe_open` beside that of safetensors, over the same file and over other containers."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors
from safetensors.numpy import save_file

import anamnesis as an
from anamnesis.sources.file import FileSource

ARRAYS: dict[str, Any] = {
    "b": np.arange(24, dtype=np.float32).reshape(4, 6),
    "a": np.linspace(-2, 2, 24).astype(ml_dtypes.bfloat16).reshape(2, 3, 4),
    "h": np.arange(8, dtype=np.float16),
    "d": np.arange(6, dtype=np.float64).reshape(2, 3),
    "i": np.arange(5),
    "u": np.arange(3, dtype=np.uint8),
    "t": np.array([True, False]),
    "z": np.zeros((0, 4), np.float32),
}
KEYS: list[Any] = [
    *(np.s_[...], np.s_[:], np.s_[0:1], np.s_[1:], np.s_[-1:], np.s_[:, 1], np.s_[..., 0:2]),
    *(np.s_[0], np.s_[1, 2], np.s_[0:1, ...], np.s_[0:2, 1:3], np.s_[0:0]),
]
CONTAINERS = ["a.safetensors", "a.npz", "a.pth", "a.gguf", "cut"]


@pytest.fixture
def path(tmp_path: Path) -> str:
    save_file(ARRAYS, tmp_path / "a.safetensors", metadata={"k": "v"})
    return str(tmp_path / "a.safetensors")


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, array.tobytes()


@pytest.mark.parametrize("dtype", ["bf16", "stored"])
def test_as_safetensors_opens_it(path: str, dtype: Any) -> None:
    with an.safe_open(path, "np", dtype=dtype) as ours, safetensors.safe_open(path, "np") as want:
        assert ours.keys() == want.keys()
        assert ours.offset_keys() == want.offset_keys()
        assert ours.metadata() == want.metadata()
        for name in want.keys():  # noqa: SIM118 -- it is no mapping
            assert bits(ours.get_tensor(name)) == bits(want.get_tensor(name))
            assert type(ours.get_tensor(name)) is np.ndarray
            one, other = ours.get_slice(name), want.get_slice(name)
            assert (one.get_shape(), one.get_dtype()) == (other.get_shape(), other.get_dtype())
            for key in KEYS:
                try:
                    wanted = other[key]
                except builtins.Exception:
                    continue
                assert bits(one[key]) == bits(wanted), (name, key)
        assert ours.get_tensors().keys() == want.get_tensors().keys()


def test_no_metadata(tmp_path: Path) -> None:
    save_file({"a": np.ones(2)}, tmp_path / "a.safetensors")
    assert an.safe_open(tmp_path / "a.safetensors").metadata() is None


@pytest.mark.parametrize("name", CONTAINERS)
def test_any_container(tmp_path: Path, name: str) -> None:
    arrays = {k: v for k, v in ARRAYS.items() if k in ("b", "h", "d")}
    where = tmp_path / name
    options: Any = {"max_shard_size": 100} if name == "cut" else {}
    an.save(arrays, where, **options)
    with an.safe_open(where) as opened:
        assert opened.keys() == sorted(arrays)
        assert sorted(opened.offset_keys()) == sorted(arrays)
        for key, array in arrays.items():
            assert bits(opened.get_tensor(key)) == bits(array)
            assert bits(opened.get_slice(key)[1:]) == bits(np.ascontiguousarray(array[1:]))


@pytest.mark.parametrize("to", ["fp8-block", "gguf-q4_k", "bnb-nf4", "int4"])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_quantised_as_remember_writes_them(tmp_path: Path, to: str, dtype: Any) -> None:
    values = np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256)
    where = tmp_path / ("a.gguf" if "gguf" in to else "a.safetensors")
    an.save({"a.weight": values, "n": np.ones(3, np.float32)}, where, to, dtype="f32")
    an.remember(where, tmp_path / "b.safetensors", dtype)
    wanted = safetensors.safe_open(tmp_path / "b.safetensors", "np")
    with an.safe_open(where, dtype=dtype) as opened:
        assert opened.keys() == wanted.keys()
        for name in opened.keys():  # noqa: SIM118 -- it is no mapping
            assert opened.get_slice(name).get_dtype() == wanted.get_slice(name).get_dtype()
            assert bits(opened.get_tensor(name)) == bits(wanted.get_tensor(name))
        assert bits(opened.get_slice("a.weight")[3:70, 5]) == bits(
            wanted.get_slice("a.weight")[3:70, 5]
        )


def test_stored_blocks_are_bytes(tmp_path: Path) -> None:
    values = np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256)
    an.save({"a.weight": values}, tmp_path / "a.gguf", "gguf-q8_0")
    blocks = an.schemes.ggml.quantize(values, "Q8_0")
    with (
        an.safe_open(tmp_path / "a.gguf", dtype="stored") as opened,
        an.parse(tmp_path / "a.gguf") as model,
    ):
        assert opened.get_slice("a.weight").get_dtype() == "Q8_0"
        assert bits(opened.get_tensor("a.weight")) == bits(blocks)
        assert bits(opened.get_slice("a.weight")[2:4]) == bits(blocks[2:4])
        assert bits(model.stored["a.weight"].numpy()) == bits(blocks)


def test_stored_tensors_as_arrays(path: str) -> None:
    with an.parse(path) as model:
        for name, array in ARRAYS.items():
            assert bits(model.stored[name].numpy()) == bits(array)
            model.stored[name].numpy().fill(0)  # a new one each time
            assert bits(model.stored[name].numpy()) == bits(array)


def test_a_slice_reads_what_it_gives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.ones((4096, 256), np.float32)
    save_file({"a": values}, tmp_path / "a.safetensors")
    read: list[int] = []
    some = FileSource._read_some

    def counting(self: FileSource, offset: int, view: memoryview) -> int:
        read.append(len(view))
        return some(self, offset, view)

    with an.safe_open(tmp_path / "a.safetensors") as opened:
        monkeypatch.setattr(FileSource, "_read_some", counting)
        opened.get_slice("a")[10:20]
    assert sum(read) == 10 * 256 * 4


REFUSED: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda f: f.get_tensor("bb"), KeyError, "did you mean 'b'"),
    (lambda f: f.get_slice("b")[[0, 2]], IndexError, "a list is not supported"),
    (lambda f: f.get_slice("b")[9], IndexError, "out of bounds"),
    (lambda f: f.get_slice("b")["x"], IndexError, "a str is not supported"),
    (lambda f: f.__exit__() or f.get_tensor("b"), ValueError, "the model is closed"),
    (lambda f: an.safe_open("x", "xx"), ValueError, "must be one of"),  # type: ignore[arg-type]
    (lambda f: an.safe_open("x", 5), TypeError, "framework must be a str"),  # type: ignore[arg-type]
    (lambda f: an.safe_open("x", "np", "cuda"), TypeError, "on no device"),
    (lambda f: an.safe_open("x", dtype="f8"), ValueError, "output dtype must be one of"),  # type: ignore[arg-type]
    (lambda f: an.safe_open("/nope"), FileNotFoundError, "nope"),
]


@pytest.mark.parametrize(("call", "error", "told"), REFUSED)
def test_refused(path: str, call: Any, error: type[Exception], told: str) -> None:
    with an.safe_open(path) as opened, pytest.raises(error, match=told):
        call(opened)


@pytest.mark.oracle
def test_torch_as_safetensors_gives_it(path: str, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file as save_torch

    def bytes_of(tensor: Any) -> bytes:
        return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())

    pairs = torch.arange(8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(2, 4)
    fp8 = {"f": torch.arange(8).to(torch.float8_e4m3fn), "s": torch.tensor(2.0), "p": pairs}
    save_torch(fp8, tmp_path / "f.safetensors")
    for where in (path, str(tmp_path / "f.safetensors")):
        for framework in ("pt", "torch", "pytorch"):
            ours = an.safe_open(where, framework, dtype="stored")
            want = safetensors.safe_open(where, framework)
            for name in want.keys():  # noqa: SIM118 -- it is no mapping
                one, other = ours.get_tensor(name), want.get_tensor(name)
                assert (one.dtype, one.shape) == (other.dtype, other.shape)
                assert bytes_of(one) == bytes_of(other)
                for key in KEYS if name in ("a", "b") else []:
                    one, other = ours.get_slice(name)[key], want.get_slice(name)[key]
                    assert (one.dtype, one.shape) == (other.dtype, other.shape)
                    assert bytes_of(one) == bytes_of(other)
    with pytest.raises(IndexError, match="a Tensor is not supported"):
        ours.get_slice("f")[torch.tensor([1])]
