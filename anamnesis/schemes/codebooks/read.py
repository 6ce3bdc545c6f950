"""Which stored tensors are codes of vectors, and what belongs to them."""

from __future__ import annotations

from anamnesis.base.errors import AnamnesisError
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.codebooks import aqlm, vptq

__all__ = ["find_all"]

_PARTS = {
    "codes": ("codes", "codebooks", "scales"),
    "indices": (
        *("indices", "res_indices", "outlier_indices", "perm", "weight_scale", "weight_bias"),
        *(f"{kind}centroids.weight" for kind in ("", "res_", "outlier_")),
    ),
}


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take all weights of AQLM and VPTQ; what lacks a part is refused by its names later on."""
    for codes in ledger.free():
        module, dot, last = codes.name.rpartition(".")
        find = {"codes": aqlm.find, "indices": vptq.find}.get(last)
        if find is None or codes.dtype.kind == "float":
            continue
        try:
            weight = find(codes, module + dot, ledger, facts)
        except AnamnesisError as error:
            beside = (module + dot + part for part in _PARTS[last])
            ledger.refuse([name for name in beside if ledger.find(name) is not None], error)
            continue
        if weight is not None:
            ledger.take(weight)
