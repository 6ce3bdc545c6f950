"""llama.cpp's converter itself, run again, gives what is recorded of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import recorded_hf
from helpers.recorded_hf import recorded

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import record_hf_gguf

from helpers import tiny_hf

NAMES = ["llama_llama3", "gemma3", "qwen3moe", "deepseek3"]


@pytest.mark.slow
def test_as_recorded(tmp_path: Path) -> None:
    for name in NAMES:
        files, tensors = tiny_hf.make(name, tmp_path / name / "hf")
        assert tensors == [tuple(each) for each in recorded(name).stored]
        assert files["config.json"] == recorded(name).files["config.json"]
    assert record_hf_gguf.convert(NAMES, tmp_path) == {}
    for name in NAMES:
        found = recorded_hf.described(tmp_path / name / "ref.gguf")
        assert found == {"keys": recorded(name).keys, "tensors": recorded(name).tensors}
