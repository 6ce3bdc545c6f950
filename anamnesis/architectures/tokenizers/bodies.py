"""tokenizer.json of a GGUF's vocabulary, of each kind, encoding as llama.cpp."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

from anamnesis.architectures.tokenizers.decoded import decoder_of
from anamnesis.architectures.tokenizers.merges import merges_by_score
from anamnesis.architectures.tokenizers.pre_table import PATTERNS, Step
from anamnesis.architectures.tokenizers.stored import StoredVocabulary
from anamnesis.architectures.tokenizers.token_types import TokenType
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.plain_json import json_table
from anamnesis.base.printable import shortened

quoted = json.encoder.encode_basestring
_FEW = 4096  # rows that are held at the same time


class Rows(NamedTuple):
    """Entries of an object, or pairs in a list: each as two texts that are JSON already."""

    brackets: str
    rows: Iterable[tuple[str, Any]]


def json_text(given: Any, line: str = "\n") -> Iterator[str]:
    """Yield JSON in pieces; `line` begins the lines of what it stands in."""
    inner = f"{line}  "
    if isinstance(given, Rows):
        yield from _rows(given, line, inner)
    elif isinstance(given, Mapping) and given:
        for i, (key, value) in enumerate(given.items()):
            yield f"{',' if i else '{'}{inner}{quoted(key)}: "
            yield from json_text(value, inner)
        yield f"{line}}}"
    else:
        yield json.dumps(given, ensure_ascii=False, indent=2).replace("\n", line)


def _rows(given: Rows, line: str, inner: str) -> Iterator[str]:
    is_object = given.brackets == "{}"
    row = f"{inner}%s: %s" if is_object else f"{inner}[{inner}  %s,{inner}  %s{inner}]"
    rows, before = map(row.__mod__, given.rows), given.brackets[0]
    while some := ",".join(islice(rows, _FEW)):
        yield before + some
        before = ","
    yield f"{line}{given.brackets[1]}" if before == "," else given.brackets


_SPACE = "\u2581"  # sentencepiece's
# Parts that all files have alike.
_PARTS: Mapping[str, Any] = json_table(__file__)
# What llama.cpp does with a vocabulary that names no pre-tokenizer.
_DEFAULT: tuple[Step, ...] = tuple(map(tuple, _PARTS["unnamed"]))


def _sequence(key: str, steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(steps) < 2:
        return steps[0] if steps else None
    return {"type": "Sequence", key: steps}


def _tokenizer(
    vocabulary: StoredVocabulary,
    model: Mapping[str, Any],
    *,
    normalizer: Any = None,
    pre_tokenizer: Any = None,
    decoder: Any = None,
) -> dict[str, Any]:
    read = decoder_of({"decoder": decoder}) if normalizer is None else None
    added = [
        {"id": i, **added_token(token, special)}
        # Nothing is normalised: it only says that the token is stored as it is, and not as read.
        | {"normalized": read is not None and read(token) != token}
        for i, special in vocabulary.added().items()
        for token in [vocabulary.tokens[i]]
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _post_processor(vocabulary),
        "decoder": decoder,
        "model": dict(model),
    }


def added_token(text: str, special: bool) -> dict[str, Any]:
    """Return an added token as JSON, which is looked for in text that nobody normalised."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"content": text, **flags, "special": special}


def _vocab(vocabulary: StoredVocabulary) -> dict[str, int]:
    """Return the ids of tokens that are no padding."""
    vocab: dict[str, int] = {}
    for i, token in enumerate(vocabulary.tokens):
        if i not in vocabulary.padding:
            vocab.setdefault(token, i)  # two may be empty
    return vocab


def _stored_bpe(vocabulary: StoredVocabulary) -> dict[str, Any]:
    """Return a model with those stored merges whose tokens are there."""
    vocab = _vocab(vocabulary)
    kept = (
        (left, right)
        for left, right in vocabulary.merges()
        if left in vocab and right in vocab and left + right in vocab
    )
    return _bpe(vocab, kept)


def _bpe(vocab: Mapping[str, int], merges: Iterable[tuple[str, str]]) -> dict[str, Any]:
    pairs = Rows("[]", ((quoted(left), quoted(right)) for left, right in merges))
    return {**_PARTS["BPE"], "vocab": _ids(vocab), "merges": pairs}


def _ids(vocab: Mapping[str, int]) -> Rows:
    return Rows("{}", zip(map(quoted, vocab), vocab.values(), strict=True))


# --- byte-pair vocabularies of bytes ------------------------------------------------------------

_IGNORING = frozenset({"tekken", "minicpm5", "youtu", "granite-embed-multi-97m", "glm4", "glm5"})


def byte_level(vocabulary: StoredVocabulary) -> dict[str, Any]:
    """Return a tokenizer whose tokens are of bytes."""
    pre = vocabulary.pre
    rows = [row for row in PATTERNS if pre in row.names]
    if not rows and pre != "default":
        name = shortened(repr(pre))
        raise UnsupportedError(f"tokenizer.ggml.pre: how {name} splits a text is not known")
    steps = rows[0].steps if rows else _DEFAULT
    model = _stored_bpe(vocabulary)
    is_ignoring = rows and rows[0].ignore_merges is True and pre != "chatglm-bpe"
    model["ignore_merges"] = bool(is_ignoring) or pre in _IGNORING
    return _tokenizer(
        vocabulary,
        model,
        pre_tokenizer=_sequence("pretokenizers", _pre_tokenizers(steps)),
        decoder=_PARTS["ByteLevel"],
    )


def _pre_tokenizers(steps: tuple[Step, ...]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for kind, *rest in steps:
        if kind == "split":
            found.append({**_PARTS["Split"], "pattern": {"Regex": rest[0]}})
        else:
            found.append(_PARTS["ByteLevel" if kind == "words" else kind])
    if ("words",) not in steps:
        found.append({**_PARTS["ByteLevel"], "use_regex": False})
    return found


# --- vocabularies of sentencepiece's kind -------------------------------------------------------


def _of_bytes(*, prefix: bool) -> dict[str, Any]:
    return {"type": "Sequence", "decoders": _PARTS["of_bytes"] + [_PARTS["prefix"]] * prefix}


def _check_scores(vocabulary: StoredVocabulary) -> None:
    if not len(vocabulary.scores):
        raise ParseError("the GGUF has no tokenizer.ggml.scores")


def byte_fallback(vocabulary: StoredVocabulary) -> dict[str, Any]:
    """Return a tokenizer that joins pieces by their scores, said as merges."""
    _check_scores(vocabulary)
    vocab = _vocab(vocabulary)
    joined = set(vocabulary.of_types(TokenType.NORMAL, TokenType.UNUSED))
    pieces = {token: i for token, i in vocab.items() if i in joined}
    model = _bpe(vocab, merges_by_score(pieces, vocabulary.tokens, vocabulary.scores))
    unknown = vocabulary.text_of("unk")
    model |= {"fuse_unk": True, "byte_fallback": True, "unk_token": unknown}
    has_prefix = vocabulary.flag("add_space_prefix") is not False
    steps = [{"type": "Prepend", "prepend": _SPACE}] if has_prefix else []
    return _tokenizer(
        vocabulary,
        model,
        normalizer=_sequence("normalizers", [*steps, _PARTS["spaces"]]),
        decoder=_of_bytes(prefix=has_prefix),
    )


def gemma4(vocabulary: StoredVocabulary) -> dict[str, Any]:
    """Return a tokenizer that has merges over sentencepiece's pieces."""
    model = _stored_bpe(vocabulary)
    unknown = vocabulary.text_of("unk")
    model |= {"fuse_unk": True, "byte_fallback": True, "unk_token": unknown}
    return _tokenizer(
        vocabulary, model, normalizer=_PARTS["spaces"], decoder=_of_bytes(prefix=False)
    )


def unigram(vocabulary: StoredVocabulary) -> dict[str, Any]:
    """Return a tokenizer that looks for the pieces with the best sum of scores."""
    _check_scores(vocabulary)
    n = vocabulary.n_unpadded()
    pairs = zip(map(quoted, vocabulary.tokens[:n]), vocabulary.scores[:n].tolist(), strict=True)
    model = {
        "type": "Unigram",
        "unk_id": vocabulary.ids.get("unk"),
        "vocab": Rows("[]", pairs),
        "byte_fallback": False,
    }
    normalizer = None
    if charsmap := vocabulary.bytes("precompiled_charsmap"):
        given = base64.b64encode(charsmap).decode()
        normalizer = {"type": "Precompiled", "precompiled_charsmap": given}
    has_prefix = vocabulary.flag("add_space_prefix") is not False
    spaces = {
        "type": "Metaspace",
        "replacement": _SPACE,
        "prepend_scheme": "always" if has_prefix else "never",
        "split": True,
    }
    removes = vocabulary.flag("remove_extra_whitespaces") is not False
    words = [{"type": "WhitespaceSplit"}] if removes else []
    return _tokenizer(
        vocabulary,
        model,
        normalizer=normalizer,
        pre_tokenizer=_sequence("pretokenizers", [*words, spaces]),
        decoder=spaces,
    )


def wordpiece(vocabulary: StoredVocabulary) -> dict[str, Any]:
    """Return BERT's tokenizer."""
    vocab: dict[str, int] = {}
    control = set(vocabulary.of_types(TokenType.CONTROL))
    for i, token in enumerate(vocabulary.tokens):
        if i not in control:
            token = token[1:] if token.startswith(_SPACE) else f"##{token}"
        vocab.setdefault(token, i)
    unknown = vocabulary.text_of("unk")
    model = _PARTS["WordPiece"] | {"vocab": _ids(vocab)}
    model |= {} if unknown is None else {"unk_token": unknown}
    accents = vocabulary.flag("normalizer.strip_accents")
    lowers = vocabulary.flag("normalizer.lowercase") is not False
    return _tokenizer(
        vocabulary,
        model,
        normalizer=_PARTS["BertNormalizer"] | {"strip_accents": accents, "lowercase": lowers},
        pre_tokenizer={"type": "BertPreTokenizer"},
        decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
    )


# --- what is added to a text --------------------------------------------------------------------


def _post_processor(vocabulary: StoredVocabulary) -> dict[str, Any] | None:
    """Return what adds the tokens that begin and end a text; None if nothing is said of them."""
    is_bert = vocabulary.model == "bert"  # whose two are always there
    first, last = ("cls", "sep") if is_bert else ("bos", "eos")
    before = [first] if first in vocabulary.ids and (is_bert or vocabulary.adds(first)) else []
    after = [last] if last in vocabulary.ids and (is_bert or vocabulary.adds(last)) else []
    if not before and not after:
        given = vocabulary.flag("add_bos_token") is not None and vocabulary.model == "gpt2"
        return _PARTS["ByteLevel"] if given else None
    first_text, second_text = ({"Sequence": {"id": s, "type_id": i}} for i, s in enumerate("AB"))
    single = [*_specials(vocabulary, before, 0), first_text, *_specials(vocabulary, after, 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, second_text, *_specials(vocabulary, after, 1)],
        "special_tokens": {
            text: {"id": text, "ids": [vocabulary.ids[name]], "tokens": [text]}
            for name in (*before, *after)
            for text in [vocabulary.tokens[vocabulary.ids[name]]]
        },
    }


def _specials(vocabulary: StoredVocabulary, names: list[str], type_id: int) -> list[Any]:
    texts = [vocabulary.tokens[vocabulary.ids[name]] for name in names]
    return [{"SpecialToken": {"id": text, "type_id": type_id}} for text in texts]
