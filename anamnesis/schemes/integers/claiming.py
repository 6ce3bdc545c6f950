"""Which stored tensors are integers, whose, and what belongs to them."""

from __future__ import annotations

from collections.abc import Callable

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.stored import StoredTensor
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
from anamnesis.schemes.integers.weight import IntegerWeight
from anamnesis.schemes.ledger import Claim

__all__ = ["claim"]

_FINDERS: tuple[Callable[[StoredTensor, Claim, QuantFacts], IntegerWeight | None], ...] = (
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
    for codes in claim.free():
        if claim.find(codes.name) is None:
            continue
        for find in _FINDERS:
            try:
                weight = find(codes, claim, facts)
            except AnamnesisError as error:
                claim.refuse([codes.name], error)
                break
            if weight is not None:
                claim.take(weight)
                break
