"""Small directories of tokenizer files, of each kind, with what real ones have beside."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["DIRECTORIES", "Directory", "byte_letters", "model_file", "shown", "write"]

Files = Mapping[str, Any]
_LONG = 1000


class Directory(NamedTuple):
    """Files by name (bytes, text, or what is written as JSON), and how they are read."""

    kind: str
    files: Files
    config: Mapping[str, Any] = {}
    options: Mapping[str, Any] = {}
    reference: str = ""  # as which kind the reference reads them, where that is another


def write(directory: Directory, root: Path) -> None:
    """Write the files, config.json too."""
    for name, told in {**directory.files, "config.json": directory.config}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(told, bytes):
            path.write_bytes(told)
        else:
            text = told if isinstance(told, str) else json.dumps(told)
            path.write_text(text, encoding="utf-8")


def shown(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return keys with plain values; a digest in the place of a long array."""
    found = {}
    for key, value in keys.items():
        told = value.tolist() if hasattr(value, "tolist") else value
        if key == "tokenizer.chat_templates":
            told = sorted(told)  # the reference has them in any order
        if isinstance(told, list) and len(told) > _LONG:
            told = hashlib.sha256(json.dumps(told).encode()).hexdigest()
        found[key] = told
    return found


# --- sentencepiece ------------------------------------------------------------------------------

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)


def _field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _varint(rest) if rest else bytes([low])


def model_file(
    pieces: Iterable[tuple[str, float, int]], *, model_type: int = 2, charsmap: bytes = b""
) -> bytes:
    """Return a tokenizer.model."""
    out = b""
    for text, score, kind in pieces:
        piece = _field(1, text.encode()) + b"\x15" + struct.pack("<f", score)
        out += _field(1, piece + (b"" if kind == NORMAL else _field(3, kind)))
    normalizer = _field(2, charsmap) if charsmap else b""
    trainer = _field(3, model_type) + (_field(35, 1) if model_type == 2 else b"")
    return out + _field(2, trainer) + _field(3, normalizer + _field(3, 1) + _field(4, 0))


BYTES = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]
WORDS = ("\u2581a", "\u2581b", "ab", "\u2581ab", "abc", "\u2581abc")
LETTERS = ("\u2581", "a", "b", "c", "d")
FIRST = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
PIECES = [
    *FIRST,
    *BYTES,
    *((text, -float(i), NORMAL) for i, text in enumerate(WORDS)),
    ("\n\n", -7.0, USER),
    ("<unused0>", -8.0, USER),
    ("nothing", -9.5, UNUSED),
    *((text, -100.25 - i, NORMAL) for i, text in enumerate(LETTERS)),
]
N = len(PIECES)


def token(text: str, **flags: bool) -> dict[str, Any]:
    """Return an added token as JSON."""
    names = ("lstrip", "normalized", "rstrip", "single_word", "special")
    return {"content": text, **dict.fromkeys(names, False), **flags}


SPM = {"tokenizer.model": model_file(PIECES)}
SPM_CONFIG = {
    "tokenizer_class": "LlamaTokenizer",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "add_bos_token": True,
    "add_eos_token": False,
    "added_tokens_decoder": {
        "0": token("<unk>", special=True),
        str(N - 5): token("<|im_end|>"),
        str(N - 4): token("\u2581\u2581"),
        str(N + 900): token("<beyond>"),
    },
    "chat_template": "{{ messages }}",
}

# --- byte pairs ---------------------------------------------------------------------------------


def byte_letters() -> list[str]:
    """Return GPT-2's letters of all bytes, those that print first."""
    prints = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = range(256 - len(prints))
    return [chr(byte) for byte in prints] + [chr(256 + i) for i in others]


MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or"]
VOCAB = {text: i for i, text in enumerate([*byte_letters(), *(m.replace(" ", "") for m in MERGES)])}
BPE: dict[str, Any] = {"type": "BPE", "vocab": VOCAB, "merges": MERGES}
M = len(VOCAB)
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


def fast(added: Iterable[tuple[int, dict[str, Any]]] = (), **parts: Any) -> dict[str, Any]:
    """Return a tokenizer.json of byte pairs."""
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, **told} for i, told in added],
        "normalizer": None,
        "pre_tokenizer": LEVEL,
        "post_processor": None,
        "decoder": LEVEL,
        "model": BPE,
        **parts,
    }


def special_at(text: str, type_id: int = 0) -> dict[str, Any]:
    return {"SpecialToken": {"id": text, "type_id": type_id}}


def text_at(name: str, type_id: int = 0) -> dict[str, Any]:
    return {"Sequence": {"id": name, "type_id": type_id}}


def template(single: list[Any], pair: list[Any] | None = None, **ids: int) -> dict[str, Any]:
    """Return a post-processor; `ids` are those of BOS, EOS and SEP by their texts."""
    texts = {"bos": "<|bos|>", "eos": "<|eos|>", "end": "<|end|>"}
    told = {
        texts[name]: {"id": texts[name], "ids": [i], "tokens": [texts[name]]}
        for name, i in ids.items()
    }
    whole = pair or [*single, text_at("B", 1)]
    return {"type": "TemplateProcessing", "single": single, "pair": whole, "special_tokens": told}


NAMES = ("bos", "eos", "end")
BOS, EOS, END = ((M + i, token(f"<|{name}|>", special=True)) for i, name in enumerate(NAMES))
ADDED = [BOS, EOS, END]
TOLD = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<|bos|>",
    "eos_token": "<|eos|>",
}
GPT2 = {"pre": "gpt-2"}
ODD = [
    (M + 3, token("éé", special=False)),
    (M + 4, token("Ġx", special=False)),
    (M + 5, token("\u2581y", special=False, normalized=True)),
    (M + 6, token("<|looks|>", special=False)),
    (M + 7, token("<\uff5cso\uff5c>", special=False)),
]
TEMPLATES = [
    {"name": "default", "template": "{{ a }}"},
    {"name": "tool use", "template": "{{ b }}"},
    {"name": "rag", "template": "{{ c }}"},
]
BERT_VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "##a", "##b", "ab", "."]
UNIGRAM = [
    ["<s>", 0.0],
    ["<pad>", 0.0],
    ["</s>", 0.0],
    ["<unk>", 0.0],
    ["\u2581a", -1.5],
    ["b", -2],
]
FALLBACK: dict[str, Any] = {
    "type": "BPE",
    "byte_fallback": True,
    "fuse_unk": True,
    "unk_token": "<unk>",
    "vocab": {text: i for i, (text, _, _) in enumerate(PIECES)},
    "merges": ["\u2581 a", "\u2581 b", "a b", "\u2581a b", "ab c", "\u2581ab c"],
}
SEQUENCE = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
FALLBACK_ADDED = [
    (0, token("<unk>", special=True)),
    (1, token("<s>", special=True)),
    (2, token("</s>", special=True)),
    (N, token("<extra>", special=False)),
]

DIRECTORIES: Mapping[str, Directory] = {
    # sentencepiece
    "spm": Directory("llama", SPM),
    "spm-config": Directory(
        "llama",
        {**SPM, "tokenizer_config.json": SPM_CONFIG, "added_tokens.json": {"<y>": N + 1}},
        {"vocab_size": N + 4, "bos_token_id": 1, "eos_token_id": [2, 3], "pad_token_id": N + 400},
    ),
    "spm-short": Directory("llama", SPM, {"vocab_size": N - 3}),
    "spm-prefix": Directory(
        "llama", {**SPM, "tokenizer_config.json": {"add_prefix_space": False, "legacy": True}}
    ),
    "code-llama": Directory("llama", SPM, {"vocab_size": 32_016}),
    "qwen-spm": Directory("qwen", SPM, {"vocab_size": N}),
    "gemma1": Directory("gemma1", SPM, {"vocab_size": N}),
    "gemma3": Directory(
        "spm", {**SPM, "tokenizer_config.json": SPM_CONFIG}, {"text_config": {"vocab_size": N + 2}}
    ),
    "phi3": Directory(
        "phi3",
        {
            **SPM,
            "tokenizer_config.json": {
                **SPM_CONFIG,
                "added_tokens_decoder": {str(N - 5): token("<|im_end|>")},
            },
            "tokenizer.json": fast([(N, token("<|z|>", special=True)), (N + 1, token("q"))]),
        },
        {"vocab_size": N + 8},
    ),
    # byte pairs
    "bpe": Directory("gpt2", {"tokenizer.json": fast()}, options=GPT2),
    "bpe-added": Directory(
        "gpt2",
        {"tokenizer.json": fast([*ADDED, *ODD]), "tokenizer_config.json": TOLD},
        {"vocab_size": M + 20, "pad_token_id": M + 2},
        GPT2,
    ),
    "bpe-template": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(
                ADDED,
                post_processor=template([special_at("<|bos|>"), text_at("A")], bos=M),
            ),
            "tokenizer_config.json": TOLD,
        },
        {"vocab_size": M + 3},
        GPT2,
    ),
    "bpe-other-end": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(
                ADDED,
                post_processor=template(
                    [special_at("<|bos|>"), text_at("A"), special_at("<|end|>")],
                    [
                        *(special_at("<|bos|>"), text_at("A"), special_at("<|end|>")),
                        *(text_at("B", 1), special_at("<|end|>", 1)),
                    ],
                    bos=M,
                    end=M + 2,
                ),
            ),
            "tokenizer_config.json": TOLD,
        },
        {"vocab_size": M + 3},
        GPT2,
    ),
    "bpe-sep": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(
                ADDED,
                post_processor=template(
                    [text_at("A")],
                    [text_at("A"), special_at("<|eos|>"), special_at("<|eos|>"), text_at("B", 1)],
                    eos=M + 1,
                ),
            ),
            "tokenizer_config.json": TOLD,
        },
        {"vocab_size": M + 3},
        GPT2,
    ),
    "bpe-roberta": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(
                ADDED,
                post_processor={
                    "type": "RobertaProcessing",
                    "sep": ["<|eos|>", M + 1],
                    "cls": ["<|bos|>", M],
                    "trim_offsets": True,
                    "add_prefix_space": False,
                },
            ),
            "tokenizer_config.json": TOLD,
        },
        {"vocab_size": M + 3},
        GPT2,
    ),
    "bpe-level": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(ADDED, post_processor=LEVEL),
            "tokenizer_config.json": {**TOLD, "chat_template": TEMPLATES},
        },
        {"vocab_size": M + 3, "text_config": {"eos_token_id": M + 1}},
        GPT2,
    ),
    "bpe-pairs": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(
                ADDED,
                model={**BPE, "merges": [m.split(" ") for m in MERGES]},
                normalizer={
                    "type": "Sequence",
                    "normalizers": [{"type": "Lowercase"}, {"type": "StripAccents"}],
                },
            ),
            "tokenizer_config.json": TOLD,
            "chat_template.jinja": "{{ one }}\r\n{{ two }}",
        },
        {"vocab_size": M + 3},
        GPT2,
    ),
    "bpe-templates": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(ADDED),
            "tokenizer_config.json": TOLD,
            "chat_template.jinja": "{{ one }}",
            "additional_chat_templates/tools.jinja": "{{ two }}",
        },
        {"vocab_size": M + 3},
        GPT2,
    ),
    "bpe-template-json": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(ADDED),
            "tokenizer_config.json": TOLD,
            "chat_template.json": {"chat_template": "{{ one }}"},
        },
        {"vocab_size": M + 3},
        GPT2,
    ),
    "granite": Directory("llama", {"tokenizer.json": fast()}, {"vocab_size": 49_152}, GPT2),
    "glm4": Directory(
        "gpt2",
        {
            "tokenizer.json": fast(
                [
                    (M, token("<|endoftext|>", special=True)),
                    (M + 1, token("[gMASK]", special=True)),
                    (M + 2, token("<|user|>", special=True)),
                ]
            ),
            "tokenizer_config.json": {"tokenizer_class": "PreTrainedTokenizerFast"},
        },
        {"vocab_size": M + 4, "eos_token_id": [M, M + 2], "pad_token_id": M},
        {
            **GPT2,
            "fallbacks": {
                "eos": "<|endoftext|>",
                "eot": "<|user|>",
                "unk": "<|endoftext|>",
                "bos": "<|endoftext|>",
            },
        },
        "glm4",
    ),
    # others
    "gemma4": Directory(
        "gemma4",
        {
            "tokenizer.json": fast(
                [*FALLBACK_ADDED[:3], (N, token("<|channel>", special=True))],
                model=FALLBACK,
                decoder=SEQUENCE,
                pre_tokenizer=None,
            ),
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "unk_token": "<unk>",
                "eoc_token": "<|channel>",
            },
        },
    ),
    "bert": Directory(
        "bert",
        {
            "tokenizer.json": fast(
                [(i, token(text, special=True)) for i, text in enumerate(BERT_VOCAB[:5])],
                model={
                    "type": "WordPiece",
                    "unk_token": "[UNK]",
                    "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": 100,
                    "vocab": {text: i for i, text in enumerate(BERT_VOCAB)},
                },
                normalizer={
                    "type": "BertNormalizer",
                    "clean_text": True,
                    "handle_chinese_chars": True,
                    "strip_accents": None,
                    "lowercase": True,
                },
                pre_tokenizer={"type": "BertPreTokenizer"},
                decoder={"type": "WordPiece", "prefix": "##", "cleanup": True},
            ),
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "cls_token": "[CLS]",
                "sep_token": "[SEP]",
                "unk_token": "[UNK]",
                "pad_token": "[PAD]",
                "mask_token": "[MASK]",
            },
        },
        {"vocab_size": 14, "type_vocab_size": 2},
        {"pre": "bert-bge"},
    ),
    "t5": Directory(
        "t5",
        {
            "spiece.model": model_file(
                [
                    *(("<pad>", 0.0, CONTROL), ("</s>", 0.0, CONTROL), ("<unk>", 0.0, UNKNOWN)),
                    *(("\u2581", -2.0, NORMAL), ("a", -3.5, NORMAL), ("\u2581a", -3.0, USER)),
                ],
                model_type=1,
            ),
            "added_tokens.json": {"<extra_id_0>": 7},
        },
        {"vocab_size": 9, "eos_token_id": 1, "pad_token_id": 0},
    ),
    "xlm-roberta": Directory(
        "unigram",
        {
            "sentencepiece.bpe.model": model_file(
                [*FIRST, *((text, -1.0 - i, NORMAL) for i, text in enumerate(LETTERS))],
                model_type=1,
            )
        },
        {"vocab_size": 12, "type_vocab_size": 1},
    ),
    "xlm-roberta-json": Directory(
        "unigram",
        {
            "tokenizer.json": fast(
                [(i, token(str(text), special=True)) for i, (text, _) in enumerate(UNIGRAM[:4])],
                model={"type": "Unigram", "unk_id": 3, "vocab": UNIGRAM},
                normalizer={
                    "type": "Precompiled",
                    "precompiled_charsmap": base64.b64encode(bytes(12)).decode(),
                },
                pre_tokenizer=None,
                decoder=None,
            ),
            "tokenizer_config.json": {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "unk_token": "<unk>",
                "pad_token": "<pad>",
                "add_prefix_space": True,
                "clean_up_tokenization_spaces": True,
            },
        },
        {"vocab_size": 8},
    ),
}
