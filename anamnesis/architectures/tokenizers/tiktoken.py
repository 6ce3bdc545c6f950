"""tiktoken.model: bytes and their ranks, which Kimi K2 has alone.

Each line is a token's bytes in base64, a space, and its rank, which is its id. What was merged is
found again: the two parts that the lower ranks leave of a token. Ids behind the ranks are special
tokens, named by tokenizer_config.json or reserved.
"""

from __future__ import annotations

import binascii
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from anamnesis.architectures.tokenizers.added import added_tokens
from anamnesis.architectures.tokenizers.decoded import bytes_as_letters
from anamnesis.architectures.tokenizers.folder import Folder
from anamnesis.architectures.tokenizers.tokens import TokenType, Vocabulary, declared_size
from anamnesis.base.errors import LimitExceeded
from anamnesis.formats.gguf.strings import Strings

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
