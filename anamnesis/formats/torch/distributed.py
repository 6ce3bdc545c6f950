"""The pickled classes of torch's distributed checkpoints, and their fields.

`.metadata` of a checkpoint is a pickle of dataclasses (torch/distributed/checkpoint/metadata.py):

    Metadata(state_dict_metadata={name: TensorStorageMetadata | BytesStorageMetadata},
             planner_data={name: path of keys},
             storage_data={MetadataIndex(fqn, offset): _StorageInfo(relative_path, offset, length)})
    TensorStorageMetadata(properties=(dtype, …), size,
                          chunks=[ChunkStorageMetadata(offsets, sizes)])
"""

from __future__ import annotations

from typing import Any, TypeGuard

from anamnesis.base.limits import Budget
from anamnesis.formats.pickle.machine import PickleMachine
from anamnesis.formats.pickle.nodes import Call, Global
from anamnesis.formats.pickle.opcodes import Problem
from anamnesis.formats.torch.globals import find_torch_global

METADATA_MAX_BYTES = 1 << 30  # of a .metadata; a piece takes some 150
METADATA_MAX_OPCODES = 256 << 20
_CHECKPOINT = "torch.distributed.checkpoint"
_CLASSES = frozenset(
    (
        *(
            f"{_CHECKPOINT}.metadata.{name}"
            for name in (
                *("Metadata", "TensorStorageMetadata", "TensorProperties", "ChunkStorageMetadata"),
                *("BytesStorageMetadata", "MetadataIndex", "StorageMeta", "_MEM_FORMAT_ENCODING"),
            )
        ),
        f"{_CHECKPOINT}.filesystem._StorageInfo",
        *(
            f"{module}.{name}"
            for module in ("pathlib", "pathlib._local")
            for name in ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")
        ),
    )
)


class MetadataMachine(PickleMachine):
    """A machine for a .metadata, of which a piece takes 45 opcodes."""

    max_opcodes = METADATA_MAX_OPCODES
    max_working_set = 16 << 30

    def __init__(self, data: bytes, budget: Budget, name: str) -> None:
        super().__init__(data, _find, None, budget, name)

    def persistent_load(self, saved: Any) -> Any:
        raise Problem("a persistent id, where no storages are")


def _find(module: str, name: str) -> Global:
    if f"{module}.{name}" in _CLASSES:
        return Global(module, name)
    return find_torch_global(module, name)


def is_a(value: Any, name: str) -> TypeGuard[Call]:
    """Tell whether a value is an object of a class."""
    return (
        type(value) is Call and isinstance(value.function, Global) and value.function.name == name
    )
