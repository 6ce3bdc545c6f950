"""Slices of published GPTQ and AWQ models, with what they must come out as."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load, load_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import raw_bytes

ROOT = os.environ.get("ANAMNESIS_REAL")
SLICES = sorted(
    path
    for folder in ("gptq", "awq")
    for path in (Path(ROOT, folder).glob("*.expected.safetensors") if ROOT else ())
)


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of slices")
def test_there_are_slices() -> None:
    assert {path.parent.name for path in SLICES} == {"gptq", "awq"}


@pytest.mark.parametrize("level", supported_levels())
@pytest.mark.parametrize("expected", SLICES, ids=lambda p: p.name.split(".")[0])
def test_slice(expected: Path, level: Any) -> None:
    """The config lies beside, as NAME.config.json."""
    want = load_file(expected)
    with an.parse(expected.with_name(expected.name.replace(".expected", ""))) as model:
        written = load(model.remember_to_bytes(level=level))
    assert sorted(written) == sorted(want)
    for name, tensor in want.items():
        assert written[name].dtype == tensor.dtype
        assert written[name].shape == tensor.shape
        assert raw_bytes(written[name]) == raw_bytes(tensor)
