"""Ranks of bytes without tokenizer.json, as Kimi K2 has them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from anamnesis import LimitExceeded, ParseError
from anamnesis.architectures.tokenizers import Folder, read_vocabulary
from anamnesis.architectures.tokenizers.decoded import bytes_as_letters
from anamnesis.base.limits import Budget
from anamnesis.cli.demo_models import _MERGES

LETTERS = {bytes_as_letters(bytes([byte])): byte for byte in range(256)}
BYTES = [bytes([byte]) for byte in (*range(33, 127), *range(161, 173), *range(174, 256))]
BYTES += [bytes([byte]) for byte in range(256) if bytes([byte]) not in BYTES]
TOKENS = [
    *BYTES,
    *(bytes(LETTERS[letter] for letter in merge.replace(" ", "")) for merge in _MERGES),
]
N = len(TOKENS)
CONFIG = {
    "added_tokens_decoder": {
        str(N): {"content": "[BOS]", "special": True},
        str(N + 1): {"content": "[EOS]", "special": True},
    }
}


def written(folder: Path, lines: list[str]) -> Path:
    (folder / "tiktoken.model").write_text("".join(f"{line}\n" for line in lines))
    (folder / "tokenizer_config.json").write_text(json.dumps(CONFIG))
    return folder


def lines() -> list[str]:
    return [f"{base64.b64encode(token).decode()} {rank}" for rank, token in enumerate(TOKENS)]


def read(folder: Path, **config: Any) -> dict[str, Any]:
    told = {"bos_token_id": N, "eos_token_id": N + 1, "vocab_size": N + 4, **config}
    return read_vocabulary(Folder(folder, Budget()), told, "qwen")


def test_merges_are_found_again(tmp_path: Path) -> None:
    keys = read(written(tmp_path, lines()))
    assert list(keys["tokenizer.ggml.merges"]) == list(_MERGES)
    assert keys["tokenizer.ggml.pre"] == "kimi-k2"
    tokens = list(keys["tokenizer.ggml.tokens"])
    assert tokens[:N] == [bytes_as_letters(token) for token in TOKENS]
    reserved = [f"<|reserved_token_{i}|>" for i in (N + 2, N + 3)]
    assert tokens[N:] == ["[BOS]", "[EOS]", *reserved]
    assert keys["tokenizer.ggml.token_type"].tolist() == [1] * N + [3] * 4
    assert keys["tokenizer.ggml.bos_token_id"] == N


@pytest.mark.parametrize("line", ["!!!! 7", "YQ==", "YQ== x", " 7", "YQ== 99999999"])
def test_what_is_no_rank_is_refused(line: str, tmp_path: Path) -> None:
    with pytest.raises(ParseError, match=r"tiktoken\.model: line 2 is no token"):
        read(written(tmp_path, ["YQ== 0", line]))


def test_a_token_that_is_longer_than_any(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded, match="TIKTOKEN_MAX_BYTES"):
        read(written(tmp_path, [f"{base64.b64encode(bytes(300)).decode()} 0"]))
