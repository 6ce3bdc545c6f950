"""Special tokens where llama.cpp's converter is not followed, and files that say odd things."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.architectures.tokenizers import Folder, read_vocabulary, vocabulary_files
from anamnesis.architectures.tokenizers.folder import FAST
from anamnesis.base.limits import Budget
from helpers.tokenizer_dirs import (
    ADDED,
    TOLD,
    Directory,
    M,
    fast,
    special_at,
    template,
    text_at,
    token,
    write,
)


def read(root: Path, told: Any, config: Any = None, **options: Any) -> dict[str, Any]:
    begun = template([special_at("<|bos|>"), text_at("A")], bos=M)
    files = {"tokenizer.json": fast(ADDED, post_processor=begun), "tokenizer_config.json": told}
    write(Directory("gpt2", files), root)
    return read_vocabulary(Folder(root, Budget()), config or {}, "gpt2", pre="gpt-2", **options)


def test_a_token_that_is_an_object_is_that_of_the_template(tmp_path: Path) -> None:
    found = read(tmp_path, {**TOLD, "bos_token": token("<|bos|>", special=True)})
    assert found["tokenizer.ggml.add_bos_token"] is True
    assert found["tokenizer.ggml.bos_token_id"] == M


def test_ids_of_a_text_config_count_where_there_are_no_others(tmp_path: Path) -> None:
    config = {"pad_token_id": None, "text_config": {"pad_token_id": 5, "eos_token_id": 6}}
    found = read(tmp_path, {"tokenizer_class": "A"}, config)
    assert found["tokenizer.ggml.padding_token_id"] == 5
    assert found["tokenizer.ggml.eos_token_id"] == 6


def test_fallbacks_are_of_what_no_file_tells(tmp_path: Path) -> None:
    fallbacks = {"eos": "<|end|>", "eot": "<|end|>", "eom": 9}
    found = read(tmp_path, TOLD, fallbacks=fallbacks)
    assert found["tokenizer.ggml.eos_token_id"] == M + 1
    assert found["tokenizer.ggml.eot_token_id"] == M + 2
    assert found["tokenizer.ggml.eom_token_id"] == 9
    with pytest.raises(an.ParseError, match=r"no added token '<none>', for eot"):
        read(tmp_path, TOLD, fallbacks={"eot": "<none>"})


def test_keys_before_and_after(tmp_path: Path) -> None:
    """Those before can be said otherwise by the files, those after cannot."""
    add_bos, add_sep = "tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_sep_token"
    found = read(tmp_path, TOLD, before={add_bos: False, add_sep: True}, after={"x": 1})
    assert list(found)[:2] == [add_bos, add_sep]
    assert (found[add_bos], found[add_sep], found["x"]) == (True, True, 1)


@pytest.mark.parametrize("told", [-1, 2**32, 2**70])
def test_an_id_that_cannot_be_one_is_refused(told: int, tmp_path: Path) -> None:
    with pytest.raises(an.ParseError, match=r"the id of the pad token is"):
        read(tmp_path, TOLD, {"pad_token_id": told})


@pytest.mark.parametrize("where", ["chat_template", "pad_token"])
def test_half_a_surrogate_pair_is_refused(where: str, tmp_path: Path) -> None:
    with pytest.raises(an.ParseError, match="half of a surrogate pair"):
        read(tmp_path, {**TOLD, where: "a\ud800"})


@pytest.mark.parametrize("is_added", [False, True])
def test_an_id_of_plain_text_is_a_special_token_only_if_it_is_added(is_added: bool) -> None:
    """A class has an id of its own for want of another, whose text is not to be cut out."""
    tokens = ["a", "b", "ab", "<x>"]
    keys: dict[str, Any] = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "merges": ["a b"]}
    keys |= {"token_type": [1, 1, 1, 3], "bos_token_id": 1, "eos_token_id": 3}
    keys |= {"add_bos_token": is_added}
    files = vocabulary_files({f"tokenizer.ggml.{name}": told for name, told in keys.items()})
    config, tokenizer = (json.loads(files[name]) for name in ("tokenizer_config.json", FAST))
    assert config.get("bos_token") == ("b" if is_added else None)
    assert config["eos_token"] == "<x>"
    assert [token["id"] for token in tokenizer["added_tokens"]] == ([1, 3] if is_added else [3])
