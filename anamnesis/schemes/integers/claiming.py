"""Which stored tensors are integers, whose, and what belongs to them."""

from __future__ import annotations

from anamnesis.schemes.facts import QuantFacts
from anamnesis.schemes.integers import (
    bitnet,
    compressed_tensors,
    hqq,
    mlx,
    modelopt,
    one_byte,
    quanto,
    torchao,
)
from anamnesis.schemes.ledger import Claim, Finder

__all__ = ["claim"]

_FINDERS: tuple[Finder, ...] = (
    compressed_tensors.find,
    mlx.find,
    one_byte.find,
    quanto.find,
    modelopt.find,
    torchao.find,
    hqq.find,
    bitnet.find,
)


def claim(claim: Claim, facts: QuantFacts) -> None:
    """Take all weights of integers with what belongs to them.

    What is left of those that are not understood is refused as parts of no weight.
    """
    claim.take_found(_FINDERS, facts)
