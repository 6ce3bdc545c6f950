"""Packed integers are byte for byte those of compressed-tensors, run here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

import anamnesis as an
from anamnesis.base.levels import LevelName
from anamnesis.schemes import int4, int8
from helpers.blockwise import LEVELS, assert_stored, check, cropped
from helpers.encoder_oracles import DTYPES, array_of, compressed_tensors, weights

pytestmark = pytest.mark.against("compressed-tensors")

SHAPES = ((1, 1), (3, 8), (130, 200), (9, 1544))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int8(shape: tuple[int, int], dtype: str) -> None:
    check(
        shape,
        dtype,
        lambda array, level: int8.quantize(array, level=level),
        lambda weight: cropped(
            compressed_tensors(weight, "int-quantized", num_bits=8, strategy="channel"),
            shape,
            "q.weight_scale",
        ),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("shape", "group_size"),
    [
        ((1, 1), None),
        ((9, 264), 33),
        ((16, 1024), 128),
        ((8, 96), 1),
        ((10, 1043), None),
        ((17, 1050), 7),
    ],
)
def test_int4(shape: tuple[int, int], group_size: int | None, symmetric: bool, dtype: str) -> None:
    names = ["packed", "scale"] + ["zero_point"] * (not symmetric)
    strategy = {"strategy": "group", "group_size": group_size} if group_size else {}

    def oracle(weight: torch.Tensor) -> list[torch.Tensor]:
        stored = compressed_tensors(
            weight,
            "pack-quantized",
            **{"num_bits": 4, "symmetric": symmetric, "strategy": "channel", **strategy},
        )
        assert stored["q.weight_shape"].tolist() == list(shape)
        return [stored[f"q.weight_{name}"] for name in names]

    def encode(array: NDArray[Any], level: LevelName) -> tuple[NDArray[Any], ...]:
        packed = int4.quantize(array, group_size, symmetric=symmetric, level=level)
        return tuple(part for part in packed[:3] if part is not None)

    check(shape, dtype, encode, oracle)


@pytest.mark.parametrize("group_size", [512, 1024])
def test_wide_groups_of_int4(group_size: int) -> None:
    """More than one of a row that are as wide as what is encoded at once."""
    for name, weight in weights(8, 4096, "BF16"):
        want = compressed_tensors(
            weight, "pack-quantized", num_bits=4, strategy="group", group_size=group_size
        )
        for level in LEVELS:
            codes, scales, *_ = int4.quantize(array_of(weight), group_size, level=level)
            stored = [want["q.weight_packed"], want["q.weight_scale"]]
            assert_stored((codes, scales), stored, (name, level))


def test_what_comes_back_as_no_number_is_told_and_ranks_first(tmp_path: Path) -> None:
    """Next to the largest values, sums and scales overflow, as the libraries' do."""
    generator = torch.Generator().manual_seed(0)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(3)]
    state = {name: torch.randn(128, 256, generator=generator) for name in names}
    state[names[1]] *= 1e38
    state[names[1]].clamp_(-3e38, 3e38)
    save_file(state, tmp_path / "in.safetensors")
    with an.parse(tmp_path / "in.safetensors") as model:
        report = model.forget(tmp_path / "out.safetensors", "int4-asym")
    assert report.loss is not None
    assert report.loss.not_finite == [names[1]]
    assert report.loss.worst()[0][0] == names[1]
    assert np.isnan([report.loss.weights[names[1]].largest, report.loss.total.largest]).all()
    (told,) = [warning for warning in report.warnings if "NaNs" in warning]
    assert told.startswith(f"{names[1]!r}: values are too large")
