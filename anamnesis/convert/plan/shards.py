"""Shards of a directory: their sizes and names, and that no two files of it meet."""

from __future__ import annotations

import errno
import os
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from anamnesis.base.errors import OutputError
from anamnesis.checkpoint.file_names import EXTENSION, HQQ_NAME, MODEL_STEM
from anamnesis.checkpoint.grouping import without_variant

if TYPE_CHECKING:
    from anamnesis.convert.plan.files import OutputWeight

# Bytes, where the input has no shards: as transformers wrote them for long.
DEFAULT_SHARD_SIZE = 5 * 10**9
_TORCH_PREFIX = "pytorch_"


class Named(NamedTuple):
    """A file of the output."""

    name: str
    origin: str


def split_by_size(weights: Iterable[OutputWeight], limit: int) -> list[list[OutputWeight]]:
    """Cut a sequence of weights into shards of at most `limit` bytes; a larger one gets its own."""
    shards: list[list[OutputWeight]] = [[]]
    size = 0
    for weight in weights:
        if shards[-1] and size + weight.n_bytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(weight)
        size += weight.n_bytes
    return shards


def shard_names(shards: Iterable[str], variant: str | None = None) -> dict[str, str]:
    """Return what each shard is called as safetensors: `pytorch_model.bin` is `model.safetensors`.

    So is `model.fp16.safetensors` where the variant `fp16` was asked for.

    Shards that would get one name keep all of their own before the new extension: `x.bin` and
    `x.pt` become `x.bin.safetensors` and `x.pt.safetensors`. So does `model.bin` that is one of
    several, for transformers takes a `model.safetensors` for the whole model.
    """
    short = {shard: without_variant(_short_name(shard), variant) for shard in shards}
    taken = Counter(_folded(name) for name in short.values())
    if len(short) > 1:
        taken.update(
            _folded(name)
            for shard, name in short.items()
            if name == MODEL_STEM + EXTENSION and shard not in (name, "pytorch_model.bin")
        )
    return {
        shard: name if shard == name or taken[_folded(name)] == 1 else shard + EXTENSION
        for shard, name in short.items()
    }


def _short_name(shard: str) -> str:
    if shard.endswith(EXTENSION):
        return shard
    folder, name = posixpath.split(shard)
    stem = posixpath.splitext(name)[0].removeprefix(_TORCH_PREFIX)
    return posixpath.join(folder, (MODEL_STEM if name == HQQ_NAME else stem) + EXTENSION)


def check_distinct(files: Sequence[Named], folder: Path) -> None:
    """Refuse names of which one would be written over another, or lie below it."""
    origins: dict[str, str] = {}
    for name, origin in files:
        if name in origins:
            raise _meeting(name, origin, origins[name])
        origins[name] = origin
    for name, origin in files:
        for above in _folders(name):
            if above in origins:
                raise _meeting(above, f"the folder of {origin}", origins[above])
    doubtful = list(_alike(origins))
    if doubtful:
        _try(doubtful, origins, folder)


def _meeting(name: str, one: str, other: str) -> OutputError:
    return OutputError(f"{other} and {one} would both be written as {name}; rename one of them")


def _folders(name: str) -> Iterator[str]:
    while name := posixpath.dirname(name):
        yield name


def _folded(name: str) -> str:
    """Return what names have in common that some file system takes for one."""
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
    return "/".join(part.rstrip(" .") for part in folded.split("/"))


def _alike(names: Iterable[str]) -> Iterator[str]:
    """Yield the names that another, or a folder of another, could be taken for."""
    folded = {name: _folded(name) for name in names}
    files = Counter(folded.values())
    folders = {above for name in folded.values() for above in _folders(name)}
    for name, key in folded.items():
        if files[key] > 1 or key in folders or any(above in files for above in _folders(key)):
            yield name


def _try(names: Iterable[str], origins: Mapping[str, str], folder: Path) -> None:
    """Make empty files of these names on the file system where they are to be."""
    import tempfile

    while not folder.is_dir():
        folder = folder.parent
    made: list[str] = []
    with tempfile.TemporaryDirectory(dir=folder, prefix=".amn-") as scratch:
        for name in names:
            path = os.path.join(scratch, name)
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "x"):
                    made.append(name)
            except (FileExistsError, NotADirectoryError):
                key = _folded(name)
                other = next((o for o in made if _meet(_folded(o), key)), made[-1])
                raise _meeting(name, origins[name], origins[other]) from None


def _meet(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def check_writable(files: Sequence[Named], out: Path) -> None:
    """Refuse an output whose folders, as far as they are there, must not be written to."""
    folders = {"", *(above for name, _ in files for above in _folders(name))}
    for folder in (out / name for name in sorted(folders)):
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
