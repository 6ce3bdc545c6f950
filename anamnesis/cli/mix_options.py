"""The options of GGUF files: names, and llama-quantize's for mixes of types."""

from __future__ import annotations

from typing import Any

import click

from anamnesis.cli.grouped import option
from anamnesis.cli.options import Parsed


def _type(text: str) -> str:
    from anamnesis.schemes.ggml.choose import type_named

    return type_named(text.lower().removeprefix("gguf-"))


def _override(text: str) -> tuple[str, Any]:
    from anamnesis.schemes.ggml.header import read_override

    return read_override(text)


def _layers(text: str) -> tuple[int, ...]:
    numbers = text.split(",")
    if not all(one.strip().isdecimal() for one in numbers):
        raise ValueError(f"write numbers of layers with commas, such as 4,5; not {text!r}")
    return tuple(map(int, numbers))


MIX_OPTIONS = (
    option(
        "GGUF",
        "--imatrix",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE",
        help="How important columns are, as llama-imatrix writes it: .gguf or .dat.",
    ),
    option(
        "GGUF",
        "--names",
        type=click.Choice(["auto", "keep"]),
        help="Tensors of a Hugging Face directory: as llama.cpp calls them (auto), or as they are.",
    ),
    option(
        "GGUF",
        "--tokenizer-pre",
        metavar="NAME",
        help="What llama.cpp calls the pre-tokenizer, where the tokenizer's files do not tell.",
    ),
    option("GGUF", "--pure", is_flag=True, help="A mix: its own type for all weights."),
    option(
        "GGUF",
        "--output-tensor-type",
        type=Parsed("type", _type),
        metavar="TYPE",
        help="A mix: the type of output.weight, and of tied embeddings.",
    ),
    option(
        "GGUF",
        "--token-embedding-type",
        type=Parsed("type", _type),
        metavar="TYPE",
        help="A mix: the type of the embeddings.",
    ),
    option(
        "GGUF",
        "--leave-output-tensor",
        is_flag=True,
        help="A mix: leave output.weight as it is.",
    ),
    option(
        "GGUF",
        "--override-kv",
        type=Parsed("override", _override),
        multiple=True,
        metavar="KEY=TYPE:VALUE",
        help="A mix: a key of the header, which its rules go by too; int, float, bool or str.",
    ),
    option(
        "GGUF",
        "--prune-layers",
        type=Parsed("layers", _layers),
        metavar="N,N,...",
        help="A mix: leave layers out, and number the others anew.",
    ),
    option(
        "GGUF",
        "--keep-split",
        is_flag=True,
        help="A mix: write as many parts as the input has.",
    ),
)


WITHOUT_MIX = frozenset({"imatrix", "names", "tokenizer_pre"})

_NAMES = (
    *("imatrix", "pure", "output_tensor_type", "token_embedding_type", "leave_output_tensor"),
    *("prune_layers", "keep_split", "names", "tokenizer_pre"),
)


def mix_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return what the library is asked for; what was given is taken out."""
    found = {name: value for name in _NAMES if (value := given.pop(name))}
    overrides = dict(given.pop("override_kv"))
    return found | ({"override_kv": overrides} if overrides else {})
