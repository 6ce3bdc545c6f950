"""Vocabularies of sentencepiece's kind without tokenizer.model: scores by merges."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anamnesis import ParseError
from anamnesis.architectures.tokenizers import Folder, read_vocabulary, vocabulary_files
from anamnesis.base.limits import Budget
from helpers.tokenizer_dirs import (
    BYTE,
    CONTROL,
    FALLBACK,
    FALLBACK_ADDED,
    NORMAL,
    PIECES,
    SEQUENCE,
    USER,
    Directory,
    N,
    fast,
    token,
    write,
)

CONFIG = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}


def read(root: Path, kind: str, **parts: Any) -> dict[str, Any]:
    added = [*FALLBACK_ADDED, (N - 8, token("\n\n"))]
    tokenizer = fast(added, model=FALLBACK, decoder=SEQUENCE, pre_tokenizer=None, **parts)
    write(Directory(kind, {"tokenizer.json": tokenizer, "tokenizer_config.json": CONFIG}), root)
    return read_vocabulary(Folder(root, Budget()), {}, kind)


@pytest.mark.parametrize("kind", ["llama", "spm", "qwen"])
def test_scores_are_ranks_of_merges(kind: str, tmp_path: Path) -> None:
    found = read(tmp_path, kind)
    assert found["tokenizer.ggml.model"] == "llama"
    assert ("tokenizer.ggml.add_space_prefix" in found) == (kind == "spm")
    tokens = found["tokenizer.ggml.tokens"]
    scores = dict(zip(tokens, found["tokenizer.ggml.scores"].tolist(), strict=True))
    made = [merge.replace(" ", "") for merge in FALLBACK["merges"]]
    assert [scores[text] for text in made] == [-float(i) for i in range(len(made))]
    assert scores["d"] == -len(made), "what no merge makes comes after what one makes"
    assert scores["<extra>"] == scores["<s>"] == -1000


def test_types_are_those_of_added_tokens(tmp_path: Path) -> None:
    found = read(tmp_path, "llama")
    types = dict(
        zip(
            found["tokenizer.ggml.tokens"], found["tokenizer.ggml.token_type"].tolist(), strict=True
        )
    )
    told = {"<unk>": CONTROL, "<0x0A>": BYTE, "\n\n": USER, "<extra>": USER, "ab": NORMAL}
    assert {text: types[text] for text in told} == told


def test_merges_come_back(tmp_path: Path) -> None:
    """From the scores: each piece's pairs in the order of the pieces."""
    made = json.loads(vocabulary_files(read(tmp_path, "llama"))["tokenizer.json"])
    assert made["model"]["vocab"] == {
        **{text: i for i, (text, _, _) in enumerate(PIECES)},
        "<extra>": N,
    }
    merges = [" ".join(pair) for pair in made["model"]["merges"]]
    assert [merge for merge in merges if merge in FALLBACK["merges"]] == FALLBACK["merges"]


def test_an_id_without_a_token_is_refused(tmp_path: Path) -> None:
    vocab = {**FALLBACK["vocab"], "far": N + 7}
    tokenizer = fast(model={**FALLBACK, "vocab": vocab}, decoder=SEQUENCE)
    write(Directory("llama", {"tokenizer.json": tokenizer}), tmp_path)
    with pytest.raises(ParseError, match=f"no token has id {N}"):
        read_vocabulary(Folder(tmp_path, Budget()), {}, "llama")
