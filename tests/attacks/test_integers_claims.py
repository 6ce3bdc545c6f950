"""compressed-tensors' integers whose parts are missing, misshapen or contradict the config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import anamnesis as an

Q = "model.layers.0.self_attn.q_proj.weight"


def checkpoint(root: Path, tensors: dict[str, torch.Tensor], **weights: Any) -> Path:
    save_file(tensors, root / "model.safetensors")
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", **weights}}
    config = {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}
    (root / "config.json").write_text(json.dumps({"quantization_config": config}))
    return root


def packed(**changed: torch.Tensor | None) -> dict[str, torch.Tensor]:
    """A weight of 16 x 96 in groups of 32, with zero points."""
    parts = {
        "packed": torch.zeros(16, 12, dtype=torch.int32),
        "scale": torch.ones(16, 3, dtype=torch.bfloat16),
        "zero_point": torch.zeros(2, 3, dtype=torch.int32),
        "shape": torch.tensor([16, 96]),
    }
    made = {**parts, **changed}
    return {f"{Q}_{name}": part for name, part in made.items() if part is not None}


def test_sound_one_is_read(tmp_path: Path) -> None:
    with an.parse(checkpoint(tmp_path, packed())) as model:
        assert not model.problems
        assert (model[Q].numpy() == 0).all()
        assert model[Q].numpy().shape == (16, 96)


@pytest.mark.parametrize(
    ("changed", "error", "told"),
    [
        ({"scale": None}, an.UnsupportedError, "weight_packed"),
        ({"shape": None}, an.UnsupportedError, "weight_packed"),
        ({"scale": torch.ones(16, 3, dtype=torch.int8)}, an.UnsupportedError, "dtype I8"),
        ({"scale": torch.ones(15, 3)}, an.ParseError, "does not fit 16 x 96"),
        ({"scale": torch.ones(16, 97)}, an.ParseError, "does not fit 16 x 96"),
        ({"scale": torch.ones(16, 0)}, an.ParseError, "does not fit 16 x 96"),
        ({"scale": torch.ones(16, 5)}, an.UnsupportedError, "say which with group_size"),
        (
            {"zero_point": torch.zeros(3, 3, dtype=torch.int32)},
            an.UnsupportedError,
            "does not fit the 16 x 3 scales",
        ),
        (
            {"zero_point": torch.zeros(16, 3, dtype=torch.int8)},
            an.UnsupportedError,
            "does not fit the 16 x 3 scales",
        ),
        ({"shape": torch.tensor([16, -96])}, an.ParseError, "is no shape"),
        ({"shape": torch.tensor([16])}, an.UnsupportedError, "must be I64"),
        ({"shape": torch.tensor([17, 96])}, an.UnsupportedError, "weight_packed"),
        ({"shape": torch.tensor([16, 1 << 62])}, an.UnsupportedError, "weight_packed"),
        ({"g_idx": torch.zeros(96, dtype=torch.int32)}, an.UnsupportedError, "weight_packed"),
        ({"packed": torch.zeros(16, 12)}, an.UnsupportedError, "weight_packed"),
    ],
)
def test_is_refused(
    changed: dict[str, torch.Tensor | None],
    error: type[an.AnamnesisError],
    told: str,
    tmp_path: Path,
) -> None:
    with an.parse(checkpoint(tmp_path, packed(**changed))) as model:
        assert Q not in model.keys()  # noqa: SIM118
        problem = model.problems[f"{Q}_packed"]
        assert type(problem) is error
        assert told in str(problem)


def test_other_widths_are_refused(tmp_path: Path) -> None:
    with an.parse(checkpoint(tmp_path, packed(), num_bits=3)) as model:
        assert f"{Q}_packed" in model.problems


@pytest.mark.parametrize("n_bits", [0, -8, 1 << 40, "4", None, 4.0])
def test_absurd_widths(n_bits: Any, tmp_path: Path) -> None:
    with an.parse(checkpoint(tmp_path, packed(), num_bits=n_bits)) as model:
        assert f"{Q}_packed" in model.problems


def test_without_the_config_nothing_is_guessed(tmp_path: Path) -> None:
    save_file(packed(), tmp_path / "model.safetensors")
    with an.parse(tmp_path) as model:
        assert f"{Q}_packed" in model.problems
