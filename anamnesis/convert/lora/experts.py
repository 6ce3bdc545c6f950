"""What adapters add to experts, in stacks or one by one.

PEFT wraps one stack of a module in the other (`target_parameters`), so that names say neither:

    experts.base_layer.lora_A [r * E, in], .lora_B [out, r * E]   of the first that is wrapped
    experts.lora_A, experts.lora_B                                of the last

A is expert after expert; in B the expert is the fastest index. Expert e has B[:, e::E] @ A[e*r:].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from anamnesis.base.lazy import np
from anamnesis.base.stored import StoredTensor
from anamnesis.convert.lora.adapter import Adapter
from anamnesis.convert.lora.deltas import Delta, Factor
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.stacked_experts import LAYERS, PIECE, STACKS
from anamnesis.sources.strided import Strips, strided

_BASE = ".base_layer"
_STACK_NAMES = ("gate_up_proj", "down_proj", "up_proj")


class OfExperts(NamedTuple):
    """What experts get, and which modules of an adapter that is."""

    deltas: list[tuple[str, Delta]]
    taken: set[str]


class _Stack(NamedTuple):
    """A stack of a model: one tensor, or pieces of it by expert, in the order of its rows."""

    shape: tuple[int, int, int]  # of experts, out and in features
    is_turned: bool  # stored as [experts, in, out]
    pieces: list[list[tuple[str, range]]]  # of each expert: a weight, and which of its rows


def deltas_of_experts(adapter: Adapter, ledger: Ledger, weight: float) -> OfExperts:
    """Return what an adapter adds to experts that its config names as parameters."""
    named = adapter.config.get("target_parameters") or ()
    found = OfExperts([], set())
    if not named:
        return found
    for module in sorted(adapter.modules):
        bare = module.replace(_BASE, "")
        stacks = {name: s for name in _STACK_NAMES if (s := _stack(ledger, bare, name)) is not None}
        wanted = {n: s for n, s in stacks.items() if any(str(t).endswith(n) for t in named)}
        if not wanted or bare.rpartition(".")[2] != "experts":
            continue
        stack = _fitting(adapter, module, wanted)
        found.deltas.extend(_deltas(adapter, module, stack, weight))
        found.taken.add(module)
    return found


def _stack(ledger: Ledger, module: str, name: str) -> _Stack | None:
    """Return a stack of a module of experts, as the model has it."""
    whole = ledger.weights.get(f"{module}.{name}")
    if whole is not None and len(whole.shape) == 3:
        n, rows, cols = whole.shape
        own = [[(whole.name, range(e * rows, (e + 1) * rows))] for e in range(n)]
        return _Stack((n, rows, cols), False, own)
    layers = {layer: part for layer, part in LAYERS.items() if part in STACKS.get(name, ())}
    experts: dict[int, dict[str, str]] = {}
    tail = f"{module.rpartition('.')[0].rpartition('.')[0]}."  # a layer: its module may be renamed
    for own_name in ledger.weights:
        piece = PIECE.fullmatch(own_name) if own_name.startswith(tail) else None
        if piece is not None and piece[3] in layers and piece[4] == "weight":
            experts.setdefault(int(piece[2]), {})[layers[piece[3]]] = own_name
    if not experts or sorted(experts) != list(range(len(experts))):
        return None
    pieces = []
    for expert in range(len(experts)):
        names = [experts[expert].get(part) for part in STACKS[name]]
        if None in names:
            return None
        weights = [ledger.weights[str(one)] for one in names]
        pieces.append([(w.name, range(w.shape[0])) for w in weights])
    rows = sum(w.shape[0] for w in weights)
    return _Stack((len(experts), rows, weights[0].shape[1]), False, pieces)


def _fitting(adapter: Adapter, module: str, stacks: Mapping[str, _Stack]) -> _Stack:
    """Return the stack whose shape is that of a product, as it lies or turned."""
    a, b = adapter.modules[module]["A"], adapter.modules[module]["B"]
    first = next(iter(stacks.values())).shape
    lies = [s for s in stacks.values() if (s.shape[1], s.shape[2]) == (b.shape[0], a.shape[1])]
    turned = [s for s in stacks.values() if (s.shape[2], s.shape[1]) == (b.shape[0], a.shape[1])]
    n_lying = sum(1 for s in stacks.values() if s.shape[1] != s.shape[2] and s in lies)
    if lies and (n_lying or not turned or not _others_turned(adapter, stacks)):
        return lies[0]
    if turned:
        return turned[0]._replace(is_turned=True)
    raise adapter.error(
        f"the factors of {module!r} make [{b.shape[0]}, {a.shape[1]}] of each expert, and those of"
        f" the base are {list(first[1:])}"
    )


def _others_turned(adapter: Adapter, stacks: Mapping[str, _Stack]) -> bool:
    """Tell whether a stack that is not square fits the adapter only when it is turned."""
    products = [
        (roles["B"].shape[0], roles["A"].shape[1])
        for roles in adapter.modules.values()
        if "A" in roles and "B" in roles
    ]
    return any(
        s.shape[1] != s.shape[2] and (s.shape[2], s.shape[1]) in products for s in stacks.values()
    )


def _deltas(
    adapter: Adapter, module: str, stack: _Stack, weight: float
) -> Iterator[tuple[str, Delta]]:
    a, b = adapter.modules[module]["A"], adapter.modules[module]["B"]
    n = stack.shape[0]
    rank, rest = divmod(a.shape[0], n)
    if rest or b.shape[1] != a.shape[0] or rank == 0:
        raise adapter.error(f"the factors of {module!r} are of no {n:,} experts")
    scale, strips = weight * adapter.scale(module, rank), Strips()
    for expert, pieces in enumerate(stack.pieces):
        done = 0
        of_a = partial(_of_a, a, expert, rank)
        of_b = partial(_of_b, b, expert, n, strips)
        for name, rows in pieces:
            left, right = partial(_cut, of_b, done, len(rows)), of_a
            if stack.is_turned:
                left = partial(_cut, partial(_turned, of_a), done, len(rows))
                right = partial(_turned, of_b)
            yield name, Delta(left, right, scale, rows, is_rounded=True)
            done += len(rows)


def _of_a(a: StoredTensor, expert: int, rank: int) -> Any:
    n_bytes = a.dtype.n_bytes(rank * a.shape[1])
    at = a.offset + expert * n_bytes
    return Factor(a._replace(shape=(rank, a.shape[1]), n_bytes=n_bytes, offset=at)).values()


def _of_b(b: StoredTensor, expert: int, n: int, strips: Strips) -> Any:
    item, (rows, cols) = b.dtype.n_bytes(1), b.shape
    shape, strides = (rows, cols // n), (cols, n)
    source, at = strided(b.source, b.offset + expert * item, shape, strides, item, strips)
    return Factor(
        b._replace(shape=shape, n_bytes=b.n_bytes // n, offset=at, source=source)
    ).values()


def _turned(make: Any) -> Any:
    return np.ascontiguousarray(make().T)


def _cut(make: Any, first: int, n: int) -> Any:
    return make()[first : first + n]
