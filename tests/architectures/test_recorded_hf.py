"""Tiny models are made again from their records: the bytes that llama.cpp's converter saw."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers import recorded_hf, tiny_files
from helpers.recorded_hf import NAMES


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", NAMES)
def test_remake(name: str, tmp_path: Path) -> None:
    """A norm that is not changed on the way to GGUF has the digest of the GGUF's tensor."""
    root = recorded_hf.remake(name, tmp_path / "hf")
    found = recorded_hf.recorded(name)
    with an.parse(root) as model:
        digests = {digest for _, _, digest in found.tensors.values()}
        same = [
            name
            for name, tensor in model.items()
            if "norm" in name.lower()
            and hashlib.sha256(tensor.numpy("f32").tobytes()).hexdigest() in digests
        ]
    adds_one = name.startswith(("gemma2", "gemma3", "qwen35", "qwen3next"))
    assert adds_one or same


def test_values_are_those_of_a_model() -> None:
    for shape, low, high in (((512, 128), 0.02, 0.3), ((64, 4096), 0.005, 0.1)):
        found = tiny_files.values("a.weight", shape)
        assert found.dtype == np.float32
        assert low < found.std() < high
    assert abs(tiny_files.values("norm.weight", (4096,)).mean() - 0.5) < 0.05
