"""What a conversion will write, known to the byte before any tensor data is read.

A plan is a pure value: making one opens nothing and reads nothing.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from anamnesis.base.dropped import Dropped
from anamnesis.base.errors import AnamnesisError
from anamnesis.base.stored import Part
from anamnesis.convert.plan.output_names import Named
from anamnesis.convert.tell.result import Measured
from anamnesis.formats.base import Writer
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.plain import Moved, PlainEncoding
from anamnesis.schemes.core.rounding import MathName
from anamnesis.schemes.core.sizes import THREAD_BYTES, band_bytes
from anamnesis.schemes.core.weight import Band, Bands, Weight

if TYPE_CHECKING:
    from anamnesis.convert.loaders.verdicts import Verdict

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


class Slice(NamedTuple):
    """Bytes of a part that one band fills, and where in the file they go.

    Attributes
    ----------
    part : Part
    begin : int
        Where the part begins in the file.
    offset, n_bytes : int
        Of the first piece, in the part.
    stride : int
        From the begin of one piece to that of the next.
    pieces : int
        How many there are.
    """

    part: Part
    begin: int
    offset: int
    n_bytes: int
    stride: int
    pieces: int

    @property
    def total(self) -> int:
        """Bytes of all pieces."""
        return self.n_bytes * self.pieces

    def places(self, data: memoryview) -> Iterator[tuple[int, memoryview]]:
        """Yield the pieces of a band's bytes, and where each goes in the part."""
        if self.pieces == 1 and self.n_bytes:
            yield self.offset, data
        elif self.n_bytes:
            for i in range(self.pieces):
                place = self.offset + i * self.stride
                yield place, data[i * self.n_bytes : (i + 1) * self.n_bytes]


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
    """A weight, the encoding that it is written in, and the parts that makes.

    Attributes
    ----------
    weight : Weight
    encoding : Encoding
    name : str
        Its name in the output.
    found : bytes
        What the survey found, once it was made.
    parts : tuple of Part
    constants : dict of int to bytes
        The bytes of those parts that no band writes to.
    offsets : tuple of int
        Of the parts in their file, once that is laid out.
    index : int
        Its place among all of the plan.
    is_plain : bool
        Whether it is written as values, or as it is stored.
    """

    __slots__ = (
        "constants",
        "encoding",
        "found",
        "index",
        "is_plain",
        "n_bytes",
        "name",
        "offsets",
        "parts",
        "weight",
    )

    def __init__(self, weight: Weight, encoding: Encoding, name: str | None = None) -> None:
        self.weight = weight
        self.encoding = encoding
        self.is_plain = isinstance(encoding, PlainEncoding)
        self.name = weight.name if name is None else name
        self.index = 0
        self.offsets: tuple[int, ...] = ()
        self.settle(b"")

    def settle(self, found: bytes) -> None:
        """Take what the survey found."""
        self.found = found
        shape = self.weight.shape
        self.parts = self.encoding.parts(self.name, shape, found)
        self.constants = {} if self.is_plain else self.encoding.constants(self.name, shape, found)
        self.n_bytes = sum([part.n_bytes for part in self.parts])

    def bands(self) -> Bands:
        """Return the bands in which it is made, each of about a megabyte.

        They are the weight's own where these suit the encoding, and tiles where rows are so long
        that the encoding would want too many values at once.
        """
        encoding, shape = self.encoding, self.weight.shape
        if self.is_plain:
            return self.weight.bands(self.parts[0].dtype, band_bytes())
        tiles = encoding.tiles(shape)
        if tiles is not None:
            return tiles
        own = self.weight.bands(encoding.values, band_bytes())
        return own.multiples_of(encoding.grain(shape), band_bytes())

    def slices(self, band: Band) -> tuple[Slice, ...]:
        """Return where the bytes of a band go."""
        extents = self.encoding.extents(self.weight.shape, band)
        return tuple(
            [
                Slice(part, begin, *extent)
                for part, begin, extent in zip(self.parts, self.offsets, extents, strict=True)
            ]
        )


class OutputFile:
    """One file to be: what lies around the data, and its weights in the order of their bytes.

    Attributes
    ----------
    name : str
    fixed : list of (int, bytes)
        Offsets and bytes of what lies around the data, and of constants, in order.
    n_bytes : int
    weights : list of OutputWeight
        In the order of their bytes.
    writer : Writer
        That has laid it out.
    metadata : mapping
        What it says of itself.
    """

    def __init__(
        self,
        name: str,
        weights: Iterable[OutputWeight],
        writer: Callable[[], Writer],
        metadata: Mapping[str, Any],
    ) -> None:
        self.name = name
        self._given = list(weights)
        self._make_writer = writer
        self.metadata = metadata
        self.lay_out()

    def lay_out(self) -> None:
        """Put everything in its place; again, when surveys have settled what was open."""
        weights = self._given
        self.writer = self._make_writer()
        parts = [part for weight in weights for part in weight.parts]
        layout = self.writer.lay_out(parts, self.metadata)
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
        return not self.writer.wants_sums and all(
            len(weight.parts) == 1 and not weight.constants and _is_run(weight)
            for weight in self.weights
        )

    def patches(self, sums: Mapping[int, list[int]]) -> list[tuple[int, bytes]]:
        """Return what is known only at the end, of the CRC-32 of each weight's parts, by index."""
        if not self.writer.wants_sums:
            return []
        return list(self.writer.finish([crc for w in self._given for crc in sums[w.index]]))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as values that JSON has."""
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
                    "weight": weight.name,
                    "encoding": weight.encoding.id,
                }
                for weight in self.weights
                for part in weight.parts
            ],
        }


def _is_run(weight: OutputWeight) -> bool:
    """Tell whether each band's bytes are consecutive; the first is as all others."""
    if weight.is_plain:
        return True
    first = next(iter(weight.bands()), None)
    return first is None or weight.slices(first)[0].pieces == 1


@dataclass(slots=True)
class Account:
    """What becomes of a model's stored tensors.

    Attributes
    ----------
    n_in, n_bytes_in : int
        How many there are, and the bytes that they take.
    n_parameters : int
        Values of all weights that can be read.
    dropped : list of Dropped
        Tensors, metadata and files that the output leaves out.
    passed : tuple of str
        Tensors that could not be accounted for and pass through as they are.
    problems : dict of str to AnamnesisError
        Tensors that cannot be read or cannot be written; they stop the run unless they may pass.
    still_quantized : list of str
        Files that still describe the quantisation, because not all of it could be read.
    plain : dict of str to str
        Weights that are left plain although an encoding is asked for, and why.
    repacked : dict of str to str
        Weights whose own codes are moved to another layout, and the encoding that has it.
    inexact : list of str
        Those of them whose float32 may differ in its last bits; BF16 and F16 come out equal.
    taken_apart : dict of str to int
        Stacks of experts that the encoding's own tool takes apart, and into how many pieces.
    put_together : dict of str to int
        Stacks of experts that are made of single ones, and of how many pieces.
    requantised : dict of str to str
        Weights that are encoded out of other codes, by what these are in words.
    cast : dict of str to (str, str)
        Plain weights that are cast, and their dtypes before and after.
    kept : dict of str to str
        Weights that stay in the blocks that they are stored in, and what these are called.
    edited : tuple of str
        Weights that have other values than those that are stored.
    n_bytes_edited : int
        What those of them that functions make take in float32, as far as they are in memory at
        once: the largest, or two of several threads.
    """

    n_in: int = 0
    n_bytes_in: int = 0
    n_parameters: int = 0
    dropped: list[Dropped] = field(default_factory=list)
    passed: tuple[str, ...] = ()
    problems: dict[str, AnamnesisError] = field(default_factory=dict)
    still_quantized: list[str] = field(default_factory=list)
    plain: dict[str, str] = field(default_factory=dict)
    repacked: dict[str, str] = field(default_factory=dict)
    inexact: list[str] = field(default_factory=list)
    taken_apart: dict[str, int] = field(default_factory=dict)
    put_together: dict[str, int] = field(default_factory=dict)
    requantised: dict[str, str] = field(default_factory=dict)
    cast: dict[str, tuple[str, str]] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)
    edited: tuple[str, ...] = ()
    n_bytes_edited: int = 0


@dataclass(slots=True)
class DirectoryOutput:
    """What a directory has beside its weights.

    Attributes
    ----------
    root : Path or None
        The source; None if that is one file, or lies in memory.
    sidecars : list of str
        Files that are copied.
    params : str or None
        The one of them that is written anew, without its quantisation.
    indexes : list of (str, list of OutputFile)
        Names, and the files that each index names.
    described : dict of str to bytes
        Files that describe the output beside config.json, by name.
    config : bytes or None
        What config.json will be.
    config_edits : dict of str to anything
        What is changed of it, by its key; None where that is taken out.
    named : list of Named
        All files of the output.
    """

    root: Path | None
    sidecars: list[str] = field(default_factory=list)
    params: str | None = None
    indexes: list[tuple[str, list[OutputFile]]] = field(default_factory=list)
    described: dict[str, bytes] = field(default_factory=dict)
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
    is_plain : bool
        Whether all weights are written as values, or as they are stored.
    measures : bool
        Whether what encodings take is measured.
    math : str
        `float32`, or `reference`: what is decoded by.
    config : mapping
        The source's config.json; empty where it has none.
    n_bytes, n_tensor_bytes, n_tensors : int
        Of the files; of the tensors in them; how many these are.
    measured : Measured or None
        What the encodings take, if that was measured.
    """

    def __init__(
        self,
        files: list[OutputFile],
        account: Account,
        directory: DirectoryOutput | None = None,
        threads: int = 1,
        *,
        measures: bool = False,
        math: MathName = "float32",
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.config = config or {}
        self.files = files
        self.account = account
        self.directory = directory
        self.threads = threads
        self.math = math
        weights = list(self.weights())
        for i, weight in enumerate(weights):
            weight.index = i
        self.is_plain = all([weight.is_plain for weight in weights])  # noqa: C419 -- faster
        self.measures = measures and not self.is_plain
        self.measured: Measured | None = None
        self.n_tensors = sum([len(weight.parts) for weight in weights])
        self._add_up()

    def _add_up(self) -> None:
        self.n_bytes = sum([file.n_bytes for file in self.files])
        self.n_tensor_bytes = sum([weight.n_bytes for weight in self.weights()])

    def settle(self, found: Mapping[int, bytes]) -> None:
        """Take what the surveys of weights have found, by their index, and lay out anew."""
        weights = {weight.index: weight for weight in self.weights()}
        for index, raw in self.joint(found).items():
            weights[index].settle(raw)
        for file in self.files:
            file.lay_out()
        self._add_up()

    def joint(self, found: Mapping[int, bytes]) -> dict[int, bytes]:
        """Return what was found; of weights that depend on each other, what was of them all."""
        if not found:
            return {}
        weights = {weight.index: weight for weight in self.weights()}
        by_encoding: dict[str, dict[str, OutputWeight]] = {}
        for index in found:
            made = weights[index]
            by_encoding.setdefault(made.encoding.id, {})[made.weight.name] = made
        settled = dict(found)
        names = [made.weight.name for made in weights.values()]
        for surveyed in by_encoding.values():
            encoding = next(iter(surveyed.values())).encoding
            for group in encoding.together(names):
                joined = [surveyed[name] for name in group if name in surveyed]
                if len(joined) > 1:
                    raw = encoding.joint([found[made.index] for made in joined])
                    settled.update({made.index: raw for made in joined})
        return settled

    @property
    def to_survey(self) -> list[OutputWeight]:
        """Weights that are passed over before they are written, in order."""
        if self.is_plain:
            return []
        return [
            weight
            for weight in self.weights()
            if not weight.is_plain and weight.encoding.survey(weight.weight.shape) is not None
        ]

    @property
    def encodings(self) -> Counter[str]:
        """How many weights are written in each encoding, repacked ones among them."""
        made = [w.encoding.id for w in self.weights() if not isinstance(w.weight, Moved)]
        return Counter([*made, *self.account.repacked.values()])

    @property
    def sums(self) -> int:
        """How many CRC-32 are wanted of each band."""
        return max(
            (
                len(weight.parts)
                for file in self.files
                if file.writer.wants_sums
                for weight in file.weights
            ),
            default=0,
        )

    @cached_property
    def verdicts(self) -> tuple[Verdict, ...]:
        """What the programs make of it that know its encodings, as far as that was tried."""
        # Only here: a conversion starts without.
        from anamnesis.convert.loaders.facts import Output, facts_of_output
        from anamnesis.convert.loaders.verdicts import verdicts

        if self.account.passed or self.account.still_quantized:  # of which nobody knows
            return ()
        weights = list(self.weights())
        encoded = {made.name: made.encoding.id for made in weights if not made.is_plain}
        output = Output(
            container=self.files[0].writer.id if self.files else "safetensors",
            metadata=self.files[0].metadata if self.files else {},
            config=self.config,
            has_config=self.directory is not None and self.directory.config is not None,
            names=[made.name for made in weights],
            coded={**encoded, **self.account.repacked},
            dtypes={part.dtype.name for made in weights for part in made.parts},
        )
        return verdicts(facts_of_output(output))

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user must know of who loads it, in sentences."""
        from anamnesis.convert.loaders.verdicts import warnings

        return warnings(self.verdicts)

    @property
    def ratio(self) -> float | None:
        """The bytes of all tensors by those of the source's; None if these are none."""
        n_bytes_in = self.account.n_bytes_in
        return self.n_tensor_bytes / n_bytes_in if n_bytes_in else None

    @property
    def bits_per_weight(self) -> float | None:
        """What each value takes on average, scales and all; None if there are none."""
        n = self.account.n_parameters
        return 8 * self.n_tensor_bytes / n if n else None

    @property
    def peak_memory(self) -> int:
        """The most bytes that a run takes over the interpreter's own.

        What else functions take that edit weights is not among them.
        """
        headers = sum(len(raw) for file in self.files for _, raw in file.fixed)
        return self.threads * THREAD_BYTES + headers + self.account.n_bytes_edited

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
            "n_bytes_in": account.n_bytes_in,
            "ratio": self.ratio,
            "bits_per_weight": self.bits_per_weight,
            "loss": self.measured.to_dict() if self.measured else None,
            "peak_memory": self.peak_memory,
            "math": self.math,
            "encodings": dict(self.encodings),
            "dropped": [{"name": d.name, "reason": d.reason} for d in account.dropped],
            "unknown": list(account.passed),
            "problems": {name: str(error) for name, error in account.problems.items()},
            "still_quantized": account.still_quantized,
            "plain": account.plain,
            "repacked": account.repacked,
            "inexact": account.inexact,
            "taken_apart": account.taken_apart,
            "put_together": account.put_together,
            "requantised": account.requantised,
            "cast": account.cast,
            "kept": account.kept,
            "edited": list(account.edited),
            "loads": [verdict.to_dict() for verdict in self.verdicts],
            "warnings": list(self.warnings),
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
        state = hashlib.sha256(f"{band_bytes()} {self.math}".encode())
        for file in self.files:
            state.update(file.name.encode("utf-8", "surrogatepass") + b"\0")
            for offset, raw in file.fixed:
                state.update(offset.to_bytes(8, "little") + raw)
            for made in file.weights:
                parts = [(part.name, part.dtype.name, part.offset) for part in made.weight.parts]
                encoding = (made.encoding.id, made.encoding.values.name)
                state.update(repr((made.weight.id, encoding, parts)).encode())
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
