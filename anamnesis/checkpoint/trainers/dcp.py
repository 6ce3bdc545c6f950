"""PyTorch's distributed checkpoints: .metadata, and pieces in .distcp files.

    FOLDER/.metadata      which tensors there are, their boxes, and where each box lies
    FOLDER/__R_N.distcp   of rank R: one archive of torch.save after the other, each one piece

The pieces of a tensor may lie in any rank's file; replicas are stored once. Other objects than
tensors are pickles in the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cache, partial
from math import prod
from pathlib import Path
from typing import Any

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.limits import Budget, ParseLimits
from anamnesis.base.source import Source
from anamnesis.base.stored import Dropped, StoredTensor
from anamnesis.checkpoint.file_names import DCP_EXTENSION, DCP_METADATA_NAME, MODEL_STEM
from anamnesis.checkpoint.folder import is_inside
from anamnesis.checkpoint.indexes import leads_out
from anamnesis.checkpoint.trainers.optimizer import STATE, leaves_out
from anamnesis.formats.base import Container
from anamnesis.formats.pickle.nodes import Key
from anamnesis.formats.registry import parse_container
from anamnesis.formats.torch.distributed import METADATA_MAX_BYTES, MetadataMachine
from anamnesis.formats.torch.values import PTH_MAX_DIMS, DTypeGlobal, fields_of, is_a, too_large
from anamnesis.sources.boxes import Box, boxed
from anamnesis.sources.file import FileSource
from anamnesis.sources.gathered import JoinedSource

_WHOLE = f"{MODEL_STEM}{DCP_EXTENSION}"  # the file that stands for all
_OTHER = "an object that is not a tensor"
_COMMON, _SHARED = "common.pt", "the state that all of Megatron's ranks share"
_BYTES = DTYPES["U8"]
_KEPT_OPEN = 256  # of more files, each is open only while it is read
Shape = tuple[int, ...]


class Dcp:
    """One checkpoint on its way to containers."""

    def __init__(self, root: Path, budget: Budget, opened: ExitStack) -> None:
        self.root, self.budget = root, budget
        self.source = opened.enter_context(FileSource(root / DCP_METADATA_NAME))
        self.files: dict[str, Source] = {}
        self._opened = cache(partial(_opened, budget.limits))  # when it is first read

    def read(self, select: str | None) -> tuple[dict[str, Container], list[Dropped]]:
        """Return the tensors as of a file, the files of pieces, and what is left out."""
        size = self.source.size
        if size > METADATA_MAX_BYTES:
            raise LimitExceeded("METADATA_MAX_BYTES", f"{self.source.name}: {size:,} bytes")
        self.budget.alloc(size, self.source.name)
        loaded = MetadataMachine(self.source.read(0, size), self.budget, self.source.name).load()
        metadata = self._fields(loaded, "Metadata", "MCoreMetadata")
        described, stored = metadata.get("state_dict_metadata"), metadata.get("storage_data")
        if type(described) is not dict or type(stored) is not dict:
            raise self._error("does not list its tensors and where they are stored")
        self.budget.items(len(stored), "the pieces of a distributed checkpoint")
        recut = metadata.get("mcore_data")
        pieces = self._pieces(stored)
        tensors: dict[str, StoredTensor] = {}
        left = [Dropped(_COMMON, _SHARED)] if (self.root / _COMMON).is_file() else []
        for name, told in described.items():
            if type(name) is not str:
                raise self._error("has a tensor whose name is not text")
            if is_a(told, "BytesStorageMetadata"):
                left.append(Dropped(name, _OTHER))
            elif leaves_out(name, select):
                left.append(Dropped(name, STATE))
            elif type(recut) is dict and recut.get(name):
                left.append(Dropped(name, "cut along a grid by Megatron's optimizer"))
            else:
                tensors[name] = self._tensor(name, told, pieces.get(name, {}))
        kind = "PyTorch distributed checkpoint"
        whole = Container("torch", kind, self.source, tensors, header_bytes=size)
        files = {n: Container("torch", "PyTorch pieces", f, {}) for n, f in self.files.items()}
        return {_WHOLE: whole, **files}, left

    def _error(self, message: str) -> ParseError:
        return ParseError(message, source=self.source.name)

    def _fields(self, value: Any, *names: str) -> dict[str, Any]:
        """Return the fields of an object of a class."""
        fields = fields_of(value, *names)
        if fields is None:
            raise self._error(f"has something other than a {names[0]} with its fields")
        return fields

    def _pieces(self, stored: Mapping[Any, Any]) -> dict[str, dict[Shape, StoredTensor]]:
        """Return where each tensor's pieces lie, by their offsets: archives of torch.save."""
        pieces: dict[str, dict[Shape, StoredTensor]] = {}
        for key, where in stored.items():
            index = self._fields(key.value if type(key) is Key else key, "MetadataIndex")
            info = self._fields(where, "_StorageInfo")
            place = map(info.get, ("relative_path", "offset", "length"))
            told: list[Any] = [index.get("fqn"), *place]
            name, path, offset, length = told
            if through := info.get("transform_descriptors"):
                raise UnsupportedError(
                    f"{self.source.name}: {name!r} is stored through {str(through)[:200]}, which is"
                    " not read",
                    remedy="save it again without extensions",
                )
            if [*map(type, told)] != [str, str, int, int] or min(offset, length) < 0:
                raise self._error("does not say where a piece is stored")
            piece = StoredTensor(name, _BYTES, (), length, offset, self._file(path))
            if offset + length > piece.source.size:
                what = f"is too short for the piece of {name!r}: {length:,} bytes at {offset:,}"
                raise ParseError(what, source=piece.source.name)
            if (at := index.get("offset")) is not None:
                pieces.setdefault(name, {})[self._sizes(at, name)] = piece
        return pieces

    def _file(self, name: str) -> Source:
        if name not in self.files:
            path = self.root / name
            if leads_out(name) or not name.isprintable() or not is_inside(str(path), self.root):
                what = f"{name[:100]!r} is not a file in the folder"
                raise ParseError(what, source=str(self.root))
            is_kept = len(self.files) < _KEPT_OPEN
            self.files[name] = FileSource(path) if is_kept else ReopenedSource(path)
        return self.files[name]

    def _sizes(self, value: Any, name: str) -> Shape:
        is_short = type(value) is tuple and len(value) <= PTH_MAX_DIMS
        if not is_short or not all(type(size) is int and size >= 0 for size in value):
            raise self._error(f"tensor {name!r} has invalid sizes")
        return tuple(value)

    def _tensor(self, name: str, told: Any, pieces: Mapping[Shape, StoredTensor]) -> StoredTensor:
        fields = self._fields(told, "TensorStorageMetadata")
        # The dtype is what `__getstate__` puts first.
        told = fields.get("properties")
        is_one = is_a(told, "TensorProperties") and len(told.states) == 1
        state = told.states[0] if is_one else None
        first = state[0] if type(state) is tuple and state else None
        if type(first) is not DTypeGlobal or first.dtype is None:
            raise self._error(f"tensor {name!r} has no dtype")
        dtype, shape = first.dtype, self._sizes(fields.get("size"), name)
        chunks = fields.get("chunks")
        if type(chunks) is not list or too_large(shape):
            raise self._error(f"tensor {name!r} has no usable shape")
        boxes: dict[Shape, Box] = {}
        for chunk in chunks:
            own = self._fields(chunk, "ChunkStorageMetadata")
            at, sizes = (self._sizes(own.get(key), name) for key in ("offsets", "sizes"))
            if at not in pieces:
                raise self._error(f"tensor {name!r}: no file holds its piece at {list(at)}")
            if prod(sizes):
                boxes[at] = Box(at, sizes, partial(self._opened, pieces[at], dtype, sizes))
        return boxed(name, dtype, shape, list(boxes.values()), self.source)


def _opened(
    limits: ParseLimits, piece: StoredTensor, dtype: DType, sizes: Shape
) -> tuple[Source, int]:
    """Open a piece, and return where its first byte lies."""
    container = parse_container(JoinedSource([piece]), Budget(limits))
    tensors = list(container.tensors.values())
    is_it = [(one.dtype, one.in_bytes().shape) for one in tensors] == [(dtype, sizes)]
    if not is_it or container.unreadable:
        what = f"the piece of {piece.name!r} is not the tensor {dtype.name} {list(sizes)}"
        raise piece.malformed(what)
    return tensors[0].source, tensors[0].offset


class ReopenedSource(Source):
    """A file that is open only while it is read."""

    def __init__(self, path: Path) -> None:
        with FileSource(path) as file:
            self.path = self.name = file.name
            self.size = file.size
            self._stamp = file.stamp()

    def _open(self) -> FileSource:
        file = FileSource(self.name)
        if file.stamp() != self._stamp:
            file.close()
            raise ParseError("was written to while it was read", source=self.name)
        return file

    def _read_some(self, offset: int, view: memoryview) -> int:
        with self._open() as file:
            return file._read_some(offset, view)

    def stamp(self) -> list[int | str]:
        return self._stamp

    def check_unchanged(self) -> None:
        self._open().close()
