"""Tokenizer files as keys of a GGUF, in the order of llama.cpp's converter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from anamnesis.architectures.tokenizers import bpe, pieces
from anamnesis.architectures.tokenizers.added import added_tokens
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST, Folder
from anamnesis.architectures.tokenizers.pre import pre_tokenizer
from anamnesis.architectures.tokenizers.sentencepiece import BPE
from anamnesis.architectures.tokenizers.special import special_keys
from anamnesis.architectures.tokenizers.token_types import TokenType
from anamnesis.architectures.tokenizers.tokens import Vocabulary, declared_size, text_config
from anamnesis.base.errors import UnsupportedError
from anamnesis.formats.gguf.strings import Strings

_SPACE_PREFIX = "tokenizer.ggml.add_space_prefix"
_ADD_BOS = "tokenizer.ggml.add_bos_token"
_MERGES = "tokenizer.ggml.merges"
_KIMI = "kimi-k2"

_CODE_LLAMA, _GRANITE = 32_016, 49_152  # tokens, by which llama.cpp's converter knows them
_INFILL = ("prefix", "suffix", "middle", "eot")

# What Gemma 4 writes into chats for programs to find, though its files call it special.
_GEMMA4_SHOWN = frozenset(
    {
        *("<|channel>", "<channel|>", "<|tool_call>", "<tool_call|>"),
        *("<|tool_response>", "<tool_response|>", '<|"|>'),
    }
)


class _Asked(NamedTuple):
    folder: Folder
    config: Mapping[str, Any]
    fallbacks: Mapping[str, str | int]
    pre: str | None


def read_vocabulary(
    folder: Folder,
    config: Mapping[str, Any],
    kind: str,
    *,
    pre: str | None = None,
    fallbacks: Mapping[str, str | int] | None = None,
    before: Mapping[str, Any] | None = None,
    after: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the `tokenizer.*` keys of a model."""
    if kind not in KINDS:
        raise UnsupportedError(f"no kind of tokenizer is called {kind!r}")
    asked = _Asked(folder, config, fallbacks or {}, pre)
    return {**(before or {}), **KINDS[kind](asked), **(after or {})}


def _special(asked: _Asked, n_vocab: int | None = None) -> dict[str, Any]:
    """Return the keys of special tokens, those that the architecture knows for want of others."""
    ids: dict[str, int] = {}
    texts = {name: given for name, given in asked.fallbacks.items() if isinstance(given, str)}
    by_text: dict[str, int] = {}
    if texts:
        added = added_tokens(asked.folder, bpe.vocabulary_of(asked.folder))
        by_text = {token.text: i for i, token in added.items()}
    for name, given in asked.fallbacks.items():
        if isinstance(given, int):
            ids[name] = given
        elif given in by_text:
            ids[name] = by_text[given]
        else:
            raise asked.folder.malformed("tokenizer.json", f"no added token {given!r}, for {name}")
    return special_keys(asked.folder, asked.config, n_vocab=n_vocab, fallbacks=ids)


def _sentencepiece(asked: _Asked, *, as_given: bool = False) -> dict[str, Any]:
    found = pieces.sentencepiece(asked.folder, asked.config, as_given=as_given)
    return found.keys("llama", "default", scored=True) | _special(asked, len(found))


def _gpt2(asked: _Asked) -> dict[str, Any]:
    found = bpe.byte_level(asked.folder, asked.config)
    pre = pre_tokenizer(asked.folder, asked.pre)
    keys = found.keys("gpt2", pre, scored=False)
    merges = bpe.merges_of(asked.folder)
    if not merges and pre != _KIMI:  # where merges would make some of the tokens
        vocab = bpe.vocabulary_of(asked.folder)
        added = {token.text for token in added_tokens(asked.folder, vocab).values()}
        if any(len(text) > 1 and text not in added for text in vocab):
            what = "no merges, without which llama.cpp joins no letters"
            raise asked.folder.malformed(FAST, what)
    if merges or pre != _KIMI:
        keys[_MERGES] = merges or Strings()  # llama.cpp asks for the key
    return keys | _special(asked, len(found))


def _first_of(asked: _Asked) -> dict[str, Any]:
    """Read tokenizer.model; without it, what tokenizer.json has."""
    if asked.folder.has(pieces.MODEL):
        return _sentencepiece(asked)
    if bpe.falls_back_to_bytes(asked.folder):
        found = bpe.byte_fallback(asked.folder, ranked=True)
        return found.keys("llama", "default", scored=True) | _special(asked, len(found))
    if asked.folder.has(bpe.RANKS) and not asked.folder.has(FAST):
        ranks = bpe.ranks_of(asked.folder)
        keys = bpe.ranked(asked.folder, ranks, asked.config).keys(
            "gpt2", asked.pre or _KIMI, scored=False
        )
        return keys | {_MERGES: bpe.merges_of_ranks(ranks)} | _special(asked)
    return _gpt2(asked)


def _llama(asked: _Asked) -> dict[str, Any]:
    found: dict[str, Any] = {}
    given = (asked.folder.json(CONFIG) or {}).get("add_prefix_space")
    if isinstance(given, bool):
        found[_SPACE_PREFIX] = given
    found |= _first_of(asked)
    size = text_config(asked.config).get("vocab_size")
    if size == _CODE_LLAMA:
        found |= special_keys(asked.folder, asked.config, names=_INFILL, fallbacks={"eot": 32_010})
    if size == _GRANITE:
        found[_ADD_BOS] = False
    return found


def _gemma(asked: _Asked) -> dict[str, Any]:
    """Read as Llama's without tokenizer.model too; no space is put before a text."""
    is_gpt2 = not asked.folder.has(pieces.MODEL) and not bpe.falls_back_to_bytes(asked.folder)
    return _gpt2(asked) if is_gpt2 else {**_first_of(asked), _SPACE_PREFIX: False}


def _gemma1(asked: _Asked) -> dict[str, Any]:
    """Read as Gemma's, with the token that ends a turn, which no file tells."""
    found = _gemma(asked)
    prefix = {key: found.pop(key) for key in (_SPACE_PREFIX,) if key in found}
    eot = special_keys(asked.folder, asked.config, names=_INFILL, fallbacks={"eot": 107})
    return found | {key: eot[key] for key in eot if key not in found} | prefix


def _phi3(asked: _Asked) -> dict[str, Any]:
    is_gpt2 = (asked.folder.json(CONFIG) or {}).get("tokenizer_class") == "GPT2Tokenizer"
    return _gpt2(asked) if is_gpt2 else _sentencepiece(asked, as_given=True)


def _gemma4(asked: _Asked) -> dict[str, Any]:
    found = bpe.byte_fallback(asked.folder, ranked=False)
    for i, text in enumerate(found.tokens):
        if text in _GEMMA4_SHOWN:
            found.types[i] = TokenType.USER_DEFINED
    keys = found.keys("gemma4", None, scored=True)
    if merges := bpe.merges_of(asked.folder):
        keys[_MERGES] = merges
    return {**keys, **_special(asked), _SPACE_PREFIX: False, _ADD_BOS: True}


def _type_count(asked: _Asked) -> dict[str, Any]:
    n = declared_size(asked.config, "type_vocab_size", default=1)
    return {"tokenizer.ggml.token_type_count": n}


def _bert(asked: _Asked) -> dict[str, Any]:
    found = wordpiece(asked.folder, asked.config)
    keys = found.keys("bert", pre_tokenizer(asked.folder, asked.pre), scored=False)
    return _type_count(asked) | keys | _special(asked, len(found))


def _t5(asked: _Asked) -> dict[str, Any]:
    if asked.folder.has(pieces.MODEL) and pieces.model_of(asked.folder).model_type == BPE:
        return _sentencepiece(asked)
    found, keys = pieces.t5(asked.folder, asked.config)
    return found.keys("t5", "default", scored=True) | keys | _special(asked, len(found))


def _unigram(asked: _Asked) -> dict[str, Any]:
    found, keys = pieces.xlm_roberta(asked.folder, asked.config)
    (prefix, *others) = keys.items()
    keys = dict([prefix]) | _type_count(asked) | dict(others)
    return found.keys("t5", "default", scored=True) | keys | _special(asked, len(found))


KINDS: Mapping[str, Callable[[_Asked], dict[str, Any]]] = {
    "llama": _llama,
    "spm": _gemma,
    "gemma1": _gemma1,
    "qwen": _first_of,
    "gpt2": _gpt2,
    "phi3": _phi3,
    "gemma4": _gemma4,
    "bert": _bert,
    "t5": _t5,
    "unigram": _unigram,
}


def wordpiece(folder: Folder, config: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary of a tokenizer.json."""
    found = bpe.byte_level(folder, config)
    for i in (found.types != TokenType.CONTROL).nonzero()[0].tolist():
        text = found.tokens[i]
        found.tokens[i] = text[2:] if text.startswith("##") else f"\u2581{text}"
    return found
