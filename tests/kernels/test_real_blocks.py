"""Slices of published GGUF models at every level, byte for byte what was expected of them."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import pytest
import torch
from safetensors import safe_open

from helpers.kernel_calls import SUPPORTED, Blocks, run

REAL = os.environ.get("ANAMNESIS_REAL")
pytestmark = pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL is not set")
MODELS = sorted(Path(REAL or os.devnull).glob("gguf/*.gguf"))


def test_there_are_some() -> None:
    assert len(MODELS) >= 16


@pytest.mark.against("published models")
@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_equals_what_was_expected(path: Path) -> None:
    with safe_open(path.with_suffix(".expected.safetensors"), "pt") as file:
        truth = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert truth
    for name, expected in truth.items():
        blocks = tensors[name].data.reshape(-1).copy()
        kind = tensors[name].tensor_type
        count = blocks.size // gguf.GGML_QUANT_SIZES[kind][1]
        assert expected.element_size() == 2
        for level in SUPPORTED:
            found, _ = run(Blocks(kind.name, "BF16", count), level, (blocks,))
            assert found == expected.view(torch.uint8).numpy().tobytes()
