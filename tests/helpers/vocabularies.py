"""Tokenizer files of small vocabularies: cut out of real ones that llama.cpp's source carries.

The ids of a byte-level vocabulary decide the hash by which llama.cpp's converter tells what splits
its words, so that it knows a whole one only; a cut one keeps the pattern.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["CUTS", "Cut", "Vocabulary", "files", "of", "read", "record", "whole"]

RECORDED = Path(__file__).parents[1] / "architectures/recorded/vocabularies.json"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED = 1, 2, 3, 4
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEKKEN = GPT4O.replace(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "").replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _bytes(*, regex: bool) -> dict[str, Any]:
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": regex,
    }


DIGITS = {"type": "Digits", "individual_digits": True}
# What splits words before byte pairs are merged, by llama.cpp's name of it.
SPLITS: dict[str, list[dict[str, Any]]] = {
    "gpt-2": [_bytes(regex=True)],
    "llama-bpe": [_split(LLAMA3), _bytes(regex=False)],
    "qwen2": [_split(QWEN2), _bytes(regex=False)],
    "qwen35": [_split(QWEN35), _bytes(regex=False)],
    "gpt-4o": [_split(GPT4O), _bytes(regex=False)],
    "tekken": [_split(TEKKEN), _bytes(regex=False)],
    "starcoder": [DIGITS, _bytes(regex=True)],
    "command-r": [DIGITS, _bytes(regex=True)],
    "deepseek-v3": [
        _split(r"\p{N}{1,3}"),
        _split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"),
        _split(DEEPSEEK3),
        _bytes(regex=False),
    ],
    "glm4": [_split(LLAMA3), _bytes(regex=False)],
    "seed-coder": [_split(LLAMA3), _bytes(regex=False)],
    "dbrx": [_split(LLAMA3), _bytes(regex=False)],
    "lfm2": [_split(LLAMA3), _bytes(regex=False)],
    "smollm": [DIGITS, _bytes(regex=True)],
}
NFC = frozenset({"qwen2", "qwen35"})
IGNORE_MERGES = frozenset({"llama-bpe", "glm4", "tekken", "lfm2"})


@dataclass(frozen=True)
class Vocabulary:
    """What a GGUF file says of its tokenizer."""

    tokens: list[str]
    types: list[int]
    scores: list[float]
    merges: list[str]
    keys: dict[str, Any]


@dataclass(frozen=True)
class Cut:
    """A small tokenizer.

    Attributes
    ----------
    kind : str
        `bpe`, `spm`, `unigram`, `gemma4` or `wordpiece`.
    pre : str
        What splits words; llama.cpp's converter is told, for it cannot know.
    special : tuple of str
        Behind the others: the first is the beginning, the second the end, of `bpe`.
    add_bos : bool
    """

    kind: str
    pre: str = ""
    special: tuple[str, ...] = ("<|endoftext|>", "<|endoftext|>")
    add_bos: bool = False
    template: str = (
        "{% for m in messages %}{{ m['role'] + ': ' + m['content'] + '\\n' }}{% endfor %}"
    )


IM = ("<|endoftext|>", "<|im_end|>", "<|im_start|>")
CUTS: dict[str, Cut] = {
    "spm": Cut("spm", add_bos=True),
    "spm_gemma": Cut("spm", special=("<start_of_turn>", "<end_of_turn>"), add_bos=True),
    "spm_phi": Cut("spm", special=("<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>")),
    "bpe_gpt2": Cut("bpe", "gpt-2"),
    "bpe_llama3": Cut(
        "bpe",
        "llama-bpe",
        ("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>"),
        add_bos=True,
    ),
    "bpe_qwen2": Cut("bpe", "qwen2", IM),
    "bpe_qwen35": Cut("bpe", "qwen35", IM),
    "bpe_gpt4o": Cut(
        "bpe", "gpt-4o", ("<|startoftext|>", "<|return|>", "<|endoftext|>", "<|start|>", "<|end|>")
    ),
    "bpe_deepseek3": Cut(
        "bpe",
        "deepseek-v3",
        ("<\uff5cbegin▁of▁sentence\uff5c>", "<\uff5cend▁of▁sentence\uff5c>"),
        add_bos=True,
    ),
    "bpe_glm4": Cut(
        "bpe",
        "glm4",
        ("[gMASK]", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|observation|>", "<sop>"),
    ),
    "bpe_command_r": Cut(
        "bpe", "command-r", ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>"), add_bos=True
    ),
    "bpe_starcoder": Cut("bpe", "starcoder"),
    "bpe_seed": Cut("bpe", "seed-coder", ("<seed:bos>", "<seed:eos>", "<seed:pad>")),
    "bpe_dbrx": Cut("bpe", "dbrx", ("<|endoftext|>", "<|im_end|>", "<|pad|>")),
    "bpe_lfm2": Cut("bpe", "lfm2", ("<|startoftext|>", "<|im_end|>"), add_bos=True),
    "bpe_tekken": Cut("bpe", "tekken", ("<s>", "</s>", "[INST]", "[/INST]"), add_bos=True),
    "gemma4": Cut("gemma4", special=("<bos>", "<eos>"), add_bos=True),
    "wordpiece": Cut("wordpiece", "bert-bge", special=("[CLS]", "[SEP]")),
    "unigram": Cut("unigram"),
}


@cache
def read(path: Path) -> Vocabulary:
    """Read a `ggml-vocab-*.gguf`, by llama.cpp's own package."""
    import gguf

    fields = gguf.GGUFReader(path).fields
    keys = {name: field for name, field in fields.items() if name.startswith("tokenizer.")}

    def of(name: str) -> Any:
        field = keys.pop(f"tokenizer.ggml.{name}", None)
        return [] if field is None else field.contents()

    tokens, types, scores, merges = (of(n) for n in ("tokens", "token_type", "scores", "merges"))
    keys.pop("tokenizer.ggml.precompiled_charsmap", None)
    return Vocabulary(
        tokens, types, scores, merges, {name: field.contents() for name, field in keys.items()}
    )


def record(models: Path) -> None:
    """Cut the vocabularies out of llama.cpp's, and keep them beside the tests."""
    cuts = {
        "bpe": _cut_bytes(read(models / "ggml-vocab-gpt-2.gguf")),
        "spm": _cut_spm(read(models / "ggml-vocab-llama-spm.gguf")),
        "gemma4": _cut_gemma4(read(models / "ggml-vocab-gemma-4.gguf")),
        "wordpiece": _cut_wordpiece(read(models / "ggml-vocab-bert-bge.gguf")),
    }
    told = {kind: {**vars(found), "keys": {}} for kind, found in cuts.items()}
    lines = (f"{json.dumps(kind)}: {json.dumps(found)}" for kind, found in told.items())
    RECORDED.write_text("{" + ",\n".join(lines) + "}\n")


@cache
def recorded() -> dict[str, Vocabulary]:
    """Return what the small tokenizers are made of."""
    return {kind: Vocabulary(**found) for kind, found in json.loads(RECORDED.read_text()).items()}


def files(cut: Cut) -> dict[str, str | bytes]:
    """Return the files of a small tokenizer."""
    if cut.kind == "unigram":
        return _unigram_files(recorded()["spm"])
    found = recorded()[cut.kind]
    if cut.kind == "spm":
        return _small_spm(cut, found)
    if cut.kind == "gemma4":
        return _gemma4_files(cut, found)
    if cut.kind == "wordpiece":
        return _wordpiece_files(found.tokens)
    special = list(dict.fromkeys(cut.special))
    n = 512 - len(special)
    tokens = [*found.tokens[:n], *special]
    named = {"bos_token": cut.special[0], "eos_token": cut.special[1]}
    return byte_level(
        cut.pre, tokens, found.merges[: n - 256], special, named, cut.add_bos, cut.template
    )


def of(name: str) -> dict[str, str | bytes]:
    """Return the files of a small tokenizer, or of a whole one, `whole:llama-bpe`."""
    kind, _, real = name.partition("whole:")
    if not real:
        return files(CUTS[kind])
    import ggml_c

    return whole(real, ggml_c.llama_cpp() / "models")


def whole(name: str, models: Path) -> dict[str, str | bytes]:
    """Return the files of a real tokenizer, `llama-bpe`, `llama-spm` and so on."""
    real = read(models / f"ggml-vocab-{name}.gguf")
    template = real.keys.get("tokenizer.chat_template")
    ids = {
        f"{part}_token": real.tokens[real.keys[key]]
        for part, word in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (key := f"tokenizer.ggml.{word}_token_id") in real.keys
    }
    if real.keys["tokenizer.ggml.model"] == "llama":
        return _spm_files(real, ids, template)
    special = [t for t, kind in zip(real.tokens, real.types, strict=True) if kind == CONTROL]
    pre = real.keys["tokenizer.ggml.pre"]
    add_bos = bool(real.keys.get("tokenizer.ggml.add_bos_token", pre == "llama-bpe"))
    return byte_level(pre, real.tokens, real.merges, special, ids, add_bos, template)


# --- byte-level byte pairs ------------------------------------------------------------------------


def _cut_bytes(real: Vocabulary) -> Vocabulary:
    """Return the bytes and the first merges."""
    return Vocabulary(real.tokens[:512], [], [], real.merges[:256], {})


def byte_level(
    pre: str,
    tokens: Sequence[str],
    merges: Sequence[str],
    special: Sequence[str],
    named: dict[str, str],
    add_bos: bool,
    template: str | None,
) -> dict[str, str | bytes]:
    """Return tokenizer.json and tokenizer_config.json."""
    added = set(special)
    ids = {token: i for i, token in enumerate(tokens)}
    begin = named["bos_token"]
    found = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(ids[token], token) for token in special],
        "normalizer": {"type": "NFC"} if pre in NFC else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": SPLITS[pre]},
        "post_processor": _begin(begin, ids[begin]) if add_bos else _bytes(regex=False),
        "decoder": _bytes(regex=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre in IGNORE_MERGES,
            "vocab": {token: i for token, i in ids.items() if token not in added},
            "merges": [merge.split(" ") for merge in merges],
        },
    }
    config = _tokenizer_config(named, special, ids, template)
    return {
        "tokenizer.json": json.dumps(found, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False),
    }


def _added(i: int, token: str) -> dict[str, Any]:
    sides = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": i, "content": token, **sides, "special": True}


def _begin(token: str, i: int) -> dict[str, Any]:
    one, first = ({"Sequence": {"id": side, "type_id": n}} for n, side in enumerate("AB"))
    start = {"SpecialToken": {"id": token, "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [start, one],
        "pair": [start, one, start, first],
        "special_tokens": {token: {"id": token, "ids": [i], "tokens": [token]}},
    }


def _tokenizer_config(
    named: dict[str, str], special: Sequence[str], ids: dict[str, int], template: str | None
) -> dict[str, Any]:
    added = {str(ids[t]): {k: v for k, v in _added(0, t).items() if k != "id"} for t in special}
    config = {
        "added_tokens_decoder": added,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 2048,
        **named,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    return config if template is None else {**config, "chat_template": template}


# --- SentencePiece --------------------------------------------------------------------------------


def _cut_spm(real: Vocabulary) -> Vocabulary:
    """Return the special and the byte pieces, the letters of ASCII, and the first merges."""
    letters = list(_letters(real, 259))
    kept = [*range(512 - len(letters)), *letters]
    tokens, types, scores = (
        [part[i] for i in kept] for part in (real.tokens, real.types, real.scores)
    )
    return Vocabulary(tokens, types, scores, [], {})


def _small_spm(cut: Cut, found: Vocabulary) -> dict[str, str | bytes]:
    """Return what is cut; special ones, if told, take the place of some merges."""
    special = () if cut.special[0] == cut.special[1] else cut.special
    kept = [i for i in range(512) if not 259 <= i < 259 + len(special)]
    tokens = [*(found.tokens[i] for i in kept), *special]
    types = [*(found.types[i] for i in kept), *(CONTROL for _ in special)]
    scores = [*(found.scores[i] for i in kept), *(0.0 for _ in special)]
    named = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    made = Vocabulary(tokens, types, scores, [], {"add_bos": cut.add_bos})
    return _spm_files(made, named, cut.template if cut.add_bos else None)


def _spm_files(
    found: Vocabulary, named: dict[str, str], template: str | None
) -> dict[str, str | bytes]:
    ids = {token: i for i, token in enumerate(found.tokens)}
    special = [t for t, kind in zip(found.tokens, found.types, strict=True) if kind == CONTROL]
    config = _tokenizer_config(named, special, ids, template)
    config["add_bos_token"] = bool(found.keys.get("add_bos", True))
    config["add_eos_token"] = False
    config["tokenizer_class"] = "LlamaTokenizer"
    return {
        "tokenizer.model": _spm_model(found),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False),
    }


def _spm_model(found: Vocabulary) -> bytes:
    """Return SentencePiece's ModelProto: pieces, how it was trained, how texts are normalised."""
    types = [UNKNOWN, *found.types[1:]]  # in GGUF it may be a special one
    trainer = _int(3, 2) + _int(4, len(found.tokens)) + _int(35, 1) + _int(40, 0) + _int(41, 1)
    return _model_bytes(replace(found, types=types), trainer + _int(42, 2))


def _unigram_files(found: Vocabulary) -> dict[str, str | bytes]:
    """Return the model of a vocabulary like T5's, of the pieces that are no bytes."""
    own = {"<pad>": CONTROL, "</s>": CONTROL, "<unk>": UNKNOWN}
    texts = [t for t, kind in zip(found.tokens, found.types, strict=True) if kind == NORMAL]
    scores = [0.0] * len(own) + [-2.0 - i / 8 for i in range(len(texts))]
    types = [*own.values(), *(NORMAL for _ in texts)]
    made = Vocabulary([*own, *texts], types, scores, [], {})
    ids = _int(40, 2) + _int(41, (1 << 64) - 1) + _int(42, 1) + _int(43, 0)
    return {"spiece.model": _model_bytes(made, _int(3, 1) + _int(4, len(types)) + ids)}


def _model_bytes(found: Vocabulary, trainer: bytes) -> bytes:
    pieces = zip(found.tokens, found.scores, found.types, strict=True)
    body = b"".join(
        _bytes_field(
            1,
            _bytes_field(1, token.encode()) + b"\x15" + struct.pack("<f", score) + _int(3, kind),
        )
        for token, score, kind in pieces
        if not token.startswith("[PAD")  # behind the vocabulary
    )
    normalizer = _bytes_field(1, b"identity") + _int(3, 1) + _int(4, 0) + _int(5, 1)
    return body + _bytes_field(2, trainer) + _bytes_field(3, normalizer)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _int(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes_field(field: int, raw: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(raw)) + raw


# --- Gemma 4 and BERT -----------------------------------------------------------------------------


def _cut_gemma4(real: Vocabulary) -> Vocabulary:
    """Return the special tokens, the bytes, the letters of ASCII and the first merges."""
    letters = list(_letters(real, 900))
    kept = [*range(1024 - len(letters)), *letters]
    tokens, types = ([part[i] for i in kept] for part in (real.tokens, real.types))
    known = set(tokens)
    merges = []
    for merge in real.merges:
        first, second = merge.split(" ", 1)
        whole = first + second
        if first in known and second in known and whole in known and len(whole.strip("\n▁\t")):
            merges.append(merge)
    return Vocabulary(tokens, types, [], merges, {})


def _gemma4_files(cut: Cut, made: Vocabulary) -> dict[str, str | bytes]:
    ids = {token: i for i, token in enumerate(made.tokens)}
    typed = list(zip(made.tokens, made.types, strict=True))
    special = [token for token, kind in typed if kind == CONTROL]
    added = [token for token, kind in typed if kind in (CONTROL, USER_DEFINED)]
    found = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**_added(ids[t], t), "special": t in special} for t in added],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": _begin("<bos>", ids["<bos>"]),
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": ids,
            "merges": [merge.split(" ", 1) for merge in made.merges],
        },
    }
    named = {"bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>", "pad_token": "<pad>"}
    config = _tokenizer_config(named, special, ids, cut.template)
    return {
        "tokenizer.json": json.dumps(found, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False),
    }


def _letters(real: Vocabulary, start: int) -> Iterator[int]:
    for i in range(start, len(real.tokens)):
        token = real.tokens[i]
        if len(token) == 1 and (token < "\x7f" or token == "▁"):
            yield i


def _cut_wordpiece(real: Vocabulary) -> Vocabulary:
    """Return words of BERT: GGUF writes the start of a word as ▁, BERT the middle as ##."""
    words = [
        t[1:] if t.startswith("▁") else t if t.startswith("[") else f"##{t}" for t in real.tokens
    ]
    letters = [w for w in words if len(w.removeprefix("##")) == 1 and w.removeprefix("##") < "\x7f"]
    longer = [w for w in words[1996:] if not w.startswith("[")]
    kept = list(dict.fromkeys([*BERT, *letters, *longer]))[:512]
    return Vocabulary(kept, [], [], [], {})


def _wordpiece_files(words: list[str]) -> dict[str, str | bytes]:
    special = BERT
    ids = {word: i for i, word in enumerate(words)}
    found = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added(ids[t], t) for t in special],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
            ],
            "pair": [
                {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
                {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
            ],
            "special_tokens": {
                t: {"id": t, "ids": [ids[t]], "tokens": [t]} for t in ("[CLS]", "[SEP]")
            },
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": ids,
        },
    }
    named = {f"{t[1:-1].lower()}_token": t for t in special}
    config = _tokenizer_config(named, special, ids, None)
    config["tokenizer_class"] = "BertTokenizer"
    config["do_lower_case"] = True
    return {
        "tokenizer.json": json.dumps(found, ensure_ascii=False),
        "tokenizer_config.json": json.dumps(config, indent=2, ensure_ascii=False),
        "vocab.txt": "\n".join(words) + "\n",
    }
