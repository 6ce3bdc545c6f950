"""Which weight of a model each module of an adapter is of."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from itertools import takewhile

from anamnesis.base.nearest import did_you_mean
from anamnesis.convert.lora.adapter import Adapter
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.ledger import Ledger

_WEIGHT = ".weight"
# What kohya's and diffusers' names begin with; the rest is a module's, kohya's with underscores.
_STARTS = (
    "lora_unet_",
    "lora_te1_",
    "lora_te2_",
    "lora_te_",
    "unet.",
    "transformer.",
    "text_encoder.",
)


def flat_shape(weight: Weight) -> tuple[int, ...]:
    """Return the shape of a weight seen as a matrix: its first dimension, and all others as one."""
    return (weight.shape[0], weight.n_elements // max(weight.shape[0], 1)) if weight.shape else ()


def _one_to_one(adapter: Adapter, found: dict[str, str]) -> dict[str, str]:
    """Return modules and their weights; refuse two of one weight."""
    owners: dict[str, str] = {}
    for module, name in found.items():
        if owners.setdefault(name, module) != module:
            raise adapter.error(f"modules {owners[name]!r} and {module!r} both fit {name!r}")
    return found


class Modules:
    """The modules of a model, by their names."""

    def __init__(self, ledger: Ledger) -> None:
        self._weights: dict[str, Weight | None] = {
            **dict.fromkeys(ledger.problems),
            **ledger.weights,
        }
        names = sorted(self._weights, key=lambda name: name.endswith(_WEIGHT))
        self._of = {name.removesuffix(_WEIGHT): name for name in names}
        self._ends: dict[str, list[str]] | None = None

    def of_adapter(self, adapter: Adapter, modules: Collection[str]) -> dict[str, str]:
        """Return the weight of each module; refuse an adapter with one that the base lacks."""
        below = partial(self._below_another_prefix, adapter)
        for find in (self._exactly, below, self._by_underscores):
            found = dict(find(modules))
            if len(found) == len(modules):
                return _one_to_one(adapter, found)
        missing = next(module for module in modules if module not in self._of)
        raise adapter.error(
            f"module {missing!r} is no weight of the base{did_you_mean(missing, self._of)}; is"
            " it an adapter of this model?"
        )

    def of_tensor(self, name: str) -> str | None:
        """Return the weight that a tensor of an adapter replaces."""
        if name in self._weights:
            return name
        found = [
            own for own in self._weights if own.endswith(f".{name}") or name.endswith(f".{own}")
        ]
        return found[0] if len(found) == 1 else None

    def _exactly(self, modules: Collection[str]) -> Iterator[tuple[str, str]]:
        return ((module, self._of[module]) for module in modules if module in self._of)

    def _below_another_prefix(
        self, adapter: Adapter, modules: Collection[str]
    ) -> Mapping[str, str]:
        """Return modules of which all lie below one prefix here, and another in the model."""
        first = next(iter(modules), "")
        parts = first.split(".")
        for i in range(len(parts)):
            tail, old = ".".join(parts[i:]), "".join(f"{part}." for part in parts[:i])
            if not all(module.startswith(old) for module in modules):
                break
            found = []
            for own in [name for name in self._of if name == tail or name.endswith(f".{tail}")]:
                new = own.removesuffix(tail)
                moved = (f"{new}{module.removeprefix(old)}" for module in modules)
                names = [self._of[own] for own in takewhile(self._of.__contains__, moved)]
                if len(names) == len(modules):
                    found.append(dict(zip(modules, names, strict=True)))
            if len(found) > 1:
                found = [one for one in found if self._fits(adapter, one)] or found
            if len(found) > 1:
                one, other = (next(iter(each.values())) for each in found[:2])
                raise adapter.error(f"module {first!r} fits both {one!r} and {other!r} of the base")
            if found:
                return found[0]
        return {}

    def _fits(self, adapter: Adapter, found: Mapping[str, str]) -> bool:
        """Tell whether all weights have the shapes of the products of their modules."""
        weights = {module: self._weights[name] for module, name in found.items()}
        return all(w is None or flat_shape(w) == adapter.made(m) for m, w in weights.items())

    def _by_underscores(self, modules: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield modules whose dots are underscores, below a prefix that the model may not have."""
        if self._ends is None:
            self._ends = {}
            for module in self._of:
                parts = module.split(".")
                for i in range(len(parts)):
                    self._ends.setdefault("_".join(parts[i:]), []).append(module)
        for module in modules:
            start = next((start for start in _STARTS if module.startswith(start)), "")
            found = self._ends.get(module.removeprefix(start).replace(".", "_"), [])
            if len(found) == 1:
                yield module, self._of[found[0]]
