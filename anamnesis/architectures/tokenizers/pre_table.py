"""Pre-tokenizers that llama.cpp knows, and how each of them splits a text.

A step is what tokenizer.json calls a pre-tokenizer: `("split", regex)` cuts out what matches, each
match a piece of its own; `("digits",)` each digit, `("punctuation",)` runs of punctuation;
`("words",)` is the splitting that `ByteLevel` does by itself, which is GPT-2's. Regexes are brought
into one spelling to be compared.
"""

# ruff: noqa: RUF001  - letters that look like others are what is meant

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

_ATOM = re.compile(
    r"\\(?:x\{(?P<long>[0-9A-Fa-f]{1,6})\}|x(?P<two>[0-9A-Fa-f]{2})|u(?P<four>[0-9A-Fa-f]{4})"
    r"|(?P<of>[pP])\{(?P<name>[^}]*)\}|(?P<escaped>.))|(?P<plain>.)",
    re.DOTALL,
)
_COUNT = re.compile(r"\{(\d)(,?)(\d?)\}(?![?+])")
_COUNTS = {("1", "", ""): "", ("0", ",", ""): "*", ("1", ",", ""): "+", ("0", ",", "1"): "?"}
_CONTROLS = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}
_SPECIAL = frozenset(r"\.^$|?*+()[]{}")
_SPECIAL_IN_CLASS = frozenset(r"\^-[]&")
_CATEGORIES = {
    "letter": "l",
    "mark": "m",
    "number": "n",
    "punctuation": "p",
    "symbol": "s",
    "separator": "z",
    "other": "c",
    "uppercaseletter": "lu",
    "lowercaseletter": "ll",
    "titlecaseletter": "lt",
    "modifierletter": "lm",
    "otherletter": "lo",
    "decimalnumber": "nd",
    "spaceseparator": "zs",
}


@cache
def meaning(regex: str) -> str:
    """Return a regex with escapes as characters, and the members of classes in one order."""
    # Two that mean the same may still differ, but two that differ in meaning do not become equal.
    made, at = [], 0
    while at < len(regex):
        count = _COUNT.match(regex, at)
        if count is not None and count.groups() in _COUNTS:
            made.append(_COUNTS[count[1], count[2], count[3]])
            at = count.end()
        elif regex[at] == "[":
            end = _end_of_class(regex, at + 1)
            made.append(regex[at:] if end is None else _class(regex[at + 1 : end]))
            at = len(regex) if end is None else end + 1
        else:
            atom = _ATOM.match(regex, at)
            assert atom is not None
            made.append(_spelt(atom, _SPECIAL))
            at = atom.end()
    return "".join(made)


def _end_of_class(regex: str, at: int) -> int | None:
    """Return where a class ends; None of one that holds others, which stays as it is."""
    start = at
    while at < len(regex) and regex[at] != "[" and not regex.startswith("&&", at):
        if regex[at] == "]":
            return at if regex[start:at].strip("^") else None
        at += 2 if regex[at] == "\\" else 1
    return None


def _class(inside: str) -> str:
    begins = "[^" if inside.startswith("^") else "["
    return f"{begins}{''.join(sorted(set(_members(inside.removeprefix('^')))))}]"


def _members(inside: str) -> Iterator[str]:
    """Yield the members of a class: characters, categories, and ranges."""
    atoms = list(_ATOM.finditer(inside))
    spelt = [_spelt(atom, _SPECIAL_IN_CLASS) for atom in atoms]
    i = 0
    while i < len(atoms):
        if i + 2 < len(atoms) and atoms[i + 1][0] == "-":
            yield f"{spelt[i]}-{spelt[i + 2]}"
            i += 3
        else:
            yield "\\-" if atoms[i][0] == "-" else spelt[i]
            i += 1


def _spelt(atom: re.Match[str], special: frozenset[str]) -> str:
    """Return a character, escaped where it would be an operator; or what stands for several."""
    if atom["plain"] is not None:
        return atom["plain"]
    if atom["name"] is not None:
        return _category(atom["of"] == "P", atom["name"])
    escaped = atom["escaped"]
    if escaped is None:
        code = int(atom["long"] or atom["two"] or atom["four"], 16)
        char = chr(code) if code < 0x110000 else atom[0]
    elif escaped.isascii() and escaped.isalnum():
        char = _CONTROLS.get(escaped, atom[0])
    else:
        char = escaped
    return f"\\{char}" if char in special else char


def _category(is_not: bool, name: str) -> str:
    is_not ^= name.startswith("^")
    word = name.removeprefix("^").lower()
    for char in " _-":
        word = word.replace(char, "")
    return f"\\{'P' if is_not else 'p'}{{{_CATEGORIES.get(word, word)}}}"


Step = tuple[str, ...]


class Pattern(NamedTuple):
    """Names of pre-tokenizers that split alike; the first is written where only that is known."""

    names: tuple[str, ...]
    steps: tuple[Step, ...]
    ignore_merges: bool | None = None
    normalizer: str | None = None


def _named(names: str) -> tuple[str, ...]:
    return tuple(names.split())


def _split(*regexes: str) -> tuple[Step, ...]:
    return tuple(("split", regex) for regex in regexes)


_ENGLISH = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + _TAIL
_QWEN2 = _ENGLISH + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _TAIL
_QWEN35 = _ENGLISH + (
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = r"[^\r\n\p{L}\p{N}]?" + _UPPER
_SLASHES = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = f"{_CASED}*{_LOWER}+|{_CASED}+{_LOWER}*|" + r"\p{N}|" + _SLASHES
_GPT4O = f"{_CASED}*{_LOWER}+{_ENGLISH}?|{_CASED}+{_LOWER}*{_ENGLISH}?|" + r"\p{N}{1,3}|" + _SLASHES
_RUNS = ("512", "256", "128", "64", "32", "16", "8", "4", "1,2")
_JAIS2 = (
    _ENGLISH
    + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    + "".join(r"|\s{" + n + r"}(?!\S)" for n in _RUNS)
    + r"|\s{1}"
)
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
)
_SEED = _ENGLISH + (
    "|[^\r\n" + r"\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}" + "\r\n"
    r"]+|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+"
)
_EXAONE_MOE = _ENGLISH + (
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_UFAKZEKA = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + _TAIL
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_HAN_KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
_DEEPSEEK3 = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
_CJK = "[一-龥ࠀ-一가-\ud7ff]+"
# Letters of alphabets with two cases, as DeepSeek lists them.
_CASED_LETTERS = (
    "µÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯ"
    "ꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_DEEPSEEK_LLM = (
    *_split("[\r\n]", r"\s?[A-Za-z" + _CASED_LETTERS + "]+"),
    *_split(r"\s?[!-/:-~" + "！-／：-～‘-‟\u3000-。]+", r"\s+$", _CJK),
)

WORDS: Step = ("words",)
DIGITS: Step = ("digits",)

PATTERNS = (
    Pattern(
        _named("llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano llama3 llama-v3"),
        _split(_LLAMA3),
        ignore_merges=True,
    ),
    Pattern(_named("glm4 chatglm-bpe glm5"), _split(_LLAMA3), ignore_merges=True),
    Pattern(_named("smaug-bpe dbrx"), _split(_LLAMA3)),
    Pattern(
        _named("qwen2 stablelm2 hunyuan solar-open deepseek-r1-qwen kormo f2llmv2 megrez grok-2"),
        _split(_QWEN2),
    ),
    Pattern(("qwen35",), _split(_QWEN35)),
    Pattern(("minicpm5",), _split(r"\p{N}{1,3}", _LLAMA3.replace("{1,3}", "+"))),
    Pattern(
        _named("deepseek-v3 hunyuan-dense joyai-llm hy_v4"),
        _split(r"\p{N}{1,3}", _HAN_KANA, _DEEPSEEK3),
    ),
    Pattern(("deepseek-llm",), (*_DEEPSEEK_LLM, DIGITS)),
    Pattern(("deepseek-coder",), (*_split("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK), DIGITS)),
    Pattern(_named("gpt-4o llama4 kanana2 talkie minimax-m2"), _split(_GPT4O)),
    Pattern(("tekken",), _split(_TEKKEN)),
    Pattern(("jais-2",), _split(_JAIS2)),
    Pattern(_named("bailingmoe bailingmoe2 llada-moe"), _split(_BAILING)),
    Pattern(("seed-coder",), _split(_SEED)),
    Pattern(("exaone-moe",), _split(_EXAONE_MOE)),
    Pattern(("ufakzeka",), _split(_UFAKZEKA)),
    Pattern(_named("bloom poro-chat gpt3-finnish"), _split(_BLOOM)),
    Pattern(("viking",), (*_split(_BLOOM), DIGITS)),
    Pattern(("falcon",), (("punctuation",), WORDS, *_split("[0-9][0-9][0-9]"))),
    Pattern(("command-r",), (DIGITS, WORDS), normalizer="NFC"),
    Pattern(
        _named("starcoder refact smollm codeshell exaone minerva-7b mellum2 command-r"),
        (DIGITS, WORDS),
    ),
    Pattern(
        _named(
            "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum "
            "modern-bert jina-v1-en jina-v2-code roberta-bpe exaone4 mpt olmo jais trillion "
            "granite-docling"
        ),
        (WORDS,),
    ),
)


# What other steps are as regexes.
_AS_REGEXES = {
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+": WORDS,
    r"\p{N}": DIGITS,
}


@cache
def steps_by_regex() -> dict[str, Step]:
    """Return the steps that known tokenizers have, by the meaning of their regexes."""
    splits = {step[1]: step for row in PATTERNS for step in row.steps if step[0] == "split"}
    return {meaning(regex): step for regex, step in {**splits, **_AS_REGEXES}.items()}
