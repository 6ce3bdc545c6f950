"""From names and options to what is asked of a conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.base.arguments import check_mapping
from anamnesis.base.dtypes import OUTPUT_DTYPES, DTypeLike, output_dtype
from anamnesis.base.levels import LevelName, resolve_level
from anamnesis.base.limits import UNLIMITED, ParseLimits
from anamnesis.base.patterns import as_globs
from anamnesis.base.workers import default_threads
from anamnesis.convert.ask.form import check_ending, form_of
from anamnesis.convert.ask.mix import MIX_OPTIONS, asked_mix
from anamnesis.convert.ask.request import ConvertOptions, Request, check_options
from anamnesis.convert.ask.targets import KEEP, Target, encoding, target
from anamnesis.schemes.core.encoding import Encoding

if TYPE_CHECKING:
    from anamnesis.convert.ask.importance import Given
    from anamnesis.schemes.ggml.imatrix import Imatrix


def resolve(
    to: str | Encoding | Target | None,
    out: Any,
    *,
    dtype: DTypeLike | None = None,
    drop: str | tuple[str, ...] | list[str] = (),
    include: str | tuple[str, ...] | list[str] = (),
    exclude: str | tuple[str, ...] | list[str] = (),
    overrides: Mapping[str, str | Encoding] | None = None,
    rename: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    edit: Mapping[str, Any] | None = None,
    loss: bool = True,
    cast_all: bool | None = None,
    threads: int | None = None,
    level: LevelName | None = None,
    imatrix: Given | None = None,
    limits: ParseLimits | None = None,
    **options: Any,
) -> Request:
    """Return what is asked for by names; `Model.convert` says what they mean."""
    check_options(options, ConvertOptions)
    mappings = {"overrides": overrides, "rename": rename, "metadata": metadata, "edit": edit}
    for name, given in mappings.items():
        if given is not None:
            check_mapping(name, given)
    found = Target(None) if to is None else target(to)
    wanted = found.dtype if dtype is None else output_dtype(dtype)
    if found.dtype is not None and wanted is not found.dtype:
        raise ValueError(f"the target {found.text!r} says another dtype than {dtype!r}")
    check_ending(found, out)
    form = form_of(found, out, is_cut=options.get("max_shard_size") is not None)
    if options.get("split_max_size") is not None and form.container != "gguf":
        raise ValueError(f"split_max_size is for GGUF files, not {form.container}")
    mix = asked_mix(found.mix, {k: options.pop(k) for k in MIX_OPTIONS & options.keys()})
    return Request(
        mix=mix,
        imatrix=None if imatrix is None else _importance(imatrix, limits),
        dtype=wanted or OUTPUT_DTYPES["bf16"],
        form=form,
        encoding=found.encoding,
        drop=as_globs(drop),
        include=as_globs(include),
        exclude=as_globs(exclude),
        overrides=tuple(
            (pattern, None if name == KEEP else encoding(name, form.container))
            for pattern, name in (overrides or {}).items()
        ),
        rename=tuple((rename or {}).items()),
        metadata=metadata or {},
        cast_all=bool(cast_all) if to is None else found.casts_all(dtype, cast_all),
        edit=edit or {},
        measure=loss,
        keep_blocks=to is not None and wanted is None,
        threads=default_threads() if threads is None else threads,
        level=resolve_level(level),
        limits=limits or UNLIMITED,
        **options,
    )


def _importance(given: Given, limits: ParseLimits | None) -> Imatrix:
    from anamnesis.convert.ask.importance import importance_of  # here, for a quick start

    return importance_of(given, limits)
