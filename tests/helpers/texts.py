"""Two hundred texts in ten scripts, with numbers, spaces, signs and code between the words."""

# ruff: noqa: RUF001  - letters that look like others are what is meant

from __future__ import annotations

import random

__all__ = ["TEXTS"]

_WORDS = (
    *("the", "quick", "Brown", "fox's", "isn't", "JUMPS", "over", "naïve", "café"),
    *("Привет", "мир", "ещё", "γειά", "σου", "κόσμε"),
    *("مرحبا", "بالعالم", "שלום", "עולם"),
    *("नमस्ते", "दुनिया", "สวัสดี", "ชาวโลก"),
    *("你好世界", "我在apple工作", "こんにちは", "カタカナ", "안녕하세요"),
    *("3", "33", "3333333", "1,234.5", "2026-11-25", "😶\u200d🌫️", "🚀", "✅", "½"),
    *("def f(x):", "return", "{}", "==", "->", "!!", "...", "#", "\\n", "<br/>", "a_b"),
)
_SPACES = (" ", " ", " ", " ", "  ", "", "\n", "\t", "\n\n", "   ")


def _texts() -> list[str]:
    drawn = random.Random(27)
    found = []
    for _ in range(200):
        words = drawn.choices(_WORDS, k=drawn.randint(1, 12))
        found.append("".join(word + drawn.choice(_SPACES) for word in words))
    return found


TEXTS = _texts()
