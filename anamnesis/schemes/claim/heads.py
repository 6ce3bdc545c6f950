"""How many out features an output head has, where its codes are padded."""

from __future__ import annotations

from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import TABLES

__all__ = ["without_padding"]

_HEAD = "lm_head.weight"


def without_padding(name: str, shape: tuple[int, int], step: int, ledger: Ledger) -> int:
    """Return the out features of a matrix: of a head as many as embeddings.

    Parameters
    ----------
    name : str
        Of the matrix.
    shape : tuple of int
        [out, in], as it is stored.
    step : int
        Its library fills out features up to a multiple of it, and says nowhere how many there were.
    """
    if f".{name}".endswith(f".{_HEAD}"):
        for tensor in ledger.stored.values():
            *_, module, last = ("", *tensor.name.split("."))
            if last == "weight" and module in TABLES and len(tensor.shape) == 2:
                n, width = tensor.shape
                if width == shape[1] and -(-n // step) * step == shape[0]:
                    return n
    return shape[0]
