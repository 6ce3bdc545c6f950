"""Other programs load what was converted: torch, numpy, gguf-py; and torch's files come in."""

from __future__ import annotations

from pathlib import Path

import gguf
import ml_dtypes
import numpy as np
import torch
from safetensors.torch import load_file

import anamnesis as an
from helpers.toy_models import write_file


def want(source: Path) -> dict[str, torch.Tensor]:
    """What each weight must be, in torch's own numbers."""
    state = load_file(source)
    scale = state.pop("q.weight_scale_inv").repeat_interleave(128, 1)
    state["q.weight"] = (state["q.weight"].float() * scale).bfloat16()
    return state


def same(found: torch.Tensor, tensor: torch.Tensor) -> bool:
    if found.dtype != tensor.dtype or found.shape != tensor.shape:
        return False
    return found.contiguous().view(torch.uint8).equal(tensor.contiguous().view(torch.uint8))


def test_torch_loads_it_and_gives_it_back(tmp_path: Path) -> None:
    source = write_file(tmp_path)
    with an.parse(source) as model:
        model.convert(tmp_path / "out.pth", "pth", threads=3)
    state = torch.load(tmp_path / "out.pth", weights_only=True)
    expected = want(source)
    assert state.keys() == expected.keys()
    assert all(same(state[name], tensor) for name, tensor in expected.items())
    torch.save(expected, tmp_path / "in.pth")
    for to, suffix in (("safetensors", "safetensors"), ("pth", "pth"), ("npz", "npz")):
        out = tmp_path / f"back.{suffix}"
        with an.parse(tmp_path / "in.pth") as model:
            model.convert(out, to, verify=True)
        with an.parse(out) as model:
            assert {name: model.stored[name].read() for name in model} == {
                name: tensor.contiguous().view(torch.uint8).numpy().tobytes()
                for name, tensor in expected.items()
            }
    assert all(same(load_file(tmp_path / "back.safetensors")[n], t) for n, t in expected.items())


def test_numpy_loads_it(tmp_path: Path) -> None:
    source = write_file(tmp_path)
    with an.parse(source) as model:
        model.convert(tmp_path / "out.npz", "npz", threads=3)
    expected = want(source)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as found:
        assert set(found) == set(expected)
        for name, tensor in expected.items():
            array = found[name]
            if tensor.dtype == torch.bfloat16:
                array = array.view(ml_dtypes.bfloat16)
                assert array.astype("f4").tobytes() == tensor.float().numpy().tobytes()
            else:
                assert array.dtype == tensor.numpy().dtype
                assert array.tobytes() == tensor.numpy().tobytes()


def test_gguf_py_reads_it(tmp_path: Path) -> None:
    source = write_file(tmp_path)
    with an.parse(source) as model:
        metadata = {"general.architecture": "toy"}
        model.convert(tmp_path / "out.gguf", "gguf", metadata=metadata, threads=3)
    expected = want(source)
    reader = gguf.GGUFReader(tmp_path / "out.gguf")
    assert {tensor.name for tensor in reader.tensors} == set(expected)
    for tensor in reader.tensors:
        meant = expected[tensor.name]
        assert list(reversed(tensor.shape.tolist())) == list(meant.shape)
        assert tensor.data.tobytes() == meant.contiguous().view(torch.uint8).numpy().tobytes()
