"""DeepSpeed's ZeRO checkpoints: FP32 weights, of which each rank has a part.

    FOLDER/latest                                 the tag, such as global_step100
    FOLDER/TAG/*_optim_states.pt                  of each rank: flat FP32 weights of each group
    FOLDER/TAG/mp_rank_00_model_states.pt         names and shapes, buffers (stages 1 and 2)
    FOLDER/TAG/zero_pp_rank_R_mp_rank_00_model_states.pt  the same of each rank (stage 3)

Stages 1 and 2 lay the parameters of a group one behind the other, and cut that into one part a
rank. Stage 3 cuts each parameter into one part a rank, ceil(n / ranks) long, and a rank's parts
follow each other across its groups. The definition is deepspeed/utils/zero_to_fp32.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from math import prod
from pathlib import Path
from typing import Any

from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.checkpoint.file_names import ZERO_ENDING
from anamnesis.formats.base import Container
from anamnesis.sources.gathered import JoinedSource

_OPTIM, _MODEL = ZERO_ENDING, "_model_states.pt"
_ONE_MODEL_FILE = f"mp_rank_00{_MODEL}"
_STATE = "optimizer_state_dict"
_OF_GROUPS, _OF_RANKS = "single_partition_of_fp32_groups", "fp32_flat_groups"
_RANK = re.compile(r"zero_pp_rank_([0-9]{1,9})_.*_states\.pt\Z", re.DOTALL)
_MAX_TAG = 1000  # characters

Shapes = Mapping[str, tuple[int, ...]]


def find_zero(root: Path) -> tuple[Path, list[str]] | None:
    """Return the folder of a checkpoint, the one that `latest` names or this one, and its files."""
    latest, folder = root / "latest", root
    is_told = latest.is_file()
    if is_told:
        with open(latest, encoding="utf-8", errors="replace") as file:
            tag = file.read(_MAX_TAG).strip()
        is_below = tag and Path(tag).name == tag and (root / tag).is_dir()
        folder = root / tag if is_below else root
    of_ranks = _names(folder, _OPTIM)
    models = _names(folder, _MODEL) if of_ranks else []
    return (folder, [*of_ranks, *models]) if of_ranks and (models or is_told) else None


def _names(folder: Path, ending: str) -> list[str]:
    names = [name for name in os.listdir(folder) if name.endswith(ending)]
    return sorted(names, key=lambda name: (rank_of(name), name))


def rank_of(name: str) -> int:
    """Return the rank that a file is of; -1 if its name says none."""
    found = _RANK.search(name)
    return -1 if found is None else int(found[1])


class Zero:
    """One checkpoint on its way to whole tensors."""

    def __init__(self, folder: Path, files: Mapping[str, Container]) -> None:
        self.folder = folder
        self.ranks = [file for name, file in files.items() if name.endswith(_OPTIM)]
        self.models = [file for name, file in files.items() if name.endswith(_MODEL)]
        self.stage = self._number(f"{_STATE}.zero_stage")
        if self.stage not in (1, 2, 3):
            raise self._error(f"ZeRO stage {self.stage} does not split the weights")
        if not self.models:
            raise self._error(f"has no file NAME{_MODEL}, which says what the weights are")
        self.about = self.models[0].metadata
        self._check_ranks([name for name in files if name.endswith(_OPTIM)])
        models = [name for name in files if name.endswith(_MODEL)]
        if self.stage == 3:
            self._check_ranks(models)
        elif models != [_ONE_MODEL_FILE]:
            raise UnsupportedError(
                f"{folder}: has the states of {len(models)} parts of the model; only"
                f" {_ONE_MODEL_FILE} is read"
            )
        for model in self.models:
            if any("autoep" in key.partition(".")[0].lower() for key in model.metadata):
                raise UnsupportedError(
                    f"{model.source.name}: AutoEP splits experts in a way that is not read",
                    remedy="DeepSpeed's ds_to_universal.py joins them",
                )

    def _error(self, message: str) -> ParseError:
        return ParseError(message, source=str(self.folder))

    def _number(self, key: str) -> int:
        value = self.ranks[0].metadata.get(key)
        if type(value) is list and all(type(n) is int for n in value) and value:
            value = max(value)  # of groups of experts, which fewer ranks hold
        if type(value) is not int:
            raise self._error(f"is not a ZeRO checkpoint: {key} is {value!r}")
        return value

    def _check_ranks(self, names: Sequence[str]) -> None:
        """Refuse files of other ranks than the first ones, each of which has one."""
        count = self._number(f"{_STATE}.partition_count")
        if count != len(names):
            raise self._error(
                f"{count:,} ranks wrote a file like {names[0]}, but {len(names):,} are there"
            )
        for rank, name in enumerate(names):
            if rank_of(name) not in (-1, rank):
                raise self._error(f"{name} is where the file of rank {rank:,} should be")

    def tensors(self) -> dict[str, StoredTensor]:
        """Return all tensors: buffers, frozen parameters, the others, those that are shared."""
        groups = self._groups()
        whole: dict[str, StoredTensor] = {}
        buffers = self.about.get("buffer_names")
        for name in map(str, buffers if type(buffers) is list else ()):
            (tensor,) = self._of_each(self.models[:1], f"module.{name}")
            whole[name] = tensor._replace(name=name)
        for name, shape in self._below("frozen_param_shapes"):
            parts = self._of_each(self.models, f"frozen_param_fragments.{name}")
            whole.update(self._laid({name: self._shape(name, shape)}, parts))
        whole.update(self._of_groups(groups) if self.stage < 3 else self._of_ranks(groups))
        for name, of in self._below("shared_params"):
            if type(of) is not str:
                raise self._error(f"{name!r} is shared with something that has no name")
            if of in whole:
                whole[name] = whole[of]._replace(name=name)
        return whole

    def _below(self, key: str) -> Iterator[tuple[str, Any]]:
        start = f"{key}."
        for name, value in self.about.items():
            if name.startswith(start):
                yield name.removeprefix(start), value

    def _shape(self, name: str, value: Any) -> tuple[int, ...]:
        sizes = [] if value == "()" else value
        if type(sizes) is list and all(type(n) is int and n >= 0 for n in sizes):
            return tuple(sizes)
        raise self._error(f"parameter {name!r} has no shape")

    def _groups(self) -> list[dict[str, tuple[int, ...]]]:
        """Return the shapes of each group's parameters, in their order."""
        groups: dict[int, dict[str, tuple[int, ...]]] = {}
        for key, value in self._below("param_shapes"):
            group, _, name = key.partition(".")
            if not group.isdecimal():
                raise self._error(f"parameter {key!r} belongs to no group")
            groups.setdefault(int(group), {})[name] = self._shape(name, value)
        if not groups:
            raise self._error("does not list its parameters")
        return [groups[number] for number in sorted(groups)]

    def _of_each(self, files: Sequence[Container], key: str) -> list[StoredTensor]:
        """Return the tensor of a name that each rank's file has."""
        for file in files:
            if key not in file.tensors:
                raise ParseError(f"has no tensor {key!r}", source=file.source.name)
        return [file.tensors[key] for file in files]

    def _of_groups(self, groups: Sequence[Shapes]) -> Iterator[tuple[str, StoredTensor]]:
        """Yield parameters of stages 1 and 2, which follow each other in the parts of all ranks."""
        for group, shapes in enumerate(groups):
            flat = self._joined(self._of_each(self.ranks, f"{_STATE}.{_OF_GROUPS}.{group}"))
            paddings = self.ranks[0].metadata.get(f"{_STATE}.param_alignment_paddings.{group}")
            gaps = paddings if type(paddings) is list else [0] * len(shapes)
            if len(gaps) != len(shapes) or not all(type(n) is int and n >= 0 for n in gaps):
                raise self._error(f"the paddings of group {group} do not match its parameters")
            yield from self._laid(shapes, [flat], gaps, 2 * len(self.ranks))

    def _of_ranks(self, groups: Sequence[Shapes]) -> Iterator[tuple[str, StoredTensor]]:
        """Yield parameters of stage 3, which each rank has a part of."""
        start = f"{_STATE}.{_OF_RANKS}."
        n_groups = sum(key.startswith(start) for key in self.ranks[0].tensors)
        of_groups = [self._of_each(self.ranks, f"{start}{i}") for i in range(max(n_groups, 1))]
        of_ranks = [self._joined(flats) for flats in zip(*of_groups, strict=True)]
        return self._laid(dict(pair for shapes in groups for pair in shapes.items()), of_ranks)

    def _laid(
        self,
        shapes: Shapes,
        flats: Sequence[StoredTensor],
        gaps: Iterable[int] = repeat(0),
        align: int = 1,
    ) -> Iterator[tuple[str, StoredTensor]]:
        """Yield parameters that follow each other in flat tensors, each of which has as much."""
        at = 0
        for (name, shape), gap in zip(shapes.items(), gaps, strict=False):
            n = -(-prod(shape) // len(flats))
            whole = self._joined([self._taken(name, (n,), flat, at) for flat in flats])
            yield name, self._taken(name, shape, whole)
            at += n + gap
        used, held = at * len(flats), sum(flat.n_elements for flat in flats)
        if -(-used // align) != -(-held // align):
            raise self._error(f"its parameters take {used:,} values, but {held:,} are stored")

    def _joined(self, flats: Sequence[StoredTensor]) -> StoredTensor:
        """Return flat tensors that follow each other as one."""
        dtypes = dict.fromkeys(flat.dtype for flat in flats)
        if len(dtypes) != 1:
            what = " and ".join(dtype.name for dtype in dtypes) or "no dtype"
            raise self._error(f"its flat weights are of {what}")
        if len(flats) == 1:
            return flats[0]
        source, n = JoinedSource(flats), sum(flat.n_elements for flat in flats)
        return StoredTensor(flats[0].name, flats[0].dtype, (n,), source.size, 0, source)

    def _taken(
        self, name: str, shape: tuple[int, ...], flat: StoredTensor, at: int = 0
    ) -> StoredTensor:
        """Return the parameter whose values begin at one of a flat tensor's."""
        n, item = prod(shape), flat.dtype.n_bytes(1)
        lacking = min(at + n - flat.n_elements, n)
        if lacking > 0:
            raise self._error(f"parameter {name!r} lacks {lacking:,} of its {n:,} values")
        return StoredTensor(name, flat.dtype, shape, n * item, flat.offset + at * item, flat.source)
