"""HQQ's layers in a pickle get the parts that its safetensors files have."""

from __future__ import annotations

from typing import Any

import pytest

from anamnesis.base.dtypes import DTYPES
from anamnesis.formats.torch.hqq import as_parts
from anamnesis.formats.torch.values import Storage, TorchTensor


def tensor(dtype: str, *shape: int) -> TorchTensor:
    strides = tuple(shape[i + 1] if i + 1 < len(shape) else 1 for i in range(len(shape)))
    return TorchTensor(Storage("0", DTYPES[dtype], 999), DTYPES[dtype], 0, shape, strides)


SAID: dict[str, Any] = {
    "nbits": 4,
    "axis": 1,
    "shape": [8, 64],
    "packing": "4bit_u8",
    "view_as_float": False,
    "bias": "None",
}
ENCODED = {
    "nbits": ("I32", (), b"\4\0\0\0"),
    "axis": ("I32", (), b"\1\0\0\0"),
    "shape": ("I64", (2,), b"\x08" + bytes(7) + b"\x40" + bytes(7)),
    "packing": ("U8", (7,), b"4bit_u8"),
    "view_as_float": ("U8", (), b"\0"),
}


@pytest.mark.parametrize("module", ["", "layers.0."])
@pytest.mark.parametrize("where", ["", "meta."])
def test_settings_become_tensors(module: str, where: str) -> None:
    tensors: dict[str, Any] = {f"{module}W_q": tensor("U8", 4, 64)}
    tensors |= {f"{module}{where}{part}": tensor("F16", 8, 1) for part in ("scale", "zero")}
    as_parts(tensors, {f"{module}{where}{key}": value for key, value in SAID.items()})
    made = {name.removeprefix(module): one for name, one in tensors.items()}
    assert set(made) == {"W_q", "scale", "zero", *ENCODED}
    assert {n: (made[n].dtype.name, made[n].shape, made[n].raw) for n in ENCODED} == ENCODED


@pytest.mark.parametrize(("dtype", "end"), [("U8", "_q"), ("F16", "")])
def test_a_stack_of_zero_points_and_scales(dtype: str, end: str) -> None:
    tensors: dict[str, Any] = {
        "a.W_q": tensor("U8", 4, 64),
        "a.meta.zero_scale": tensor(dtype, 2, 8),
    }
    as_parts(tensors, {"a.meta.meta_zero.nbits": 8})
    assert tensors[f"a.zero{end}"][2:] == (0, (8,), (1,))
    assert tensors[f"a.scale{end}"][2:] == (8, (8,), (1,))
    assert tensors["a.meta_zero.nbits"].raw == b"\x08\0\0\0"


def test_what_is_a_tensor_already_stays() -> None:
    tensors: dict[str, Any] = {"a.W_q": tensor("U8", 4, 64), "a.nbits": tensor("I32")}
    before = dict(tensors)
    as_parts(tensors, {"a.axis": 1})
    assert tensors == before
