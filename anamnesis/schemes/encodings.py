"""The encodings that can be asked for, by name.

Each is a kind, whose codes and layout stand in the folder of its family, with settings. More
settings may stand behind a name: `int4-32`, `fp8-block-64x64-e5m2`. A kind is imported when it is
asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.encoding_names import Kind, parsed


class Row(NamedTuple):
    """An encoding by its name."""

    kind: Callable[[], Kind]
    settings: Mapping[str, Any] = MappingProxyType({})
    container: str = "safetensors"
    takes: str = ""


def _fp8() -> Kind:
    from anamnesis.schemes.fp8.layouts import SETTINGS, encoding

    return Kind(encoding, SETTINGS)


def _mxfp8() -> Kind:
    from anamnesis.schemes.fp8.layouts import mxfp8

    return Kind(mxfp8)


def _comfy_fp8() -> Kind:
    from anamnesis.schemes.fp8.comfy import SETTINGS, scaled

    return Kind(scaled, SETTINGS)


def _comfy_mxfp8() -> Kind:
    from anamnesis.schemes.fp8.comfy import mxfp8

    return Kind(mxfp8)


def _fp4() -> Kind:
    from anamnesis.schemes.fp4.layouts import encoding

    return Kind(encoding)


def _fp4_row(layout: str, codes: str = "") -> Row:
    return Row(_fp4, {"layout": layout, "codes": codes})


def _int8() -> Kind:
    from anamnesis.schemes.integers.layouts.compressed_tensors import int_quantized

    return Kind(int_quantized)


def _int4() -> Kind:
    from anamnesis.schemes.integers.layouts.compressed_tensors import SETTINGS, pack_quantized

    return Kind(pack_quantized, SETTINGS)


def _int8_packed() -> Kind:
    from anamnesis.schemes.integers.layouts.compressed_tensors import pack_quantized_8bit

    return Kind(pack_quantized_8bit)


def _comfy_int8() -> Kind:
    from anamnesis.schemes.integers.layouts.comfy import encoding

    return Kind(encoding)


def _mlx() -> Kind:
    from anamnesis.schemes.integers.layouts import mlx

    return Kind(mlx.encoding, mlx.SETTINGS)


def _gptq() -> Kind:
    from anamnesis.schemes.integers.layouts import gptq

    return Kind(gptq.encoding, gptq.SETTINGS)


def _awq() -> Kind:
    from anamnesis.schemes.integers.layouts import awq

    return Kind(awq.encoding, awq.SETTINGS)


def _ggml() -> Kind:
    from anamnesis.schemes.ggml.encoding import encoding

    return Kind(encoding)


def _gguf_fp4() -> Kind:
    from anamnesis.schemes.fp4.layouts import encoding
    from anamnesis.schemes.ggml.encode import BlockCodes

    def coded(type: str) -> Encoding:
        return replace(encoding(f"gguf-{type.lower()}"), codes=BlockCodes(type))

    return Kind(coded)


def _gguf(*types: str, kind: Callable[[], Kind] = _ggml, takes: str = "") -> dict[str, Row]:
    return {f"gguf-{type.lower()}": Row(kind, {"type": type}, "gguf", takes) for type in types}


def _bnb_4bit() -> Kind:
    from anamnesis.schemes.bnb.layouts import FOUR_BIT

    return FOUR_BIT


def _bnb_int8() -> Kind:
    from anamnesis.schemes.bnb.layouts import INT8

    return INT8


_CT = {"flavour": "compressed-tensors"}

# Those of values as they are (`bf16`, `f16`, `f32`) are dtypes, and not in here.
ENCODINGS: dict[str, Row] = {
    "fp8-block": Row(_fp8),
    "fp8-block-ue8m0": Row(_fp8, {"powers_of_two": True}),
    "fp8-block-ct": Row(_fp8, _CT),
    "fp8-channel": Row(_fp8, {"kind": "channel", **_CT}),
    "fp8-tensor": Row(_fp8, {"kind": "tensor"}),
    "fp8-tensor-ct": Row(_fp8, {"kind": "tensor", **_CT}),
    **{
        f"fp8-{kind}-modelopt": Row(_fp8, {"kind": kind, "flavour": "ModelOpt"})
        for kind in ("block", "channel")
    },
    "int8": Row(_int8),
    "int4": Row(_int4),
    "int4-asym": Row(_int4, {"is_symmetric": False}),
    "nvfp4": _fp4_row("nvfp4", "nvfp4"),
    "nvfp4-modelopt": _fp4_row("nvfp4-modelopt", "nvfp4-modelopt"),
    "mxfp4": _fp4_row("mxfp4", "mxfp4"),
    "mxfp4-modelopt": _fp4_row("mxfp4-modelopt", "mxfp4-modelopt"),
    "mxfp8": Row(_mxfp8, {"producer": "compressed-tensors"}),
    "mxfp8-modelopt": Row(_mxfp8, {"producer": "ModelOpt"}),
    "bnb-nf4": Row(_bnb_4bit),
    "bnb-nf4-nested": Row(_bnb_4bit, {"is_nested": True}),
    "bnb-fp4": Row(_bnb_4bit, {"kind": "fp4"}),
    "bnb-fp4-nested": Row(_bnb_4bit, {"kind": "fp4", "is_nested": True}),
    "bnb-int8": Row(_bnb_int8),
    **{f"mlx-{bits}bit": Row(_mlx, {"bits": bits}) for bits in (2, 3, 4, 5, 6, 8)},
    "mlx-mxfp4": _fp4_row("mlx-mxfp4", "mlx-mxfp4"),
    "mlx-nvfp4": _fp4_row("mlx-nvfp4", "mlx-nvfp4"),
    "mlx-mxfp8": Row(_mxfp8, {"producer": "MLX"}),
    "gptoss-mxfp4": _fp4_row("gptoss-mxfp4", "gptoss-mxfp4"),
    "gptq-4bit": Row(_gptq),
    "gptq-8bit": Row(_gptq, {"bits": 8}),
    "awq-4bit": Row(_awq),
    "comfy-fp8": Row(_comfy_fp8),
    "comfy-mxfp8": Row(_comfy_mxfp8),
    "comfy-nvfp4": _fp4_row("comfy-nvfp4", "comfy-nvfp4"),
    "comfy-int8": Row(_comfy_int8),
    "comfy-int8-tensor": Row(_comfy_int8, {"has_one_scale": True}),
}

# Layouts that only take codes which are there already, of weights that are quantised alike.
LAYOUTS: dict[str, Row] = {
    **{
        f"fp8-tensor-{flavour.lower()}": Row(
            _fp8, {"kind": "tensor", "flavour": flavour}, takes="fp8-tensor"
        )
        for flavour in ("ModelOpt", "Mistral")
    },
    "int8-packed": Row(_int8_packed, takes="gptq-8bit"),
}

# The block types of GGUF. A whole model becomes a mix of them: see schemes/ggml/mixes.py.
GGUF: dict[str, Row] = {
    **_gguf("Q4_0", takes="int4-32"),
    **_gguf("Q4_1", takes="mlx-4bit-32"),
    **_gguf("Q5_0", "Q5_1"),
    **_gguf("Q8_0", takes="int8"),
    **_gguf("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    **_gguf("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    **_gguf("TQ1_0", "TQ2_0", takes="bitnet"),
    **_gguf("NVFP4", kind=_gguf_fp4, takes="mlx-nvfp4"),
    **_gguf("MXFP4", kind=_gguf_fp4, takes="mxfp4"),
    **_gguf("Q1_0", "Q2_0"),
}

# What codes of other encodings are moved into, though their own tools do not write it.
TAKING = {**LAYOUTS, **{name: row for name, row in GGUF.items() if row.takes}}


def find(name: str) -> Row | None:
    """Return what a name stands for, with the settings behind it; None if there is none."""
    return ENCODINGS.get(name) or LAYOUTS.get(name) or GGUF.get(name) or _with_settings(name)


def made(row: Row) -> Encoding:
    """Return the encoding of a row."""
    return row.kind().make(**row.settings)


def _with_settings(name: str) -> Row | None:
    first, dash, words = name, "-", ""
    while dash:  # the longest name first: that of `int4-asym-32` is `int4-asym`
        first, dash, last = first.rpartition("-")
        words = f"{last}-{words}".removesuffix("-")
        row = ENCODINGS.get(first)
        more = None if row is None else parsed(words, row.kind().settings)
        if row is None or more is None or more.keys() & row.settings.keys():
            continue
        if "block_size" in more and row.settings.get("kind") in ("channel", "tensor"):
            continue  # FP8 of channels or tensors has no blocks
        return row._replace(settings={**row.settings, **more})
    return None
