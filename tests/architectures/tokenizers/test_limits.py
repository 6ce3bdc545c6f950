"""Files that lie, or are made to take long, give an error or a result, and soon."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.architectures.tokenizers import KINDS, Folder, read_vocabulary, vocabulary_files
from anamnesis.base.limits import Budget
from helpers.tokenizer_dirs import BPE, LEVEL, SPM, Directory, fast, write

KB64 = 64_000
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
BAD_REGEX = {"type": "Split", "pattern": {"Regex": "(.*)*x"}, "behavior": "Isolated"}

MOST_SECONDS = 5  # a fifth of which they take at most, where nobody measures coverage


def grown(n: int) -> dict[str, Any]:
    """A tokenizer whose decoder doubles its token n times."""
    added = {"id": 0, "content": "a", "special": True, "normalized": False}
    decoder = {"type": "Sequence", "decoders": [GROWING] * n}
    return {**fast(decoder=decoder), "added_tokens": [added]}


BOMBS: dict[str, dict[str, Any]] = {
    "decoder": {"tokenizer.json": grown(31)},
    "decoders": {"tokenizer.json": grown(600)},
    "normalizer": {
        "tokenizer.json": fast(normalizer={"type": "Sequence", "normalizers": [GROWING] * 600})
    },
    "regex": {"tokenizer.json": fast(pre_tokenizer=BAD_REGEX)},
    "padding": {"tokenizer.json": {**fast(), "padding": {"strategy": {"Fixed": 10**12}}}},
    "long token": {"tokenizer.json": fast(model={**BPE, "vocab": {"a" * KB64: 0}})},
    "empty pieces": {"tokenizer.model": b"\x0a\0" * (KB64 // 2)},
    "varint": {"tokenizer.model": b"\x80" * KB64},
    "deep": {"tokenizer.json": "[" * KB64},
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", BOMBS)
def test_bombs_do_not_go_off(name: str, kind: str, tmp_path: Path) -> None:
    write(Directory(kind, BOMBS[name]), tmp_path)
    started = time.process_time()
    with suppress(an.AnamnesisError):
        vocabulary_files(read_vocabulary(Folder(tmp_path, Budget()), {}, kind))
    assert time.process_time() - started < MOST_SECONDS


@pytest.mark.parametrize("size", [10**6, 2**63, 300_000])
def test_a_config_cannot_ask_for_many_tokens(size: int, tmp_path: Path) -> None:
    write(Directory("gpt2", {"tokenizer.json": fast()}), tmp_path)
    with pytest.raises(an.LimitExceeded, match="VOCABULARY_MAX_PADDING"):
        read_vocabulary(Folder(tmp_path, Budget()), {"vocab_size": size}, "gpt2", pre="gpt-2")


@pytest.mark.parametrize("size", ["9", -1, True, 1.5, [1]])
def test_a_size_must_be_a_number(size: Any, tmp_path: Path) -> None:
    write(Directory("llama", SPM), tmp_path)
    with pytest.raises(an.ParseError, match="vocab_size must be a number"):
        read_vocabulary(Folder(tmp_path, Budget()), {"vocab_size": size}, "llama")


@pytest.mark.parametrize(
    "limits", [{"max_item_count": 100}, {"max_total_bytes": 1000}, {"max_single_alloc": 1000}]
)
@pytest.mark.parametrize("files", [SPM, {"tokenizer.json": fast()}], ids=["spm", "bpe"])
def test_limits_are_kept(limits: dict[str, int], files: dict[str, Any], tmp_path: Path) -> None:
    write(Directory("llama", files), tmp_path)
    with pytest.raises(an.LimitExceeded, match=next(iter(limits))):
        read_vocabulary(Folder(tmp_path, Budget(an.ParseLimits(**limits))), {}, "llama")


def test_links_out_of_the_directory_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside.json").write_text(json.dumps(fast(decoder=LEVEL)))
    root = tmp_path / "model"
    root.mkdir()
    try:
        os.symlink("../outside.json", root / "tokenizer.json")
    except OSError:
        pytest.skip("no links here")
    with pytest.raises(an.ParseError, match=r"no tokenizer\.json"):
        read_vocabulary(Folder(root, Budget()), {}, "gpt2")


@pytest.mark.parametrize(
    ("key", "value", "match"),
    [
        ("tokens", None, "no vocabulary"),
        ("tokens", [1], "array of another type"),
        ("tokens", ["\udcff"], "not UTF-8"),
        ("token_type", [1, 1, 1], "3 items for 2 tokens"),
        ("merges", ["ab"], "no pair"),
        ("merges", None, "no tokenizer.ggml.merges"),
        ("tokens", ["a", "a"], "tokens 0 and 1 are both 'a'"),
        ("scores", [1.0, float("nan")], "no finite number"),
        ("eos_token_id", 2, "is 2, no id of the vocabulary, which has 2 tokens"),
        ("bos_token_id", "1", "bos_token_id is '1', no id"),
        ("padding_token_id", True, "is True, no id"),
        ("unknown_token_id", -2, "is -2, no id"),
        ("add_bos_token", "yes", "is 'yes', neither true nor false"),
        ("pre", "x" * 100_000, "^.{0,300}$"),
        ("model", 7, "must be a string"),
        ("model", "rwkv", "kind 'rwkv'"),
        ("pre", "none such", "how 'none such' splits"),
    ],
)
def test_a_gguf_that_lies_is_refused(key: str, value: Any, match: str) -> None:
    keys: dict[str, Any] = {"model": "gpt2", "pre": "gpt-2", "tokens": ["a", "b"]}
    keys |= {"merges": ["a b"], key: value}
    with pytest.raises(an.AnamnesisError, match=match):
        vocabulary_files({f"tokenizer.ggml.{name}": told for name, told in keys.items()})


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(an.UnsupportedError, match="'none'"):
        read_vocabulary(Folder(tmp_path, Budget()), {}, "none")


def test_letters_alone_need_no_merges(tmp_path: Path) -> None:
    """llama.cpp loads an empty list of them, and none without."""
    told = fast()
    vocab = {letter: i for i, letter in enumerate("abcdefgh")}
    model = {**told["model"], "vocab": vocab, "merges": []}
    letters = {**told, "model": model, "added_tokens": []}
    write(Directory("gpt2", {"tokenizer.json": letters}), tmp_path)
    keys = read_vocabulary(Folder(tmp_path, Budget()), {}, "gpt2", pre="gpt-2")
    assert len(keys["tokenizer.ggml.merges"]) == 0
    made = vocabulary_files({**keys, "tokenizer.ggml.merges": []})
    assert json.loads(made["tokenizer.json"])["model"]["merges"] == []


def test_a_vocabulary_that_llama_cpp_does_not_load_is_refused(tmp_path: Path) -> None:
    """A token called as a place that no token has, and none that joins others."""
    told = fast()
    write(
        Directory("gpt2", {"tokenizer.json": {**told, "model": {**told["model"], "merges": []}}}),
        tmp_path,
    )
    with pytest.raises(an.ParseError, match="no merges"):
        read_vocabulary(Folder(tmp_path, Budget()), {}, "gpt2", pre="gpt-2")
    n = len(told["model"]["vocab"])
    vocab = {**told["model"]["vocab"], f"[PAD{n + 1}]": n}
    write(
        Directory("gpt2", {"tokenizer.json": {**told, "model": {**told["model"], "vocab": vocab}}}),
        tmp_path,
    )
    with pytest.raises(an.ParseError, match=r"are both '\[PAD"):
        read_vocabulary(Folder(tmp_path, Budget()), {"vocab_size": n + 3}, "gpt2", pre="gpt-2")
