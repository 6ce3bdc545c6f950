"""The encodings that can be asked for, by name.

Each is a kind, whose codes and layout stand in the folder of its family, with settings. More
settings may stand behind a name: `int4-32`, `fp8-block-64x64-e5m2`. A kind is imported when it is
asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.encoding_names import Setting, parsed


class Maker(NamedTuple):
    """Where encodings are made: a module of this package, its function, its table of settings."""

    module: str
    function: str = "encoding"
    table: str = ""

    def make(self, **settings: Any) -> Encoding:
        """Return the encoding that has these settings."""
        made: Encoding = getattr(self._module(), self.function)(**settings)
        return made

    @property
    def settings(self) -> tuple[Setting, ...]:
        """What words behind a name may say."""
        return getattr(self._module(), self.table) if self.table else ()

    def _module(self) -> ModuleType:
        return import_module(self.module, "anamnesis.schemes.families")


class Row(NamedTuple):
    """An encoding by its name."""

    kind: Maker
    settings: Mapping[str, Any] = MappingProxyType({})
    container: str = "safetensors"
    takes: str = ""


_FP8, _MXFP8 = Maker(".fp8.layouts", table="SETTINGS"), Maker(".fp8.mx_layouts", "mxfp8")
_BNB_4BIT = Maker(".bnb.layouts", "four_bit", "SETTINGS")
_COMFY_INT8 = Maker(".integers.layouts.comfy")
_COMPRESSED_TENSORS = ".integers.layouts.compressed_tensors"
_INT4 = Maker(_COMPRESSED_TENSORS, "pack_quantized", "SETTINGS")
_MLX, _GPTQ, _AWQ = (
    Maker(f".integers.layouts.{name}", table="SETTINGS") for name in ("mlx", "gptq", "awq")
)
_GGML, _GGUF_FP4 = Maker(".ggml.encoding"), Maker("..encodings", "gguf_fp4")


def _fp4_row(layout: str, codes: str = "") -> Row:
    return Row(Maker(".fp4.layouts"), {"layout": layout, "codes": codes})


def gguf_fp4(type: str) -> Encoding:
    """Return the encoding of 4-bit floats in blocks, which takes codes as they are."""
    from anamnesis.schemes.families.fp4.layouts import encoding
    from anamnesis.schemes.families.ggml.encode import BlockCodes

    return replace(encoding(f"gguf-{type.lower()}"), codes=BlockCodes(type))


def _gguf(*types: str, kind: Maker = _GGML, takes: str = "") -> dict[str, Row]:
    return {f"gguf-{type.lower()}": Row(kind, {"type": type}, "gguf", takes) for type in types}


_CT = {"flavour": "compressed-tensors"}

# Values as they are (`bf16`, `f16`, `f32`) are dtypes, not here. A name without a producer is of
# the usual layout: transformers' own, else compressed-tensors'. The same numbers in another layout
# have its producer last; it stands first where files are for one program or kind of model alone.
ENCODINGS: dict[str, Row] = {
    "fp8-block": Row(_FP8),
    "fp8-block-ue8m0": Row(_FP8, {"powers_of_two": True}),
    "fp8-block-ct": Row(_FP8, _CT),
    "fp8-channel": Row(_FP8, {"kind": "channel", **_CT}),
    "fp8-tensor": Row(_FP8, {"kind": "tensor"}),
    "fp8-tensor-ct": Row(_FP8, {"kind": "tensor", **_CT}),
    **{
        f"fp8-{kind}-modelopt": Row(_FP8, {"kind": kind, "flavour": "ModelOpt"})
        for kind in ("block", "channel")
    },
    "int8": Row(Maker(_COMPRESSED_TENSORS, "int_quantized")),
    "int4": Row(_INT4),
    "int4-asym": Row(_INT4, {"is_symmetric": False}),
    "nvfp4": _fp4_row("nvfp4", "nvfp4"),
    "nvfp4-modelopt": _fp4_row("nvfp4-modelopt", "nvfp4-modelopt"),
    "mxfp4": _fp4_row("mxfp4", "mxfp4"),
    "mxfp4-modelopt": _fp4_row("mxfp4-modelopt", "mxfp4-modelopt"),
    "mxfp8": Row(_MXFP8, {"producer": "compressed-tensors"}),
    "mxfp8-modelopt": Row(_MXFP8, {"producer": "ModelOpt"}),
    "bnb-nf4": Row(_BNB_4BIT),
    "bnb-nf4-nested": Row(_BNB_4BIT, {"is_nested": True}),
    "bnb-fp4": Row(_BNB_4BIT, {"kind": "fp4"}),
    "bnb-fp4-nested": Row(_BNB_4BIT, {"kind": "fp4", "is_nested": True}),
    "bnb-int8": Row(Maker(".bnb.layouts", "int8")),
    **{f"mlx-{bits}bit": Row(_MLX, {"bits": bits}) for bits in (2, 3, 4, 5, 6, 8)},
    "mlx-mxfp4": _fp4_row("mlx-mxfp4", "mlx-mxfp4"),
    "mlx-nvfp4": _fp4_row("mlx-nvfp4", "mlx-nvfp4"),
    "mlx-mxfp8": Row(_MXFP8, {"producer": "MLX"}),
    "gptoss-mxfp4": _fp4_row("gptoss-mxfp4", "gptoss-mxfp4"),
    "gptq-4bit": Row(_GPTQ),
    "gptq-8bit": Row(_GPTQ, {"bits": 8}),
    "awq-4bit": Row(_AWQ),
    "comfy-fp8": Row(Maker(".fp8.comfy", "scaled", "SETTINGS")),
    "comfy-mxfp8": Row(Maker(".fp8.comfy", "mxfp8")),
    "comfy-nvfp4": _fp4_row("comfy-nvfp4", "comfy-nvfp4"),
    "comfy-int8": Row(_COMFY_INT8),
    "comfy-int8-tensor": Row(_COMFY_INT8, {"has_one_scale": True}),
    "comfy-int8-convrot": Row(Maker(".rotated.layouts", "int8", "SETTINGS")),
    "comfy-convrot-w4a4": Row(Maker(".rotated.layouts", "int4", "SETTINGS")),
    "comfy-convrot-w4a8": Row(Maker(".rotated.layouts", "levels", "SETTINGS")),
    "comfy-convrot-w6a8": Row(Maker(".rotated.layouts", "levels", "SETTINGS"), {"bits": 6}),
}

# Layouts that only take codes which are there already, of weights that are quantised alike.
LAYOUTS: dict[str, Row] = {
    **{
        f"fp8-tensor-{flavour.lower()}": Row(
            _FP8, {"kind": "tensor", "flavour": flavour}, takes="fp8-tensor"
        )
        for flavour in ("ModelOpt", "Mistral")
    },
    "int8-packed": Row(Maker(_COMPRESSED_TENSORS, "pack_quantized_8bit"), takes="gptq-8bit"),
}

# The block types of GGUF. A whole model becomes a mix of them: see schemes/families/ggml/mixes.py.
GGUF: dict[str, Row] = {
    **_gguf("Q4_0", takes="int4-32"),
    **_gguf("Q4_1", takes="mlx-4bit-32"),
    **_gguf("Q5_0", "Q5_1"),
    **_gguf("Q8_0", takes="int8"),
    **_gguf("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
    **_gguf("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS"),
    **_gguf("TQ1_0", "TQ2_0", takes="bitnet"),
    **_gguf("NVFP4", kind=_GGUF_FP4, takes="mlx-nvfp4"),
    **_gguf("MXFP4", kind=_GGUF_FP4, takes="mxfp4"),
    **_gguf("Q1_0", "Q2_0"),
}

# What codes of other encodings are moved into, though their own tools do not write it.
TAKING = {**LAYOUTS, **{name: row for name, row in GGUF.items() if row.takes}}


def find(name: str) -> Row | None:
    """Return what a name stands for, with the settings behind it; None if there is none."""
    return ENCODINGS.get(name) or LAYOUTS.get(name) or GGUF.get(name) or _with_settings(name)


def made(row: Row) -> Encoding:
    """Return the encoding of a row."""
    return row.kind.make(**row.settings)


def _with_settings(name: str) -> Row | None:
    first, dash, words = name, "-", ""
    while dash:  # the longest name first: that of `int4-asym-32` is `int4-asym`
        first, dash, last = first.rpartition("-")
        words = f"{last}-{words}".removesuffix("-")
        row = ENCODINGS.get(first)
        more = None if row is None else parsed(words, row.kind.settings)
        if row is None or more is None or more.keys() & row.settings.keys():
            continue
        if "block_size" in more and row.settings.get("kind") in ("channel", "tensor"):
            continue  # FP8 of channels or tensors has no blocks
        return row._replace(settings={**row.settings, **more})
    return None
