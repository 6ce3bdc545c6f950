"""Qwen3's rerankers have the rows of yes and no for a head, as the converter cuts it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers.recorded_hf import recorded, remake


def reranker(folder: Path, *, tied: bool, answers: tuple[str, ...] = ("yes", "no")) -> Path:
    """Make one whose last tokens are the answers, which the cut vocabulary has not."""
    root = remake("qwen3_tied" if tied else "qwen3", folder / "hf")
    (root / "README.md").write_text("# Qwen3-Reranker-0.6B\n")
    path = root / "tokenizer.json"
    told = json.loads(path.read_text())
    model = told["model"]
    last = sorted(model["vocab"], key=model["vocab"].__getitem__)[-len(answers) :]
    for old, new in zip(last, answers, strict=True):
        model["vocab"][new] = model["vocab"].pop(old)
    gone = {*last}
    model["merges"] = [m for m in model["merges"] if not gone & {m[0], m[1], m[0] + m[1]}]
    path.write_text(json.dumps(told))
    return root


def vocabulary(root: Path) -> dict[str, int]:
    found: dict[str, int] = json.loads((root / "tokenizer.json").read_text())["model"]["vocab"]
    return found


@pytest.mark.parametrize("tied", [False, True])
def test_its_head_is_cut_and_comes_back_as_a_classifier(tied: bool, tmp_path: Path) -> None:
    root = reranker(tmp_path, tied=tied)
    report = an.convert(root, tmp_path / "a.gguf", "gguf-f32", tokenizer_pre="qwen2")
    head = "model.embed_tokens.weight" if tied else "lm_head.weight"
    with an.parse(root) as source, an.parse(tmp_path / "a.gguf") as made:
        rows = source[head].numpy()[[vocabulary(root)[answer] for answer in ("yes", "no")]]
        assert np.array_equal(made["cls.output.weight"].numpy(), rows)
        assert "output.weight" not in list(made)
        assert made.metadata["qwen3.pooling_type"] == 4
        assert made.metadata["qwen3.classifier.output_labels"] == ["yes", "no"]
        assert made.metadata["tokenizer.chat_templates"] == ["rerank"]
        assert "{document}" in made.metadata["tokenizer.chat_template.rerank"]
    assert [left.name for left in report.dropped if left.name == head] == ([] if tied else [head])
    an.convert(tmp_path / "a.gguf", f"{tmp_path / 'back'}/", "f32")
    config = json.loads((tmp_path / "back/config.json").read_text())
    assert config["architectures"] == ["Qwen3ForSequenceClassification"]
    assert config["id2label"] == {"0": "yes", "1": "no"}
    with an.parse(tmp_path / "back") as back:
        assert np.array_equal(back["score.weight"].numpy(), rows)
    an.convert(tmp_path / "back", tmp_path / "b.gguf", "gguf-f32", tokenizer_pre="qwen2")
    with an.parse(tmp_path / "a.gguf") as made, an.parse(tmp_path / "b.gguf") as again:
        assert list(made) == list(again)
        keys = ("qwen3.pooling_type", "qwen3.classifier.output_labels", "tokenizer.chat_templates")
        assert [made.metadata[key] for key in keys] == [again.metadata[key] for key in keys]


def test_one_without_the_answers_is_refused(tmp_path: Path) -> None:
    root = reranker(tmp_path, tied=True, answers=("yes", "never"))
    with pytest.raises(an.ParseError, match="answers 'yes' or 'no', which are no tokens"):
        an.convert(root, tmp_path / "a.gguf", "gguf-f32", tokenizer_pre="qwen2")


def test_another_qwen3_is_none(tmp_path: Path) -> None:
    root = remake("qwen3", tmp_path / "hf")
    pre = recorded("qwen3").pre
    an.convert(root, tmp_path / "a.gguf", "gguf-f32", tokenizer_pre=pre)
    assert "cls.output.weight" not in list(an.parse(tmp_path / "a.gguf"))
