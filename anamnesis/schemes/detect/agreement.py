"""Whether the weights that were found agree with what the files say.

What names, dtypes and shapes show decides. But a part that is said to be there and is not, and
shapes that what is said rules out, are signs of a damaged or mixed-up model: such weights are
refused. One place for all schemes, so that none can forget it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from anamnesis.base.errors import AnamnesisError, ParseError
from anamnesis.schemes.core.settings import AskedPart, Expected, Shown, disagreement
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.markers import has_markers, layer_of
from anamnesis.schemes.detect.unread import refuse_encoding
from anamnesis.schemes.libraries.comfy_metadata import expected_of
from anamnesis.schemes.libraries.targets import Targets
from anamnesis.schemes.libraries.torchao_metadata import ACTIVATIONS

_REMEDY = (
    "if the tensors are right, correct the config; allow_unknown=True copies them as they are "
    "stored"
)
_MISSING = (
    "give the whole directory if it lies in another shard; allow_unknown=True copies the others "
    "as they are stored"
)

_MOST_LOOKED_AT = 64  # weights whose zero points are read at once: remote files take time for each


def refuse_others(ledger: Ledger, facts: QuantFacts) -> None:
    """Retract the weights that are not as they are said to be."""
    said = _Expectations(ledger, facts)
    for weight in said.doubtful():
        errors = [error for given in said.of(weight) if (error := _problem(weight, given, ledger))]
        by_config: list[AnamnesisError] = []  # unless one of what the config says is true
        for given in said.by_config(weight):
            error = _problem(weight, given, ledger)
            if error is None:
                by_config = []
                break
            by_config.append(error)
        if by_config and not said.excuses(weight):
            errors.append(by_config[0])
        if errors:
            ledger.retract(weight, errors[0])
    left = ((weight, by) for weight, by in said.symmetric() if weight.name in ledger.weights)
    for looked, (weight, by) in enumerate(left):
        try:
            weight.expect_symmetric(by, reads=looked < _MOST_LOOKED_AT)
        except ParseError as error:
            ledger.retract(weight, error)


def _module(weight: Weight) -> str:
    return weight.name.removesuffix(".weight")


class _Expectations:
    """What is said of the weights of a model."""

    def __init__(self, ledger: Ledger, facts: QuantFacts) -> None:
        self._ledger = ledger
        self._facts = facts
        self._is_comfy = has_markers(ledger, facts.comfy_layers)
        self._coded = ledger.coded
        self._explained: dict[Shown, bool] = {}
        self._left: Targets[bool] | None = None
        targets = Targets(facts.expected, map(_module, self._coded))
        self._of_all = targets.of_all or []
        self._targets = targets if targets.of_all is None else None

    def doubtful(self) -> Iterator[Weight]:
        """Yield the weights but those that only the config speaks of, of shapes alone, and rightly.

        Such are most weights of most models; that is found out once for all of one kind.
        """
        if self._facts.described or self._is_comfy:
            yield from self._coded
        elif self._targets is not None:
            for weight in self._coded:
                if not _agrees(weight.shown, tuple(self._targets.of(_module(weight)))):
                    yield weight
        elif self._of_all:
            said, known = tuple(self._of_all), dict[Shown | None, bool]()
            for weight in self._coded:
                shown = weight.shown
                if shown not in known:
                    known[shown] = _agrees(shown, said)
                if not known[shown]:
                    yield weight

    def of(self, weight: Weight) -> Iterator[Expected]:
        """Yield what the file itself says of a weight, all of which must be true."""
        said = self._facts.described.get(weight.name)
        if said is not None and said.parts:
            last = weight.name.rpartition(".")[2]
            ends = [f"_{last}_{name}" for name in said.parts if name not in ACTIVATIONS]
            asked = tuple(AskedPart(end, "_tensor_data_names") for end in ends)
            yield Expected("the file's metadata", parts=asked)
        if self._is_comfy:
            layer = layer_of(weight.parts[0].name, self._ledger, self._facts.comfy_layers)
            given = None if layer is None else expected_of(layer)
            if given is not None:
                yield given

    def by_config(self, weight: Weight) -> list[Expected]:
        """Return what the config says, of which one must be true."""
        return self._of_all if self._targets is None else self._targets.of(_module(weight))

    def symmetric(self) -> Iterator[tuple[Weight, str]]:
        """Yield the weights whose zero points are all the middle code, and who says so."""
        if any(one.is_symmetric for _, one in self._facts.expected):
            for weight in self._coded:
                given = self.by_config(weight)
                if given and all(one.is_symmetric for one in given):
                    yield weight, given[0].by

    def excuses(self, weight: Weight) -> bool:
        """Return whether the config speaks of others: it leaves this one, or the model is mixed.

        In a mixed one the file itself, or another section, speaks of a weight not named here.
        """
        left, name = self._facts.left_alone, f".{_module(weight)}."
        if any(f".{target}." in name for target in left):
            return True
        if self._left is None:
            self._left = Targets(((target, True) for target in left), map(_module, self._coded))
        if self._left.by_name(_module(weight)):
            return True
        shown, given = weight.shown, self.by_config(weight)
        if shown is None or any(one.unread for one in given):
            return False
        if self._targets and self._targets.by_name(_module(weight)):
            return False
        if self._facts.is_partly_undetermined or weight.name in self._facts.described:
            return True
        if next(self.of(weight), None) is not None:
            return True
        if any(one.kind == shown.kind for one in given):
            return False
        if shown not in self._explained:
            self._explained[shown] = _agrees(shown, tuple(one for _, one in self._facts.expected))
        return self._explained[shown]


@lru_cache(maxsize=4096)  # a model has many weights, but few kinds of them
def _agrees(shown: Shown | None, said: tuple[Expected, ...]) -> bool:
    """Return whether nothing is said, or something that shapes alone show to be true."""
    if not said or shown is None:
        return not said
    return any(not (one.parts or one.unread or disagreement(shown, one)) for one in said)


def _problem(weight: Weight, given: Expected, ledger: Ledger) -> AnamnesisError | None:
    shown = weight.shown
    if given.unread:
        return refuse_encoding(ledger.stored[weight.parts[0].name], given.unread, ledger.facts)
    why = disagreement(shown, given) if shown else ""
    if not why and not given.parts:
        return None
    if given.not_of and any(part.name.endswith(given.not_of) for part in weight.parts):
        return None
    codes = ledger.stored[weight.parts[0].name]
    if why:
        scales = [ledger.stored[part.name] for part in weight.parts[1:2]]
        beside = "".join(f", beside {scale}" for scale in scales)
        return codes.malformed(f"{codes}{beside}: {why}", remedy=_REMEDY)
    for asked in given.parts:
        if not any(part.name.endswith(asked.name) for part in weight.parts):
            missing = f"its {asked.name} is missing, which {given.by} asks for ({asked.why})"
            return codes.unsupported(f"{codes}: {missing}", remedy=_MISSING)
    return None
