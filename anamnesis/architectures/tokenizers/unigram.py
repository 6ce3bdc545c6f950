"""Unigram vocabularies of T5 and XLM-R, of sentencepiece or tokenizer.json."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.tokenizers.added import (
    Added,
    added_tokens,
    named_tokens,
    special_texts,
)
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST, Folder, objects, section
from anamnesis.architectures.tokenizers.pieces import MODEL, model_of, put_pieces
from anamnesis.architectures.tokenizers.sentencepiece import UNIGRAM, SentencePieceModel
from anamnesis.architectures.tokenizers.tokens import (
    ADDED_SCORE,
    TokenType,
    Vocabulary,
    declared_size,
)
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.lazy import np

_XLM_MODEL = "sentencepiece.bpe.model"
# fairseq's own tokens stand before the pieces in XLM-R, without the pieces' own first three.
_XLM_FIRST = (
    *(("<s>", TokenType.CONTROL), ("<pad>", TokenType.CONTROL)),
    *(("</s>", TokenType.CONTROL), ("<unk>", TokenType.UNKNOWN)),
)


def t5(folder: Folder, config: Mapping[str, Any]) -> tuple[Vocabulary, dict[str, Any]]:
    """Return T5's vocabulary, and the keys of how it treats spaces and letters."""
    name = MODEL if folder.has(MODEL) else "spiece.model"
    model = model_of(folder, name)
    _check(folder, name, model)
    n = len(model.pieces.texts)
    size = declared_size(config, "vocab_size", default=n)
    if size < n:
        raise folder.malformed(name, f"more pieces than the config's vocab_size, {size:,}")
    found = Vocabulary(size, str(folder.root), folder.budget)
    put_pieces(found, model.pieces)
    for text, i in (folder.json("added_tokens.json") or {}).items():
        if not isinstance(i, int) or i < 0:
            raise folder.malformed("added_tokens.json", f"the id of an added token is {i!r}")
        if i < size:
            found.put(i, text, TokenType.USER_DEFINED, ADDED_SCORE)
    return found, _keys(model.add_dummy_prefix, model.remove_extra_whitespaces, model.charsmap)


def xlm_roberta(folder: Folder, config: Mapping[str, Any]) -> tuple[Vocabulary, dict[str, Any]]:
    """Return XLM-R's vocabulary, and the keys of how it treats spaces and letters."""
    if not folder.has(_XLM_MODEL):
        return _fast(folder, config)
    model = model_of(folder, _XLM_MODEL)
    _check(folder, _XLM_MODEL, model)
    n = len(model.pieces.texts)
    size = max(declared_size(config, "vocab_size", default=n), n)
    found = Vocabulary(size, str(folder.root), folder.budget)
    put_pieces(found, model.pieces)
    found.tokens = [text for text, _ in _XLM_FIRST] + found.tokens[3:-1]
    kinds = np.array([kind for _, kind in _XLM_FIRST], np.int32)
    found.types = np.concatenate([kinds, found.types[3:-1]])
    found.scores = np.concatenate([np.zeros(4, np.float32), found.scores[3:-1]])
    return found, _keys(model.add_dummy_prefix, model.remove_extra_whitespaces, model.charsmap)


def _check(folder: Folder, name: str, model: SentencePieceModel) -> None:
    if model.model_type != UNIGRAM:
        raise UnsupportedError(f"{folder.root / name}: no unigram model, which this one must be")


def _fast(folder: Folder, config: Mapping[str, Any]) -> tuple[Vocabulary, dict[str, Any]]:
    tokenizer = folder.json(FAST)
    if tokenizer is None:
        raise ParseError(f"no {_XLM_MODEL} and no {FAST}", source=str(folder.root))
    model = section(tokenizer, "model")
    listed = model.get("vocab")
    if not isinstance(listed, list) or model.get("type", "Unigram") != "Unigram":
        raise UnsupportedError(f"{folder.root / FAST}: no unigram model, which this one must be")
    size = max(declared_size(config, "vocab_size", default=len(listed)), len(listed))
    wrong = next((i for i, entry in enumerate(listed) if not _is_scored(entry)), None)
    if wrong is not None:
        raise folder.malformed(FAST, f"token {wrong} of the vocabulary is {listed[wrong]!r}")
    found = Vocabulary(size, str(folder.root), folder.budget)
    scores = np.array(
        [(float(score) if abs(score) < 3e38 else 0.0) for _, score in listed], np.float32
    )
    found.put_all({i: text for i, (text, _) in enumerate(listed)}, TokenType.NORMAL, scores)
    vocab: dict[str, int] = {}
    for i, (text, _) in enumerate(listed):
        vocab.setdefault(text, i)
    added = added_tokens(folder, vocab)
    _mark(found, folder, model, {i: token for i, token in added.items() if i < len(listed)})
    given = folder.json(CONFIG) or {}
    prefix, spaces = given.get("add_prefix_space"), given.get("clean_up_tokenization_spaces")
    return found, _keys(
        prefix if isinstance(prefix, bool) else True, spaces is True, _charsmap(folder, tokenizer)
    )


def _is_scored(entry: Any) -> bool:
    match entry:
        case [str(), int() | float()]:
            return True
    return False


def _mark(
    found: Vocabulary, folder: Folder, model: Mapping[str, Any], added: Mapping[int, Added]
) -> None:
    """Give the unknown, the special and the added tokens their types."""
    unknown = named_tokens(folder).get("unk")
    by_text = {token.text: i for i, token in added.items()}
    special = special_texts(folder)
    for i, token in added.items():
        is_special = token.text in special
        found.types[i] = TokenType.CONTROL if is_special else TokenType.USER_DEFINED
    i = by_text.get(unknown or "", model.get("unk_id", 3))
    if isinstance(i, int) and 0 <= i < len(found):
        found.types[i] = TokenType.UNKNOWN


def _charsmap(folder: Folder, tokenizer: Mapping[str, Any]) -> bytes:
    normalizer = section(tokenizer, "normalizer")
    steps = [normalizer, *objects(normalizer.get("normalizers"))]
    given = next((s["precompiled_charsmap"] for s in steps if "precompiled_charsmap" in s), None)
    if given is None:
        return b""
    try:
        return base64.b64decode(given)
    except (binascii.Error, TypeError, ValueError):
        raise folder.malformed(FAST, "precompiled_charsmap is not base64") from None


def _keys(add_prefix: bool, remove_spaces: bool, charsmap: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tokenizer.ggml.add_space_prefix": add_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": remove_spaces,
    }
    if charsmap:
        found["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(charsmap, np.uint8)
    return found
