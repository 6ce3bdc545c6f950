"""What llama.cpp needs of a GGUF, by names and header."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

OF_LLAMA_CPP = re.compile(r"^blk\.[0-9]+\.|^token_embd\.weight$")
_OF_HUGGING_FACE = re.compile(
    r"(?:^|\.)(?:layers?|h|blocks?|embed_tokens|lm_head)\.(?:[0-9]|weight)"
)


def lacks(names: Collection[str], metadata: Mapping[str, Any]) -> Iterator[str]:
    """Yield what llama.cpp needs and a GGUF lacks."""
    if not any(OF_LLAMA_CPP.match(name) for name in names) and any(
        _OF_HUGGING_FACE.search(name) for name in names
    ):
        yield "hf-names"
    elif "general.architecture" not in metadata:
        yield "no-architecture"
    elif "token_embd.weight" in names and "tokenizer.ggml.model" not in metadata:
        yield "no-tokenizer"
