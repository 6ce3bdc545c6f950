"""Tokenizer files become the keys that llama.cpp's converter makes of them, in its order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.architectures.tokenizers import KINDS, Folder, read_vocabulary
from anamnesis.base.limits import Budget
from helpers.tokenizer_dirs import DIRECTORIES, shown, write

RECORDED = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
DTYPES = {"tokenizer.ggml.scores": np.float32, "tokenizer.ggml.token_type": np.int32}


def read(name: str, root: Path) -> dict[str, Any]:
    directory = DIRECTORIES[name]
    write(directory, root)
    options = directory.options
    return read_vocabulary(Folder(root, Budget()), directory.config, directory.kind, **options)


@pytest.mark.parametrize("name", DIRECTORIES)
def test_keys_are_those_of_the_reference(name: str, tmp_path: Path) -> None:
    found = read(name, tmp_path)
    assert list(found) == list(RECORDED[name])
    assert shown(found) == RECORDED[name]
    for key, dtype in DTYPES.items():
        assert key not in found or found[key].dtype == dtype


def test_each_kind_is_recorded() -> None:
    assert RECORDED.keys() == DIRECTORIES.keys()
    assert {directory.kind for directory in DIRECTORIES.values()} == set(KINDS)
