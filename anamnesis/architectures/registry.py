"""All rows, by transformers' class and by llama.cpp's name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from anamnesis.architectures.arch import Arch
from anamnesis.architectures.model_facts import unsupported
from anamnesis.base.errors import UnsupportedError

# In this order a class, and an architecture of llama.cpp's, is looked for.
_TABLES = (
    *("llama", "qwen", "gemma", "phi", "gpt_oss", "deepseek", "glm"),
    *("decoders", "lfm2", "bert", "t5"),
)


@cache
def every_arch() -> tuple[Arch, ...]:
    """Return all rows."""
    tables = (import_module(f"anamnesis.architectures.table.{name}") for name in _TABLES)
    return tuple(arch for table in tables for arch in table.ARCHS)


def arch_of_class(config: Mapping[str, Any]) -> Arch:
    """Return the row of a model by the class that its config.json names."""
    given = config.get("architectures")
    classes = given if isinstance(given, list) else []
    for arch in every_arch():
        if any(name in arch.hf for name in classes):
            return arch
    if not classes:
        raise unsupported("names no class in `architectures`, as llama.cpp needs")
    raise unsupported(
        f"architecture {classes[0]!r} has no row here, so its tensors have no names of llama.cpp's"
    )


def archs_of_gguf(metadata: Mapping[str, Any]) -> tuple[Arch, ...]:
    """Return the rows of a GGUF model's architecture, at least one."""
    name = metadata.get("general.architecture")
    found = tuple(arch for arch in every_arch() if arch.gguf == name)
    if not found:
        raise UnsupportedError(
            f"general.architecture {name!r} has no row here, so its tensors have no names of"
            " transformers'"
        )
    return found


def is_known(metadata: Mapping[str, Any]) -> bool:
    """Return whether a GGUF is a model of texts, by its architecture or its tokens."""
    # As a directory it is seen under transformers' names, or refused; one of images keeps its
    # names.
    name = metadata.get("general.architecture")
    return "tokenizer.ggml.model" in metadata or any(arch.gguf == name for arch in every_arch())
