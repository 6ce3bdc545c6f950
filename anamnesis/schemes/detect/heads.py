"""How many out features an output head has, where its codes are padded."""

from __future__ import annotations

from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import TABLES

_HEAD = "lm_head.weight"


def without_padding(name: str, shape: tuple[int, int], step: int, ledger: Ledger) -> int:
    """Return the out features of a matrix: of a head as many as embeddings."""
    if f".{name}".endswith(f".{_HEAD}"):
        for tensor in ledger.stored.values():
            *_, module, last = ("", *tensor.name.split("."))
            if last == "weight" and module in TABLES and len(tensor.shape) == 2:
                n, width = tensor.shape
                if width == shape[1] and -(-n // step) * step == shape[0]:
                    return n
    return shape[0]
