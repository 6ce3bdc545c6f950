"""What models call an output head that may be tied to an embedding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anamnesis.base.plain_json import json_table

_USUAL = "lm_head"
EMBEDDINGS = re.compile(
    r"(.*\.)?(embed_tokens|token_embd|wte|word_embeddings|embed_in|shared)\.weight"
)
# Of the names of the classes that have a head, which may be tied: others, as BertModel, have none.
_WITH_HEAD = (
    *("CausalLM", "CausalImageModeling", "LMHead", "MaskedLM", "ConditionalGeneration"),
    *("PreTraining", "BlockDiffusion", "BertGenerationDecoder", "BlipForQuestionAnswering"),
    *("MTModel", "SeamlessM4T", "SpeechToText", "TextTo", "Text2Text"),
)

# Output heads that are not called `lm_head` and may be tied to an embedding (`_tied_weights_keys`),
# with the types of transformers' models that have them.
_TABLE = json_table(__file__)
HEADS = {head: tuple(types.split()) for head, types in _TABLE.items()}


def head_of(config: Mapping[str, Any]) -> str | None:
    """Return what a model calls its output head; None if its class has none."""
    classes = config.get("architectures")
    named = [name for name in classes if isinstance(name, str)] if isinstance(classes, list) else []
    if named and not any(word in name for name in named for word in _WITH_HEAD):
        return None
    kind = config.get("model_type")
    return next((head for head, types in HEADS.items() if kind in types), _USUAL)


def says_tied(config: Mapping[str, Any]) -> bool | None:
    """Return whether config says that the head is the embeddings; None if it says nothing."""
    text = config.get("text_config")
    sections = (config, text if isinstance(text, Mapping) else {})
    said = [section.get("tie_word_embeddings") for section in sections]
    return any(one is True for one in said) or (False if False in said else None)


def tied_head(config: Mapping[str, Any]) -> str | None:
    """Return what a model calls its output head, if that is not `lm_head`."""
    head = head_of(config)
    return None if head == _USUAL else head
