"""A vocabulary in the making: tokens by id, with GGUF's scores and types."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from anamnesis.architectures.tokenizers.token_types import TokenType
from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.limits import Budget
from anamnesis.base.printable import shortened
from anamnesis.formats.gguf.strings import Strings

VOCABULARY_MAX_TOKENS = 1_000_000  # Gemma has 262,144
VOCABULARY_MAX_PADDING = 100_000  # rows of a model that no token has
_TOKEN_BYTES = 100  # that each takes in Python, with its score and its type

# GGUF's keys of the ids of special tokens.
ID_KEYS = {
    "bos": "bos_token_id",
    "eos": "eos_token_id",
    "unk": "unknown_token_id",
    "sep": "seperator_token_id",
    "pad": "padding_token_id",
    "cls": "cls_token_id",
    "mask": "mask_token_id",
    "eot": "eot_token_id",
    "eom": "eom_token_id",
}
PAD_SCORE = -10000.0
ADDED_SCORE = -1000.0

HALF = re.compile("[\ud800-\udfff]")  # of a surrogate pair


class Vocabulary:
    """Tokens by id. Those that nobody sets are `[PAD7]`, unused."""

    def __init__(self, size: int, source: str, budget: Budget) -> None:
        if size > VOCABULARY_MAX_TOKENS:
            raise LimitExceeded("VOCABULARY_MAX_TOKENS", f"{source}: {size:,} tokens")
        budget.items(size, "the tokens of a vocabulary")
        budget.alloc(_TOKEN_BYTES * size, "the tokens of a vocabulary")
        self.source = source
        self.tokens = [f"[PAD{i}]" for i in range(size)]
        self.scores = np.full(size, PAD_SCORE, np.float32)
        self.types = np.full(size, TokenType.UNUSED, np.int32)

    def __len__(self) -> int:
        return len(self.tokens)

    def put(self, i: int, text: str, kind: int, score: float = 0.0) -> None:
        self.tokens[i] = text
        self.types[i] = kind
        self.scores[i] = score

    def put_all(
        self, texts: Mapping[int, str], kind: int, scores: float | NDArray[np.float32]
    ) -> None:
        for i, text in texts.items():
            self.tokens[i] = text
        ids = np.fromiter(texts, np.intp, len(texts))
        self.types[ids] = kind
        self.scores[ids] = scores

    def keys(self, model: str, pre: str | None, *, scored: bool) -> dict[str, Any]:
        """Return the keys that begin each tokenizer of a GGUF, in the reference's order."""
        check_text(self.source, self.tokens)
        check_unique(self.tokens, self.source)
        found: dict[str, Any] = {"tokenizer.ggml.model": model}
        if pre is not None:
            found["tokenizer.ggml.pre"] = pre
        if self.tokens:  # GGUF has no array without a type
            found["tokenizer.ggml.tokens"] = Strings(self.tokens)
            if scored:
                found["tokenizer.ggml.scores"] = self.scores
            found["tokenizer.ggml.token_type"] = self.types
        return found


def check_text(source: str, texts: Collection[str]) -> None:
    """Raise `ParseError` if a text has half of a surrogate pair, which JSON may have."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        text = shortened(repr(next(filter(HALF.search, texts))))
        raise ParseError(f"{text} has half of a surrogate pair", source=source) from None


def check_unique(tokens: Sequence[str], source: str) -> None:
    """Raise `ParseError` if two tokens are equal, which llama.cpp does not load."""
    # It gives those names of their own that are empty.
    if len(set(tokens)) == len(tokens):
        return
    ids: dict[str, int] = {}
    for i, token in enumerate(tokens):
        first = ids.setdefault(token, i)
        if token and first != i:
            text = shortened(repr(token))
            raise ParseError(
                f"tokens {first:,} and {i:,} are both {text}, and llama.cpp loads no vocabulary"
                " with two equal tokens",
                source=source,
            )


def declared_size(config: Mapping[str, Any], *keys: str, default: int) -> int:
    """Return how many tokens a config says, by the first of its keys that it has."""
    config = text_config(config)
    for key in keys:
        if (size := config.get(key)) is not None:
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise ParseError(f"{key} must be a number of tokens, not {size!r}", source="config")
            if size > default + VOCABULARY_MAX_PADDING:
                given = f"config: {key} is {size:,}, and there are {default:,} tokens"
                raise LimitExceeded("VOCABULARY_MAX_PADDING", given)
            return size
    return default


def text_config(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a config says of the language model, as if it said nothing else."""
    inner = config.get("text_config")
    return {**config, **inner} if isinstance(inner, Mapping) else config
