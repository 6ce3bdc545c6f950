"""Distributed checkpoints of PyTorch's as its own code pickles them, made without it."""

from __future__ import annotations

import io
import pickle
import sys
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import anamnesis as an

_TORCH, _STAND_IN = b"torch", b"xorch"  # of the same length, so that frames and strings stay right
_MEGATRON = "megatron.core.dist_checkpointing.strategies.torch"
_NO_PACKAGE = _MEGATRON.replace(".", "-")
_CLASSES = {
    _NO_PACKAGE: ("MCoreMetadata",),
    "xorch.distributed.checkpoint.metadata": (
        *("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata"),
        *("BytesStorageMetadata", "MetadataIndex", "Other"),
    ),
    "xorch.distributed.checkpoint.filesystem": ("_StorageInfo",),
}


def _state(made: Any) -> Any:
    return made.__dict__.get("_state", made.__dict__)


def _modules() -> dict[str, types.ModuleType]:
    """Modules whose classes have torch's names, and are pickled in the same way."""
    made = {}
    for path, names in _CLASSES.items():
        module = types.ModuleType(path)
        for name in names:
            setattr(module, name, type(name, (), {"__module__": path, "__getstate__": _state}))
        made[path] = module
    return made


_MADE = _modules()


class _DType:
    """torch.float32 and its like, which pickle as a name."""

    __module__ = "xorch"

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> str:
        return self.name


def thing(name: str, state: Any = None, **fields: Any) -> Any:
    """An object of one of the classes, with a state of its own or fields."""
    module = next(m for m in _MADE.values() if hasattr(m, name))
    made = getattr(module, name)()
    made.__dict__.update(fields if state is None else {"_state": state})
    return made


class Piece(NamedTuple):
    """A box of a tensor, and its values."""

    offsets: tuple[int, ...]
    values: np.ndarray


def pickled(value: Any) -> bytes:
    """What pickle makes of a value, under torch's names."""
    dtypes = types.ModuleType("xorch")
    for name in ("float32", "int64"):
        setattr(dtypes, name, _DTYPES[name])
    sys.modules.update({"xorch": dtypes, **_MADE})
    try:
        raw = pickle.dumps(value, 4).replace(_STAND_IN, _TORCH)
        return raw.replace(_NO_PACKAGE.encode(), _MEGATRON.encode())
    finally:
        for name in ("xorch", *_MADE):
            del sys.modules[name]


_DTYPES = {name: _DType(name) for name in ("float32", "int64")}


def described(dtype: str, shape: Sequence[int], boxes: Sequence[tuple[Any, Any]]) -> Any:
    """What .metadata says of a tensor."""
    properties = thing("TensorProperties", (_DTYPES[dtype], None, False, None, False))
    chunks = [thing("ChunkStorageMetadata", offsets=o, sizes=s) for o, s in boxes]
    return thing("TensorStorageMetadata", properties=properties, size=tuple(shape), chunks=chunks)


def placed(name: str, at: Any, path: str, offset: int, length: int, **more: Any) -> tuple[Any, Any]:
    """Where .metadata says that a piece lies."""
    info = {"relative_path": path, "offset": offset, "length": length, **more}
    return thing("MetadataIndex", fqn=name, offset=at, index=0), thing("_StorageInfo", **info)


def write(folder: Path, tensors: Mapping[str, tuple[Sequence[int], Sequence[Piece]]]) -> None:
    """Write a checkpoint of two files."""
    folder.mkdir(exist_ok=True)
    streams = [io.BytesIO(), io.BytesIO()]
    about, where = {}, []
    for name, (shape, pieces) in tensors.items():
        dtype = pieces[0].values.dtype.name
        boxes = [(piece.offsets, piece.values.shape) for piece in pieces]
        about[name] = described(dtype, shape, boxes)
        for i, piece in enumerate(pieces):
            raw = io.BytesIO()
            an.save({"w": piece.values}, raw, "torch")
            stream = streams[i % 2]
            where.append(
                placed(name, piece.offsets, f"__{i % 2}_0.distcp", stream.tell(), raw.tell())
            )
            stream.write(raw.getvalue())
    for i, stream in enumerate(streams):
        (folder / f"__{i}_0.distcp").write_bytes(stream.getvalue())
    write_metadata(folder, about, where)


def write_metadata(
    folder: Path, about: Any, where: Sequence[tuple[Any, Any]], kind: str = "Metadata", **more: Any
) -> None:
    """Write a .metadata of what it says of tensors, and where pieces lie."""
    told = {"state_dict_metadata": about, "planner_data": None, "storage_data": dict(where)}
    value = thing(kind, **told, **more)
    (folder / ".metadata").write_bytes(pickled(value))
