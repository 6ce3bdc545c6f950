"""A small byte-level tokenizer for demo models, in the form of tokenizer.json."""

from __future__ import annotations

from typing import Any

_SPECIAL = ("<unk>", "<s>", "</s>")
_MERGES = (  # Ġ is how byte-level vocabularies write a space
    *("Ġ t", "h e", "Ġ a", "i n", "Ġt he", "r e", "o n", "e r", "Ġ o", "Ġ s", "a t", "u n"),
    *("Ġ w", "e s", "Ġ c", "i t", "o r", "i s", "Ġ b", "e n", "Ġ f", "Ġ m", "Ġ p", "Ġo f"),
    *("in g", "e d", "a n", "a l", "Ġa n", "o u", "Ġ in", "a r", "Ġt o", "Ġ d", "Ġ h", "i c"),
    *("l e", "o m", "i on", "Ġ re", "a s", "Ġt h", "e l", "Ġ n", "c t", "en t", "s t", "v e"),
    *("Ġ l", "Ġ e", "Ġ g", "o t", "i l", "r o", "i d", "Ġb e", "Ġ is", "l y", "c h", "u r"),
    "Ġth at",
)
VOCABULARY = len(_SPECIAL) + 256 + len(_MERGES)


def byte_level_tokenizer() -> dict[str, Any]:
    """Return a tokenizer of every byte and some pairs, which splits texts as GPT-2's does."""
    from anamnesis.architectures.tokenizers.decoded import byte_alphabet

    tokens = [*_SPECIAL, *byte_alphabet(), *(pair.replace(" ", "") for pair in _MERGES)]
    places = ("single_word", "lstrip", "rstrip", "normalized")
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": token, **dict.fromkeys(places, False), "special": True}
            for i, token in enumerate(_SPECIAL)
        ],
        "pre_tokenizer": bytes_,
        "decoder": bytes_,
        "model": {
            "type": "BPE",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": list(_MERGES),
        },
    }
