"""Files that each rank has saved, with its part of each tensor.

verl and SkyRL call them `model_world_size_W_rank_R.pt`; by hand they are called `NAME-rankR.pt` and
the like. A DTensor says which part a rank has. What is no DTensor is the same on all ranks.

    shard-00001-model-00001-of-00002.safetensors   of the first rank, and so on

is what torch's distributed writer of safetensors calls them. Each of these has the boxes of one
rank under the tensors' own names, and where they begin in the whole in its metadata:
DCP_SHARDING_INFO is JSON of {NAME: {"saved_offsets": [0, 128]}}.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, count, product
from math import prod
from pathlib import Path
from typing import Any

from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget
from anamnesis.base.source import DerivedSource
from anamnesis.base.stored import Dropped, StoredTensor
from anamnesis.checkpoint.json_file import json_object
from anamnesis.checkpoint.trainers.optimizer import STATE, is_file_of_states, leaves_out
from anamnesis.checkpoint.trainers.zero import rank_of
from anamnesis.formats.base import Container
from anamnesis.formats.torch.dtensor import Sharding
from anamnesis.sources.boxes import Box, boxed, place_of
from anamnesis.sources.strided import Strips, strided

_NAMED = re.compile(
    r"(?P<stem>.*world_size_(?P<size>\d+)_|.+?)rank[-_]?(?P<rank>\d+)\.(?:pt|pth|bin)", re.DOTALL
)
# Megatron's folders and DeepSpeed's files of models that are cut by tensor or pipeline parallelism.
_SLICE = re.compile(r"mp_rank_\d\d(?:_\d\d\d)*(?P<ending>|_model_states\.pt)")
DTENSOR_MAX_BOXES = 4096  # that a rank's part of one tensor consists of


def find_ranks(names: Iterable[str], root: str) -> tuple[list[str], list[Dropped]] | None:
    """Return the files that hold the ranks' parts of a model, and those left out; None if none."""
    groups: dict[str, dict[int, re.Match[str]]] = {}
    for found in filter(None, map(_NAMED.fullmatch, sorted(names))):
        other = groups.setdefault(found["stem"], {}).setdefault(int(found["rank"]), found)
        if other is not found:
            what = f"{other.string} and {found.string} are of the same rank"
            raise ParseError(what, source=root)
    states = [groups.pop(stem) for stem in list(groups) if is_file_of_states(stem)]
    models = [
        files
        for files in groups.values()
        if {0, 1} <= files.keys() or next(iter(files.values()))["size"]
    ]
    if not models:
        return None
    if len(models) > 1:
        one, other = (next(iter(files.values())) for files in models[:2])
        what = f"holds the ranks of two models, {one.string} and {other.string}"
        raise ParseError(what, source=root)
    left = [Dropped(found.string, STATE) for files in states for found in files.values()]
    return _in_order(models[0], root), left


def _in_order(files: Mapping[int, re.Match[str]], root: str) -> list[str]:
    """Return files by rank; refuse those of some ranks: names may claim any number of them."""
    last, like = max(files), next(iter(files.values()))
    world = int(like["size"] or last + 1)
    if last >= world:
        what = f"{files[last].string} is rank {last:,} of only {world:,} ranks"
        raise ParseError(what, source=root)
    n_others = world - len(files) - 1
    if n_others >= 0:
        first = next(rank for rank in count() if rank not in files)
        which = f"{first} and {n_others:,} others are" if n_others else f"{first} is"
        what = f"the file of rank {which} missing; {like.string} is one of {world:,}"
        raise ParseError(what, source=root)
    return [files[rank].string for rank in range(world)]


def lone_rank(container: Container) -> str | None:
    """Return what to say of a file that is a rank's part of a model, or a slice; else None."""
    path = Path(container.source.name)
    cut = next((key for key, one in container.sharded.items() if not one.is_whole), None)
    if cut is not None:
        raise ParseError(
            f"is one rank's part of a model: it holds {list(container.tensors[cut].shape)} of"
            f" {cut!r}, which is {list(container.sharded[cut].shape)}",
            source=container.source.name,
            remedy="name the folder with the files of all ranks",
        )
    named, hf, rank = _NAMED.fullmatch(path.name), HF_NAMED.fullmatch(path.name), None
    if named is not None and int(named["size"] or 1) > 1:
        rank = f"{named['rank']} of {named['size']}"
    elif (of_zero := rank_of(path.name)) >= 0:
        rank = str(of_zero)
    elif hf is not None and _KEY in container.metadata:
        rank = f"{int(hf['rank']) - 1}"
    if rank is not None:
        return f"{path}: is the part of rank {rank}; name the folder with the files of all ranks"
    for place in (path, path.parent):  # or of one slice of each tensor
        found = _SLICE.fullmatch(place.name)
        if found is None or not place.exists():
            continue
        names = filter(_SLICE.fullmatch, os.listdir(place.parent))
        n = sum(1 for name in names if name.endswith(found["ending"]))
        if n > 1:
            return f"{path}: is one of {n:,} slices of a model, and no file says how to join them"
    return None


def join_ranks(
    containers: Sequence[Container], left_out: list[Dropped], select: str | None
) -> dict[str, StoredTensor]:
    """Return the whole tensors; add what is left out to `left_out`."""
    first = containers[0].tensors
    for rank, other in enumerate(containers):
        for name in sorted(first.keys() ^ other.tensors.keys()):
            what = f"rank {rank} and rank 0 hold different tensors: only one has {name!r}"
            raise ParseError(what, source=other.source.name)
    joined, strips = dict[str, StoredTensor](), Strips()
    for name in first:
        if leaves_out(name, select):
            left_out.append(Dropped(name, STATE))
        else:
            parts = [(of.tensors[name], of.sharded.get(name)) for of in containers]
            joined[name] = _join(parts, strips)
    return joined


def _join(parts: Sequence[tuple[StoredTensor, Sharding | None]], strips: Strips) -> StoredTensor:
    like, first = parts[0]
    shape = like.shape if first is None else first.shape
    boxes: dict[tuple[int, ...], Box] = {}
    for rank, (part, sharding) in enumerate(parts):
        own = part.shape if sharding is None else sharding.shape
        is_alike = (sharding is None) == (first is None) and own == shape
        if not is_alike or part.dtype != like.dtype:
            raise _unlike(rank, part)
        if sharding is not None:
            for box in _boxes(rank, part.in_bytes(), sharding, strips):
                boxes.setdefault(box.offsets, box)
    if first is not None:
        return boxed(like.name, like.dtype, shape, list(boxes.values()), like.source)
    return like._replace(offset=0, source=_AgreeingSource([part for part, _ in parts]))


def _boxes(rank: int, part: StoredTensor, sharding: Sharding, strips: Strips) -> Iterator[Box]:
    """Yield the boxes that a rank's part consists of: one, unless it is cut in strides."""
    runs = [_runs(n, dim, sharding, part) for dim, n in enumerate(sharding.shape)]
    _check_count(prod(map(len, runs)), part)
    shape = tuple([sum(map(len, run)) for run in runs])
    if shape != part.shape:
        raise part.malformed(
            f"tensor {part.name!r}: rank {rank} holds {list(part.shape)}, but its part of"
            f" {list(sharding.shape)} is {list(shape)}"
        )
    item = part.dtype.n_bytes(1)
    strides = [prod(shape[i + 1 :]) for i in range(len(shape))]
    placed = [zip(run, accumulate(map(len, run), initial=0), strict=False) for run in runs]
    for along in product(*placed):  # each with where it begins in the rank's own tensor
        sizes = tuple([len(run) for run, _ in along])
        at = sum([at * step for (_, at), step in zip(along, strides, strict=True)])
        place = strided(part.source, part.offset + item * at, sizes, strides, item, strips)
        yield Box(tuple([run.start for run, _ in along]), sizes, place_of(*place))


def _check_count(n_boxes: int, part: StoredTensor) -> None:
    if n_boxes > DTENSOR_MAX_BOXES:
        what = f"tensor {part.name!r}: a rank's part in {n_boxes:,} pieces"
        raise LimitExceeded("DTENSOR_MAX_BOXES", what)


def _runs(n: int, dim: int, sharding: Sharding, part: StoredTensor) -> list[range]:
    """Return which indices of a dimension a rank has, as runs."""
    # Each dimension of the mesh that cuts it takes the chunk of the rank's coordinate; one with a
    # split factor f cuts what is there into f chunks first, and takes that chunk of each.
    runs = [range(n)]
    for n_ranks, coordinate, cut, factor in sharding.placements:
        if cut == dim:
            _check_count(max(len(runs), 1) * factor, part)
            chunks = [_chunk(runs, i, factor) for i in range(factor)]
            runs = [run for each in chunks for run in _chunk(each, coordinate, n_ranks)]
    return runs


def _chunk(runs: Sequence[range], i: int, n: int) -> list[range]:
    """Return chunk i of n that torch.chunk cuts runs into: all but the last of ceil(size / n)."""
    each = -(-sum(map(len, runs)) // n)
    chunk, begin, end = list[range](), i * each, (i + 1) * each
    for run in runs:
        part = run[max(begin, 0) : max(end, 0)]
        chunk += [part] if len(part) else []
        begin, end = begin - len(run), end - len(run)
    return chunk


def _unlike(rank: int, part: StoredTensor) -> ParseError:
    return part.malformed(
        f"tensor {part.name!r}: rank {rank} and rank 0 hold different data, and no DTensor says how"
        " to join them"
    )


class _AgreeingSource(DerivedSource):
    """The bytes of a tensor that several ranks hold, which are compared as they are read."""

    def __init__(self, parts: Sequence[StoredTensor]) -> None:
        super().__init__(*(part.source for part in parts))
        self._parts, self.size = parts, parts[0].n_bytes

    def _read_some(self, offset: int, view: memoryview) -> int:
        n = min(len(view), self.size - offset)
        if n <= 0:
            return 0
        first, *others = self._parts
        first.source.read_into(first.offset + offset, view[:n])
        for rank, other in enumerate(others, 1):
            if other.source.read(other.offset + offset, n) != view[:n]:
                raise _unlike(rank, other)
        return n


HF_NAMED = re.compile(r"shard-(?P<rank>[0-9]{5})-.+\.safetensors", re.DOTALL)
_KEY, _OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"


def join_hf_shards(shards: Mapping[str, Container], budget: Budget) -> dict[str, StoredTensor]:
    """Return the whole tensors."""
    boxes: dict[str, list[Box]] = {}
    first: dict[str, StoredTensor] = {}
    for file, container in shards.items():
        if _KEY not in container.metadata:
            what = f"is named like a rank's part, but its metadata has no {_KEY}"
            raise ParseError(what, source=container.source.name)
        told = json_object(container.metadata[_KEY].encode(), f"{file}: its {_KEY}", budget)
        for name, part in container.tensors.items():
            like = first.setdefault(name, part)
            if part.dtype is not like.dtype or len(part.shape) != len(like.shape):
                raise part.malformed(f"{part} is a part of {like}, but differs in dtype or rank")
            own = told.get(name)
            begin: Any = own.get(_OFFSETS) if isinstance(own, dict) else None
            is_list = isinstance(begin, list) and len(begin) == len(part.shape)
            if not (is_list and all(type(n) is int and n >= 0 for n in begin)):
                raise part.malformed(
                    f"{part.name}: {_KEY} does not say where it begins in the whole"
                )
            place = place_of(part.source, part.offset)
            boxes.setdefault(name, []).append(Box(tuple(begin), part.in_bytes().shape, place))
    whole = {}
    for name, like in first.items():
        ends = [map(sum, zip(box.offsets, box.sizes, strict=True)) for box in boxes[name]]
        shape = tuple(map(max, zip(*ends, strict=True)))
        held = [box for box in boxes[name] if prod(box.sizes)]
        whole[name] = boxed(like.name, like.dtype, shape, held, like.source)
    return whole
