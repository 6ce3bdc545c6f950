"""torchao's weights in a ledger, and whether they are what the file says."""

from __future__ import annotations

from typing import NamedTuple

from anamnesis.base.described import Described
from anamnesis.base.errors import AnamnesisError
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.says.torchao import (
    ACTIVATIONS,
    CODES,
    SCALE,
    ZEROS,
    check_described,
    prefix_of,
    weight_of,
)

__all__ = ["Parts", "parts_of", "refuse_misdescribed"]

_UNSAID = Described("")
_INPUT_SCALE = "act_pre_scale"  # what inputs are multiplied by, and so a part of the weight


class Parts(NamedTuple):
    """The names of a weight and of what it is made of.

    Attributes
    ----------
    weight : str
    prefix : str
        What all names of parts begin with.
    said : Described
        What the file says of it; of no kind if that is nothing.
    """

    weight: str
    prefix: str
    said: Described

    def is_one_of(self, *kinds: str) -> bool:
        """Tell whether it may be of one of these classes."""
        return not self.said.kind or self.said.kind in kinds

    def has_input_scale(self, ledger: Ledger) -> bool:
        """Tell whether inputs are to be multiplied by something."""
        return self.prefix + _INPUT_SCALE in ledger.stored

    def drop_activation_scales(self, ledger: Ledger) -> None:
        """Drop what only quantised activations need."""
        for name in ACTIVATIONS:
            if ledger.find(self.prefix + name) is not None:
                ledger.drop(self.prefix + name, "scale of activations")


def parts_of(codes: str, facts: QuantFacts) -> Parts | None:
    """Return what a weight's parts are called, if that is the name of its codes."""
    weight = weight_of(codes)
    if weight is None:
        return None
    return Parts(weight, codes.removesuffix(CODES), facts.described.get(weight, _UNSAID))


def refuse_misdescribed(ledger: Ledger, facts: QuantFacts) -> None:
    """Refuse the parts of weights that are not what the file says of them."""
    for weight, said in facts.described.items():
        prefix = prefix_of(weight)
        codes, scale, zeros = (ledger.find(prefix + part) for part in (CODES, SCALE, ZEROS))
        if codes is None:
            continue
        try:
            check_described(said, codes, scale, zeros)
        except AnamnesisError as error:
            names = dict.fromkeys([prefix + part for part in (CODES, SCALE, ZEROS, *said.parts)])
            ledger.refuse([name for name in names if ledger.find(name) is not None], error)
