"""Which weights of a model the names of an adapter mean.

Names are the model's own, or all of them lie below another prefix, or their wrappers change places
(`model.language_model.` is `language_model.model.` in files), or their dots are underscores. A
factor and a whole tensor are found alike, so that both are of one part of the model.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from itertools import takewhile
from typing import Any

from anamnesis.base.errors import UnsupportedError
from anamnesis.base.nearest import did_you_mean
from anamnesis.convert.lora.adapter import STARTS, Adapter
from anamnesis.convert.lora.deltas import as_matrix
from anamnesis.convert.plan.edits import digest_of
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.targets import without_wrappers
from anamnesis.schemes.libraries.tied_heads import EMBEDDINGS, head_of, says_tied

_WEIGHT = ".weight"
_SHARED = "shared.weight"  # T5's and BART's, of which other embeddings are copies
_RENAMED = {".block_sparse_moe.": ".mlp."}  # in files, and by transformers 5


def module_of(name: str) -> str:
    """Return the module whose weight a tensor is; a tensor that is no weight is its own."""
    return name.removesuffix(_WEIGHT)


class Tied:
    """The output head of a model and its embeddings, which may be one."""

    def __init__(self, ledger: Ledger, config: Mapping[str, Any]) -> None:
        self.stored: tuple[str, ...] = ()  # the weights of both, under all their names
        self.head, self.has_head = "", True  # the module of the head, and whether it is stored
        self._weights, self._said = ledger.weights, says_tied(config)
        head = head_of(config) if config and self._said is not False else None
        embeddings = tuple(filter(EMBEDDINGS.fullmatch, ledger.weights))
        is_one = len(embeddings) == 1 or any(name.endswith(_SHARED) for name in embeddings)
        end = f".{head}{_WEIGHT}"
        heads = [name for name in ledger.weights if f".{name}".endswith(end)]
        if head is not None and is_one and len(heads) < 2:
            self.stored = (*embeddings, *heads)
            self.head, self.has_head = module_of(heads[0]) if heads else head, bool(heads)

    @cached_property
    def twins(self) -> tuple[str, ...]:
        """All that is stored, if it is the same."""
        weights = [self._weights[name] for name in self.stored]
        values = {tuple([digest_of(part)() for part in weight.parts]) for weight in weights}
        if len(weights) < 2 or len(values) > 1:
            return ()
        if self._said is not True:  # which leaves it to the class
            raise UnsupportedError(
                f"{self.stored[0]!r} and {self.stored[-1]!r} are equal, but config.json does not"
                " say whether they are tied",
                remedy="set tie_word_embeddings there",
            )
        return self.stored


class Names:
    """The weights of a model, by the names of their modules."""

    def __init__(self, ledger: Ledger, tied: Tied) -> None:
        self._weights = ledger.weights
        names = sorted([*ledger.problems, *ledger.weights], key=lambda name: name.endswith(_WEIGHT))
        self._of = {module_of(name): name for name in names}
        self._tied = tied
        if not tied.has_head:
            self._of.setdefault(tied.head, tied.stored[0])

    @cached_property
    def _cores(self) -> dict[str, str]:
        return _the_only((core(module), module) for module in self._of)

    def of_adapter(self, adapter: Adapter, names: Collection[str]) -> dict[str, str]:
        """Return the weight of each module; refuse an adapter with one that the base lacks."""
        below, found = partial(self._below_another_prefix, adapter), dict[str, str]()
        for find in (below, self._by_underscores, self._by_cores):
            found = dict(find(names))
            if len(found) == len(names):
                self.check_owners(adapter, found)
                return found
        missing = next(name for name in names if name not in found)
        near = did_you_mean(missing, self._of)
        if missing in adapter.modules:
            raise adapter.error(
                f"module {missing!r} is not a weight of the base{near}; is it an adapter of this"
                " model?"
            )
        tensor = next(name for name in adapter.whole if module_of(name) == missing)
        raise adapter.error(f"tensor {tensor!r} is neither a factor nor a weight of the base{near}")

    def own(self, name: str) -> str:
        """Return the base's name of a weight that may lie below other wrappers."""
        return next((own for _, own in self._by_cores([module_of(name)])), name)

    def check_owners(self, adapter: Adapter, found: Mapping[str, str]) -> None:
        """Refuse two modules that mean one weight, unless it is the head too."""
        owners: dict[str, str] = {}
        for module, name in found.items():
            other = owners.setdefault(name, module)
            if other != module and (self._tied.has_head or name != self._tied.stored[0]):
                raise adapter.error(f"modules {other!r} and {module!r} both fit {name!r}")

    def _by_underscores(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield modules whose dots are underscores, below a prefix that the model may not have."""
        all_tails = ((tail.replace(".", "_"), own) for own in self._of for tail in _tails(own))
        ends = _the_only(all_tails)
        for name in names:
            start = next((start for start in STARTS if name.startswith(start)), "")
            own = ends.get(name.removeprefix(start).replace(".", "_"))
            if own and (start or "." not in name):
                yield name, self._of[own]

    def _by_cores(self, names: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield modules below other wrappers, which may be several."""
        for name in names:
            own = name if name in self._of else self._cores.get(core(name))
            if own:
                yield name, self._of[own]

    def _below_another_prefix(
        self, adapter: Adapter, names: Collection[str]
    ) -> Iterable[tuple[str, str]]:
        """Return modules of which all lie below one prefix here, and maybe another in the model."""
        if all(name in self._of for name in names):
            return [(name, self._of[name]) for name in names]
        first = next(iter(names), "")
        for tail in _tails(first):
            old = first.removesuffix(tail)
            if not all(name.startswith(old) for name in names):
                break
            found = []
            for own in [name for name in self._of if name == tail or name.endswith(f".{tail}")]:
                new = own.removesuffix(tail)
                moved = (f"{new}{name.removeprefix(old)}" for name in names)
                weights = [self._of[own] for own in takewhile(self._of.__contains__, moved)]
                if len(weights) == len(names):
                    found.append(dict(zip(names, weights, strict=True)))
            if len(found) > 1:
                found = [one for one in found if self._fits(adapter, one)] or found
            if len(found) > 1:
                one, other = (next(iter(each.values())) for each in found[:2])
                raise adapter.error(f"module {first!r} fits both {one!r} and {other!r} of the base")
            if found:
                return found[0].items()
        return ()

    def _fits(self, adapter: Adapter, found: Mapping[str, str]) -> bool:
        """Tell whether all weights have the shapes of the products of their modules."""
        return all(
            as_matrix(weight.shape) == adapter.made(module)
            for module, name in found.items()
            if (weight := self._weights.get(name)) is not None and module in adapter.modules
        )


def core(name: str) -> str:
    """Return a name as all wrappers and both names of a part have it."""
    for old, new in _RENAMED.items():
        name = name.replace(old, new)
    return without_wrappers(name)


def _tails(name: str) -> Iterator[str]:
    """Yield a name from each of its parts on, the longest first."""
    parts = name.split(".")
    return (".".join(parts[i:]) for i in range(len(parts)))


def _the_only(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the module of each key; an empty one where there are several."""
    found: dict[str, str] = {}
    for key, module in named:
        found[key] = "" if key in found else module
    return found
