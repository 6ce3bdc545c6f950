"""Values as torch tensors, bit for bit, in memory that torch shares with us."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

import anamnesis as an
from anamnesis.schemes.core import arrays as memory
from helpers.handmade import WriteModel

STORED = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32),
    torch.uint64,
)
OUTPUTS = (torch.bfloat16, torch.float16, torch.float32)


def saved(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> Path:
    safetensors.torch.save_file(tensors, tmp_path / "model.safetensors")
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("dtype", STORED, ids=str)
@pytest.mark.parametrize("shape", [(3, 4), (), (0, 2)], ids=str)
def test_as_it_was_saved(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    tensor = (torch.rand(shape) * 100).to(dtype)
    wide = dtype in (torch.float16, torch.bfloat16)
    with an.parse(saved(tmp_path, {"w": tensor})) as model:
        found = model["w"].torch()
        wanted = tensor.float() if wide else tensor
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert raw(found) == raw(wanted)
        if dtype.is_floating_point:
            for output in OUTPUTS:
                spellings: list[Any] = [output, str(output).removeprefix("torch.")]
                for spelt in spellings:
                    assert raw(model["w"].torch(spelt)) == raw(tensor.to(output))
                    assert model["w"].torch(spelt).dtype == output


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def test_memory_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = []
    decode = memory.decode

    def noting(*args: Any) -> Any:
        arrays.append(decode(*args))
        return arrays[-1]

    monkeypatch.setattr(memory, "decode", noting)
    with an.parse(saved(tmp_path, {"w": torch.rand(100, 100)})) as model:
        assert model["w"].torch("bf16").data_ptr() == arrays[-1].ctypes.data


def test_other_ways_to_torch(tmp_path: Path) -> None:
    tensor = torch.rand(3, 4)
    with an.parse(saved(tmp_path, {"w": tensor})) as model:
        assert torch.equal(torch.from_dlpack(model["w"]), tensor)
        assert torch.equal(torch.as_tensor(np.asarray(model["w"])), tensor)
        assert torch.equal(model["w"].torch()[1:], torch.from_numpy(model["w"][1:]))


def test_a_state_dict(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 4)
    with an.parse(saved(tmp_path, layer.state_dict())) as model:
        other = torch.nn.Linear(3, 4)
        other.load_state_dict(model.state_dict(framework="torch"))
        assert torch.equal(other.weight, layer.weight)
        kept = model.state_dict(torch.bfloat16, framework="pt")
        assert {tensor.dtype for tensor in kept.values()} == {torch.float32}
        halves = model.state_dict(torch.bfloat16, framework="torch", cast_all=True)
        assert {tensor.dtype for tensor in halves.values()} == {torch.bfloat16}


def test_torch_is_imported_only_for_it(write_model: WriteModel) -> None:
    path = write_model({"w": ("BF16", [2], bytes(4))})
    code = (
        "import sys, anamnesis as an\n"
        "t = an.parse(sys.argv[1])['w']\n"
        "t.numpy('bfloat16'), t[0], t.dtype\n"
        "assert 'torch' not in sys.modules\n"
        "t.torch()\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_devices(tmp_path: Path) -> None:
    """Of two that any machine has; `meta` shows that it is copied to."""
    arrays = {"a": np.ones((3, 4), np.float32), "ids": np.arange(5)}
    an.save(arrays, tmp_path / "in.npz")
    with an.parse(tmp_path / "in.npz") as model:
        for device in ("cpu", torch.device("cpu")):
            assert torch.equal(model["a"].torch(device=device), torch.ones(3, 4))
        assert model["a"].torch("bf16", device="meta").device.type == "meta"
        state = model.state_dict("bf16", "pt", device="meta")
        assert {tensor.device.type for tensor in state.values()} == {"meta"}
        assert {name: tensor.dtype for name, tensor in state.items()} == {
            "a": torch.float32,
            "ids": torch.int64,
        }
        with pytest.raises(ValueError, match="device must be one of torch's, not 'no-such-device'"):
            model["a"].torch(device="no-such-device")
