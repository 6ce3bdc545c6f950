"""Which stored tensors are weights of bitsandbytes: a quant_state or SCB tells."""

from __future__ import annotations

from collections.abc import Callable

from anamnesis.base.errors import AnamnesisError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.core.weight import Weight
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.families.bnb.layouts import (
    QUANT_STATE,
    FourBitLayout,
    Int8Layout,
    four_bit_weight,
    int8_weight,
)


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take what has a quant_state or an SCB beside it; no config is asked."""
    for stored in ledger.free():
        if ledger.find(stored.name) is None:
            continue
        if QUANT_STATE in stored.name:
            weight, fields = stored.name.rpartition(QUANT_STATE)[0], FourBitLayout.fields
            is_nested = fields[3].named(weight) in ledger.stored
            names = [field.named(weight) for field in fields if is_nested or not field.unless]
            _claim(ledger, stored, [*names, stored.name], four_bit_weight)
        elif stored.name.rpartition(".")[2] == "SCB":
            weight = sibling(stored.name, "weight")
            named = {field.named(weight): field.unless for field in Int8Layout.fields}
            names = [name for name, unless in named.items() if not unless or name in ledger.stored]
            _claim(ledger, stored, names, int8_weight)


def _claim(
    ledger: Ledger,
    key: StoredTensor,
    names: list[str],
    make: Callable[[list[StoredTensor]], Weight],
) -> None:
    """Take the weight that these stored tensors make, or refuse those that are there."""
    found = [ledger.find(name) for name in names]
    parts = [part for part in found if part is not None]
    try:
        if len(parts) < len(names):
            raise key.unsupported(
                f"{names[found.index(None)]}, which belongs to {key.name}, is missing: it may be "
                "in another shard, or belong to another weight",
                remedy="allow_unknown=True passes the rest through as it is",
            )
        weight = make(parts)
    except AnamnesisError as error:
        ledger.refuse([part.name for part in parts], error)
    except ValueError as error:
        problem = key.malformed(f"{names[0]}: {error}")
        ledger.refuse([part.name for part in parts], problem)
    else:
        ledger.take(weight)
