"""The tokenizer files of a Hugging Face directory, made of a GGUF's keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anamnesis.architectures.tokenizers import bodies
from anamnesis.architectures.tokenizers.bodies import json_text
from anamnesis.architectures.tokenizers.chat_templates import stored_templates
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST
from anamnesis.architectures.tokenizers.pieces import MODEL
from anamnesis.architectures.tokenizers.sentencepiece import piece_model
from anamnesis.architectures.tokenizers.stored import StoredVocabulary
from anamnesis.architectures.tokenizers.tokens import ADDED_SCORE
from anamnesis.base.errors import ParseError, UnsupportedError

_BODIES: Mapping[str, Callable[[StoredVocabulary], dict[str, Any]]] = {
    "gpt2": bodies.byte_level,
    "llama": bodies.byte_fallback,
    "gemma4": bodies.gemma4,
    "t5": bodies.unigram,
    "bert": bodies.wordpiece,
}


def vocabulary_files(metadata: Mapping[str, Any]) -> dict[str, bytes | bytearray]:
    """Return tokenizer.json and tokenizer_config.json of a GGUF's vocabulary."""
    # Of one of sentencepiece's kind tokenizer.model too, which alone has its scores.
    vocabulary = StoredVocabulary(metadata)
    body = _BODIES.get(vocabulary.model)
    if body is None:
        raise UnsupportedError(
            f"tokenizer.ggml.model: no tokenizer.json can be made of kind {vocabulary.model!r}"
        )
    files: dict[str, bytes | bytearray] = {FAST: _json(body(vocabulary))}
    files[CONFIG] = _json(_config(vocabulary, metadata))
    if vocabulary.model == "llama" and (model := piece_model(vocabulary)) is not None:
        files[MODEL] = model
    return files


def _json(given: Mapping[str, Any]) -> bytearray:
    made = bytearray()  # which grows, and is never held twice
    try:
        for piece in json_text(given):
            made += piece.encode()
    except UnicodeEncodeError:
        raise ParseError("the vocabulary of the GGUF has text that is not UTF-8") from None
    made += b"\n"
    return made


def _config(vocabulary: StoredVocabulary, metadata: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        # What llama.cpp's converter takes for the removal of spaces, of XLM-R's kind.
        "clean_up_tokenization_spaces": vocabulary.model == "t5"
        and vocabulary.flag("remove_extra_whitespaces") is not False,
    }
    named = vocabulary.named()
    for name in named:
        given[f"{name}_token"] = vocabulary.text_of(name)
    added = vocabulary.added()
    if vocabulary.model == "llama":
        given["added_tokens_decoder"] = {
            str(i): bodies.added_token(vocabulary.tokens[i], special)
            for i, special in added.items()
            if not special or vocabulary.scores[i] == ADDED_SCORE
        }
    ids = set(named.values())
    others = [vocabulary.tokens[i] for i, special in added.items() if special and i not in ids]
    if others:
        given["additional_special_tokens"] = others
    for name in ("bos", "eos", "sep"):
        flag = vocabulary.flag(f"add_{name}_token")
        if flag is not None and vocabulary.model != "bert":  # of which the template says all
            given[f"add_{name}_token"] = flag
    if (flag := vocabulary.flag("add_space_prefix")) is not None:
        given["add_prefix_space"] = flag
    template = stored_templates(metadata)
    if template:
        given["chat_template"] = template
    return given
