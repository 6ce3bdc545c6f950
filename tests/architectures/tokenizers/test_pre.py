"""How a text is split has llama.cpp's name, with and without the tokenizers library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.architectures.tokenizers import Folder, read_vocabulary, vocabulary_files
from anamnesis.architectures.tokenizers.pre import digests
from anamnesis.architectures.tokenizers.pre_table import PATTERNS, meaning
from anamnesis.base.limits import Budget
from helpers.tokenizer_dirs import ADDED, BPE, GPT2, LEVEL, VOCAB, Directory, fast, write

DIGITS = {"type": "Digits", "individual_digits": True}


@pytest.fixture(autouse=True)
def _without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)


def pre_of(root: Path, config: dict[str, Any] | None = None, **parts: Any) -> str:
    files = {"tokenizer.json": fast(ADDED, **parts), "tokenizer_config.json": config or {}}
    write(Directory("gpt2", files), root)
    found: str = read_vocabulary(Folder(root, Budget()), {}, "gpt2")["tokenizer.ggml.pre"]
    return found


def test_steps_have_names(tmp_path: Path) -> None:
    assert pre_of(tmp_path) == "gpt-2"
    both = {"type": "Sequence", "pretokenizers": [DIGITS, LEVEL]}
    assert pre_of(tmp_path, pre_tokenizer=both) == "starcoder"
    assert pre_of(tmp_path, pre_tokenizer=both, normalizer={"type": "NFC"}) == "command-r"


@pytest.mark.parametrize("row", PATTERNS, ids=lambda row: row.names[0])
def test_each_pattern_is_written_and_found(row: Any, tmp_path: Path) -> None:
    """By its first name, or by that of an earlier row which says the same of what is written."""
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": row.names[0],
        "tokenizer.ggml.tokens": list(VOCAB),
        "tokenizer.ggml.merges": BPE["merges"],
    }
    for name, raw in vocabulary_files(keys).items():
        (tmp_path / name).write_bytes(raw)
    found = read_vocabulary(Folder(tmp_path, Budget()), {}, "gpt2")["tokenizer.ggml.pre"]
    alike = [r for r in PATTERNS if r.steps == row.steps and found in r.names]
    assert alike
    assert all(r.ignore_merges in (None, row.ignore_merges) for r in alike)


@pytest.mark.parametrize(
    "step",
    [
        {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Isolated", "invert": False},
        {"type": "UnicodeScripts"},
        None,
    ],
)
def test_what_nobody_knows_asks_for_the_name(step: Any, tmp_path: Path) -> None:
    with pytest.raises(an.UnsupportedError, match="tokenizer_pre="):
        pre_of(tmp_path, pre_tokenizer=step)
    write(Directory("gpt2", {"tokenizer.json": fast(pre_tokenizer=step)}), tmp_path)
    found = read_vocabulary(Folder(tmp_path, Budget()), {}, "gpt2", pre="qwen2")
    assert found["tokenizer.ggml.pre"] == "qwen2"


QWEN2 = next(row.steps[0][1] for row in PATTERNS if "qwen2" in row.names)
GPT2_REGEX = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@pytest.mark.parametrize(
    ("regexes", "pre"),
    [
        ([QWEN2.replace(r"\r", "\r").replace(r"\n", "\n")], "qwen2"),
        ([QWEN2.replace(r"\p{L}", r"\p{Letter}").replace(r"\p{N}", r"\p{Number}")], "qwen2"),
        ([QWEN2.replace(r"[^\r\n\p{L}\p{N}]", r"[^\p{N}\p{L}\x0A\u000D]")], "qwen2"),
        ([QWEN2.replace(r"\p{N}|", r"\p{N}{1}|").replace("'", r"\'")], "qwen2"),
        ([GPT2_REGEX], "gpt-2"),
        ([r"\p{N}", GPT2_REGEX], "starcoder"),
    ],
)
def test_regexes_are_compared_by_meaning(regexes: list[str], pre: str, tmp_path: Path) -> None:
    steps: list[Any] = [
        {"type": "Split", "pattern": {"Regex": one}, "behavior": "Isolated", "invert": False}
        for one in regexes
    ]
    steps.append({**LEVEL, "use_regex": False})
    assert pre_of(tmp_path, pre_tokenizer={"type": "Sequence", "pretokenizers": steps}) == pre


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("[ab]", "[^ab]"), (r"[a\-z]", "[a-z]"), (r"\.", "."), (r"a{2}", "a"), (r"\s", "s")),
        *((r"\p{L}", r"\P{L}"), (r"\x2e", "."), ("[[a]b]", "[ab]"), (r"\p{Lu}", r"\p{Ll}")),
        *((r"\u004", "A"), ("[a-c]", "[abc-]"), ("a{1}+", "a"), ("(?i:a)", "a"), ("[]a]", "[a]")),
    ],
)
def test_what_means_another_thing_is_not_equal(one: str, other: str) -> None:
    assert meaning(one) != meaning(other)


@pytest.mark.parametrize("part", ["pre_tokenizer", "normalizer", "post_processor", "decoder"])
def test_a_type_that_is_no_text_is_of_no_step(part: str, tmp_path: Path) -> None:
    with pytest.raises(an.UnsupportedError, match="tokenizer_pre="):
        pre_of(tmp_path, **{"pre_tokenizer": None, part: {"type": ["a"]}})


def test_a_class_tells_where_there_is_no_tokenizer_json(tmp_path: Path) -> None:
    files = {
        "vocab.json": VOCAB,
        "merges.txt": "#version: 0.2\n" + "\n".join(BPE["merges"]) + "\n",
        "tokenizer_config.json": {"tokenizer_class": "Qwen2Tokenizer"},
    }
    write(Directory("gpt2", files), tmp_path)
    found = read_vocabulary(Folder(tmp_path, Budget()), {}, "gpt2")
    assert found["tokenizer.ggml.pre"] == "qwen2"
    assert found["tokenizer.ggml.merges"] == BPE["merges"]


def test_names_of_patterns_are_of_one_row_each() -> None:
    names = [name for row in PATTERNS for name in row.names]
    assert {name for name in names if names.count(name) > 1} <= {"command-r"}
    assert set(digests()[1].values()) & set(names) > {"llama-bpe", "qwen2", "gpt-2", "tekken"}
    assert GPT2["pre"] in names
