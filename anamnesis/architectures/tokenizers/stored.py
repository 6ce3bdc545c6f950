"""The vocabulary of a GGUF, its keys checked and llama.cpp's defaults filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from anamnesis.architectures.tokenizers import tokens
from anamnesis.architectures.tokenizers.pre_table import PATTERNS
from anamnesis.architectures.tokenizers.token_types import TokenType
from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.printable import shortened
from anamnesis.formats.gguf.strings import Strings
from anamnesis.formats.gguf.values import packed_array

MERGES_MAX_COUNT = 2_000_000  # Gemma 4 has half a million

_NONE = (-1, (1 << 32) - 1)  # what llama.cpp itself writes for a token that there is not
_MERGING = ("gpt2", "gemma4")
_UNMERGED = "kimi-k2"
_PADDING = re.compile(r"\[PAD\d+\]")
# What llama.cpp takes for a vocabulary that does not say.
_IDS: Mapping[str, Mapping[str, int]] = {
    "llama": {"bos": 1, "eos": 2, "unk": 0},
    "bert": {"cls": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103},
    "t5": {"eos": 1, "unk": 2, "pad": 0},
}
_ADDS: Mapping[str, frozenset[str]] = {
    "llama": frozenset({"bos"}),
    "t5": frozenset({"eos"}),
}


class StoredVocabulary:
    """What a GGUF's `tokenizer.*` keys say."""

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self.model = self._text("model") or ""
        self.pre = self._text("pre") or "default"
        self.tokens: list[str] = list(self._strings("tokens", tokens.VOCABULARY_MAX_TOKENS))
        if not self.model or not self.tokens:
            raise ParseError("the GGUF has no vocabulary")
        n = len(self.tokens)
        types = self._numbers("token_type", "iu", tokens.VOCABULARY_MAX_TOKENS)
        self._has_types = bool(len(types))
        self.types = types if self._has_types else np.full(n, TokenType.NORMAL)
        self.scores = self._numbers("scores", "iuf", tokens.VOCABULARY_MAX_TOKENS)
        for key, items in (("token_type", self.types), ("scores", self.scores)):
            if len(items) not in (0, n):
                raise ParseError(f"tokenizer.ggml.{key}: {len(items):,} items for {n:,} tokens")
        if not (np.abs(self.scores.astype(float)) <= np.finfo(np.float32).max).all():
            raise ParseError("tokenizer.ggml.scores has one that is no finite number of float32")
        self._merges = self._strings("merges", MERGES_MAX_COUNT)
        needs = self.model in _MERGING and self.pre != _UNMERGED
        if needs and not len(self._merges):
            of_letters = (len(self.tokens[i]) < 2 for i in self.of_types(TokenType.NORMAL))
            if metadata.get("tokenizer.ggml.merges") is None or not all(of_letters):
                raise ParseError(
                    "the GGUF has no tokenizer.ggml.merges, without which all words fall apart"
                )
        self.ids = self._ids()
        try:
            "".join(self.tokens).encode()
        except UnicodeEncodeError:
            i = next(i for i, token in enumerate(self.tokens) if tokens.HALF.search(token))
            raise ParseError(f"tokenizer.ggml.tokens: token {i} is not UTF-8") from None
        tokens.check_unique(self.tokens, "tokenizer.ggml.tokens")

    def flag(self, name: str) -> bool | None:
        """Return a flag such as `add_space_prefix`; None if the file does not have it."""
        key = f"tokenizer.ggml.{name}"
        given: Any = self._metadata.get(key)
        if given is not None and not isinstance(given, bool):
            raise ParseError(f"{key} is {shortened(repr(given))}, neither true nor false")
        return given

    def adds(self, name: str) -> bool:
        """Return whether `bos`, `eos` or `sep` is added to a text."""
        flag = self.flag(f"add_{name}_token")
        if flag is not None:
            return flag
        if self.model == "gpt2":
            return name == "bos" and self.pre in _ADDING
        return name in _ADDS.get(self.model, ())

    def bytes(self, name: str) -> bytes:
        """Return an array of bytes; none if the file does not have it."""
        try:
            return bytes(self._numbers(name, "iu", 1 << 24).tolist())
        except ValueError:
            raise ParseError(f"tokenizer.ggml.{name} must be bytes") from None

    def text_of(self, name: str) -> str | None:
        """Return a special token's text."""
        return self.tokens[self.ids[name]] if name in self.ids else None

    @cached_property
    def padding(self) -> frozenset[int]:
        """The tokens that only fill a place up to the number of rows that the model has."""
        unused = self.of_types(TokenType.UNUSED)
        return frozenset(i for i in unused if _PADDING.fullmatch(self.tokens[i]))

    def n_unpadded(self) -> int:
        """Return how many tokens there are without those at the end that fill it."""
        n = len(self.tokens)
        while n and n - 1 in self.padding:
            n -= 1
        return n

    def of_types(self, *types: int) -> list[int]:
        found: list[int] = np.isin(self.types, types).nonzero()[0].tolist()
        return found

    def merges(self) -> Iterator[tuple[str, str]]:
        """Yield merges, each parted at the first space that does not begin it, as in llama.cpp."""
        for merge in self._merges:
            at = merge.find(" ", 1)
            if at < 0:
                raise ParseError(f"tokenizer.ggml.merges: {shortened(repr(merge))} is no pair")
            yield merge[:at], merge[at + 1 :]

    def added(self) -> dict[int, bool]:
        """Return which tokens are looked for in a text before it is split; True if special."""
        found = dict.fromkeys(self.of_types(TokenType.USER_DEFINED), False)
        special = self.of_types(TokenType.CONTROL, TokenType.UNKNOWN)
        found |= dict.fromkeys([*special, *self.named().values()], True)
        return dict(sorted(found.items()))

    def named(self) -> dict[str, int]:
        """Return the ids of those special tokens that are no plain text."""
        # A config may name any token, such as the id 1 that a class has for want of another; as a
        # special token it would be cut out of texts, as llama.cpp does not.
        plain = (TokenType.NORMAL, TokenType.UNUSED, TokenType.BYTE)
        if not self._has_types:
            return self.ids
        return {
            name: i for name, i in self.ids.items() if self.types[i] not in plain or self.adds(name)
        }

    def _ids(self) -> dict[str, int]:
        found = dict(_IDS.get(self.model, {}))
        found = {name: i for name, i in found.items() if i < len(self.tokens)}
        for name, key in tokens.ID_KEYS.items():
            given = token_id(self._metadata, f"tokenizer.ggml.{key}", len(self.tokens))
            if given is not None:
                found[name] = given
        if self.model == "bert" and "bos" in found:  # llama.cpp calls what begins a text BOS, too
            found["cls"] = found["bos"]
        return found

    def _text(self, key: str) -> str | None:
        given = self._metadata.get(f"tokenizer.ggml.{key}")
        if given is not None and not isinstance(given, str):
            raise ParseError(f"tokenizer.ggml.{key} must be a string")
        return given

    def _strings(self, key: str, most: int) -> list[str] | Strings:
        given: list[str] | Strings = self._array(key, most)
        if not isinstance(given, Strings) and not all(isinstance(text, str) for text in given):
            raise self._of_another_type(key)
        return given

    def _numbers(self, key: str, kinds: str, most: int) -> NDArray[Any]:
        """Return an array of numbers of numpy's kinds."""
        given = self._array(key, most)
        if isinstance(given, Strings):
            raise self._of_another_type(key)
        try:
            found = np.asarray(given, None if len(given) else np.int64)
        except (ValueError, OverflowError):
            raise self._of_another_type(key) from None
        if found.ndim != 1 or found.dtype.kind not in kinds:
            raise self._of_another_type(key)
        return found

    def _array(self, key: str, most: int) -> Any:
        given = packed_array(self._metadata, f"tokenizer.ggml.{key}")
        if given is None:
            return ()
        if not isinstance(given, (list, tuple, Strings, np.ndarray)):
            raise self._of_another_type(key)
        if len(given) > most:
            raise LimitExceeded("VOCABULARY_MAX_TOKENS", f"tokenizer.ggml.{key}: {len(given):,}")
        return given

    def _of_another_type(self, key: str) -> ParseError:
        return ParseError(f"tokenizer.ggml.{key} must be an array of another type")


def token_id(metadata: Mapping[str, Any], key: str, n_tokens: int) -> int | None:
    """Return the id of a special token; None where a GGUF has none."""
    given = metadata.get(key)
    if given is None or (type(given) is int and given in _NONE):
        return None
    if type(given) is not int or not 0 <= given < n_tokens:
        id = shortened(repr(given))
        raise ParseError(f"{key} is {id}, no id of the vocabulary, which has {n_tokens:,} tokens")
    return given


# With these llama.cpp adds the token that begins a text, unless a key says no.
_ADDING = frozenset(
    {
        *next(row.names for row in PATTERNS if "llama-bpe" in row.names),
        *("tekken", "chameleon"),
    }
)
