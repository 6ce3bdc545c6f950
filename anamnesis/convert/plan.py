"""What a conversion will write, known to the byte before any tensor data is read."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.formats.safetensors.write import build_header
from anamnesis.schemes.base import BAND_BYTES, Band, Bands, Weight

__all__ = ["Job", "OutputFile", "OutputTensor", "Plan", "split_by_size"]


class Job(NamedTuple):
    """One band, and where its bytes go."""

    ordinal: int
    file: OutputFile
    tensor: OutputTensor
    band: Band
    offset: int  # in the file
    n_bytes: int


@dataclass(frozen=True, slots=True, eq=False)
class OutputTensor:
    """A weight at the dtype that it is written in."""

    weight: Weight
    dtype: DType

    @property
    def name(self) -> str:
        """Its name."""
        return self.weight.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.weight.shape

    @property
    def n_bytes(self) -> int:
        """Its length in the file."""
        return self.dtype.n_bytes(self.weight.n_elements)

    def bands(self) -> Bands:
        """Return the bands in which it is decoded."""
        return self.weight.bands(self.dtype, BAND_BYTES)


class OutputFile:
    """One safetensors file to be: its header and its tensors, each of which starts aligned.

    Tensors go by falling alignment, else in the source's order, so that no padding is needed.
    """

    def __init__(
        self, name: str, tensors: Iterable[OutputTensor], metadata: Mapping[str, str]
    ) -> None:
        self.name = name
        self.tensors = sorted(tensors, key=lambda t: -t.dtype.alignment)
        self.header = build_header(self.tensors, metadata)
        self.n_bytes = len(self.header) + sum(t.n_bytes for t in self.tensors)


class Plan:
    """All files of an output, and the bands in which they are made, in order."""

    def __init__(self, files: list[OutputFile]) -> None:
        self.files = files
        self.n_bytes = sum(file.n_bytes for file in files)
        self.n_tensor_bytes = self.n_bytes - sum(len(file.header) for file in files)
        self.n_tensors = sum(len(file.tensors) for file in files)

    def jobs(self) -> Iterator[Job]:
        """Yield all bands, file after file, in the order of their bytes."""
        return (job for run in self.runs() for job in run)

    def runs(self) -> Iterator[list[Job]]:
        """Yield the same in runs that one thread had better do."""
        ordinal = 0
        for file in self.files:
            start = len(file.header)
            for tensor in file.tensors:
                for bands in tensor.bands().runs():
                    run = []
                    for band in bands:
                        begin, end = (start + tensor.dtype.n_bytes(n) for n in band)
                        run.append(Job(ordinal, file, tensor, band, begin, end - begin))
                        ordinal += 1
                    yield run
                start += tensor.n_bytes

    def count_jobs(self) -> int:
        """Return the number of bands."""
        return sum(len(tensor.bands()) for file in self.files for tensor in file.tensors)

    def digest(self) -> str:
        """Return a hash of all that the output depends on, but for the sources' bytes."""
        state = hashlib.sha256(str(BAND_BYTES).encode())
        for file in self.files:
            state.update(file.name.encode("utf-8", "surrogatepass") + b"\0" + file.header)
            for tensor in file.tensors:
                parts = [(part.name, part.offset) for part in tensor.weight.parts]
                state.update(repr((tensor.weight.scheme, parts)).encode())
        return state.hexdigest()


def split_by_size(tensors: Iterable[OutputTensor], limit: int) -> list[list[OutputTensor]]:
    """Cut a sequence of tensors into shards of at most `limit` bytes; a larger one gets its own."""
    shards: list[list[OutputTensor]] = [[]]
    size = 0
    for tensor in tensors:
        if shards[-1] and size + tensor.n_bytes > limit:
            shards.append([])
            size = 0
        shards[-1].append(tensor)
        size += tensor.n_bytes
    return shards
