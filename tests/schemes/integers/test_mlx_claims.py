"""What of MLX's cannot be right is refused, and the message says what is wrong with it."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from helpers.handmade import write_safetensors

SIZES = {"U32": 4, "BF16": 2, "U8": 1}


def affine(words: int, groups: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    scales = ("BF16", (8, groups))
    return {"a.weight": ("U32", (8, words)), "a.scales": scales, "a.biases": scales}


def floats(words: int, *scales: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {"a.weight": ("U32", (8, words)), "a.scales": ("U8", scales)}


def settings(bits: int, size: int, **more: Any) -> dict[str, Any]:
    return {"bits": bits, "group_size": size, **more}


def problem(parts: Any, quantization: dict[str, Any], folder: Path) -> str:
    """What is wrong with a weight; nothing if it can be read."""
    raw = {
        n: (dtype, shape, bytes(SIZES[dtype] * prod(shape))) for n, (dtype, shape) in parts.items()
    }
    write_safetensors(folder / "model.safetensors", raw, {})
    config = {"model_type": "llama", "quantization": quantization}
    (folder / "config.json").write_text(json.dumps(config))
    with an.parse(folder) as model:
        return next(map(str, model.problems.values()), "")


@pytest.mark.parametrize(
    ("parts", "told", "words"),
    [
        (affine(12, 3), settings(4, 33), "4 bits in groups of 32, and not 4 bits in groups of 33"),
        (affine(64, 4), settings(4, 64), "or 8 bits in groups of 64, and not 4 bits in groups of"),
        (affine(16, 3), settings(4, 64), "a scale for each 32, 64 or 128 codes is expected"),
        (floats(12, 8, 3), settings(4, 33, mode="mxfp4"), "says 4-bit floats in groups of 33"),
        (floats(12, 8, 5), settings(4, 32, mode="mxfp4"), "a scale for each 16 or 32 codes of 4"),
        (floats(16, 8, 5), settings(4, 16, mode="nvfp4"), "a scale for each 16 or 32 codes of 4"),
        (floats(32, 8, 5), settings(8, 32, mode="mxfp8"), "or each 32 of 8 bits, is expected"),
        (floats(12, 4, 3), settings(4, 32, mode="mxfp4"), "a.scales (U8 [4, 3]) does not fit"),
    ],
)
def test_what_does_not_fit(parts: Any, told: dict[str, Any], words: str, tmp_path: Path) -> None:
    assert words in problem(parts, told, tmp_path)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        (affine(64, 4), settings(4, 64, a=settings(8, 64))),
        (affine(64, 4), settings(4, 64, a={"bits": 8})),
        (affine(64, 4), settings(4, 16, mode="nvfp4", a=settings(8, 64))),
        (floats(12, 8, 3), settings(4, 64, a=settings(4, 32, mode="mxfp4"))),
        (floats(32, 8, 4), settings(8, 32, mode="mxfp8")),
    ],
)
def test_what_does(parts: Any, told: dict[str, Any], tmp_path: Path) -> None:
    """One layer has settings of its own; those that name no mode are integers."""
    assert not problem(parts, told, tmp_path)
