"""Resolves names and options to a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from anamnesis.base.dtypes import OUTPUT_DTYPES
from anamnesis.base.levels import resolve_level
from anamnesis.base.limits import UNLIMITED, ParseLimits
from anamnesis.base.printable import shown
from anamnesis.base.workers import default_threads
from anamnesis.convert.request.form import check_ending, form_of
from anamnesis.convert.request.request import (
    ConvertOptions,
    MixOptions,
    Request,
    asked_mix,
    check_options,
)
from anamnesis.convert.request.spellings import Named
from anamnesis.convert.request.targets import KEEP, Target, encoding, target
from anamnesis.schemes.core.encoding import Encoding

if TYPE_CHECKING:
    from anamnesis.convert.request.request import Given
    from anamnesis.schemes.families.ggml.encode import Imatrix


def resolve(
    to: Named | Target | None,
    out: Any,
    *,
    limits: ParseLimits | None = None,
    **options: Unpack[ConvertOptions],
) -> Request:
    """Return the request that arguments make; `Model.convert` explains them."""
    given = check_options(options, ConvertOptions)
    for name in ("overrides", "rename", "metadata", "edit", "lora"):
        given[name] = given.get(name) or {}
    found = Target(None) if to is None else target(to)
    dtype, cast_all = given.pop("dtype", None), given.pop("cast_all", None)
    wanted = found.output_dtype(dtype)
    check_ending(found, out)
    form = form_of(found, out, is_cut=given.get("max_shard_size") is not None)
    for name in ("split_max_size", "imatrix", "tokenizer_pre"):
        if given.get(name) is not None and form.container != "gguf":
            raise ValueError(f"{name} is for GGUF files, not {form.container}")
    threads = given.pop("threads", None)
    of_mix = {name: given.pop(name) for name in MixOptions.__annotations__ if name in given}
    return Request(
        threads=default_threads() if threads is None else threads,
        imatrix=importance_of(given.pop("imatrix", None), limits),
        mix=asked_mix(found.mix, of_mix),
        dtype=wanted or OUTPUT_DTYPES["bf16"],
        form=form,
        encoding=found.encoding,
        overrides=tuple(
            (pattern, _override(pattern, name, form.container))
            for pattern, name in given.pop("overrides").items()
        ),
        rename=tuple(given.pop("rename").items()),
        cast_all=bool(cast_all) if to is None else found.casts_all(dtype, cast_all),
        measure=given.pop("loss", True),
        keep_blocks=to is not None and wanted is None,
        level=resolve_level(given.pop("level", None)),
        limits=limits or UNLIMITED,
        **given,
    )


def _override(pattern: str, name: Named, container: str) -> Encoding | None:
    """Return what weights are written in; None if as they are stored."""
    if isinstance(name, str) and name == KEEP:
        return None
    try:
        return encoding(name, container)
    except TypeError:
        raise TypeError(f"overrides cannot map {pattern!r} to {shown(name)}") from None


def importance_of(given: Given | None, limits: ParseLimits | None) -> Imatrix | None:
    """Return an importance matrix, read if it is a path."""
    if given is None:
        return None
    from anamnesis.formats.imatrix import ImatrixFile, read_imatrix
    from anamnesis.schemes.families.ggml.encode import Imatrix

    if isinstance(given, Imatrix):
        return given
    found = given if isinstance(given, ImatrixFile) else read_imatrix(given, limits)
    entries = {name: entry.values.view("u1").data for name, entry in found.entries.items()}
    unused = {
        name: sum(count <= 0 for count in entry.counts)
        for name, entry in found.entries.items()
        if found.kind == "gguf"
    }
    return Imatrix(found.file, entries, found.datasets, found.n_chunks, unused)
