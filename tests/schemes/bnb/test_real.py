"""Slices of published bitsandbytes models, with what they must come out as."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from safetensors.torch import load, load_file

import anamnesis as an
from helpers.fp8_layouts import raw_bytes

ROOT = os.environ.get("ANAMNESIS_REAL")
SLICES = sorted(Path(ROOT, "bnb").glob("*.expected.safetensors")) if ROOT else []


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of slices")
def test_there_are_slices() -> None:
    assert SLICES


@pytest.mark.parametrize("expected", SLICES, ids=lambda p: p.name.split(".")[0])
def test_slice(expected: Path) -> None:
    source = expected.with_name(expected.name.replace(".expected", ""))
    want = load_file(expected)
    with an.parse(source) as model:
        assert all("BitsAndBytes" in tensor.scheme for tensor in model.values())
        written = load(model.remember_to_bytes())
        assert sorted(written) == sorted(want)
        for name, tensor in want.items():
            assert written[name].dtype == tensor.dtype
            assert written[name].shape == tensor.shape
            assert raw_bytes(written[name]) == raw_bytes(tensor)
            assert model[name].numpy("bf16").tobytes() == raw_bytes(tensor)
