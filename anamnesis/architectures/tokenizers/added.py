"""Tokens that were added to a vocabulary, and which of them are special."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from anamnesis.architectures.tokenizers.folder import CONFIG, FAST, Folder, objects, section

SPECIAL_NAMES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")  # in transformers' order
_LISTS = ("extra_special_tokens", "additional_special_tokens")


class Added(NamedTuple):
    """An added token; one that is `normalized` is looked for in normalised text."""

    text: str
    special: bool = True
    normalized: bool = False


def content(token: Any) -> str | None:
    """Return a token's text, which is written as it is or as an object that has it."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def named_tokens(folder: Folder) -> dict[str, str]:
    """Return the texts of special tokens by their names: `{"bos": "<s>"}`."""
    # What a model has beside the usual ones, such as `image_token`, is one too.
    given = dict(folder.json(CONFIG) or {})
    if "added_tokens_decoder" not in given:
        given |= folder.json("special_tokens_map.json") or {}
    named = {name: content(given.get(f"{name}_token")) for name in SPECIAL_NAMES}
    for key, value in given.items():
        if key.endswith("_token") and isinstance(value, str):
            named.setdefault(key.removesuffix("_token"), value)
    return {name: text for name, text in named.items() if text}


def special_texts(folder: Folder) -> set[str]:
    """Return the tokens that transformers calls special: named ones, and those in lists."""
    return {*named_tokens(folder).values(), *_listed(folder)}


def _listed(folder: Folder) -> Iterator[str]:
    given = folder.json(CONFIG) or {}
    for key in _LISTS:
        listed = given.get(key)
        if listed:
            items = listed.values() if isinstance(listed, dict) else listed
            for item in items if isinstance(items, (list, type({}.values()))) else ():
                if text := content(item):
                    yield text
            return


def added_tokens(folder: Folder, vocab: Mapping[str, int]) -> dict[int, Added]:
    """Return added tokens by id, as transformers holds them."""
    # Those of tokenizer.json come first, then what tokenizer_config.json or added_tokens.json adds
    # to them; special tokens that nobody has an id for are appended. What `vocab` has keeps its id.
    found: dict[int, Added] = {}
    seen: set[str] = set()
    for i, token in _stored(folder):
        if token.text and token.text not in seen:
            seen.add(token.text)
            found.setdefault(vocab.get(token.text, i), token)
    next_id = max((*vocab.values(), *found), default=-1) + 1
    for text in dict.fromkeys((*named_tokens(folder).values(), *_listed(folder))):
        if text not in seen:
            seen.add(text)
            i = vocab.get(text, next_id)
            found[i] = Added(text)
            next_id += i == next_id
    return found


def _stored(folder: Folder) -> Iterator[tuple[int, Added]]:
    for token in objects((folder.json(FAST) or {}).get("added_tokens")):
        yield _id(folder, FAST, token.get("id")), _added(token)
    config = folder.json(CONFIG) or {}
    if "added_tokens_decoder" in config:
        for i, token in section(config, "added_tokens_decoder").items():
            if isinstance(token, dict) and content(token) is not None:
                yield _id(folder, CONFIG, i), _added(token)
        return
    special = special_texts(folder)
    for text, i in (folder.json("added_tokens.json") or {}).items():
        is_special = text in special
        yield _id(folder, "added_tokens.json", i), Added(text, is_special, not is_special)


def _added(token: Mapping[str, Any]) -> Added:
    is_special = token.get("special") is True
    normalized = token.get("normalized", not is_special)
    return Added(content(token) or "", is_special, normalized is True)


def _id(folder: Folder, name: str, given: Any) -> int:
    if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10:
        given = int(given)
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 2**31:
        raise folder.malformed(name, f"the id of an added token is {given!r}")
    return given
