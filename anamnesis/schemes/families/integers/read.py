"""Which stored tensors are integers, whose, and what belongs to them."""

from __future__ import annotations

from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Finder, Ledger
from anamnesis.schemes.families.integers.layouts import (
    awq,
    bitnet,
    compressed_tensors,
    gemma,
    gptq,
    hqq,
    marlin,
    marlin_24,
    mlx,
    modelopt,
    one_byte,
    quanto,
    quark,
)

_FINDERS: dict[str, tuple[Finder, ...]] = {
    "I32": (compressed_tensors.find, hqq.find),
    "U32": (mlx.find,),
    "I8": (one_byte.find,),
    "U8": (quanto.find, modelopt.find, hqq.find, bitnet.find),
    **dict.fromkeys(("F32", "F16", "BF16"), (hqq.find,)),
}


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of integers with what belongs to them."""
    # What is left of those that are not understood is refused as parts of no weight.
    quark.find_all(ledger, facts)  # before others read its groups of bytes as blocks
    gemma.find_all(ledger, facts)
    find_in_rows(ledger, facts)
    for packed in (
        marlin_24,
        marlin,
        gptq,
        awq,
    ):  # AWQ's last: it refuses what is left of `qweight`
        packed.find_all(ledger, facts)


def find_in_rows(ledger: Ledger, facts: QuantFacts) -> None:
    """Take the weights whose codes lie in rows, as the shape has them, of all but Quark."""
    ledger.take_found(_FINDERS, facts)
