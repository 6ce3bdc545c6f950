"""What people ask first of a model: its name, mix, licence, and what loads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.limits import UNLIMITED, Budget, ParseLimits
from anamnesis.base.plain_json import json_table
from anamnesis.checkpoint.folder import repository_of
from anamnesis.checkpoint.open import Checkpoint

if TYPE_CHECKING:
    from anamnesis.schemes.detect.ledger import Ledger

_TOKENIZER = "tokenizer_config.json"
_MOST = 64 << 20  # bytes of a tokenizer's config in which a template is looked for

# Programs of GGUFs that are no language model, by architecture or general.type.
OF_GGUF = ("llama.cpp", "gguf-py")  # as the table of programs has it, which is slow to import
_OF_IMAGES = {
    "images": ("ComfyUI-GGUF", "stable-diffusion.cpp"),
    "images-in-rows": ("ComfyUI-GGUF",),
}
# By the method of the config and the encoding in words: its name in the table of programs.
_STORED = json_table(__file__)


def card_of(checkpoint: Checkpoint, ledger: Ledger, limits: ParseLimits | None) -> dict[str, Any]:
    """Return what a model says of itself, and what loads it, in the fields of an inspection."""
    first = next(iter(checkpoint.shards.values()))
    if first.id == "gguf":
        return _of_gguf(first.metadata, ledger)
    if checkpoint.root is None or not checkpoint.has_config:
        return {}
    return _of_directory(checkpoint, ledger, limits or UNLIMITED)


def _of_gguf(metadata: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
    from anamnesis.convert.loaders.verdicts import lacks
    from anamnesis.schemes.families.ggml.header import mix_of

    if metadata.get("general.type") == "adapter":
        programs: tuple[str, ...] = ("llama.cpp (--lora)",)
    elif _text(metadata.get("general.architecture")) == "clip":
        programs = ("llama.cpp (--mmproj)",)
    else:
        lacking = next(lacks(ledger.stored, metadata), "")
        programs = _OF_IMAGES.get(lacking, () if lacking else OF_GGUF)
    mix = mix_of(metadata.get("general.file_type"))
    has_tokens = "tokenizer.ggml.tokens" in metadata
    return {
        "name": _text(metadata.get("general.name")),
        "size_label": _text(metadata.get("general.size_label")) or _size_label(ledger),
        "mix": None if mix is None else mix.upper(),
        "license": _text(metadata.get("general.license")),
        "chat_template": "tokenizer.chat_template" in metadata if has_tokens else None,
        "loaded_by": programs,
    }


def _of_directory(checkpoint: Checkpoint, ledger: Ledger, limits: ParseLimits) -> dict[str, Any]:
    from anamnesis.architectures.front_matter import read_card

    assert checkpoint.root is not None
    root = os.path.abspath(checkpoint.root)
    cached = repository_of(root)
    name = os.path.basename(root)
    if cached is not None:
        name = "/".join(os.path.basename(cached[0]).split("--")[1:])
    try:
        front = read_card(checkpoint.root / "README.md", Budget(limits))
    except (OSError, AnamnesisError):  # it says nothing that weights need
        front = {}
    licence = front.get("license")
    return {
        "name": name,
        "size_label": _size_label(ledger),
        "license": licence if isinstance(licence, str) else None,
        "chat_template": _has_template(root, checkpoint.sidecars),
        "loaded_by": _programs_of_directory(checkpoint, ledger),
    }


def _programs_of_directory(checkpoint: Checkpoint, ledger: Ledger) -> tuple[str, ...]:
    """Return the programs that load a directory: by its encodings, if it is quantised."""
    from anamnesis.convert.loaders.verdicts import Output, facts_of_output, verdicts

    quantised = {n: w.scheme for n, w in ledger.weights.items() if w.own_dtype is None}
    method = ledger.facts.method if quantised else None
    encodings = {scheme: encoding_listed(method, scheme) for scheme in set(quantised.values())}
    if ledger.problems or None in encodings.values():
        return ()
    output = Output(
        container=next(iter(checkpoint.shards.values())).id,
        metadata={},
        config=checkpoint.config,
        has_config=True,
        has_params=False,
        names=list(ledger.weights),
        coded={name: encodings[scheme] or "" for name, scheme in quantised.items()},
        dtypes={part.dtype.name for part in ledger.stored.values()},
        numbers=set(),
    )
    found = verdicts(facts_of_output(output))
    return tuple([verdict.program for verdict in found if verdict.outcome == "loads"])


def encoding_listed(method: str | None, scheme: str) -> str | None:
    """Return an encoding's id by the method of the config and its words; None if unknown."""
    rows = [row for row in _STORED if row[0] == method and scheme.startswith(row[1])]
    more = scheme.removeprefix(rows[0][1]) if rows else ""
    is_other = "act-order" in more or "zero points" in more
    return rows[0][2] if rows and not is_other else None


def _has_template(root: str, sidecars: list[str]) -> bool | None:
    """Whether a tokenizer beside the weights has a chat template; None without a tokenizer."""
    if any(name in sidecars for name in ("chat_template.jinja", "chat_template.json")):
        return True
    if _TOKENIZER not in sidecars:
        return None
    try:
        with open(os.path.join(root, _TOKENIZER), "rb") as file:
            return b'"chat_template"' in file.read(_MOST)
    except OSError:
        return None


def _size_label(ledger: Ledger) -> str | None:
    from anamnesis.architectures.model_names import size_label, sizes

    if ledger.problems or not ledger.weights:
        return None
    return size_label(sizes({name: weight.shape for name, weight in ledger.weights.items()}))


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
