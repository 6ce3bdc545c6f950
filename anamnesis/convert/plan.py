"""What a conversion will write, known to the byte before any tensor data is read.

A plan is a pure value: making one opens nothing and reads nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.stored import Part
from anamnesis.convert.output_names import Named
from anamnesis.formats.base import Writer
from anamnesis.schemes.base import BAND_BYTES, Band, Bands, Weight
from anamnesis.schemes.encoding import Encoding

__all__ = [
    "Account",
    "DirectoryOutput",
    "Job",
    "OutputFile",
    "OutputWeight",
    "Plan",
    "Slice",
    "split_by_size",
]

_THREAD_BYTES = 16 << 20  # the most that each takes


class Slice(NamedTuple):
    """Bytes of a part that one band fills, and where in the file they go.

    Attributes
    ----------
    part : Part
    offset, n_bytes : int
        Of the first piece, in the file.
    stride : int
        From the begin of one piece to that of the next.
    pieces : int
        How many there are.
    """

    part: Part
    offset: int
    n_bytes: int
    stride: int
    pieces: int

    @property
    def total(self) -> int:
        """Bytes of all pieces."""
        return self.n_bytes * self.pieces


class Job(NamedTuple):
    """One band, and where its bytes go: it may write to several parts."""

    ordinal: int
    file: OutputFile
    weight: OutputWeight
    band: Band
    slices: tuple[Slice, ...]

    @property
    def n_bytes(self) -> int:
        """Return the bytes of all slices."""
        return sum([piece.total for piece in self.slices])


class OutputWeight:
    """A weight, the encoding that it is written in, and the parts that makes."""

    __slots__ = ("encoding", "n_bytes", "offsets", "parts", "weight")

    def __init__(self, weight: Weight, encoding: Encoding) -> None:
        self.weight = weight
        self.encoding = encoding
        self.parts = encoding.parts(weight.name, weight.shape)
        self.n_bytes = sum([part.n_bytes for part in self.parts])
        self.offsets: tuple[int, ...] = ()  # of the parts in their file, once that is laid out

    @property
    def name(self) -> str:
        """Its name."""
        return self.weight.name

    def bands(self) -> Bands:
        """Return the bands in which it is made, each of about a megabyte."""
        return self.weight.bands(self.parts[0].dtype, BAND_BYTES)

    def slices(self, band: Band) -> tuple[Slice, ...]:
        """Return where the bytes of a band go."""
        extents = self.encoding.extents(self.weight.shape, band)
        return tuple(
            [
                Slice(part, start + extent.offset, *extent[1:])
                for part, start, extent in zip(self.parts, self.offsets, extents, strict=True)
            ]
        )


class OutputFile:
    """One file to be: its header, and its weights in the order of their bytes."""

    def __init__(
        self,
        name: str,
        weights: Iterable[OutputWeight],
        writer: Writer,
        metadata: Mapping[str, str],
    ) -> None:
        weights = list(weights)
        layout = writer.lay_out([part for weight in weights for part in weight.parts], metadata)
        self.name = name
        self.fixed = layout.fixed
        self.n_bytes = layout.n_bytes
        offsets = iter(layout.offsets)
        for weight in weights:
            weight.offsets = tuple([next(offsets) for _ in weight.parts])
        self.weights = sorted(weights, key=lambda weight: weight.offsets)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
        return {
            "name": self.name,
            "n_bytes": self.n_bytes,
            "tensors": [
                {
                    "name": part.name,
                    "dtype": part.dtype.name,
                    "shape": list(part.shape),
                    "n_bytes": part.n_bytes,
                    "weight": weight.name,
                    "encoding": weight.encoding.id,
                }
                for weight in self.weights
                for part in weight.parts
            ],
        }


@dataclass(slots=True)
class Account:
    """What becomes of a model's stored tensors.

    Attributes
    ----------
    n_in : int
        How many there are.
    dropped : list of Dropped
        Tensors, metadata and files that the output leaves out.
    passed : tuple of str
        Tensors that could not be accounted for and pass through as they are.
    problems : dict of str to AnamnesisError
        Tensors that cannot be read or cannot be written; they stop the run unless they may pass.
    still_quantized : list of str
        Files that still describe the quantisation, because not all of it could be read.
    """

    n_in: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    passed: tuple[str, ...] = ()
    problems: dict[str, AnamnesisError] = field(default_factory=dict)
    still_quantized: list[str] = field(default_factory=list)


@dataclass(slots=True)
class DirectoryOutput:
    """What a directory has beside its weights.

    Attributes
    ----------
    root : Path
        The source.
    sidecars : list of str
        Files that are copied.
    params : str or None
        The one of them that is written anew, without its quantisation.
    indexes : list of (str, list of OutputFile)
        Names, and the files that each index names.
    config : bytes or None
        What config.json will be.
    config_edits : dict of str to anything
        What is changed of it, by its key; None where that is taken out.
    named : list of Named
        All files of the output.
    """

    root: Path
    sidecars: list[str] = field(default_factory=list)
    params: str | None = None
    indexes: list[tuple[str, list[OutputFile]]] = field(default_factory=list)
    config: bytes | None = None
    config_edits: dict[str, Any] = field(default_factory=dict)
    named: list[Named] = field(default_factory=list)


class Plan:
    """All files of an output, and the bands in which they are made, in order.

    Attributes
    ----------
    files : list of OutputFile
    account : Account
    directory : DirectoryOutput or None
        None if the output is one file.
    threads : int
    n_bytes, n_tensor_bytes, n_tensors : int
        Of the files; of the tensors in them; how many these are.
    """

    def __init__(
        self,
        files: list[OutputFile],
        account: Account,
        directory: DirectoryOutput | None = None,
        threads: int = 1,
    ) -> None:
        self.files = files
        self.account = account
        self.directory = directory
        self.threads = threads
        self.n_bytes = sum(file.n_bytes for file in files)
        self.n_tensor_bytes = sum(weight.n_bytes for weight in self.weights())
        self.n_tensors = sum(len(weight.parts) for weight in self.weights())

    @property
    def peak_memory(self) -> int:
        """The most bytes that a run takes over the interpreter's own."""
        headers = sum(len(raw) for file in self.files for _, raw in file.fixed)
        return self.threads * _THREAD_BYTES + headers

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
        account, directory = self.account, self.directory
        return {
            "files": [file.to_dict() for file in self.files],
            "copied": directory.sidecars if directory else [],
            "config": directory.config_edits if directory else {},
            "n_in": account.n_in,
            "n_out": self.n_tensors,
            "n_bytes": self.n_bytes,
            "peak_memory": self.peak_memory,
            "encodings": dict(Counter(weight.encoding.id for weight in self.weights())),
            "dropped": [{"name": d.name, "reason": d.reason} for d in account.dropped],
            "unknown": list(account.passed),
            "problems": {name: str(error) for name, error in account.problems.items()},
            "still_quantized": account.still_quantized,
        }

    def weights(self) -> Iterator[OutputWeight]:
        """Yield the weights of all files."""
        for file in self.files:
            yield from file.weights

    def jobs(self) -> Iterator[Job]:
        """Yield all bands, file after file, in the order of their bytes."""
        return (job for run in self.runs() for job in run)

    def runs(self) -> Iterator[list[Job]]:
        """Yield the same in runs that one thread had better do."""
        ordinal = 0
        for file in self.files:
            for weight in file.weights:
                for bands in weight.bands().runs():
                    yield [
                        Job(i, file, weight, band, weight.slices(band))
                        for i, band in enumerate(bands, ordinal)
                    ]
                    ordinal += len(bands)

    def count_jobs(self) -> int:
        """Return the number of bands."""
        return sum(len(weight.bands()) for weight in self.weights())

    def digest(self) -> str:
        """Return a hash of all that the output depends on, but for the sources' bytes."""
        state = hashlib.sha256(str(BAND_BYTES).encode())
        for file in self.files:
            state.update(file.name.encode("utf-8", "surrogatepass") + b"\0")
            for offset, raw in file.fixed:
                state.update(offset.to_bytes(8, "little") + raw)
            for made in file.weights:
                parts = [(part.name, part.dtype.name, part.offset) for part in made.weight.parts]
                state.update(repr((made.weight.id, made.encoding.id, parts)).encode())
        return state.hexdigest()


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
