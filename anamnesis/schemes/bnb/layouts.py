"""What bitsandbytes' weights are made of, and how large each part of one is."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from anamnesis.base.stored import StoredTensor

__all__ = ["ABSMAX", "END", "STORAGE", "Nested", "State", "check_four_bit", "check_int8"]

STORAGE = ("U8", "I8", "BF16", "F16", "F32", "F64")
ABSMAX = ("F32", "BF16", "F16")
END = 2**63  # of sizes: any larger one is a lie


class Nested(NamedTuple):
    """How the absmax of a double-quantised weight are quantised themselves."""

    block: int
    offset: float


class State(NamedTuple):
    """What a quant_state says."""

    kind: str
    shape: tuple[int, ...]
    block: int
    nested: Nested | None


def check_four_bit(parts: Sequence[StoredTensor], state: State) -> None:
    """Raise ValueError unless all parts have the size that shape and block sizes ask for."""
    codes, absmax, codebook, *nested = parts
    n = prod(state.shape)
    if codes.n_bytes != (n + 1) // 2:
        raise ValueError(
            f"{codes.name} of {codes.n_bytes:,} bytes does not hold the {n:,} values of 4 bits "
            f"that shape {list(state.shape)} has"
        )
    _check_count(absmax, -(-n // state.block), f"{n:,} values in blocks of {state.block:,}")
    _check_count(codebook, 16, "4-bit codes")
    if state.nested is not None:
        n, block = absmax.n_elements, state.nested.block
        _check_count(nested[0], -(-n // block), f"{n:,} absmax in blocks of {block:,}")
        _check_count(nested[1], 256, "8-bit codes")


def check_int8(codes: StoredTensor, scb: StoredTensor) -> None:
    """Raise ValueError unless the codes are a matrix, and each row of it has an absmax."""
    if len(codes.shape) != 2:
        raise ValueError(f"{codes.name} of shape {list(codes.shape)} is not a matrix")
    _check_count(scb, codes.shape[0], f"the rows of shape {list(codes.shape)}")


def _check_count(stored: StoredTensor, n: int, of_what: str) -> None:
    if stored.n_elements != n:
        raise ValueError(
            f"{stored.name} of shape {list(stored.shape)} has {stored.n_elements:,} values, but "
            f"{of_what} need {n:,}"
        )
