"""Byte-pair vocabularies of tokenizer.json, vocab.json or tiktoken.model.

Where they fall back to bytes (`<0x0A>`), llama.cpp joins by scores and not by merges: the score of
a token is then the number of the first merge that makes it, below zero. llama.cpp's own converter
gives all of them -1000, by which no pair comes before another; and it takes added tokens for plain
ones where the vocabulary has them too.

tiktoken.model, which Kimi K2 has alone, has a token's bytes in base64 in each line, a space, and
its rank, which is its id. What was merged is found again: the two parts that the lower ranks leave
of a token. Ids behind the ranks are special tokens, named by tokenizer_config.json or reserved.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from itertools import pairwise, repeat
from typing import Any

from anamnesis.architectures.tokenizers.added import Added, added_tokens, special_texts
from anamnesis.architectures.tokenizers.decoded import bytes_as_letters, decoder_of
from anamnesis.architectures.tokenizers.folder import FAST, Folder, section
from anamnesis.architectures.tokenizers.merges import merge_text
from anamnesis.architectures.tokenizers.token_types import TokenType, looks_special
from anamnesis.architectures.tokenizers.tokens import (
    ADDED_SCORE,
    Vocabulary,
    check_text,
    declared_size,
)
from anamnesis.base.errors import LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.lazy import NDArray, np
from anamnesis.formats.gguf.strings import Strings

_BYTE = re.compile("<0x[0-9A-Fa-f]{2}>")
_SLOW = "vocab.json"


def falls_back_to_bytes(folder: Folder) -> bool:
    """Return whether tokenizer.json is a vocabulary of sentencepiece's kind: bytes are tokens."""
    tokenizer = folder.json(FAST) or {}
    model = section(tokenizer, "model")
    return (
        model.get("type") == "BPE"
        and model.get("byte_fallback") is True
        and section(tokenizer, "decoder").get("type") == "Sequence"
    )


def vocabulary_of(folder: Folder) -> dict[str, int]:
    """Return the ids of tokens that are no added ones."""
    tokenizer = folder.json(FAST)
    name = _SLOW if tokenizer is None else FAST
    vocab = folder.json(_SLOW) if tokenizer is None else section(tokenizer, "model").get("vocab")
    if vocab is None and tokenizer is None and folder.has("tekken.json"):
        raise UnsupportedError(
            f"{folder.root}: the only tokenizer is a tekken.json, which is not read",
            remedy="put the tokenizer.json of Hugging Face's copy beside it",
        )
    if vocab is None:
        raise ParseError(
            "no tokenizer.json, vocab.json or tokenizer.model", source=str(folder.root)
        )
    if not isinstance(vocab, dict):
        raise folder.malformed(name, "the vocabulary must be an object")
    for text, i in vocab.items():
        if type(i) is not int or not 0 <= i < 2**31:
            raise folder.malformed(name, f"the id of token {text!r} is {i!r}")
    return vocab


def byte_level(folder: Folder, config: Mapping[str, Any]) -> Vocabulary:
    """Return a vocabulary whose tokens are bytes, in GPT-2's letters, or words' pieces."""
    vocab = vocabulary_of(folder)
    added = added_tokens(folder, vocab)
    texts = dict(zip(vocab.values(), vocab, strict=True))
    texts |= {i: token.text for i, token in added.items()}
    last = max(texts, default=-1)
    size = declared_size(config, "vocab_size", default=last + 1)
    if last >= size:
        raise ParseError(
            f"token {texts[last]!r} has id {last}, and the config's vocab_size is {size:,}",
            source=str(folder.root),
        )
    found = Vocabulary(size, str(folder.root), folder.budget)
    found.put_all(texts, TokenType.NORMAL, 0.0)
    decode = decoder_of(folder.json(FAST) or {"decoder": {"type": "ByteLevel"}})
    for i, token in added.items():
        text = token.text if token.normalized else decode(token.text)
        put_added(found, i, token._replace(text=text))
    return found


def put_added(found: Vocabulary, i: int, token: Added) -> None:
    """Set an added token; llama.cpp looks for one that is not special in text as it is."""
    if token.special or looks_special(token.text):
        found.put(i, token.text, TokenType.CONTROL, ADDED_SCORE)
    else:
        text = token.text.replace("\u2581", " ")
        found.put(i, text, TokenType.USER_DEFINED, ADDED_SCORE)


def byte_fallback(folder: Folder, *, ranked: bool) -> Vocabulary:
    """Return a vocabulary of sentencepiece's kind, whose bytes are tokens of their own."""
    vocab = vocabulary_of(folder)
    added = added_tokens(folder, vocab)
    special = special_texts(folder)
    texts = dict(zip(vocab.values(), vocab, strict=True))
    texts |= {i: token.text for i, token in added.items()}
    if len(texts) != max(texts, default=-1) + 1:
        missing = next(i for i in range(len(texts) + 1) if i not in texts)
        raise folder.malformed(FAST, f"no token has id {missing}")
    found = Vocabulary(len(texts), str(folder.root), folder.budget)
    found.put_all(texts, TokenType.NORMAL, _scores(folder, texts) if ranked else ADDED_SCORE)
    by_id = set(vocab.values())
    for i, text in texts.items():
        if text.startswith("<0x") and _BYTE.fullmatch(text):
            found.put(i, text, TokenType.BYTE, ADDED_SCORE)
        elif text in special:
            found.put(i, text, TokenType.CONTROL, ADDED_SCORE)
        elif ranked and i in added:
            put_added(found, i, added[i])
        elif i not in by_id:
            found.put(i, text, TokenType.USER_DEFINED, ADDED_SCORE)
    return found


def _scores(folder: Folder, texts: Mapping[int, str]) -> NDArray[np.float32]:
    """Return for each token the number of the first merge that makes it, below zero."""
    made = [merge.replace(" ", "", 1) for merge in merges_of(folder)]
    ranks = dict(zip(reversed(made), map(float, range(len(made) - 1, -1, -1)), strict=True))
    found = map(ranks.get, texts.values(), repeat(float(len(ranks))))
    return -np.fromiter(found, np.float32, len(texts))


def merges_of(folder: Folder) -> Strings:
    """Return merges as in GGUF: both parts with a space between, in any part a `Ġ` for it."""
    if folder.merges:
        return folder.merges
    given = section(folder.json(FAST) or {}, "model").get("merges")
    if not isinstance(given, list) or not given:
        lines = (folder.text("merges.txt") or "").split("\n")
        if lines[0].strip().startswith("#"):
            del lines[0]
        pairs = (line.split(None, 3) for line in lines)
        return Strings([f"{pair[0]} {pair[1]}" for pair in pairs if len(pair) == 2])
    for merge in given:
        match merge:
            case str() | [str(), str()]:
                continue
        raise folder.malformed(FAST, f"a merge is {merge!r}, no pair")
    found = [merge_text(merge) for merge in given]
    check_text(str(folder.root), found)
    return Strings(found)


RANKS = "tiktoken.model"
TIKTOKEN_MAX_BYTES = 256  # of a token; Kimi's longest has 128
_MAX_RANK = 1 << 22


def ranks_of(folder: Folder) -> dict[bytes, int]:
    """Return the ranks of tokens, in the order of the file."""
    found: dict[bytes, int] = {}
    for n, line in enumerate((folder.raw(RANKS) or b"").splitlines(), 1):
        if not line.strip():
            continue
        text, _, rank = line.partition(b" ")
        try:
            token = binascii.a2b_base64(text, strict_mode=True)
        except binascii.Error:
            token = b""
        if not token or not rank.isdigit() or len(rank) > 7 or int(rank) > _MAX_RANK:
            raise folder.malformed(RANKS, f"line {n:,} is no token in base64 and its rank")
        if len(token) > TIKTOKEN_MAX_BYTES:
            given = f"{folder.root / RANKS}: a token of {len(token):,} bytes"
            raise LimitExceeded("TIKTOKEN_MAX_BYTES", given)
        found[token] = int(rank)
    folder.budget.items(len(found), f"the tokens of {RANKS}")
    return found


def ranked(folder: Folder, ranks: Mapping[bytes, int], config: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary: a token for each rank, special ones behind them."""
    n = max(ranks.values(), default=-1) + 1
    found = Vocabulary(
        declared_size(config, "vocab_size", default=n), str(folder.root), folder.budget
    )
    texts = {rank: bytes_as_letters(token) for token, rank in ranks.items() if rank < len(found)}
    found.put_all(texts, TokenType.NORMAL, 0.0)
    named = added_tokens(folder, {})
    for i in range(n, len(found)):
        text = named[i].text if i in named else f"<|reserved_token_{i}|>"
        found.put(i, text, TokenType.CONTROL)
    return found


def merges_of_ranks(ranks: Mapping[bytes, int]) -> Strings:
    """Return the merges, in the order of the tokens that they make."""
    parted = (_parts(ranks, token, rank) for token, rank in ranks.items() if len(token) > 1)
    return Strings(" ".join(map(bytes_as_letters, parts)) for parts in parted if len(parts) == 2)


def _parts(ranks: Mapping[bytes, int], token: bytes, most: int) -> list[bytes]:
    """Merge a token's bytes by ranks below its own, the lowest first."""
    parts = [token[i : i + 1] for i in range(len(token))]
    pairs = [ranks.get(one + other, most) for one, other in pairwise(parts)]
    while pairs and (lowest := min(pairs)) < most:
        at = pairs.index(lowest)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
        del pairs[at]
        if at > 0:
            pairs[at - 1] = ranks.get(parts[at - 1] + parts[at], most)
        if at < len(pairs):
            pairs[at] = ranks.get(parts[at] + parts[at + 1], most)
    return parts
