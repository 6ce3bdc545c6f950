"""An image or video model seen as the GGUF that ComfyUI-GGUF's converter makes.

images.json has a row for each architecture: the names that identify it, the one of diffusers that
is another arrangement of the same weights, the tensors that stay in F32 and those that are dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from anamnesis.architectures.operations import renamed, reshaped
from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.errors import ParseError, UnsupportedError
from anamnesis.base.plain_json import json_table
from anamnesis.base.stored import Dropped
from anamnesis.formats.base import Container
from anamnesis.formats.gguf.read import SHAPE_KEY
from anamnesis.schemes.core.seen import InDtype
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger

_PREFIXES = ("model.diffusion_model.", "model.")  # of a checkpoint with other models in it
_OF_ALL = "net."
_OF_OTHERS = "not of the image model"
_NO_WEIGHT = "no weight of the model"
_OF_DIFFUSERS = ("single_transformer_blocks.", "joint_transformer_blocks.")  # in no other names

_F16, _BF16, _F32 = DTYPES["F16"], DTYPES["BF16"], DTYPES["F32"]
_MOST_SMALL = 1024  # values of a tensor that stays in F32
_LEAST_RESHAPED = 512
_ROW = 256  # values, of which all blocks are made
_MOST_DIMS = 4  # of what is not kept whole, in F32


class Row(NamedTuple):
    """What is known of an architecture."""

    arch: str
    has: list[list[str]]
    of_diffusers: str | None = None
    in_f32: Sequence[str] = ()
    dropped: Sequence[str] = ()
    in_rows_of_256: bool = False


ROWS = tuple(Row(arch, **row) for arch, row in json_table(__file__).items())


@dataclass(frozen=True, slots=True)
class AsImages:
    """An image model with the names and the keys of a GGUF."""

    ledger: Ledger
    metadata: dict[str, Any]
    names: dict[str, tuple[str, ...]]
    n_rounded: int


def row_of(names: Iterable[str]) -> Row | None:
    """Return the architecture that has tensors of these names; None if none has."""
    known = {name.removeprefix(prefix) for name, prefix in _prefixed(names)}
    row = next(
        (
            row
            for row in ROWS
            if (row.of_diffusers in known or any(known.issuperset(names) for names in row.has))
        ),
        None,
    )
    if row is None:
        return None
    found = [row.of_diffusers] if row.of_diffusers in known else []
    found += [name for name in known if any(part in name for part in _OF_DIFFUSERS)]
    if found:
        raise UnsupportedError(
            f"{found[0]!r} is a tensor of {row.arch} as diffusers arranges it, which ComfyUI-GGUF"
            " does not read",
            remedy="convert the checkpoint in its publisher's layout, which ComfyUI's ModelSave"
            " writes; names='keep' keeps all names, for stable-diffusion.cpp",
        )
    return row


def _prefixed(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names of the image model, each with the prefix that all of them have."""
    names = list(names)
    for prefix in _PREFIXES:
        found = [(name, prefix) for name in names if name.startswith(prefix)]
        if found:
            return found
    prefix = _OF_ALL if all(name.startswith(_OF_ALL) for name in names) else ""
    return [(name, prefix) for name in names]


def as_images(
    ledger: Ledger, row: Row, containers: Iterable[Container], *, may_round: bool
) -> AsImages:
    """See an image model as GGUF; without `may_round`, no float becomes a narrower one."""
    order, weights = _as_read(containers), ledger.weights
    prefixed = _prefixed(sorted(weights, key=lambda name: order[weights[name].parts[0].name]))
    prefix = prefixed[0][1]
    left = {old: _OF_OTHERS for old in weights if not old.startswith(prefix)}
    names = {old.removeprefix(prefix): old for old, _ in prefixed}
    left |= {names[name]: _NO_WEIGHT for name in names if any(p in name for p in row.dropped)}
    names = {name: old for name, old in names.items() if old not in left}
    # Codes count as what they are decoded to.
    dtypes = Counter(weights[old].own_dtype or _BF16 for old, _ in prefixed)
    is_mostly_bf16 = dtypes.most_common(1)[0][0] is _BF16
    metadata: dict[str, Any] = {
        "general.architecture": {"type": "string", "value": row.arch},
        "general.quantization_version": {"type": "uint32", "value": 2},
        "general.file_type": {"type": "uint32", "value": 32 if is_mostly_bf16 else 1},
    }
    made: dict[str, Weight] = {}
    n_rounded = 0
    for name, old in names.items():
        weight = weights[old]
        own, dtype = weight.own_dtype, _dtype(row, name, weight)
        is_float = own is not None and own.kind == "float"
        rounds = own is not None and dtype is not None and is_float and own.bits > dtype.bits
        n_rounded += rounds and may_round
        if _is_ragged(row, weight):
            metadata[f"{SHAPE_KEY}{name}"] = list(weight.shape)
            weight = reshaped(weight, weight.name, (weight.n_elements // _ROW, _ROW))
        if dtype is None or dtype is own or (rounds and not may_round):
            made[name] = renamed(weight, name)
        else:
            made[name] = InDtype(name, weight.shape, weight.parts, (weight,), dtype)
    dropped = [Dropped(old, why) for old, why in left.items()]
    problems = {n: error for n, error in ledger.problems.items() if n.startswith(prefix)}
    ledger = replace(ledger, weights=_in_order(made), problems=problems)
    ledger.dropped = [*ledger.dropped, *dropped]
    return AsImages(ledger, metadata, {name: (old,) for name, old in names.items()}, n_rounded)


def _as_read(containers: Iterable[Container]) -> dict[str, int]:
    """Return the places of tensors in the order in which safetensors reads them, or torch."""
    names: list[str] = []
    for container in containers:
        own = list(container.tensors)
        if container.id == "safetensors":
            own.sort(key=lambda name: container.tensors[name].offset)
        names += own
    return {name: i for i, name in enumerate(names)}


def _dtype(row: Row, name: str, weight: Weight) -> DType | None:
    """Return what a tensor is written as that is not quantised; None of codes."""
    own, n = weight.own_dtype, weight.n_elements
    if own is None:
        is_scaled = len(weight.parts) == 1 and weight.parts[0].dtype.kind == "scaled"
        return _F16 if is_scaled else None
    if own.kind == "complex":
        raise ParseError(f"{weight.name!r} is {own.name}, and no weight of floats")
    if len(weight.shape) > _MOST_DIMS:
        return _F32
    is_small = len(weight.shape) == 1 or n <= _MOST_SMALL
    if own in (_F32, _BF16) and (is_small or any(part in name for part in row.in_f32)):
        return _F32
    return _BF16 if own is _BF16 else _F16


def _is_ragged(row: Row, weight: Weight) -> bool:
    """Return whether rows are cut anew, so that they are whole blocks."""
    n, shape = weight.n_elements, weight.shape
    is_large = row.in_rows_of_256 and len(shape) > 1 and n >= _LEAST_RESHAPED
    return is_large and n % _ROW == 0 and shape[-1] % _ROW != 0


def _in_order(weights: Mapping[str, Weight]) -> dict[str, Weight]:
    """Return weights with those of five dimensions behind their biases, or behind all others."""
    large = {name: w for name, w in weights.items() if len(w.shape) > _MOST_DIMS}
    ordered: dict[str, Weight] = {}
    for name, weight in weights.items():
        if name in large:
            continue
        ordered[name] = weight
        beside = name.replace(".bias", ".weight")
        if beside in large:
            ordered[beside] = large[beside]
    return ordered | large
