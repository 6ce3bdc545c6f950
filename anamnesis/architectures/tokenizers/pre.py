"""Which of llama.cpp's pre-tokenizers a tokenizer.json has, and how to see it.

llama.cpp names them after models, and its converter tells them by a digest of the ids that a text
becomes. That takes the `tokenizers` library, and a vocabulary that nobody changed; without either,
the regexes by which a text is split say what is needed to read it alike.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

from anamnesis.architectures.tokenizers.added import content
from anamnesis.architectures.tokenizers.bpe import merges_of
from anamnesis.architectures.tokenizers.decoded import bytes_as_letters
from anamnesis.architectures.tokenizers.folder import CONFIG, FAST, Folder, flat, objects, section
from anamnesis.architectures.tokenizers.pre_table import (
    PATTERNS,
    Pattern,
    Step,
    meaning,
    steps_by_regex,
)
from anamnesis.base.errors import UnsupportedError

PRE_MAX_STEPS = 32  # a real one has seven
# Of what has vocab.json and merges.txt, and no tokenizer.json.
_OF_CLASSES = {"GPT2Tokenizer": "gpt-2", "Qwen2Tokenizer": "qwen2", "RobertaTokenizer": "gpt-2"}

_WORD_PIECE = Pattern(("bert-bge",), (("words",),))  # whose name llama.cpp does not ask for

# What changes a text by no more than a constant factor, whatever else it says.
_HARMLESS = frozenset({"NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer"})
_SPLITS = frozenset({"ByteLevel", "Digits", "Punctuation", "BertPreTokenizer", "Whitespace"})
_POSTS = frozenset({"ByteLevel", "TemplateProcessing", "BertProcessing", "RobertaProcessing"})
_MODEL_KEYS = frozenset(
    {
        *("type", "vocab", "merges", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"),
        *("continuing_subword_prefix", "end_of_word_suffix", "max_input_chars_per_word"),
    }
)


def pre_tokenizer(folder: Folder, given: str | None) -> str:
    """Return the name that llama.cpp has for how a text is split."""
    if given is not None:
        return given
    tokenizer = folder.json(FAST)
    if tokenizer is None:
        name = _OF_CLASSES.get(str((folder.json(CONFIG) or {}).get("tokenizer_class")))
    else:
        text, names = digests()
        ids = _ids(folder, tokenizer, text)  # None if nobody can tell
        digest = hashlib.sha256(str(ids).encode()).hexdigest()
        name = _agreed(None if ids is None else names.get(digest), _by_steps(tokenizer))
    if name is not None:
        return name
    raise UnsupportedError(
        f"{folder.root / FAST}: llama.cpp has no name for how this tokenizer splits a text, or it"
        " is not known here",
        remedy="tokenizer_pre='NAME' says which it is, such as gpt-2 or qwen2",
    )


def _agreed(digested: str | None, row: Pattern | None) -> str | None:
    """Return the digest's name, unless the tokenizer says that it splits texts in another way."""
    # Llama 3's without the token that begins a text has the digest of one that minds its merges.
    if row is None:
        return digested
    rows = [other for other in PATTERNS if digested in other.names]
    wanted = (row.steps, row.ignore_merges)
    is_alike = not rows or wanted in [(other.steps, other.ignore_merges) for other in rows]
    return digested if digested is not None and is_alike else row.names[0]


# --- by what it makes of one text ---------------------------------------------------------------


@cache
def digests() -> tuple[str, Mapping[str, str]]:
    """Return one text, and names of models by a SHA-256 of the ids that they make of it."""
    table = json.loads(Path(__file__).with_name("pre_digests.json").read_text(encoding="utf-8"))
    return table["text"], table["digests"]


def _ids(folder: Folder, tokenizer: Mapping[str, Any], text: str) -> list[int] | None:
    """Return the ids of a text, as transformers gives them: what it is set to add is added."""
    # The library takes regexes that never end and texts that grow without end: it gets only what is
    # known to do neither.
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    if not _is_harmless(tokenizer):
        return None
    known = ("version", "added_tokens", "normalizer", "pre_tokenizer", "post_processor")
    given = {key: tokenizer.get(key) for key in known}
    config = folder.json(CONFIG) or {}
    given["model"] = _model(folder, tokenizer, config, text)
    says = {name: config.get(f"add_{name}_token") for name in ("bos", "eos")}
    is_given = any(isinstance(value, bool) for value in says.values())
    try:
        library = Tokenizer.from_str(json.dumps(given))
        ids = list(library.encode(text, add_special_tokens=not is_given).ids)
        ends = {
            name: library.token_to_id(content(config.get(f"{name}_token")) or "") for name in says
        }
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException:  # of a broken file it panics, which is no Exception
        return None
    if is_given:
        before = [ends["bos"]] if says["bos"] is True and ends["bos"] is not None else []
        after = [ends["eos"]] if says["eos"] is True and ends["eos"] is not None else []
        ids = [*before, *ids, *after]
    return ids


def _model(
    folder: Folder, tokenizer: Mapping[str, Any], config: Mapping[str, Any], text: str
) -> dict[str, Any]:
    given = section(tokenizer, "model")
    model = {key: value for key, value in given.items() if key in _MODEL_KEYS}
    if model.get("type") != "BPE":
        return model
    merges = merges_of(folder)
    steps = [*flat(tokenizer.get("normalizer"), "normalizers")]
    steps += flat(tokenizer.get("pre_tokenizer"), "pretokenizers")
    if not all(map(_is_spelt, steps)):
        return {**model, "merges": [merge.split(" ", 1) for merge in merges]}
    added = {
        str(one.get("content")): one.get("id") for one in objects(tokenizer.get("added_tokens"))
    }
    ends = (content(config.get(f"{name}_token")) or "" for name in ("bos", "eos"))
    return reduced(model, merges, text, added, ends)


def _is_spelt(step: Mapping[str, Any]) -> bool:
    """Return whether a step leaves a text in one of the ways that `reduced` knows."""
    if _type(step) in ("StripAccents", "BertNormalizer"):
        return False
    letters = [step.get(key) for key in ("replacement", "prepend", "content")]
    return all(one in (None, *SPACES) for one in letters)


def _is_harmless(tokenizer: Mapping[str, Any]) -> bool:
    steps = [*flat(tokenizer.get("normalizer"), "normalizers")]
    steps += flat(tokenizer.get("pre_tokenizer"), "pretokenizers")
    posts = [*flat(tokenizer.get("post_processor"), "processors")]
    if len(steps) + len(posts) > PRE_MAX_STEPS:
        return False
    return all(map(_is_known, steps)) and all(_type(step) in _POSTS for step in posts)


def _is_known(step: Mapping[str, Any]) -> bool:
    match step:
        case {"type": "Split", "pattern": {"Regex": str(regex)}}:
            return meaning(regex) in steps_by_regex()
        case {"type": "Split", "pattern": {"String": str()}}:
            return True
        case {"type": "Replace", "pattern": {"String": " "}, "content": str(new)}:
            return len(new) == 1
        case {"type": "Metaspace" | "Prepend"}:
            return len(str(step.get("replacement", step.get("prepend")))) == 1
    return _type(step) in _HARMLESS | _SPLITS


def _type(step: Mapping[str, Any]) -> str:
    given = step.get("type")
    return given if isinstance(given, str) else ""


# --- by what it says ----------------------------------------------------------------------------


def _by_steps(tokenizer: Mapping[str, Any]) -> Pattern | None:
    """Return the names of those that split alike."""
    model = section(tokenizer, "model")
    if model.get("type") == "WordPiece":
        return _WORD_PIECE
    given = list(flat(tokenizer.get("pre_tokenizer"), "pretokenizers"))
    if len(given) > PRE_MAX_STEPS or model.get("type") != "BPE":
        return None
    steps = _steps(given)
    ignores = model.get("ignore_merges") is True
    normalizers = {_type(step) for step in flat(tokenizer.get("normalizer"), "normalizers")}
    for row in PATTERNS:
        if (
            row.steps == steps
            and row.ignore_merges in (None, ignores)
            and (row.normalizer is None or row.normalizer in normalizers)
        ):
            return row
    return None


def _cuts_out(step: Mapping[str, Any]) -> bool:
    """Return whether a split makes pieces of its matches; what it removes is what lies between."""
    given = step.get("behavior")
    return given == "Isolated" or (given == "Removed" and step.get("invert") is True)


def _steps(given: Sequence[Mapping[str, Any]]) -> tuple[Step, ...] | None:
    """Return the steps as in the table; None if one has no name there."""
    steps: list[Step] = []
    for step in given:
        match step:
            case {"type": "Split", "pattern": {"Regex": str(regex)}} if _cuts_out(step):
                steps.append(steps_by_regex().get(meaning(regex), ("split", regex)))
            case {"type": "Digits", "individual_digits": True}:
                steps.append(("digits",))
            case {"type": "Punctuation"}:
                steps.append(("punctuation",))
            case {"type": "ByteLevel"}:
                if step.get("use_regex", True) is True:
                    steps.append(("words",))
            case _:
                return None
    return tuple(steps)


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
    # The library that splits the text makes tables of a whole vocabulary: of 128,000 tokens in 200
    # MB. All tokens that the text passes through are pieces of it, so the others change nothing.
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
