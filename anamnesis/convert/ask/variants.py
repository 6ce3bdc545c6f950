"""Settings behind the name of an encoding: `int4-32`, `fp8-block-64x64-e5m2`, `bnb-nf4-128`.

They are those of the encodings' own ids: what plans and errors call an encoding is a name for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["settings_of"]

_NUMBER = re.compile(r"[0-9]{1,6}")
_BLOCK = re.compile(r"([1-9][0-9]{0,5})x([1-9][0-9]{0,5})")

# By the name of the class: what a number stands for, and what words do.
_NUMBERS = {
    "Int4": "group_size",
    "Affine": "group_size",
    "Gptq": "group_size",
    "Awq": "group_size",
    "FourBit": "block_size",
}
_WORDS: Mapping[str, Mapping[str, tuple[str, Any]]] = {
    "Fp8": {"e5m2": ("format", "E5M2"), "ue8m0": ("powers_of_two", True)},
    "Int4": {"channel": ("group_size", None), "asym": ("is_symmetric", False)},
    "FourBit": {"nested": ("is_nested", True), "zeros": ("has_second_zero", True)},
}


def settings_of(kind: str, told: str) -> dict[str, Any] | None:
    """Return what words behind a name say; None if they say nothing, or one thing twice.

    Parameters
    ----------
    kind : str
        The name of the encoding's class.
    told : str
        For instance `64x64-e5m2`.
    """
    settings: dict[str, Any] = {}
    for word in told.split("-"):
        block = _BLOCK.fullmatch(word)
        if word in _WORDS.get(kind, {}):
            name, value = _WORDS[kind][word]
        elif kind in _NUMBERS and _NUMBER.fullmatch(word):
            name, value = _NUMBERS[kind], int(word)
        elif kind == "Fp8" and block is not None:
            name, value = "block_size", (int(block[1]), int(block[2]))
        else:
            return None
        if name in settings:
            return None
        settings[name] = value
    return settings
