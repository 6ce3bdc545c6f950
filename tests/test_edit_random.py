"""Random models, edited by `edit` and by hand: the files are the same, whatever is written."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.core.bands import cut_into

BF16 = ml_dtypes.bfloat16
FLOATS = (np.float32, np.float16, BF16, np.float64)
SIZES = (1, 2, 32, 64, 100, 128, 256)
TARGETS = (
    *("safetensors", "npz", "pth", "gguf", "int8", "int4", "bnb-nf4", "bnb-nf4-nested"),
    *("fp8-tensor", "fp8-block", "mlx-4bit", "nvfp4"),
)


class Case:
    """A model, its edits, and what they make of it."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        self.arrays: dict[str, Any] = {}
        self.edit: dict[str, Any] = {}
        self.by_hand: dict[str, Any] = {}
        for i in range(self.pick.randint(2, 6)):
            name = f"layers.{i}.{self.pick.choice(['weight', 'bias', 'mlp.up_proj.weight'])}"
            shape = self.shape(self.pick.choice([0, 1, 2, 2, 2, 3]))
            dtype = self.pick.choice([*FLOATS, np.int64, np.uint8, np.bool_])
            self.arrays[name] = self.values(shape, dtype)
            self.change(name, is_first=i == 0)

    def shape(self, n: int) -> tuple[int, ...]:
        return tuple(self.pick.choice(SIZES) for _ in range(n))

    def values(self, shape: tuple[int, ...], dtype: Any) -> Any:
        if dtype in FLOATS:
            return (self.rng.standard_normal(shape) * self.pick.choice([1e-3, 1, 1e3])).astype(
                dtype
            )
        return self.rng.integers(0, 2, shape).astype(dtype)

    def change(self, name: str, *, is_first: bool) -> None:
        before = self.arrays[name]
        way = self.pick.choice(["no", "same", "array", "shape", "function", "drop"])
        if way == "no" or (way == "drop" and is_first):  # one must be left
            self.by_hand[name] = before
        elif way == "drop":
            self.edit[name] = None
        elif way == "same":
            self.by_hand[name] = before
            self.edit[name] = lambda tensor: tensor
        else:
            is_float = before.dtype in [np.dtype(dtype) for dtype in FLOATS]
            dtype = self.pick.choice(FLOATS) if is_float else before.dtype
            new = self.values(self.shape(2) if way == "shape" else before.shape, dtype)
            if new.ndim > 1 and self.pick.random() < 0.3:
                new = np.asfortranarray(new)
            if is_float and before.dtype != np.float64:
                self.by_hand[name] = new.astype(np.float32).astype(before.dtype)
            else:
                self.by_hand[name] = new.astype(before.dtype)
            self.edit[name] = (lambda _: new) if way == "function" else new


def written(path: Path, to: str, edit: Any, **options: Any) -> bytes | str:
    """Return what is written, or why nothing is."""
    stream = io.BytesIO()
    try:
        an.convert(path, stream, to, edit=edit, **options)
    except an.UnsupportedError as error:
        return str(error).replace(str(path), "the model")
    return stream.getvalue()


@pytest.mark.sampled(8)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("seed", range(80))
def test_as_by_hand(seed: int, tmp_path: Path) -> None:
    case = Case(seed)
    pick = case.pick
    band_bytes = pick.choice([1 << 12, 1 << 14, 1 << 20])
    ending, to = pick.choice([".safetensors", ".npz", ".pth"]), TARGETS[seed % len(TARGETS)]
    options = {"threads": pick.choice([1, 2, 5]), "verify": pick.random() < 0.3}
    model, by_hand = tmp_path / f"model{ending}", tmp_path / f"by-hand{ending}"
    an.save(case.arrays, model)
    an.save(case.by_hand, by_hand)
    with cut_into(band_bytes):
        assert written(model, to, case.edit, **options) == written(by_hand, to, None, **options)
