"""What other tools and papers call a target, where that can be one thing only."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Any, TypeAlias

from anamnesis.base.arguments import word
from anamnesis.base.dtypes import DTYPE_WORDS, DTypeLike, dtype_name
from anamnesis.schemes.core.encoding import Encoding

# A target or an encoding: by a name, gguf-py's member of an enum, or any library's dtype.
Named: TypeAlias = "str | Encoding | Enum | DTypeLike"

# With `-` between words, whatever stands there.
_WORDS = {
    "fp8-fine-grained": "fp8-block",
    "fp8-per-channel": "fp8-channel",
    "fp8-per-tensor": "fp8-tensor",
    "fp8-dynamic": "fp8-channel",  # llm-compressor
    "w4a16": "int4",
    "w4a16-asym": "int4-asym",
    "w8a8-int8": "int8",
    "nf4": "bnb-nf4",
    "bnb-8bit": "bnb-int8",
    "llm-int8": "bnb-int8",
    "gptq-int4": "gptq-4bit",
    "gptq-int8": "gptq-8bit",
    "awq": "awq-4bit",
    "awq-int4": "awq-4bit",
    **DTYPE_WORDS,
    "gguf-auto": "gguf",  # as llama.cpp's converter calls what a model is in
    "gguf-keep": "gguf",
    "pt": "torch",
    "pth": "torch",
    "pytorch": "torch",
    "q6": "gguf-q6_k",
    "q8": "gguf-q8_0",
}

# What several targets are meant by; without any separator.
_SEVERAL = {
    "fp8": ("fp8-block", "fp8-channel", "fp8-tensor", "comfy-fp8", "mxfp8"),
    "4bit": ("gguf-q4_k_m", "gptq-4bit", "awq-4bit", "bnb-nf4", "int4", "mlx-4bit"),
    "8bit": ("gguf-q8_0", "gptq-8bit", "bnb-int8", "int8", "fp8-block", "mlx-8bit"),
    "fp4": ("nvfp4", "mxfp4", "bnb-fp4"),
    "q2": ("gguf-q2_k", "gguf-q2_k_s"),
    "q3": ("gguf-q3_k_m", "gguf-q3_k_s", "gguf-q3_k_l"),
    "q4": ("gguf-q4_k_m", "gguf-q4_k_s", "gguf-q4_0"),
    "q5": ("gguf-q5_k_m", "gguf-q5_k_s", "gguf-q5_0"),
    "gptq": ("gptq-4bit", "gptq-8bit"),
    "bnb": ("bnb-nf4", "bnb-int8", "bnb-fp4"),
    "bitsandbytes": ("bnb-nf4", "bnb-int8", "bnb-fp4"),
    "mlx": ("mlx-4bit", "mlx-8bit", "mlx-6bit"),
    "comfy": ("comfy-fp8", "comfy-nvfp4", "comfy-int8"),
    "comfyui": ("comfy-fp8", "comfy-nvfp4", "comfy-int8"),
    "modelopt": ("nvfp4-modelopt", "fp8-block-modelopt", "mxfp8-modelopt"),
}


def several(text: str) -> tuple[str, ...]:
    """Return the targets that a word may mean, if there are several."""
    return _SEVERAL.get(_bare(text.strip().lower()), ())


def worded(name: str, value: Any, of_gguf: str = "") -> str:
    """Return what a target or an encoding is called; `of_gguf` goes before gguf-py's names."""
    dtype = dtype_name(value)
    if dtype is not None:
        return dtype
    return of_gguf * isinstance(value, Enum) + word(name, value)


def spelt(text: str, known: Iterable[str]) -> str:
    """Return the name that a text spells differently; else the text in lower case."""
    lowered = text.strip().lower()
    names = {_folded(name): name for name in known}
    folded = _folded(lowered)
    whole = names.get(folded) or _WORDS.get(folded) or names.get(f"gguf-{folded}")
    if whole is None and folded and not folded.endswith("-"):  # q4km
        bare = {_bare(name): whole for name, whole in names.items()}
        whole = bare.get(_bare(folded)) or bare.get(f"gguf{_bare(folded)}")
    if whole is not None:
        return whole
    head, rest = folded, ""
    while "-" in head:  # settings stand behind a name, and a name behind a container
        head, _, last = head.rpartition("-")
        rest = f"{last}-{rest}".removesuffix("-")
        name = names.get(head) or _WORDS.get(head)
        if name is not None:
            return f"{name}-{spelt(rest, names.values())}"
    return lowered


def _bare(text: str) -> str:
    return _folded(text).replace("-", "")


def _folded(text: str) -> str:
    return text.replace("_", "-").replace(" ", "-")
