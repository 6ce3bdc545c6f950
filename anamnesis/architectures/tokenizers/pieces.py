"""Vocabularies of sentencepiece, and what other files add to their pieces."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.tokenizers.added import (
    Added,
    added_tokens,
    content,
    named_tokens,
    special_texts,
)
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST, Folder, objects, section
from anamnesis.architectures.tokenizers.sentencepiece import (
    UNIGRAM,
    Pieces,
    SentencePieceModel,
    parse_model,
)
from anamnesis.architectures.tokenizers.token_types import TokenType, looks_special
from anamnesis.architectures.tokenizers.tokens import ADDED_SCORE, Vocabulary, declared_size
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.lazy import np

MODEL = "tokenizer.model"


def model_of(folder: Folder, name: str = MODEL) -> SentencePieceModel:
    """Read a model file."""
    raw = folder.raw(name)
    if raw is None:
        raise ParseError(f"no {name}", source=str(folder.root))
    return parse_model(raw, str(folder.root / name), folder.budget)


def sentencepiece(
    folder: Folder, config: Mapping[str, Any], *, as_given: bool = False
) -> Vocabulary:
    """Return the vocabulary of tokenizer.model, added tokens in the places of its pieces."""
    # As many tokens as the config says; pieces beyond them are left out.
    pieces = model_of(folder).pieces
    keys = ("vocab_size",) if as_given else ("vocab_size_per_layer_input", "vocab_size")
    n = len(pieces.texts)
    size = declared_size(config, *keys, default=n)
    found = Vocabulary(size or n, str(folder.root), folder.budget)
    put_pieces(found, pieces)
    for text, i in (folder.json("added_tokens.json") or {}).items():
        if _id(folder, "added_tokens.json", i) < len(found):
            found.put(i, text, TokenType.USER_DEFINED, ADDED_SCORE)
    for i, token in section(folder.json(CONFIG) or {}, "added_tokens_decoder").items():
        _put_added(folder, CONFIG, found, i, token, as_given=as_given)
    if as_given:
        for token in objects((folder.json(FAST) or {}).get("added_tokens")):
            _put_added(folder, FAST, found, token.get("id"), token, as_given=True)
    return found


def put_pieces(found: Vocabulary, pieces: Pieces) -> None:
    """Set tokens to pieces, as many as there are places for."""
    # What is user-defined in a model is a plain token in a GGUF.
    texts = pieces.texts[: len(found)]
    n = len(texts)
    is_user = pieces.types == TokenType.USER_DEFINED
    found.tokens[:n] = texts
    found.types[:n] = np.where(is_user, TokenType.NORMAL, pieces.types)[:n]
    found.scores[:n] = pieces.scores[:n]


def _put_added(
    folder: Folder, name: str, found: Vocabulary, i: Any, token: Any, *, as_given: bool
) -> None:
    if isinstance(i, str) and i.isascii() and i.isdigit() and len(i) < 10:
        i = int(i)
    text = content(token) if isinstance(token, Mapping) else None
    if text is None:
        raise folder.malformed(name, f"added token {i!r} has no content")
    if _id(folder, name, i) >= len(found):
        return
    if token.get("special") or (not as_given and looks_special(text)):
        found.put(i, text, TokenType.CONTROL, ADDED_SCORE)
    else:
        text = text if as_given else text.replace("\u2581", " ")
        found.put(i, text, TokenType.USER_DEFINED, ADDED_SCORE)


def _id(folder: Folder, name: str, given: Any) -> int:
    """Return the id of an added token as a file gives it."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise folder.malformed(name, f"the id of an added token is {given!r}")
    return given


_XLM_MODEL = "sentencepiece.bpe.model"
# fairseq's own tokens stand before the pieces in XLM-R, without the pieces' own first three.
_XLM_FIRST = (
    *(("<s>", TokenType.CONTROL), ("<pad>", TokenType.CONTROL)),
    *(("</s>", TokenType.CONTROL), ("<unk>", TokenType.UNKNOWN)),
)


def t5(folder: Folder, config: Mapping[str, Any]) -> tuple[Vocabulary, dict[str, Any]]:
    """Return T5's vocabulary, and the keys of how it treats spaces and letters."""
    name = MODEL if folder.has(MODEL) else "spiece.model"
    model = _unigram_of(folder, name)
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
    return found, _space_keys(
        model.add_dummy_prefix, model.remove_extra_whitespaces, model.charsmap
    )


def xlm_roberta(folder: Folder, config: Mapping[str, Any]) -> tuple[Vocabulary, dict[str, Any]]:
    """Return XLM-R's vocabulary, and the keys of how it treats spaces and letters."""
    if not folder.has(_XLM_MODEL):
        return _fast(folder, config)
    model = _unigram_of(folder, _XLM_MODEL)
    n = len(model.pieces.texts)
    size = max(declared_size(config, "vocab_size", default=n), n)
    found = Vocabulary(size, str(folder.root), folder.budget)
    put_pieces(found, model.pieces)
    found.tokens = [text for text, _ in _XLM_FIRST] + found.tokens[3:-1]
    kinds = np.array([kind for _, kind in _XLM_FIRST], np.int32)
    found.types = np.concatenate([kinds, found.types[3:-1]])
    found.scores = np.concatenate([np.zeros(4, np.float32), found.scores[3:-1]])
    return found, _space_keys(
        model.add_dummy_prefix, model.remove_extra_whitespaces, model.charsmap
    )


def _unigram_of(folder: Folder, name: str) -> SentencePieceModel:
    model = model_of(folder, name)
    if model.model_type != UNIGRAM:
        raise UnsupportedError(f"{folder.root / name}: no unigram model, which this one must be")
    return model


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
    return found, _space_keys(
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


def _space_keys(add_prefix: bool, remove_spaces: bool, charsmap: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {
        "tokenizer.ggml.add_space_prefix": add_prefix,
        "tokenizer.ggml.remove_extra_whitespaces": remove_spaces,
    }
    if charsmap:
        found["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(charsmap, np.uint8)
    return found
