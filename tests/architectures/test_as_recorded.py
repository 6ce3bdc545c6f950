"""A Hugging Face directory becomes the GGUF that llama.cpp's converter makes: keys and bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import anamnesis as an
from helpers import recorded_hf
from helpers.recorded_hf import NAMES

# Written by llama-quantize too, or no key of the converter.
OTHERS = ("general.file_type", "general.quantization_version")


@pytest.mark.parametrize("name", NAMES)
def test_as_the_converter(name: str, tmp_path: Path) -> None:
    root = recorded_hf.remake(name, tmp_path / "hf")
    with an.parse(root) as model:
        model.convert(tmp_path / "ours.gguf", "gguf-f32")
    ours = recorded_hf.described(tmp_path / "ours.gguf")
    expected = recorded_hf.recorded(name)
    for each in OTHERS:
        assert ours["keys"].pop(each, None) is not None
    told = {key: value for key, value in expected.keys.items() if key not in OTHERS}
    assert ours == {"keys": told, "tensors": expected.tensors}
