"""The encodings that can be asked for, by name.

Each is a kind, whose codes and layout stand in the folder of its family, with settings, in a row of
encodings.json. More settings may stand behind a name: `int4-32`, `fp8-block-64x64-e5m2`. A kind is
imported when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

from anamnesis.base.plain_json import json_table
from anamnesis.schemes.core.encoding import Encoding, Setting, parsed


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
    takes: str = ""
    container: str = "safetensors"


def gguf_fp4(type: str) -> Encoding:
    """Return the encoding of 4-bit floats in blocks, which takes codes as they are."""
    from anamnesis.schemes.families.fp4.layouts import encoding
    from anamnesis.schemes.families.ggml.encode import BlockCodes

    return replace(encoding(f"gguf-{type.lower()}"), codes=BlockCodes(type))


_TABLE = json_table(__file__)
_MAKERS = {kind: Maker(*row) for kind, row in _TABLE["makers"].items()}


def _rows(table: str) -> dict[str, Row]:
    """Return rows, each of a maker, settings, and what codes are moved from."""
    return {name: Row(_MAKERS[kind], *more) for name, (kind, *more) in _TABLE[table].items()}


def _block_type(type: str, takes: str) -> Row:
    is_fp4 = type in ("NVFP4", "MXFP4")
    kind = Maker("..encodings", "gguf_fp4") if is_fp4 else Maker(".ggml.layouts")
    return Row(kind, {"type": type}, takes, "gguf")


# Values as they are (`bf16`, `f16`, `f32`) are dtypes, not here. A name without a producer is of
# the usual layout: transformers' own, else compressed-tensors'. The same numbers in another layout
# have its producer last; it stands first where files are for one program or kind of model alone.
ENCODINGS = _rows("encodings")
# Layouts that only take codes which are there already, of weights that are quantised alike.
LAYOUTS = _rows("layouts")
# The block types of GGUF. A whole model becomes a mix of them: see schemes/families/ggml/mixes.py.
GGUF = {f"gguf-{type.lower()}": _block_type(type, of) for type, of in _TABLE["gguf"].items()}

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
