"""Tokenizer files built from a fuzzer's bytes; see structured.py."""

from __future__ import annotations

import json
from typing import Any

from structured import Choices

TEXTS = (
    *("a", "b", "ab", "\u2581", "\u2581a", "<s>", "</s>", "<unk>", "<0x0A>", "<0x41>", "[PAD0]"),
    *("", " ", "\n", "Ġ", "Ġa", "é", "<|x|>", "<unused1>", "##a", "[CLS]", "[SEP]", "\ud800"),
    *("aaaa" * 40, "<mask>", "\u4e00"),
)
IDS: tuple[Any, ...] = (*range(12), 300, -1, 2**31, 2**32, 2**70, "7", "x", None, 1.5, True, [1])
SIZES: tuple[Any, ...] = (None, 0, 1, 8, 12, 20, 64, 32_016, 49_152, 10**7, 2**63, "9", True, -1)
FLAGS: tuple[Any, ...] = (True, False, None, 1)
MODELS = ("BPE", "BPE", "BPE", "WordPiece", "Unigram", "WordLevel", 7)
SPECIAL = {"content": "<x>", "special": True}
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
STEPS: tuple[Any, ...] = (
    *({"type": "ByteLevel"}, {"type": "ByteLevel", "use_regex": False}, {"type": "NFC"}),
    {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False},
    {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Isolated", "invert": False},
    *({"type": "Digits", "individual_digits": True}, {"type": "Lowercase"}, {"type": "Fuse"}),
    {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"},
    {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
    *({"type": "ByteFallback"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}),
    *({"type": "BertNormalizer", "lowercase": True, "strip_accents": None}, {"type": 7}, [], 1),
    *({"type": "Metaspace", "replacement": "\u2581"}, {"type": "Prepend", "prepend": "\u2581"}),
    *({"type": "Precompiled", "precompiled_charsmap": "AAAA"}, {"type": "WordPiece"}),
)
CONFIG_KEYS = (
    *("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"),
    *("image_token", "eot_token"),
)


def model_file(choices: Choices) -> bytes:
    """Return a tokenizer.model that is valid but for lies and odd numbers."""
    out = b""
    for _ in range(choices.below(12)):
        text = choices.pick(TEXTS).encode("utf-8", "surrogatepass")
        piece = _bytes(1, text, choices)
        if choices.below(8) != 7:
            piece += b"\x15" + choices.pick((b"\0\0\x80\xbf", b"\0\0\xc0\x7f", b"\0\0\0\0"))
        if choices.below(2):
            piece += b"\x18" + bytes([choices.below(8)])
        out += _bytes(1, piece, choices)
    if choices.below(2):
        out += _bytes(2, b"\x18" + bytes([choices.below(4)]), choices)
    if choices.below(2):
        out += _bytes(3, _bytes(2, choices.some(9), choices) + b"\x18\0\x20\1", choices)
    return out[: len(out) - choices.pick((0, 0, 0, 0, 0, 0, 1, 3))]


def _bytes(field: int, value: bytes, choices: Choices) -> bytes:
    length = max(0, len(value) + choices.pick((*(0,) * 30, 1, -1)))
    low = [length & 0x7F | (0x80 if length > 0x7F else 0)] + [length >> 7] * (length > 0x7F)
    return bytes([field << 3 | 2, *low]) + value


def tokenizer_files(choices: Choices) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a directory by name, and config.json."""
    files: dict[str, bytes] = {}
    if choices.below(8) != 7:
        files["tokenizer.json"] = _json(_tokenizer(choices))
    if choices.below(4) != 3:
        files["tokenizer_config.json"] = _json(_config(choices))
    if choices.below(8) == 7:
        name = choices.pick(("tokenizer.model", "spiece.model", "sentencepiece.bpe.model"))
        files[name] = model_file(choices)
    if choices.below(8) == 7:
        files["vocab.json"] = _json(_vocab(choices))
        files["merges.txt"] = choices.pick((b"#v\na b\n", b"a b c\n\n", b"\xff", b"a b\r\nab a"))
    if choices.below(8) == 7:
        files["added_tokens.json"] = _json(_vocab(choices))
    if choices.below(8) == 7:
        files["special_tokens_map.json"] = _json({"bos_token": _token(choices)})
    if choices.below(8) == 7:
        files["chat_template.jinja"] = choices.pick((b"{{ a }}", b"\xff", b""))
    if choices.below(16) == 15 and files:
        name = choices.pick(sorted(files))
        files[name] = files[name][: choices.below(40)] + choices.some(4)
    ids = {f"{name}_token_id": choices.pick(IDS) for name in ("bos", "eos") if choices.below(2)}
    size = choices.pick(SIZES)
    config = ids | ({} if size is None else {"vocab_size": size})
    return files, {"text_config": config} if choices.below(8) == 7 else config


def _json(told: Any) -> bytes:
    return json.dumps(told).encode()


def _vocab(choices: Choices) -> Any:
    if choices.below(16) == 15:
        return choices.pick((None, [], 1, {"a": "b"}, {"a": -1}, {"a": 2**40}))
    ordered = choices.below(4) != 3
    picked = [choices.pick(TEXTS) for _ in range(choices.below(16))]
    return {
        text: i if ordered else choices.pick(IDS) for i, text in enumerate(dict.fromkeys(picked))
    }


def _token(choices: Choices) -> Any:
    text = choices.pick(TEXTS)
    return choices.pick((text, {"content": text}, {"content": 1}, None, 7))


def _steps(choices: Choices, key: str) -> Any:
    if choices.below(3):
        return choices.pick((*STEPS, None))
    return {"type": "Sequence", key: [choices.pick(STEPS) for _ in range(choices.below(40))]}


def _tokenizer(choices: Choices) -> dict[str, Any]:
    kind = choices.pick(MODELS)
    model: dict[str, Any] = {"type": kind, "vocab": _vocab(choices)}
    if kind == "Unigram":
        model["vocab"] = [[choices.pick(TEXTS), choices.pick((0.0, -1, None, 1e39))] for _ in "abc"]
        model["unk_id"] = choices.pick(IDS)
    texts = [choices.pick(TEXTS) for _ in range(2 * choices.below(8))]
    pairs = list(zip(texts[::2], texts[1::2], strict=True))
    model["merges"] = choices.pick((pairs, [" ".join(p) for p in pairs], [[1]], "a", None))
    model |= {"byte_fallback": choices.pick(FLAGS), "ignore_merges": choices.pick(FLAGS)}
    added = [
        {
            "id": choices.pick(IDS) if choices.below(8) == 7 else i,
            "content": choices.pick(TEXTS),
            "special": choices.pick(FLAGS),
            "normalized": choices.pick(FLAGS),
        }
        for i in range(choices.below(6))
    ]
    return {
        "added_tokens": choices.pick((added, added, added, None, {}, [1])),
        "normalizer": _steps(choices, "normalizers"),
        "pre_tokenizer": _steps(choices, "pretokenizers"),
        "post_processor": _post_processor(choices),
        "decoder": _steps(choices, "decoders"),
        "model": model if choices.below(16) != 15 else choices.pick((None, [], "BPE")),
    }


def _post_processor(choices: Choices) -> Any:
    if choices.below(4) == 0:
        return choices.pick((None, 1, {"type": "RobertaProcessing", "cls": [], "sep": ["</s>", 2]}))
    return {
        "type": choices.pick(("TemplateProcessing", "ByteLevel")),
        "single": [_place(choices) for _ in range(choices.below(4))],
        "pair": [_place(choices) for _ in range(choices.below(7))],
    }


def _place(choices: Choices) -> Any:
    text = choices.pick(("<s>", "</s>", "[SEP]", 7))
    name = choices.pick(("A", "B"))
    return choices.pick(({"SpecialToken": {"id": text}}, {"Sequence": {"id": name}}, {}, 1))


def _config(choices: Choices) -> dict[str, Any]:
    told: dict[str, Any] = {key: _token(choices) for key in CONFIG_KEYS if choices.below(3) == 2}
    told |= {f"add_{n}_token": choices.pick(FLAGS) for n in ("bos", "eos") if choices.below(3) == 2}
    if choices.below(4) == 3:
        told["added_tokens_decoder"] = {
            str(choices.pick(IDS)): choices.pick(
                (_token(choices), {"content": "<x>", "special": True})
            )
            for _ in range(choices.below(5))
        }
    if choices.below(4) == 3:
        told["chat_template"] = choices.pick(
            ("{{a}}", [{"name": "a b", "template": "t"}, {"name": "default", "template": ""}], 1)
        )
    if choices.below(8) == 7:
        told["additional_special_tokens"] = choices.pick((["<x>", 1], {"a": "<y>"}, "a", 5))
    if choices.below(8) == 7:
        told["tokenizer_class"] = choices.pick(("GPT2Tokenizer", "LlamaTokenizer", 1, [1]))
    return told
