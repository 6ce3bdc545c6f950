"""Encodings that are known, but not written, and the tools that write them."""

from __future__ import annotations

_OTHERS = {
    "exl2": "exllamav2",
    "exl3": "exllamav3",
    "hqq": "hqq",
    "aqlm": "aqlm",
    "vptq": "vptq",
    "quanto": "optimum-quanto",
    "torchao": "torchao",
    "mxfp6": "Quark",
}
_LAYOUTS = {
    "int8-packed-32": "int8 does",
    "fp8-tensor-modelopt": "fp8-tensor does, and its codes can be moved there",
    "fp8-tensor-mistral": "fp8-tensor does, and its codes can be moved there",
    "gguf-mxfp4": "gguf-mxfp4_moe does",
    "gguf-nvfp4": "mlx-nvfp4 does, and its codes can be moved there",
}


def absent(name: str) -> str | None:
    """Return why an encoding is not written; None if the name is unknown."""
    tool = next((who for word, who in _OTHERS.items() if name.lower().startswith(word)), None)
    return None if tool is None else f"amn does not quantise to {name} yet; {tool} does"


def who_quantises(layout: str) -> str:
    """Return the tool that quantises to a layout for moved codes only."""
    return absent(layout) or _LAYOUTS.get(layout, "use an encoding that does")
