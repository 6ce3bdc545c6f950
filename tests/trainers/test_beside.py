"""Folders in which a trainer's files lie beside a model, and files that only look like ranks'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers.dcp_handmade import Piece, write

ONE = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(
    "beside", [".metadata", "latest", "lora_rank32.bin", "x-rank0.pt", "notes-rank1.pt"]
)
def test_a_model_wins_over_what_lies_beside_it(tmp_path: Path, beside: str) -> None:
    an.save({"w": ONE}, tmp_path / "model.safetensors")
    (tmp_path / beside).write_bytes(b"something else")
    with an.parse(tmp_path) as model:
        assert list(model) == ["w"]


def test_ranks_of_adapters_are_no_ranks(tmp_path: Path) -> None:
    for rank in (32, 64):
        an.save({"w": ONE}, tmp_path / f"lora_rank{rank}.pt")
    with pytest.raises(an.ParseError, match=r"no \.safetensors file"):
        an.parse(tmp_path)


def test_a_folder_below_is_named(tmp_path: Path) -> None:
    for name in ("optimizer_0", "pytorch_model_fsdp_0"):
        write(tmp_path / name, {"model.w": ((2, 2), [Piece((0, 0), ONE)])})
    with pytest.raises(an.ParseError, match="such as pytorch_model_fsdp_0"):
        an.parse(tmp_path)
