"""Which stored tensors are integers, whose, and what belongs to them."""

from __future__ import annotations

from collections.abc import Callable

from anamnesis.base.errors import AnamnesisError, UnsupportedError
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
                _take(weight, claim)
                break


def _take(weight: IntegerWeight, claim: Claim) -> None:
    """Take a weight, unless there is another one of its name."""
    names = [part.name for part in weight.parts]
    if weight.name in claim.weights or (weight.name in claim.stored and weight.name not in names):
        error = UnsupportedError(
            f"{weight.parts[0].source.name}: {names[0]} holds codes of {weight.name}, but there "
            "is another tensor of that name"
        )
        claim.refuse(names, error)
    else:
        claim.take(weight)
