"""Mixes of files of any alignment, as gguf-py reads them: a bug of the tool that is not copied."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

import anamnesis as an
from helpers import whole_gguf


@pytest.mark.parametrize("alignment", [8, 64, 4096])
def test_any_alignment_is_read(alignment: int, tmp_path: Path) -> None:
    """The tool reads tensors of other alignments than 32, and writes a file that nobody can."""
    values = whole_gguf.values(1, (4, 256))
    keys = {"general.architecture": "llama", "general.alignment": alignment}
    given = {"blk.0.ffn_up.weight": values, "a": values[0, :33], "blk.0.odd": values[0, 33:70]}
    an.save(given, tmp_path / "in.gguf", metadata=keys)
    an.convert(tmp_path / "in.gguf", tmp_path / "out.gguf", "gguf-q4_k_m")
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    blocks = an.schemes.ggml.quantize(values, "Q4_K")
    assert tensors["blk.0.ffn_up.weight"].data.tobytes() == bytes(blocks)
    for name in ("a", "blk.0.odd"):
        assert tensors[name].data.tobytes() == given[name].tobytes()
