"""What adapters add to experts, in stacks or one by one.

PEFT wraps one stack of a module in the other (`target_parameters`), so that names say neither:

    experts.base_layer.lora_A [r * E, in], .lora_B [out, r * E]   of the first that is wrapped
    experts.lora_A, experts.lora_B                                of the last

A is expert after expert; in B the expert is the fastest index. Expert e has B[:, e::E] @ A[e*r:].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from anamnesis.base.stored import StoredTensor
from anamnesis.convert.lora.adapter import Adapter
from anamnesis.convert.lora.deltas import Delta, picked
from anamnesis.convert.lora.names import Names, core
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.stacked_experts import (
    STACKS,
    Singles,
    Way,
    in_order,
    single_experts,
    way_of,
)

_BASE = ".base_layer"
_STACK_NAMES = ("gate_up_proj", "down_proj", "up_proj")
# Types of models whose stacks PEFT takes as [experts, in, out] (`is_transposed` in transformers).
_IN_OUT = frozenset({"gpt_oss", "openai_privacy_filter", "aria", "aria_text"})


class _Stack(NamedTuple):
    """A stack of a model: one tensor, or pieces of it by expert, in the order of its rows."""

    name: str
    shape: tuple[int, int, int]  # of experts, out and in features
    is_turned: bool  # stored as [experts, in, out]
    pieces: list[list[tuple[str, range]]]  # of each expert: a weight, and which of its rows
    is_usually_turned: bool | None  # by the model's type; None if nothing says it
    alternates: bool = False  # its rows are of the pieces in turn, and not one after the other


def deltas_of_experts(
    adapter: Adapter, ledger: Ledger, names: Names
) -> tuple[list[tuple[str, Delta]], dict[str, str]]:
    """Return what an adapter adds to experts that its config names, and what each module is of."""
    deltas, taken = list[tuple[str, Delta]](), dict[str, str]()
    singles: dict[str, Singles] = {}
    for module in sorted(adapter.modules):
        bare = module.replace(_BASE, "")
        named = [name.rpartition(".")[2] for name in adapter.config(module).parameters]
        if not named or bare.rpartition(".")[2] != "experts":
            continue
        singles = singles or {_layer(m): one for m, one in single_experts(ledger.weights).items()}
        asked = [names.own(f"{bare}.{name}") for name in _STACK_NAMES if name in named]
        stacks = list(filter(None, (_stack(ledger, singles, name) for name in asked)))
        if stacks:
            stack = _fitting(adapter, module, stacks)
            taken[module] = f"{bare}.{stack.name}"
            deltas.extend(_deltas(adapter, module, stack, taken[module]))
    names.check_owners(adapter, taken)
    return deltas, taken


def _factors(adapter: Adapter, module: str) -> tuple[StoredTensor, StoredTensor]:
    """Return the two factors of a module of experts, which are matrices."""
    roles, config = adapter.modules[module], adapter.config(module)
    others = sorted(roles.keys() - {"A", "B", "alpha"})
    others += [key for key in ("use_dora", "lora_bias", "fan_in_fan_out") if config.values.get(key)]
    if others or len(roles["A"].shape) != 2 or len(roles["B"].shape) != 2:
        what = f"have {others[0]}" if others else "are not matrices"
        raise adapter.error(f"the factors of {module!r}, a module of experts, {what}")
    return roles["A"], roles["B"]


def _layer(experts: str) -> str:
    """Return the layer of a module of experts; what is around and between may be renamed."""
    return core(experts.rpartition(".")[0].rpartition(".")[0])


def _stack(ledger: Ledger, singles: Mapping[str, Singles], parameter: str) -> _Stack | None:
    """Return a stack of a module of experts, as the model has it."""
    module, _, name = parameter.rpartition(".")
    types = ledger.facts.types
    way, in_out = way_of(types) or Way(), not types.isdisjoint(_IN_OUT)
    whole = ledger.weights.get(parameter)
    if whole is not None and len(whole.shape) == 3:
        n, rows, cols = whole.shape
        own = [[(whole.name, range(e * rows, (e + 1) * rows))] for e in range(n)]
        return _Stack(name, (n, rows, cols), False, own, in_out if types else None)
    found, parts = singles.get(_layer(module), {}), STACKS.get(name, ())
    pieces = in_order([found.get((part, "weight"), {}) for part in parts]) if parts else ""
    if isinstance(pieces, str) or len(pieces[0].shape) != 2:
        return None
    (rows, cols), n = pieces[0].shape, len(parts)
    experts = [
        [(one.name, range(rows)) for one in pieces[i : i + n]] for i in range(0, len(pieces), n)
    ]
    alternates = way.alternates and n > 1
    shape = (len(experts), n * rows, cols)
    return _Stack(name, shape, False, experts, way.is_turned != in_out, alternates)


def _fitting(adapter: Adapter, module: str, stacks: Sequence[_Stack]) -> _Stack:
    """Return the stack whose shape is that of a product, as it lies or turned."""
    a, b = _factors(adapter, module)
    made = b.shape[0], a.shape[1]
    lies = [stack for stack in stacks if stack.shape[1:] == made]
    turned = [stack for stack in stacks if stack.shape[:0:-1] == made]
    if not lies and not turned:
        raise adapter.error(
            f"the factors of {module!r} make {list(made)} for each expert, but the base's are"
            f" {list(stacks[0].shape[1:])}"
        )
    are_square = all(stack.shape[1] == stack.shape[2] for stack in lies)
    if not lies or (are_square and _is_turned(adapter, module, stacks, lies[0])):
        return turned[0]._replace(is_turned=True)
    return lies[0]


def _is_turned(adapter: Adapter, module: str, stacks: Sequence[_Stack], square: _Stack) -> bool:
    """Tell whether a square stack is turned: as the other one of its module, or by the type."""
    bare = module.replace(_BASE, "")
    wrapped = [_factors(adapter, m) for m in adapter.modules if m.replace(_BASE, "") == bare]
    products = {(b.shape[0], a.shape[1]) for a, b in wrapped}
    others = [stack.shape[1:] for stack in stacks if stack.shape[1] != stack.shape[2]]
    if any(shape in products for shape in others):
        return False
    if any(shape[::-1] in products for shape in others):
        return True
    if square.is_usually_turned is None:
        raise adapter.error(
            f"the factors of {module!r} fit {f'{bare}.{square.name}'!r} either way, and no"
            " model_type in a config.json says which is right"
        )
    return square.is_usually_turned


def _deltas(
    adapter: Adapter, module: str, stack: _Stack, parameter: str
) -> Iterator[tuple[str, Delta]]:
    a, b = _factors(adapter, module)
    n = stack.shape[0]
    rank, rest = divmod(a.shape[0], max(n, 1))
    if rest or b.shape[1] != a.shape[0] or rank == 0:
        raise adapter.error(f"the factors of {module!r} do not divide among {n:,} experts")
    scale, n_in, (n_out, step) = adapter.scale(module, rank, parameter), a.shape[1], b.shape
    for expert, pieces in enumerate(stack.pieces):
        first, done = expert * rank * n_in, 0
        each = len(pieces) if stack.alternates else 1  # of the stack's rows, from one to the next
        for name, rows in pieces:
            if stack.is_turned:
                left = picked(a, first + done, (len(rows), rank), (each, n_in))
                right = picked(b, expert, (rank, n_out), (n, step))
            else:
                left = picked(b, expert + done * step, (len(rows), rank), (each * step, n))
                right = picked(a, first, (rank, n_in), (n_in, 1))
            delta = Delta.of(left, right, scale, rows)
            delta.is_rounded = True
            yield name, delta
            done += 1 if stack.alternates else len(rows)
