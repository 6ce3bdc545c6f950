"""Qwen3's rerankers, whose head llama.cpp cuts to the rows of yes and no."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.architectures import operations
from anamnesis.architectures.tokenizers.bpe import vocabulary_of
from anamnesis.architectures.tokenizers.folder import FAST, Folder
from anamnesis.base.dropped import Dropped

if TYPE_CHECKING:
    from anamnesis.architectures.model_facts import Facts
    from anamnesis.schemes.core.weight import Weight

RANK = 4  # llama.cpp's number of such a pooling
_NAMES = ("qwen3-reranker", "qwen3-vl-reranker")
_ANSWERS = ("yes", "no")
_HEAD, _TIED, _CUT = "lm_head.weight", "model.embed_tokens.weight", "score.weight"
_ONLY_ANSWERS = "llama.cpp takes its rows of yes and no only"
_TEMPLATE = """\
<|im_start|>system
Judge whether the Document meets the requirements based on the Query and the Instruct provided. \
Note that the answer can only be "yes" or "no".<|im_end|>
<|im_start|>user
<Instruct>: Given a web search query, retrieve relevant passages that answer the query
<Query>: {query}
<Document>: {document}<|im_end|>
<|im_start|>assistant
<think>

</think>

"""
TEMPLATE_KEYS: Mapping[str, Any] = {
    "tokenizer.chat_template.rerank": {"type": "string", "value": _TEMPLATE},
    "tokenizer.chat_templates": {"type": "string", "value": ["rerank"]},
}


def is_reranker(folder: Folder, config: Mapping[str, Any]) -> bool:
    """Tell it as the converter does: by the model's card, or by a name."""
    card = (folder.text("README.md") or "").lower()
    given = (
        folder.root.name,
        *(str(config.get(key, "")) for key in ("_name_or_path", "architectures")),
    )
    return any(f"# {name}" in card or name in " ".join(given).lower() for name in _NAMES)


def cut_head(weights: dict[str, Weight], facts: Facts, folder: Folder) -> list[Dropped]:
    """Put the head's rows of both answers in the place of the head; return what is left out."""
    head = _TIED if facts.get("tie_word_embeddings") else _HEAD
    vocab, weight = vocabulary_of(folder), weights.get(head)
    if weight is None or len(weight.shape) != 2:
        raise folder.malformed("config.json", f"a reranker needs {head!r}, which is no matrix here")
    n = weight.shape[0]
    order = [vocab.get(answer, n) for answer in _ANSWERS]
    if max(order) >= n:
        raise folder.malformed(FAST, "a reranker answers 'yes' or 'no', which are no tokens here")
    weights[_CUT] = operations.gathered_rows(_CUT, [weight], n, order, (2, weight.shape[1]))
    facts.values |= {"pooling_type": RANK, "id2label": dict(enumerate(_ANSWERS))}
    if head == _TIED:
        return []
    del weights[head]
    return [Dropped(part.name, _ONLY_ANSWERS) for part in weight.parts]
