"""How a model pools embeddings of tokens, or ranks texts, as Qwen3's rerankers do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.architectures import operations
from anamnesis.architectures.tokenizers.bpe import vocabulary_of
from anamnesis.architectures.tokenizers.folder import FAST, Folder
from anamnesis.base.errors import LimitExceeded, UnsupportedError
from anamnesis.base.stored import Dropped

if TYPE_CHECKING:
    from anamnesis.architectures.model_facts import Facts
    from anamnesis.schemes.core.weight import Weight

MODULES = "modules.json"
MODULES_MAX_BYTES = 1 << 20

_MEAN, _CLS, _LAST = 1, 2, 3  # as llama.cpp counts them
_SWITCHES = {
    "pooling_mode_mean_tokens": _MEAN,
    "pooling_mode_cls_token": _CLS,
    "pooling_mode_lasttoken": _LAST,
}
_WORDS = {"mean": _MEAN, "cls": _CLS, "lasttoken": _LAST}


def pooling_type(folder: Folder) -> int | None:
    """Return llama.cpp's number of a model's pooling; None if nothing says that it pools."""
    place = _place(folder)
    if place is None:
        return None
    name = f"{place}/config.json" if place else "config.json"
    given = folder.json(name)
    if given is None:
        raise folder.malformed(MODULES, f"speaks of {name!r}, which is not there")
    for switch, number in _SWITCHES.items():
        if given.get(switch):
            return number
    word = given.get("pooling_mode")
    if isinstance(word, str) and word in _WORDS:
        return _WORDS[word]
    raise UnsupportedError(f"{name}: llama.cpp pools by mean, first or last token only")


def _place(folder: Folder) -> str | None:
    """Return where the first module that pools lies."""
    raw = folder.raw(MODULES)
    if raw is None:
        return None
    if len(raw) > MODULES_MAX_BYTES:
        raise LimitExceeded("MODULES_MAX_BYTES", f"{folder.root / MODULES}: {len(raw):,} bytes")
    try:
        modules = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise folder.malformed(MODULES, f"not valid JSON: {error}") from None
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise folder.malformed(MODULES, "must hold a list of JSON objects")
    for module in modules:
        if str(module.get("type")).endswith("Pooling"):
            path = module.get("path")
            if not isinstance(path, str) or "\0" in path:
                raise folder.malformed(MODULES, f"the path of its pooling is {path!r}, no text")
            return path
    return None


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
    given = (folder.root.name, config.get("_name_or_path", ""), config.get("architectures", ""))
    names = " ".join(map(str, given)).lower()
    return any(f"# {name}" in card or name in names for name in _NAMES)


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
