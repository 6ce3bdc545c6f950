"""What a mix of GGUF's types makes of a model: types, order and header."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from anamnesis.base.dtypes import OUTPUT_DTYPES
from anamnesis.base.errors import UnsupportedError
from anamnesis.base.stored import Dropped, StoredTensor
from anamnesis.convert.request.request import AskedMix, Request
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain_encoding import PlainEncoding
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.encodings import find, made
from anamnesis.schemes.families.ggml import header
from anamnesis.schemes.families.ggml.choose import Choice, Given, choose
from anamnesis.schemes.families.ggml.encode import finite_encoding
from anamnesis.schemes.families.ggml.header import file_type


class Typed(NamedTuple):
    """What a mix makes of a weight: an encoding, or None where the weight stays as it is."""

    encoding: Encoding | None
    why: str
    misfit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """What a mix makes of a model; a weight without a type is an override's alone."""

    weights: list[Weight]
    names: Mapping[str, str]
    types: Mapping[str, Typed]
    dropped: list[Dropped]
    header: tuple[Iterable[str], Mapping[str, Any]]  # keys that go, and typed values that come last


def mix_of(
    asked: AskedMix,
    request: Request,
    weights: Mapping[str, Weight],
    stored: Mapping[str, StoredTensor],
    metadata: Mapping[str, Any],
) -> Mix:
    """Return what a mix makes of a model, whose weights then have the order of the output."""
    arch, n_layers = str(metadata.get("general.architecture", "")), None
    ordered = header.in_order(weights, arch)
    names = {name: name for name in ordered}
    if asked.prune_layers:
        names, n_layers = header.without_layers(ordered, asked.prune_layers)
    kept = {name: weights[name] for name in (weights if asked.keep_split else ordered)}
    kept = {name: weight for name, weight in kept.items() if name in names}
    dtypes = [stored[name].dtype.name for name in ordered if name in stored]
    imatrix, said = request.imatrix, None
    if imatrix is not None:
        said = header.ImatrixOf(imatrix.file, imatrix.datasets, imatrix.n_entries, imatrix.n_chunks)
    layers = None if n_layers is None else (arch, n_layers)
    number = file_type(asked.name, metadata, asked.override_kv, dtypes)
    edits = header.header_edits(number, tuple(asked.override_kv.items()), said, layers, arch)
    return Mix(
        weights=list(kept.values()),
        names=names,
        types=_types(asked, request, kept, names, metadata),
        dropped=[Dropped(name, "its layer is left out") for name in weights if name not in names],
        header=(edits.gone, edits.new),
    )


def _types(
    asked: AskedMix,
    request: Request,
    weights: Mapping[str, Weight],
    names: Mapping[str, str],
    metadata: Mapping[str, Any],
) -> dict[str, Typed]:
    overrides = {name: request.override(name) for name in weights}
    chosen = choose(
        [Given(names[name], weights[name].shape, _type_of(overrides[name])) for name in weights],
        header.model_facts(metadata, asked.override_kv),
        asked.name,
        asked.options,
        has_imatrix=request.imatrix is not None,
    )
    types = {}
    for name, weight in weights.items():
        choice, override = chosen[names[name]], overrides[name]
        # An override decides alone where ggml has no such type, or where it gives the very name of
        # a weight that the mix leaves. A glob that asks for a type reaches what the mix quantises
        # alone, and no norm or router.
        if override is not None:
            is_left = choice.type is None and override[0] == name
            if is_left or _type_of(override) is None:
                continue
        encoding = None if choice.type is None else _encoding(choice.type)
        codes = None if encoding is None else encoding.codes
        if choice.needs_imatrix or getattr(codes, "needs_importance", False):
            _check_importance(weight, choice, request)
        misfit = f"{choice.why}, and become {choice.type}" if choice.is_misfit else None
        types[name] = Typed(encoding, choice.why, misfit)
    return types


def _check_importance(weight: Weight, choice: Choice, request: Request) -> None:
    """Refuse a type that is garbage without importance, as llama-quantize does."""
    imatrix = request.imatrix
    if not request.wants(weight.name):
        return
    if imatrix is None or imatrix.importance(weight.name, weight.shape) is None:
        has = "which is not there" if imatrix is None else "which has no entry for it"
        raise UnsupportedError(
            f"{weight.name!r} becomes {choice.type}, which is garbage without an importance"
            f" matrix, {has}",
            remedy="give imatrix=..., or another type for it",
        )


@cache
def _encoding(type: str) -> Encoding:
    """Return the encoding of a type; one object for each."""
    dtype = OUTPUT_DTYPES.get(type.lower())
    if dtype is not None:
        return finite_encoding(dtype)
    row = find(f"gguf-{type.lower()}")
    assert row is not None  # the types of the rules are those of the table
    return made(row)


def _type_of(override: tuple[str, Encoding | None] | None) -> str | None:
    """Return ggml's name of what an override asks for; None if ggml has none."""
    encoding = None if override is None else override[1]
    if isinstance(encoding, PlainEncoding):
        return encoding.dtype.name
    return getattr(getattr(encoding, "codes", None), "block_type", None)
