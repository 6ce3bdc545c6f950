"""The files of an output: names, sizes, weights, and where each band's bytes go."""

from __future__ import annotations

import errno
import os
import posixpath
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.base.errors import OutputError, UnsupportedError
from anamnesis.base.stored import Part
from anamnesis.checkpoint.file_names import EXTENSION, HQQ_NAME, MODEL_STEM
from anamnesis.checkpoint.model_files import without_variant
from anamnesis.convert.decide.possible import Piece
from anamnesis.convert.report.problems import another_format
from anamnesis.formats.base import Writer
from anamnesis.schemes.core.bands import Band, Bands, band_bytes, encoded_band_bytes
from anamnesis.schemes.core.codes import Extent

_NONE: dict[int, bytes] = {}  # of the constants of values
# Bytes, where the input has no shards: as transformers wrote them for long.
DEFAULT_SHARD_SIZE = 5 * 10**9


class Slice(NamedTuple):
    """Bytes of a part that one band fills, and where in the file they go."""

    part: Part
    begin: int
    extent: Extent
    total: int

    def places(self, data: memoryview) -> list[tuple[int, memoryview]]:
        """Return the pieces of a band's bytes, and where each goes in the part."""
        offset, n, stride, pieces = self.extent
        if pieces == 1 or n == 0:
            return [(offset, data)] if n else []
        return [(offset + i * stride, data[i * n : (i + 1) * n]) for i in range(pieces)]


class Job(NamedTuple):
    """One band, and where its bytes go: it may write to several parts."""

    ordinal: int
    file: OutputFile
    weight: OutputWeight
    band: Band
    slices: tuple[Slice, ...]
    n_bytes: int


class OutputWeight:
    """A weight, the encoding that it is written in, and the parts that makes."""

    __slots__ = (
        "_bands",
        "constants",
        "encoding",
        "found",
        "index",
        "is_moved",
        "is_plain",
        "n_bytes",
        "name",
        "offsets",
        "parts",
        "weight",
    )

    def __init__(self, piece: Piece) -> None:
        self.weight, self.encoding, self.name, self.is_plain, self.is_moved = piece
        self.index = 0
        self.offsets: tuple[int, ...] = ()
        self._bands: Bands | None
        self.settle(b"")

    def settle(self, found: bytes) -> None:
        self.found, self._bands = found, None
        of = self.name, self.weight.shape, found
        if self.is_plain:
            self.parts, self.constants = self.encoding.parts(*of), _NONE
        else:
            self.parts, self.constants = self.encoding.laid_out(*of)
        self.n_bytes = sum([part.n_bytes for part in self.parts])

    def check(self, writer: Writer) -> None:
        """Refuse what a format does not hold; say whose it is, and which format does."""
        for part in self.parts:
            why = writer.refuses(part)
            if why is not None:
                raise UnsupportedError(
                    f"{self.weight.parts[0].source.name}: tensor {part.name!r} cannot be written:"
                    f" {why}",
                    remedy=None if writer.holds(part.dtype) else another_format(part.dtype),
                )

    def bands(self) -> Bands:
        """Return the bands in which it is made, each of a megabyte or two."""
        # They are the weight's own where these suit the encoding, and tiles where rows are so long
        # that the encoding would want too many values at once.
        encoding, shape = self.encoding, self.weight.shape
        if self._bands is None and self.is_plain:
            self._bands = self.weight.bands(self.parts[0].dtype, band_bytes())
        elif self._bands is None:
            self._bands = encoding.encoder.tiles(shape)
        if self._bands is None:
            own = self.weight.bands(encoding.values, encoded_band_bytes())
            self._bands = own.multiples_of(encoding.encoder.grain(shape), encoded_band_bytes())
        return self._bands

    def values_bytes(self, band: Band) -> int:
        """Return what the values of a band take, where they are held before they are encoded."""
        return 0 if self.is_plain else self.encoding.values.n_bytes(band.stop - band.start)

    def slices(self, band: Band) -> tuple[Slice, ...]:
        """Return where the bytes of a band go."""
        extents = self.encoding.extents(self.weight.shape, band)
        each = zip(self.parts, self.offsets, extents, strict=True)
        return tuple([Slice(part, at, some, some.n_bytes * some.pieces) for part, at, some in each])

    def job(self, ordinal: int, file: OutputFile, band: Band) -> Job:
        """Return the making of one of its bands."""
        slices = self.slices(band)
        return Job(ordinal, file, self, band, slices, sum([piece.total for piece in slices]))


class OutputFile:
    """One file to be: what lies around the data, and its weights in the order of their bytes."""

    def __init__(
        self,
        name: str,
        weights: Iterable[OutputWeight],
        writer: Callable[[], Writer],
        metadata: Mapping[str, Any],
    ) -> None:
        self.name = name
        self.given = list(weights)
        self._make_writer = writer
        self.metadata = metadata
        self.lay_out()

    def lay_out(self) -> None:
        """Put everything in its place; again, when surveys have settled what was open."""
        weights = self.given
        self.writer = self._make_writer()
        parts = [part for weight in weights for part in weight.parts]
        try:
            layout = self.writer.lay_out(parts, self.metadata)
        except UnsupportedError:
            for made in weights:
                made.check(self.writer)
            raise
        self.n_bytes = layout.n_bytes
        offsets = iter(layout.offsets)
        fixed = list(layout.fixed)
        for weight in weights:
            weight.offsets = tuple([next(offsets) for _ in weight.parts])
            if weight.constants:
                fixed += [(weight.offsets[i], raw) for i, raw in weight.constants.items() if raw]
        self.fixed = sorted(fixed)
        self.weights = sorted(weights, key=lambda weight: weight.offsets)

    @property
    def in_order(self) -> bool:
        """Whether its bytes can be written from first to last, band after band."""
        if self.writer.wants_sums:
            return False
        for weight in self.weights:
            if len(weight.parts) != 1 or weight.constants:
                return False
            first = None if weight.is_plain else next(iter(weight.bands()), None)
            if first is not None and weight.slices(first)[0].extent.pieces != 1:
                return False  # for others are as the first
        return True

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "format": self.writer.id,
            "n_bytes": self.n_bytes,
            "tensors": [
                {
                    "name": part.name,
                    "dtype": part.dtype.name,
                    "shape": list(part.shape),
                    "n_bytes": part.n_bytes,
                    "bits": 8 * part.n_bytes / n if (n := prod(part.shape)) else None,
                    "weight": weight.name,
                    "encoding": weight.encoding.id,
                }
                for weight in self.weights
                for part in weight.parts
            ],
        }


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
    short = {}
    for shard in shards:
        folder, name = posixpath.split(shard)
        stem = posixpath.splitext(name)[0].removeprefix("pytorch_")
        made = posixpath.join(folder, (MODEL_STEM if name == HQQ_NAME else stem) + EXTENSION)
        short[shard] = without_variant(shard if name.endswith(EXTENSION) else made, variant)
    taken = Counter(case_folded(name) for name in short.values())
    if len(short) > 1:
        taken.update(
            case_folded(name)
            for shard, name in short.items()
            if name == MODEL_STEM + EXTENSION and shard not in (name, "pytorch_model.bin")
        )
    return {
        shard: name if shard == name or taken[case_folded(name)] == 1 else shard + EXTENSION
        for shard, name in short.items()
    }


@dataclass(slots=True)
class DirectoryOutput:
    """What a directory has beside its weights."""

    root: Path | None
    sidecars: list[str] = field(default_factory=list)
    params: str | None = None
    params_sections: dict[str, Any] = field(default_factory=dict)
    indexes: list[tuple[str, list[OutputFile]]] = field(default_factory=list)
    described: dict[str, bytes | bytearray] = field(default_factory=dict)
    config: bytes | None = None
    config_edits: dict[str, Any] = field(default_factory=dict)
    named: list[Named] = field(default_factory=list)


class Named(NamedTuple):
    """A file of the output."""

    name: str
    origin: str


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
    folded = {name: case_folded(name) for name in origins}  # what some file system takes for one
    n_of = Counter(folded.values())
    around = {above for key in folded.values() for above in _folders(key)}
    doubtful = [
        name
        for name, key in folded.items()
        if n_of[key] > 1 or key in around or any(above in n_of for above in _folders(key))
    ]
    if doubtful:
        _try(doubtful, origins, folder)


def _meeting(name: str, one: str, other: str) -> OutputError:
    return OutputError(f"{other} and {one} would both be written as {name}; rename one of them")


def _folders(name: str) -> Iterator[str]:
    while name := posixpath.dirname(name):
        yield name


def case_folded(name: str) -> str:
    """Return what names have in common that some file system takes for one."""
    folded = unicodedata.normalize("NFD", unicodedata.normalize("NFD", name).casefold())
    return "/".join(part.rstrip(" .") for part in folded.split("/"))


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
                key = f"{case_folded(name)}/"
                ends = ((o, f"{case_folded(o)}/") for o in made)
                meet = (o for o, end in ends if end.startswith(key) or key.startswith(end))
                other = next(meet, made[-1])
                raise _meeting(name, origins[name], origins[other]) from None


def check_writable(files: Sequence[Named], out: Path) -> None:
    """Refuse an output whose folders, as far as they are there, must not be written to."""
    folders = {"", *(above for name, _ in files for above in _folders(name))}
    for folder in (out / name for name in sorted(folders)):
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
