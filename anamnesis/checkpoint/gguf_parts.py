"""GGUF models in several files: `NAME-00001-of-00003.gguf` and so on."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from anamnesis.base.errors import ParseError
from anamnesis.base.shard_names import Shard, numbered_names
from anamnesis.formats.base import Container
from anamnesis.formats.gguf.metadata import GgufMetadata
from anamnesis.formats.gguf.split import COUNT_KEY, NUMBER_KEY, TENSORS_KEY
from anamnesis.sources.urls import kind_of_url


def gather_parts(first: Container, parse: Callable[[str], Container]) -> dict[str, Container]:
    """Return all parts of the model that one GGUF file belongs to, by file name, in their order."""
    count = _integer(first, COUNT_KEY) or 0
    if count <= 1:
        return {first.source.name: first}
    paths = _part_paths(first, count)
    parts: dict[str, Container] = {}
    try:
        for number, path in enumerate(paths):
            is_first = number == _integer(first, NUMBER_KEY)
            parts[path] = part = first if is_first else parse(path)
            told = (_integer(part, NUMBER_KEY), _integer(part, COUNT_KEY))
            if told != (number, count):
                raise ParseError(
                    f"should be part {number + 1:,} of {count:,}, but {NUMBER_KEY} is {told[0]}"
                    f" and {COUNT_KEY} {told[1]}",
                    source=part.source.name,
                )
        _check_tensors(list(parts.values()))
    except BaseException:
        for part in parts.values():
            part.source.close()
        raise
    return parts


def has_parts(path: str) -> bool:
    """Return whether the first part of a model is where a file of this name would be."""
    folder, name = os.path.split(path)
    folder = folder or os.curdir
    stem, ending = os.path.splitext(name)
    names: Iterable[str] = ()
    if ending.lower() == ".gguf" and kind_of_url(folder) == "bucket":
        from anamnesis.sources.bucket import names_in

        names = names_in(folder)
    elif ending.lower() == ".gguf" and os.path.isdir(folder):
        names = os.listdir(folder)
    return any(part is not None and part[:2] == (stem, 1) for part in map(_part, names))


def same_models(paths: Iterable[str]) -> dict[str, str]:
    """Return paths that are later parts of a model that another path stands for, and that one."""
    first: dict[tuple[str, int], str] = {}
    found = {}
    for path in paths:
        folder, name = os.path.split(path)
        part = _part(name)
        if part is not None:
            of = first.setdefault((os.path.join(folder, part.stem), part.total), path)
            if of != path:
                found[path] = of
    return found


def _part(name: str) -> Shard | None:
    found = Shard.read(name)
    return found if found and found.stem and found.ending.lower() == ".gguf" else None


def _integer(container: Container, key: str) -> int | None:
    metadata = container.metadata
    field = metadata.fields.get(key) if isinstance(metadata, GgufMetadata) else None
    if field is None:
        return None
    if type(field.value) is not int:
        raise ParseError(
            f"{key} must be an integer, not {field.describe()}", source=container.source.name
        )
    return field.value


def _part_paths(first: Container, count: int) -> list[str]:
    """Return the paths of all parts; all files exist."""
    source = first.source
    number = (_integer(first, NUMBER_KEY) or 0) + 1
    part = f"is part {number:,} of {count:,} of a model"
    own = source.file_name
    if own is None:
        raise ParseError(f"{part}; parse it by its path to find the others", source=source.name)
    found = _part(own)
    if found is None or (found.number, found.total) != (number, count):
        raise ParseError(
            f"{part}, but its name does not end in -{number:05d}-of-{count:05d}.gguf, so the"
            " others cannot be found",
            source=source.name,
        )
    names = numbered_names(found.stem, count, found.ending, found.of)
    if source.path is not None:
        present = set(os.listdir(os.path.dirname(source.path) or os.curdir))
        missing = [name for name in names if name not in present]
        if missing:
            more = f" and {len(missing) - 1:,} more" if len(missing) > 1 else ""
            raise ParseError(f"{part}; {missing[0]}{more} is missing", source=source.name)
    return [place for name in names if (place := source.beside(name)) is not None]


def lone_part(container: Container) -> str | None:
    """Return why a GGUF file seems to be a part of a model although its header does not say so.

    Every part that `gguf-split` writes has `split.count`; it is 1 in a file that is whole. Without
    the key llama.cpp takes any file as whole, regardless of its name.
    """
    found = _part(container.source.file_name or "")
    if found is None or found.total < 2 or _integer(container, COUNT_KEY) is not None:
        return None
    return (
        f"{container.source.name}: is named as part {found.number:,} of {found.total:,}, but has no"
        f" {COUNT_KEY} as gguf-split writes it, so the parts cannot be joined"
    )


def _check_tensors(parts: list[Container]) -> None:
    holders: dict[str, str] = {}
    for part in parts:
        for name in part.tensors:
            other = holders.setdefault(name, part.source.name)
            if other != part.source.name:
                raise ParseError(f"tensor {name!r} is in {other} as well", source=part.source.name)
    promised = _integer(parts[0], TENSORS_KEY)
    if promised not in (None, len(holders)):
        raise ParseError(
            f"{TENSORS_KEY} promises {promised:,} tensors, but the {len(parts):,} parts hold"
            f" {len(holders):,}",
            source=parts[0].source.name,
        )
