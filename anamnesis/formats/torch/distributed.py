"""The pickled classes of torch's distributed checkpoints, and their fields.

`.metadata` of a checkpoint is a pickle of dataclasses (torch/distributed/checkpoint/metadata.py):

    Metadata(state_dict_metadata={name: TensorStorageMetadata | BytesStorageMetadata},
             planner_data={name: path of keys},
             storage_data={MetadataIndex(fqn, offset): _StorageInfo(relative_path, offset, length)})
    TensorStorageMetadata(properties=(dtype, …), size,
                          chunks=[ChunkStorageMetadata(offsets, sizes)])

Megatron's have the plans by which each rank wrote, too (all_local_plans), or classes of its own.
"""

from __future__ import annotations

from typing import Any

from anamnesis.base.limits import Budget
from anamnesis.base.plain_json import json_table
from anamnesis.formats.pickle.machine import PickleMachine
from anamnesis.formats.pickle.nodes import Global
from anamnesis.formats.pickle.opcodes import Problem
from anamnesis.formats.torch.globals import find_torch_global

METADATA_MAX_BYTES = 1 << 30  # of a .metadata; a piece takes some 150
METADATA_MAX_OPCODES = 256 << 20
# By module, and what is below it. They are dataclasses and enumerations, which call nothing.
DATACLASSES: dict[str, list[str]] = json_table(__file__)
_PATHS = ("PosixPath", "PurePosixPath", "WindowsPath", "PureWindowsPath")
_CLASSES = {**DATACLASSES, **dict.fromkeys(("pathlib", "pathlib._local"), _PATHS)}


class MetadataMachine(PickleMachine):
    """A machine for a .metadata, of which a piece takes 45 opcodes."""

    max_opcodes = METADATA_MAX_OPCODES
    max_working_set = 16 << 30

    def __init__(self, data: bytes, budget: Budget, name: str) -> None:
        super().__init__(data, _find, None, budget, name)

    def persistent_load(self, saved: Any) -> Any:
        raise Problem("a persistent id, where no storages are")


def _find(module: str, name: str) -> Global:
    if name in _CLASSES.get(module, ()):
        return Global(module, name)
    return find_torch_global(module, name)
