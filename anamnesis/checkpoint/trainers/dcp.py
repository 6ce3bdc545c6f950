"""PyTorch's distributed checkpoints: .metadata, and pieces in .distcp files.

    FOLDER/.metadata      which tensors there are, their boxes, and where each box lies
    FOLDER/__R_N.distcp   of rank R: one archive of torch.save after the other, each one piece

The pieces of a tensor may lie in any rank's file; replicas are stored once. Other objects than
tensors are pickles in the same files.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.limits import Budget
from anamnesis.base.source import Source
from anamnesis.base.stored import Dropped, StoredTensor
from anamnesis.checkpoint.file_names import DCP_METADATA_NAME
from anamnesis.checkpoint.folder import is_inside
from anamnesis.checkpoint.indexes import leads_out
from anamnesis.checkpoint.trainers.optimizer import STATE, leaves_out
from anamnesis.formats.base import Container
from anamnesis.formats.pickle.nodes import Key
from anamnesis.formats.registry import parse_container
from anamnesis.formats.torch.distributed import METADATA_MAX_BYTES, MetadataMachine, is_a
from anamnesis.formats.torch.values import PTH_MAX_DIMS, DTypeGlobal, item_bytes, too_large
from anamnesis.sources.boxes import Box, BoxSource, check_boxes
from anamnesis.sources.file import FileSource
from anamnesis.sources.gathered import JoinedSource

_OTHER = "an object that is not a tensor"
_RECUT = "cut along a grid by Megatron's optimizer"
_BYTES = DTYPES["U8"]
Shape = tuple[int, ...]


def read_dcp(
    root: Path, budget: Budget, select: str | None
) -> tuple[Container, PieceFiles, list[Dropped]]:
    """Return the tensors of a checkpoint, its files, and what is left out."""
    source = FileSource(root / DCP_METADATA_NAME)
    try:
        return _Checkpoint(root, source, budget).read(select)
    except BaseException:
        source.close()
        raise


class _Checkpoint:
    """One checkpoint on its way to a container."""

    def __init__(self, root: Path, source: Source, budget: Budget) -> None:
        self.source = source
        self.budget = budget
        self.files = PieceFiles(root)

    def read(self, select: str | None) -> tuple[Container, PieceFiles, list[Dropped]]:
        metadata = self._metadata()
        described, stored = metadata.get("state_dict_metadata"), metadata.get("storage_data")
        if type(described) is not dict or type(stored) is not dict:
            raise self._error("does not list its tensors and where they are stored")
        self.budget.items(len(stored), "the pieces of a distributed checkpoint")
        recut = metadata.get("mcore_data")
        pieces = self._pieces(stored)
        tensors: dict[str, StoredTensor] = {}
        left: list[Dropped] = []
        for name, told in described.items():
            if type(name) is not str:
                raise self._error("has a tensor whose name is not text")
            if is_a(told, "BytesStorageMetadata"):
                left.append(Dropped(name, _OTHER))
            elif leaves_out(name, select):
                left.append(Dropped(name, STATE))
            elif type(recut) is dict and recut.get(name):
                left.append(Dropped(name, _RECUT))
            else:
                tensors[name] = self._tensor(name, told, pieces.get(name, {}))
        container = Container(
            "torch",
            "PyTorch distributed checkpoint",
            self.source,
            tensors,
            header_bytes=self.source.size,
        )
        return container, self.files, left

    def _error(self, message: str) -> ParseError:
        return ParseError(message, source=self.source.name)

    def _metadata(self) -> dict[str, Any]:
        size = self.source.size
        if size > METADATA_MAX_BYTES:
            raise LimitExceeded("METADATA_MAX_BYTES", f"{self.source.name}: {size:,} bytes")
        self.budget.alloc(size, self.source.name)
        machine = MetadataMachine(self.source.read(0, size), self.budget, self.source.name)
        return self._fields(machine.load(), "Metadata", "MCoreMetadata")

    def _fields(self, value: Any, *names: str) -> dict[str, Any]:
        """Return the fields of an object of a class."""
        if is_a(value, *names) and len(value.states) == 1 and type(value.states[0]) is dict:
            return value.states[0]
        raise self._error(f"has something other than a {names[0]} with its fields")

    def _pieces(self, stored: Mapping[Any, Any]) -> dict[str, dict[Shape, _Piece]]:
        """Return where each tensor's pieces lie, by their offsets."""
        pieces: dict[str, dict[Shape, _Piece]] = {}
        for key, where in stored.items():
            index = self._fields(key.value if type(key) is Key else key, "MetadataIndex")
            info = self._fields(where, "_StorageInfo")
            name, at = index.get("fqn"), index.get("offset")
            path, offset, length = (info.get(k) for k in ("relative_path", "offset", "length"))
            if through := info.get("transform_descriptors"):
                raise UnsupportedError(
                    f"{self.source.name}: {name!r} is stored through {str(through)[:200]}, which is"
                    " not read",
                    remedy="save it again without extensions",
                )
            if not (
                isinstance(name, str)
                and isinstance(path, str)
                and isinstance(offset, int)
                and isinstance(length, int)
                and min(offset, length) >= 0
            ):
                raise self._error("does not say where a piece is stored")
            if offset + length > self.files.open(path).size:
                raise ParseError(
                    f"is too short for the piece of {name!r}: {length:,} bytes at {offset:,}",
                    source=self.files.open(path).name,
                )
            if at is not None:
                piece = _Piece(self, name, path, offset, length)
                pieces.setdefault(name, {})[self._sizes(at, name)] = piece
        return pieces

    def _sizes(self, value: Any, name: str) -> Shape:
        is_short = type(value) is tuple and len(value) <= PTH_MAX_DIMS
        if not is_short or not all(type(size) is int and size >= 0 for size in value):
            raise self._error(f"tensor {name!r} has invalid sizes")
        return tuple(value)

    def _tensor(self, name: str, told: Any, pieces: Mapping[Shape, _Piece]) -> StoredTensor:
        fields = self._fields(told, "TensorStorageMetadata")
        dtype = self._dtype(fields.get("properties"), name)
        shape = self._sizes(fields.get("size"), name)
        chunks = fields.get("chunks")
        if type(chunks) is not list or too_large(shape):
            raise self._error(f"tensor {name!r} has no usable shape")
        boxes: dict[Shape, Box] = {}
        for chunk in chunks:
            own = self._fields(chunk, "ChunkStorageMetadata")
            at, sizes = (self._sizes(own.get(key), name) for key in ("offsets", "sizes"))
            if at not in pieces:
                raise self._error(f"tensor {name!r}: no file holds its piece at {list(at)}")
            piece = pieces[at]
            piece.sizes, piece.dtype = sizes, dtype
            if prod(sizes):
                boxes[at] = Box(at, sizes, piece.place)
        check_boxes(shape, list(boxes.values()), f"tensor {name!r}", self.source.name)
        item = item_bytes(dtype)
        source = BoxSource(self.source, shape, item, boxes.values())
        if dtype.bits < 8:  # torch counts bytes, safetensors the elements packed in them
            *outer, inner = shape or (1,)
            shape = (*outer, inner * dtype.block_elements)
        return StoredTensor(name, dtype, shape, source.size if prod(shape) else 0, 0, source)

    def _dtype(self, properties: Any, name: str) -> DType:
        """Return the dtype, which `__getstate__` puts first."""
        if is_a(properties, "TensorProperties") and len(properties.states) == 1:
            state = properties.states[0]
            first = state[0] if type(state) is tuple and state else None
            if type(first) is DTypeGlobal and first.dtype is not None:
                return first.dtype
        raise self._error(f"tensor {name!r} has no dtype")


@dataclass(slots=True, eq=False)
class _Piece:
    """A piece of a tensor: an archive of torch.save in one of the files, opened when it is read."""

    checkpoint: _Checkpoint
    name: str
    path: str
    offset: int
    length: int
    dtype: DType = field(init=False)
    sizes: Shape = field(init=False)
    found: tuple[Source, int] | None = None

    def place(self) -> tuple[Source, int]:
        """Return where its first byte lies."""
        if self.found is None:
            file = self.checkpoint.files.open(self.path)
            whole = StoredTensor(self.path, _BYTES, (), self.length, self.offset, file)
            container = parse_container(
                JoinedSource([whole]), Budget(self.checkpoint.budget.limits)
            )
            tensors = list(container.tensors.values())
            is_it = len(tensors) == 1 and not container.unreadable
            told = (self.dtype, self.sizes)
            if not is_it or (tensors[0].dtype, tensors[0].in_bytes().shape) != told:
                raise ParseError(
                    f"the piece of {self.name!r} at byte {self.offset:,} is not the tensor"
                    f" {self.dtype.name} {list(self.sizes)}",
                    source=file.name,
                )
            self.found = tensors[0].source, tensors[0].offset
        return self.found


_KEPT_OPEN = 256  # of more files, each is open only while it is read


class PieceFiles:
    """Files of a folder, opened when they are first asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = threading.Lock()
        self._files: dict[str, Source] = {}

    def open(self, name: str) -> Source:
        with self._lock:
            if name not in self._files:
                path = self.root / name
                if leads_out(name) or not name.isprintable() or not is_inside(str(path), self.root):
                    raise ParseError(
                        f"{name[:100]!r} is not a file in the folder", source=str(self.root)
                    )
                kind = FileSource if len(self._files) < _KEPT_OPEN else ReopenedSource
                self._files[name] = kind(path)
            return self._files[name]

    def all(self) -> dict[str, Source]:
        return dict(self._files)


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
