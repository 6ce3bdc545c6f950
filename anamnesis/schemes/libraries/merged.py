"""Which weights share NVFP4's second scale: layers that inference merges.

vLLM and SGLang merge layers of one input into one matrix, which has a single second scale: of
several they take the largest, and so decode all others wrong, after no more than a warning. A
directory has to have equal ones, whichever of its layers are merged.

Of compressed-tensors' these are llm-compressor's `FUSED_LAYER_NAMES`, what its `model_free_ptq` has
for files, and what else some class of vLLM 0.32 or SGLang 0.5.23 merges, by its
`packed_modules_mapping` or its loader. ModelOpt runs a model and asks which layers have the same
input, which names show as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from anamnesis.base.plain_json import json_table

Groups = tuple[tuple[str, ...], ...]

_WEIGHT = ".weight"


class _Row(NamedTuple):
    """Layers that are merged where two of them or more have one parent."""

    layers: tuple[str, ...]
    beside: str = ""
    within: str = ""


_TABLE = json_table(__file__)
_MERGED, _OTHERS = (
    tuple(_Row(tuple(layers.split()), *where) for layers, *where in _TABLE[key])
    for key in ("merged", "of one input")
)
_ONE_INPUT = (*_MERGED, *_OTHERS)  # the latter are merged by nobody
# Attention to what an encoder gives: keys and values of all blocks have that for an input.
_CROSS = re.compile(r"(^|\.)(encoder_attn|EncDecAttention|cross_?attn|crossattention)(\.|$)")
_NUMBER = re.compile(r"\.[0-9]+(?=\.|$)")
_KEYS = frozenset({"k_proj", "v_proj", "k", "v", "key", "value"})
# The layers that a block of a single norm begins with: its attention and what is beside it.
_NORM = re.compile(r"norm|^ln_", re.IGNORECASE)
_FIRST = frozenset({"q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "fc1", "fc_in"})


@lru_cache(maxsize=8)
def merged(names: tuple[str, ...]) -> Groups:
    """Return the groups of weights that inference may run as one; no weight is in two of them."""
    return tuple(
        group
        for parent, layers in _by_parent(names).items()
        for group in _groups(parent, layers, _MERGED)
    )


@lru_cache(maxsize=8)
def of_one_input(names: tuple[str, ...]) -> Groups:
    """Return the groups of weights whose layers have one input; no weight is in two of them."""
    norms: Counter[str] = Counter()
    for name in names:
        parent, _, layer = name.removesuffix(_WEIGHT).rpartition(".")
        if name.endswith(_WEIGHT) and parent[-1:].isdecimal() and _NORM.search(layer):
            norms[parent] += 1
    # Blocks that have one norm: attention and what is beside it read what that gives.
    parallel = {block for block, n in norms.items() if n == 1}
    found: dict[str, list[str]] = {}
    groups: list[tuple[str, ...]] = []
    for parent, layers in _by_parent(names).items():
        block = parent.rpartition(".")[0]
        if _CROSS.search(parent):
            keys = [name for layer, name in layers.items() if layer in _KEYS]
            found.setdefault(_NUMBER.sub(".", parent), []).extend(keys)
        elif block in parallel and not _FIRST.isdisjoint(layers):
            first = [name for layer, name in layers.items() if layer in _FIRST]
            found.setdefault(block, []).extend(first)
        else:
            groups += _groups(parent, layers, _ONE_INPUT)
    groups += [tuple(group) for group in found.values() if len(group) > 1]
    return tuple(groups)


def _by_parent(names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the weights of each parent's layers, by what these are called in there."""
    parents: dict[str, dict[str, str]] = {}
    for name in names:
        if name.endswith(_WEIGHT):
            parent, _, layer = name.removesuffix(_WEIGHT).rpartition(".")
            parents.setdefault(parent, {})[layer] = name
    return parents


def _groups(parent: str, layers: dict[str, str], rows: Sequence[_Row]) -> Iterator[tuple[str, ...]]:
    """Yield the groups of one parent's layers: rows that have a layer in common are one."""
    found: list[set[str]] = []
    for row in rows:
        present = {layer for layer in row.layers if layer in layers}
        missing = row.beside and row.beside not in layers
        if len(present) < 2 or missing or not parent.endswith(row.within):
            continue
        apart = [group for group in found if group.isdisjoint(present)]
        present.update(*(group for group in found if not group.isdisjoint(present)))
        found = [*apart, present]
    for group in found:
        yield tuple(name for layer, name in layers.items() if layer in group)
