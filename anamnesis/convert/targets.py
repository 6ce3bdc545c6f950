"""What a conversion can be asked for, by name: containers, encodings, and both together.

A target is `CONTAINER[-ENCODING]`, or an encoding, which implies the container that it usually
lies in: `safetensors`, `gguf`, `npz-f16`, `fp8-block`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple

from anamnesis.base.dtypes import OUTPUT_DTYPES, DType, output_dtype
from anamnesis.base.levels import resolve_level
from anamnesis.base.workers import default_threads
from anamnesis.convert.request import Request
from anamnesis.formats.base import Writer
from anamnesis.schemes.encoding import Encoding
from anamnesis.schemes.plain import PlainEncoding

__all__ = ["CONTAINERS", "ENCODINGS", "KEEP", "Entry", "Target", "names", "request", "target"]

KEEP = "keep"  # of an override: as it is stored


class Entry(NamedTuple):
    """An encoding by its name.

    Attributes
    ----------
    home : str
        `module:attribute`: an encoding, or what returns one when it is called.
    container : str
        Where it usually lies.
    loaders : str
        Which programs load that, for a listing.
    """

    home: str
    container: str
    loaders: str


# Each with the module and class of its writer: imported when a file is written in it.
CONTAINERS: dict[str, tuple[str, str]] = {
    "safetensors": ("anamnesis.formats.safetensors.write", "SafetensorsWriter"),
    "gguf": ("anamnesis.formats.gguf.write", "GgufWriter"),
    "npz": ("anamnesis.formats.numpy.write", "NpzWriter"),
    "npy": ("anamnesis.formats.numpy.write", "NpyWriter"),
    "pth": ("anamnesis.formats.torch.write", "TorchWriter"),
}

# Those of values as they are (`bf16`, `f16`, `f32`) are dtypes, and not in here.
ENCODINGS: dict[str, Entry] = {}


class Target(NamedTuple):
    """What a name of a target stands for.

    Attributes
    ----------
    container : str
    encoding : Encoding or None
        None if weights are written as values.
    dtype : DType or None
        Of these, if the name says it.
    """

    container: str
    encoding: Encoding | None = None
    dtype: DType | None = None


def names() -> Iterator[str]:
    """Yield the targets that go without a container, and the containers."""
    yield from CONTAINERS
    yield from OUTPUT_DTYPES
    yield from ENCODINGS


def target(to: str | Encoding) -> Target:
    """Return what a target's name stands for.

    Raises
    ------
    ValueError
        If there is no such target.
    """
    if isinstance(to, Encoding):
        return Target("safetensors", to)
    name = to.lower()
    if name in CONTAINERS:
        return Target(name)
    if name in ENCODINGS:
        return Target(ENCODINGS[name].container, encoding(name))
    if name in OUTPUT_DTYPES:
        return Target("safetensors", None, OUTPUT_DTYPES[name])
    container, _, rest = name.partition("-")
    if container in CONTAINERS and rest in OUTPUT_DTYPES:
        return Target(container, None, OUTPUT_DTYPES[rest])
    if container in CONTAINERS and rest in ENCODINGS:
        return Target(container, encoding(rest))
    raise ValueError(
        f"there is no target {to!r}; there are {', '.join(names())}, and a container and one of the"
        " others together, as gguf-f16"
    )


def encoding(name: str | Encoding) -> Encoding:
    """Return the encoding of a name, values as they are among them.

    Raises
    ------
    ValueError
        If there is none.
    """
    if isinstance(name, Encoding):
        return name
    if name.lower() in OUTPUT_DTYPES:
        return PlainEncoding(OUTPUT_DTYPES[name.lower()])
    entry = ENCODINGS.get(name.lower())
    if entry is None:
        known = ", ".join([*OUTPUT_DTYPES, *ENCODINGS])
        raise ValueError(f"there is no encoding {name!r}; there are {known}")
    module, _, attribute = entry.home.partition(":")
    found = getattr(import_module(module), attribute)
    made = found if isinstance(found, Encoding) else found()
    assert isinstance(made, Encoding)
    return made


def writer(container: str) -> type[Writer]:
    """Return what writes files of a container."""
    module, name = CONTAINERS[container]
    found: type[Writer] = getattr(import_module(module), name)
    return found


def request(
    to: str | Encoding,
    *,
    dtype: str | DType | None = None,
    include: str | tuple[str, ...] | list[str] = (),
    exclude: str | tuple[str, ...] | list[str] = (),
    overrides: Mapping[str, str | Encoding] | None = None,
    rename: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    loss: bool = True,
    threads: int | None = None,
    level: str | None = None,
    **options: Any,
) -> Request:
    """Return what is asked for by names; `Model.convert` says what they mean.

    Raises
    ------
    ValueError
        If there is no such target, encoding or dtype, or an option has a value that it cannot.
    TypeError
        If there is no such option.
    """
    found = target(to)
    wanted = found.dtype if dtype is None else output_dtype(dtype)
    if found.dtype is not None and wanted is not found.dtype:
        raise ValueError(f"the target {to!r} says another dtype than {dtype!r}")
    return Request(
        dtype=wanted or OUTPUT_DTYPES["bf16"],
        writer=writer(found.container),
        encoding=found.encoding,
        include=_patterns(include),
        exclude=_patterns(exclude),
        overrides=tuple(
            (pattern, None if name == KEEP else encoding(name))
            for pattern, name in (overrides or {}).items()
        ),
        rename=tuple((rename or {}).items()),
        metadata=metadata or {},
        measure=loss,
        threads=default_threads() if threads is None else threads,
        level=resolve_level(level),
        **options,
    )


def _patterns(given: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)
