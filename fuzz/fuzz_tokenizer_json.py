"""The tokenizer files of a directory, as keys of a GGUF of each kind, and back."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from structured import Choices
from structured_tokenizers import tokenizer_files
from traced import fuzz

import anamnesis as an
from anamnesis.architectures.tokenizers import KINDS, Folder, read_vocabulary, vocabulary_files
from anamnesis.base.limits import Budget
from anamnesis.formats.gguf.values import typed


def files_from(data: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files that an input stands for, and config.json."""
    if data[:1] == b"S":
        return tokenizer_files(Choices(data[1:]))
    return {"tokenizer.json": data, "tokenizer_config.json": data}, {}


def check(data: bytes) -> None:
    """Raise whatever a directory brings out that should not come out."""
    kinds_read(data)


def kinds_read(data: bytes) -> list[str]:
    """Return the kinds that a directory can be read as; raise as `check` does."""
    files, config = files_from(data)
    with tempfile.TemporaryDirectory(prefix="anamnesis-fuzz-") as folder:
        for name, raw in files.items():
            Path(folder, name).write_bytes(raw)
        return [kind for kind in KINDS if _check_kind(Path(folder), config, kind)]


def _check_kind(root: Path, config: dict[str, Any], kind: str) -> bool:
    limits = an.ParseLimits(max_total_bytes=1 << 22, max_item_count=1 << 16)
    try:
        keys = read_vocabulary(Folder(root, Budget(limits)), config, kind)
    except an.AnamnesisError:
        return False
    tokens = keys.get("tokenizer.ggml.tokens", [])
    for key, value in keys.items():
        typed(value)  # a GGUF has a place for it
        assert not key.endswith("_token_id") or 0 <= value < 2**32
    for key in ("scores", "token_type"):
        assert len(keys.get(f"tokenizer.ggml.{key}", tokens)) == len(tokens)
    try:
        made = vocabulary_files(keys)
    except an.AnamnesisError:
        return True
    told = json.loads(made["tokenizer.json"])
    assert all(token["content"] in tokens for token in told["added_tokens"])
    return True


if __name__ == "__main__":
    fuzz(check)
