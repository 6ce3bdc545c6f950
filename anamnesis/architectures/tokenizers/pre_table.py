"""Pre-tokenizers that llama.cpp knows, and how each of them splits a text.

A step is what tokenizer.json calls a pre-tokenizer: `("split", regex)` cuts out what matches, each
match a piece of its own; `("digits",)` each digit, `("punctuation",)` runs of punctuation;
`("words",)` is the splitting that `ByteLevel` does by itself, which is GPT-2's.
"""

# ruff: noqa: RUF001  - letters that look like others are what is meant

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from anamnesis.architectures.tokenizers.regexes import meaning

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
