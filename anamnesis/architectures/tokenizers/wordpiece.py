"""WordPiece vocabularies: GGUF marks where words begin, BERT where they go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anamnesis.architectures.tokenizers.bpe import byte_level
from anamnesis.architectures.tokenizers.folder import Folder
from anamnesis.architectures.tokenizers.tokens import TokenType, Vocabulary


def wordpiece(folder: Folder, config: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary of a tokenizer.json."""
    found = byte_level(folder, config)
    for i in (found.types != TokenType.CONTROL).nonzero()[0].tolist():
        text = found.tokens[i]
        found.tokens[i] = text[2:] if text.startswith("##") else f"\u2581{text}"
    return found
