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
    expected = recorded_hf.recorded(name)
    with an.parse(root) as model:
        model.convert(tmp_path / "ours.gguf", "gguf-f32", tokenizer_pre=expected.pre)
    ours = recorded_hf.described(tmp_path / "ours.gguf")
    for each in OTHERS:
        assert ours["keys"].pop(each, None) is not None
    told = {key: value for key, value in expected.keys.items() if key not in OTHERS}
    assert ours["keys"] == told
    for tensor, (dtype, shape, _) in expected.tensors.items():
        if dtype == "MXFP4":  # which the converter leaves, whatever it is asked for
            assert ours["tensors"].pop(tensor)[:2] == ["F32", shape]
    wanted = {n: found for n, found in expected.tensors.items() if found[0] != "MXFP4"}
    assert ours["tensors"] == wanted
