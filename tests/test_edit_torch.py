"""Edits by torch: its tensors in the place of weights, and its arithmetic beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import anamnesis as an


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.dtype is other.dtype and torch.equal(
        one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)
    )


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(3)
    tensors = {f"{i}.weight": torch.randn(96, 160).to(torch.bfloat16) for i in range(3)}
    tensors["ids"] = torch.arange(7)
    save_file(tensors, tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_merge_a_lora(model: Path, tmp_path: Path, threads: int) -> None:
    """W + s * B @ A in float32, and one rounding."""
    lora = {f"{i}.weight": (torch.randn(96, 4), torch.randn(4, 160)) for i in range(3)}

    def delta(name: str) -> torch.Tensor:
        b, a = lora[name]
        return 0.25 * (b @ a)

    an.convert(
        model,
        tmp_path / "out.safetensors",
        threads=threads,
        edit={"*.weight": lambda tensor: tensor.torch() + delta(tensor.name)},
    )
    found, before = (load_file(tmp_path / f"{n}.safetensors") for n in ("out", "in"))
    for name in lora:
        assert same(found[name], (before[name].float() + delta(name)).to(torch.bfloat16))
    assert same(found["ids"], before["ids"])


@pytest.mark.parametrize("by_function", [False, True])
@pytest.mark.parametrize(
    "new",
    [
        torch.randn(96, 160).to(torch.bfloat16),
        torch.randn(160, 96).T,
        torch.randn(96, 320, dtype=torch.float64)[:, ::2],
        torch.nn.Parameter(torch.randn(96, 160).half()),
    ],
    ids=["bf16", "turned", "strided", "parameter"],
)
def test_tensors_of_torch(model: Path, tmp_path: Path, new: Any, by_function: bool) -> None:
    ids = torch.arange(5, 12)
    edit = {"1.weight": new, "ids": ids}
    if by_function:
        edit = {name: lambda t, kept=edit[name]: kept for name in edit}
    an.convert(model, tmp_path / "out.safetensors", edit=edit)
    found = load_file(tmp_path / "out.safetensors")
    assert same(found["1.weight"], new.detach().to(torch.bfloat16))
    assert same(found["ids"], ids)


def test_integers_over_floats(model: Path, tmp_path: Path) -> None:
    for new in (torch.ones(96, 160, dtype=torch.int32), torch.ones(96, 160, dtype=torch.bool)):
        with pytest.raises(TypeError, match=r"'1\.weight' has floats, but the array"):
            an.convert(model, tmp_path / "out.safetensors", edit={"1.weight": new})
