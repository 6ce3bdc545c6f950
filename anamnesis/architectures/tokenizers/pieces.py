"""Vocabularies of sentencepiece's model files, with what other files add to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.tokenizers.added import content
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST, Folder, objects, section
from anamnesis.architectures.tokenizers.sentencepiece import Pieces, SentencePieceModel, parse_model
from anamnesis.architectures.tokenizers.tokens import (
    ADDED_SCORE,
    TokenType,
    Vocabulary,
    declared_size,
    looks_special,
)
from anamnesis.base.errors import ParseError
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
    is_special = bool(token.get("special"))
    if is_special or (not as_given and looks_special(text)):
        found.put(i, text, TokenType.CONTROL, ADDED_SCORE)
    else:
        text = text if as_given else text.replace("\u2581", " ")
        found.put(i, text, TokenType.USER_DEFINED, ADDED_SCORE)


def _id(folder: Folder, name: str, given: Any) -> int:
    """Return the id of an added token as a file gives it."""
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        raise folder.malformed(name, f"the id of an added token is {given!r}")
    return given
