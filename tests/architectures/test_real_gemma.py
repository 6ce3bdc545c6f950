"""A whole model in Q4_K_M becomes a directory, and the same GGUF again."""

from __future__ import annotations

import os
from pathlib import Path

import gguf
import numpy as np
import pytest

import anamnesis as an

GEMMA = os.environ.get("ANAMNESIS_GEMMA", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not GEMMA, reason="ANAMNESIS_GEMMA names no gemma-3-270m-q4_k_m.gguf"),
]

# Which the converter wrote later than it made the file.
NEW = {"gemma3.rope.freq_base_swa"}


def contents(read: gguf.GGUFReader) -> dict[str, object]:
    return {n: f.contents() for n, f in read.fields.items() if not n.startswith("GGUF.")}


def test_there_and_back(tmp_path: Path) -> None:
    an.convert(GEMMA, f"{tmp_path / 'back'}/", "f32")
    an.convert(tmp_path / "back", tmp_path / "again.gguf", "gguf-q4_k_m")
    before, after = gguf.GGUFReader(GEMMA), gguf.GGUFReader(tmp_path / "again.gguf")
    keys, found = contents(before), contents(after)
    assert keys.keys() <= found.keys()
    assert found.keys() - keys.keys() == NEW
    assert {key for key in keys if keys[key] != found[key]} == set()
    blocks, again = ({t.name: t for t in read.tensors} for read in (before, after))
    types = {name: tensor.tensor_type.name for name, tensor in blocks.items()}
    assert types == {name: tensor.tensor_type.name for name, tensor in again.items()}
    for name, kind in types.items():
        same = np.array_equal(blocks[name].data, again[name].data)
        assert same or kind in ("Q4_K", "Q6_K"), name  # whose search finds others for its values
