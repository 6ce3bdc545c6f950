"""A byte-pair vocabulary with only those tokens that one text can become.

The library that splits the text makes tables of a whole vocabulary: of 128,000 tokens in 200 MB.
All tokens that the text passes through are pieces of it, so the others change nothing.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from anamnesis.architectures.tokenizers.decoded import bytes_as_letters

_FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
SPACES = (" ", "\u2581", "\u0120")  # as it is, as sentencepiece has it, as GPT-2 has it
_START = 4  # characters, by which most tokens are known not to be in a text
_PARTS = ("continuing_subword_prefix", "end_of_word_suffix")  # which are in no text


def reduced(
    model: Mapping[str, Any],
    merges: Iterable[str],
    text: str,
    added: Mapping[str, Any],
    kept: Iterable[str],
) -> dict[str, Any]:
    """Return the `model` of a tokenizer.json with the tokens and merges that a text can need."""
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or any(model.get(part) for part in _PARTS):
        return {**model, "merges": [merge.split(" ", 1) for merge in merges]}
    seen = "\n".join(_written(text))
    starts = {seen[i : i + _START] for i in range(len(seen))}
    always = {*kept, str(model.get("unk_token"))}
    some = {
        token: i
        for token, i in vocab.items()
        if ((len(token) < _START or token[:_START] in starts) and token in seen)
        or (len(token) == 1 or token in always or token.startswith("<0x"))
    }
    some |= {token: i for token, i in added.items() if type(i) is int}
    pairs = (merge.partition(" ") for merge in merges)
    left = [
        [one, other]
        for one, space, other in pairs
        if space and one in some and other in some and one + other in some
    ]
    return {**model, "vocab": some, "merges": left}


def _written(text: str) -> Iterator[str]:
    """Yield a text in all the ways in which tokens of it may be spelt."""
    forms = {text, *(unicodedata.normalize(form, text) for form in _FORMS)}
    for form in sorted(forms | {one.lower() for one in forms}):
        for space in SPACES:
            yield space + form.replace(" ", space)
        yield bytes_as_letters(f" {form}".encode())
