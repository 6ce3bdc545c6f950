"""The tokenizer files of a Hugging Face directory, made of a GGUF's keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from anamnesis.architectures.tokenizers import bodies
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST
from anamnesis.architectures.tokenizers.stored import StoredVocabulary
from anamnesis.base.errors import ParseError, UnsupportedError

__all__ = ["vocabulary_files"]

_BODIES: Mapping[str, Callable[[StoredVocabulary], dict[str, Any]]] = {
    "gpt2": bodies.byte_level,
    "llama": bodies.byte_fallback,
    "gemma4": bodies.gemma4,
    "t5": bodies.unigram,
    "bert": bodies.wordpiece,
}
_TEMPLATE = "tokenizer.chat_template"


def vocabulary_files(metadata: Mapping[str, Any]) -> dict[str, bytes]:
    """Return tokenizer.json and tokenizer_config.json of a GGUF's vocabulary.

    Parameters
    ----------
    metadata : mapping
        The metadata of a GGUF; only `tokenizer.*` is read.

    Returns
    -------
    dict of str to bytes
        By the names of files.

    Raises
    ------
    ParseError
        If a key is missing or malformed.
    UnsupportedError
        If nobody knows how the vocabulary, or its pre-tokenizer, works.
    LimitExceeded
        If the vocabulary is larger than any.
    """
    vocabulary = StoredVocabulary(metadata)
    body = _BODIES.get(vocabulary.model)
    if body is None:
        raise UnsupportedError(
            f"tokenizer.ggml.model: no tokenizer.json can be made of kind {vocabulary.model!r}"
        )
    return {FAST: _json(body(vocabulary)), CONFIG: _json(_config(vocabulary, metadata))}


def _json(told: Mapping[str, Any]) -> bytes:
    try:
        return (json.dumps(told, ensure_ascii=False, indent=2) + "\n").encode()
    except UnicodeEncodeError:
        raise ParseError("the vocabulary of the GGUF has text that is not UTF-8") from None


def _config(vocabulary: StoredVocabulary, metadata: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
    }
    for name in vocabulary.ids:
        told[f"{name}_token"] = vocabulary.text_of(name)
    for name in ("bos", "eos", "sep"):
        if (flag := vocabulary.flag(f"add_{name}_token")) is not None:
            told[f"add_{name}_token"] = flag
    if (flag := vocabulary.flag("add_space_prefix")) is not None:
        told["add_prefix_space"] = flag
    template = _templates(metadata)
    if template:
        told["chat_template"] = template
    return told


def _templates(metadata: Mapping[str, Any]) -> Any:
    """Return the chat template, or all of them by their names."""
    default = metadata.get(_TEMPLATE)
    named = []
    for key in metadata:
        name = key.removeprefix(f"{_TEMPLATE}.")
        if name != key and isinstance(metadata[key], str):
            named.append({"name": name, "template": metadata[key]})
    if not named:
        return default if isinstance(default, str) else None
    if isinstance(default, str):
        named.insert(0, {"name": "default", "template": default})
    return named
