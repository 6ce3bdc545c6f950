"""What a conversion can be asked for, by name: containers, encodings, and both together.

A target is `CONTAINER[-ENCODING]`, or an encoding: `safetensors`, `gguf`, `npz-f16`, `fp8-block`.
Where it names no container, the output's name may promise one; else it is the one that the encoding
usually lies in. An encoding may have settings behind its name: `int4-32`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from anamnesis.base.arguments import check_mapping
from anamnesis.base.dtypes import OUTPUT_DTYPES, DType, DTypeLike, output_dtype
from anamnesis.base.errors import OutputError
from anamnesis.base.levels import LevelName, resolve_level
from anamnesis.base.nearest import UnknownWord, did_you_mean
from anamnesis.base.patterns import as_globs
from anamnesis.base.workers import default_threads
from anamnesis.convert.ask.request import ConvertOptions, Request, check_options
from anamnesis.convert.ask.spellings import spelt
from anamnesis.formats.writers import WRITERS, asked_format, make_writer, written_as
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain import PlainEncoding
from anamnesis.schemes.encodings import ENCODINGS, LAYOUTS, find, made

__all__ = [
    "KEEP",
    "Listed",
    "Target",
    "check_ending",
    "encoding",
    "listed",
    "names",
    "request",
    "target",
]

# Of files that others write; any other ending may be a part of a name: `Qwen2.5-7b`, `model.tmp`.
_FOREIGN = {
    *(".7z", ".csv", ".gz", ".h5", ".hdf5", ".json", ".keras", ".mlmodel", ".msgpack", ".onnx"),
    *(".parquet", ".pb", ".pkl", ".tar", ".tflite", ".tgz", ".txt", ".xz", ".zip", ".zst"),
}

KEEP = "keep"  # of an override: as it is stored


_ALIASES = {"pth": "torch"}  # of containers, whose ids no user would guess

_TOGETHER = [f"{container}-{dtype}" for container in WRITERS for dtype in OUTPUT_DTYPES]


class Target(NamedTuple):
    """What a name of a target stands for.

    Attributes
    ----------
    container : str or None
        The id of its format; None if the name says none.
    encoding : Encoding or None
        None if weights are written as values.
    dtype : DType or None
        Of these, if the name says it.
    usual : str
        The container where the output's name promises none either.
    name : str or None
        The name of the encoding, without the container, if it was told by name.
    """

    container: str | None
    encoding: Encoding | None = None
    dtype: DType | None = None
    usual: str = "safetensors"
    name: str | None = None

    def container_of(self, out: Any) -> str:
        """Return the id of the format that is written.

        Raises
        ------
        OutputError
            If the output's name promises another, or one that is not written.
        """
        return _format_of(self, out)

    def casts_all(self, dtype: DTypeLike | None, asked: bool | None) -> bool:
        """Tell whether floats that are plain are cast: where a dtype is named, unless told.

        Parameters
        ----------
        dtype : str or None
            What is named beside the target.
        asked : bool or None
            What is told.
        """
        return not (self.dtype is None and dtype is None) if asked is None else asked


class Listed(NamedTuple):
    """A target, for a listing.

    Attributes
    ----------
    name : str
    kind : str
        `container`, `dtype`, `encoding`, or `layout`, which only takes codes that are there.
    format : str
        The container that it is usually written in.
    loaders : str
    """

    name: str
    kind: str
    format: str
    loaders: str


def listed() -> Iterator[Listed]:
    """Yield all targets that go without a container, and the containers."""
    from anamnesis.convert.loaders.verdicts import loaders  # only here: for a listing

    called = {container: name for name, container in _ALIASES.items()}
    for container in ("safetensors", "gguf", "npz", "npy", "torch"):
        yield Listed(called.get(container, container), "container", container, loaders(container))
    for dtype in OUTPUT_DTYPES:
        yield Listed(dtype, "dtype", "safetensors", loaders("safetensors"))
    for name, entry in ENCODINGS.items():
        yield Listed(name, "encoding", entry.container, loaders(name))
    for name, entry in LAYOUTS.items():
        yield Listed(name, "layout", entry.container, loaders(name))


def names() -> Iterator[str]:
    """Yield the containers, and the targets that go without one."""
    yield from WRITERS
    yield from _ALIASES
    yield from OUTPUT_DTYPES
    yield from ENCODINGS
    yield from LAYOUTS


def target(to: str | Encoding) -> Target:
    """Return what a target's name stands for.

    Raises
    ------
    ValueError
        If there is no such target.
    """
    if isinstance(to, Encoding):
        return Target(None, to)
    name = spelt(to, names())
    if _container(name) is not None:
        return Target(_container(name))
    entry = find(name)
    if entry is not None:
        return Target(None, made(entry), usual=entry.container, name=name)
    if name in OUTPUT_DTYPES:
        return Target(None, None, OUTPUT_DTYPES[name])
    first, _, rest = name.partition("-")
    container = _container(first)
    if container is not None and rest in OUTPUT_DTYPES:
        return Target(container, None, OUTPUT_DTYPES[rest])
    entry = find(rest)
    if container is not None and entry is not None:
        return Target(container, made(entry), name=rest)
    _refuse_absent(to)
    raise no_such("target", to, [*names(), *_TOGETHER])


def no_such(what: str, word: str, known: Iterable[str]) -> UnknownWord:
    """Return that there is no such target, or encoding, and which ones are like it.

    Parameters
    ----------
    what : str
        `target`, or a kind of it.
    word : str
        What was asked for.
    known : iterable of str
    """
    return UnknownWord(f"there is no {what} {word!r}{did_you_mean(word, known)}")


def _refuse_absent(name: str) -> None:
    """Raise for an encoding that is known, and not written."""
    from anamnesis.convert.loaders.absent import absent  # only here, for the sake of a quick start

    why = absent(name)
    if why is not None:
        raise ValueError(why)


def _container(name: str) -> str | None:
    name = _ALIASES.get(name, name)
    return name if name in WRITERS else None


def encoding(name: str | Encoding) -> Encoding:
    """Return the encoding of a name, values as they are among them.

    Raises
    ------
    ValueError
        If there is none.
    """
    if isinstance(name, Encoding):
        return name
    word = spelt(name, names())
    if word in OUTPUT_DTYPES:
        return PlainEncoding(OUTPUT_DTYPES[word])
    entry = find(word)
    if entry is None:
        _refuse_absent(name)
        raise no_such("encoding", name, [*OUTPUT_DTYPES, *ENCODINGS, *LAYOUTS])
    return made(entry)


def _format_of(found: Target, out: Any) -> str:
    """Return the id of the format that is written.

    Raises
    ------
    OutputError
        If the output's name promises another, or one that is not written.
    """
    promised = None
    if isinstance(out, (str, os.PathLike)) and not os.path.isdir(out):
        name = os.fspath(out)
        promised = asked_format(name)
        if promised not in (None, "safetensors", written_as(name)):
            raise _unwritable(name)
        if promised is not None and found.container not in (None, promised):
            raise OutputError(
                f"{name}: is named as {WRITERS[promised].title}, but the target is"
                f" {found.container}; name another output"
            )
    return found.container or promised or found.usual


def check_ending(to: str | Encoding | None, out: Any) -> None:
    """Refuse an output whose ending is of what is not written, where `to` names no container.

    Parameters
    ----------
    to : str, Encoding or None
    out : anything
        The output, if it is a path.

    Raises
    ------
    OutputError
    """
    if not isinstance(out, (str, os.PathLike)) or (to is not None and target(to).container):
        return
    name = os.fspath(out)
    if os.path.splitext(name)[1].lower() in _FOREIGN and not os.path.isdir(name):
        raise _unwritable(name)


def _unwritable(name: str) -> OutputError:
    endings = [written.endings[0] for written in WRITERS.values()]
    return OutputError(
        f"{name}: {os.path.splitext(name)[1]} files cannot be written",
        remedy=f"name one that ends in {', '.join(endings[:-1])} or {endings[-1]}",
    )


def request(
    to: str | Encoding | None,
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
    **options: Any,
) -> Request:
    """Return what is asked for by names; `Model.convert` says what they mean.

    Parameters
    ----------
    to : str, Encoding or None
        None leaves the container to the output's name.
    out : anything
        The output, if it is a path.
    **options
        As of `Model.convert`.

    Raises
    ------
    OutputError
        If the output's name promises another format, or one that is not written.
    ValueError
        If there is no such target, encoding or dtype, or an option has a value that it cannot.
    TypeError
        If there is no such option.
    """
    check_options(options, ConvertOptions)
    mappings = {"overrides": overrides, "rename": rename, "metadata": metadata, "edit": edit}
    for name, given in mappings.items():
        if given is not None:
            check_mapping(name, given)
    found = Target(None) if to is None else target(to)
    wanted = found.dtype if dtype is None else output_dtype(dtype)
    if found.dtype is not None and wanted is not found.dtype:
        raise ValueError(f"the target {to!r} says another dtype than {dtype!r}")
    container = _format_of(found, out)
    if options.get("split_max_size") is not None and container != "gguf":
        raise ValueError(f"split_max_size is for GGUF files, not {container}")
    return Request(
        dtype=wanted or OUTPUT_DTYPES["bf16"],
        writer=partial(make_writer, container),
        encoding=found.encoding,
        drop=as_globs(drop),
        include=as_globs(include),
        exclude=as_globs(exclude),
        overrides=tuple(
            (pattern, None if name == KEEP else encoding(name))
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
        **options,
    )
