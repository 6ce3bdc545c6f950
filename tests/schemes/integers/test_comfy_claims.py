"""What ComfyUI's AWQ and SVDQuant must have beside their codes."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes

NAME = "blocks.3.mlp.fc2"
AWQ = {"format": "awq_w4a16"}
SVD = {"format": "svdquant_w4a4"}
SIZES = {"I8": 1, "F16": 2, "F32": 4}

Tensors = dict[str, Entry]


def zeros(dtype: str, *shape: int) -> Entry:
    n = SIZES[dtype]
    for size in shape:
        n *= size
    return dtype, shape, bytes(n)


def layer(said: dict[str, Any], **parts: Entry) -> Tensors:
    text = json.dumps(said).encode()
    found = {f"{NAME}.{name}": one for name, one in parts.items()}
    return {**found, f"{NAME}.comfy_quant": ("U8", (len(text),), text)}


def awq(said: dict[str, Any] = AWQ, **parts: Entry) -> Tensors:
    grid = zeros("F16", 2, 8)
    usual = {"weight": zeros("I8", 8, 64), "weight_scale": grid, "weight_zeros": grid}
    return layer(said, **{**usual, **parts})


def svdquant(said: dict[str, Any] = SVD, **parts: Entry) -> Tensors:
    usual = {
        "weight": zeros("I8", 8, 64),
        "weight_scale": zeros("F16", 2, 8),
        "smooth_factor": zeros("F16", 128),
        "proj_down": zeros("F16", 128, 4),
        "proj_up": zeros("F16", 8, 4),
    }
    return layer(said, **{**usual, **parts})


def without(tensors: Tensors, part: str) -> Tensors:
    return {name: one for name, one in tensors.items() if name != f"{NAME}.{part}"}


REFUSED: tuple[tuple[Tensors, str], ...] = (
    (awq(weight_zero=zeros("F16", 2, 8)), "weight_zeros beside it, and each once"),
    (without(awq(), "weight_zeros"), "must have .*weight_scale and .*weight_zeros"),
    (without(awq(), "weight_scale"), "must have .*weight_scale and .*weight_zeros"),
    (awq({**AWQ, "group_size": 32}), r"\[4, 8\] is expected"),
    (awq({**AWQ, "group_size": 48}), r"is expected"),
    (awq(weight_zeros=zeros("F32", 2, 8)), r"F16 \[2, 8\] is expected"),
    (awq(weight_scale=zeros("I8", 2, 8)), "F32, F16, BF16 is expected"),
    *(
        (without(svdquant(), part), f"must have .*{part}")
        for part in ("weight_scale", "smooth_factor", "proj_down", "proj_up")
    ),
    (svdquant(weight_proj_up=zeros("F16", 8, 4)), "must have .*proj_up"),
    (svdquant(weight_scale=zeros("F16", 8, 2)), r"\[2, 8\] is expected"),
    (svdquant(proj_up=zeros("F16", 8, 3)), r"\[128, 3\] is expected"),
    (svdquant(smooth_factor=zeros("F16", 8)), r"\[128\] is expected"),
    (svdquant(weight=zeros("I8", 8, 48)), "whole groups of 64"),
    (svdquant(weight=zeros("I8", 1, 2, 32, 64)), r"\[rows / 128, cols / 64, 32, 128\]"),
    (svdquant(weight=zeros("I8", 1, 2, 32, 128)), r"\[1, 2, 128\] is expected"),
    (
        svdquant({**SVD, "lowrank_branch_input_basis": "post_smoothing"}),
        "lowrank_branch_input_basis post_smoothing .* cannot be decoded yet",
    ),
)


@pytest.mark.parametrize(("tensors", "why"), REFUSED, ids=lambda one: str(one)[-60:])
def test_what_is_refused(tensors: Tensors, why: str) -> None:
    with an.parse(safetensors_bytes(tensors)) as model:
        with pytest.raises(an.AnamnesisError, match=why) as error:
            model.remember_to_bytes()
        assert NAME in str(error.value)


def test_a_bias_that_makes_up_for_shifted_inputs_is_refused() -> None:
    said = {**SVD, "act_unsigned": True}
    with an.parse(safetensors_bytes(svdquant(said))) as model:
        assert not model.problems
    with an.parse(safetensors_bytes(svdquant(said, bias=zeros("F16", 8)))) as model:
        assert list(model.problems) == [f"{NAME}.bias"]
    with an.parse(safetensors_bytes(svdquant(bias=zeros("F16", 8)))) as model:
        assert not model.problems


def test_parts_of_weights_without_a_marker_are_refused() -> None:
    tensors = without(svdquant(), "comfy_quant")
    with an.parse(safetensors_bytes(tensors)) as model:
        assert f"{NAME}.weight" in model.problems
