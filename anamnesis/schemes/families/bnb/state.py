"""What a quant_state says, and the sizes that parts must have by it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import anamnesis._core as _core
from anamnesis.base.errors import LimitExceeded
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.families.bnb.weight import Nested

QUANT_STATE = ".quant_state.bitsandbytes__"
BNB_MAX_QUANT_STATE = 65_536  # bytes; a real one has fewer than 300
END = 2**63  # of sizes: any larger one is a lie


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


def check_codebook(codebook: StoredTensor, kind: str) -> None:
    """Refuse another codebook than bitsandbytes' own, which its kernels decode with anyway."""
    own = memoryview(_core.BNB_CODEBOOKS[kind]).cast("f")
    if memoryview(codebook.read()).cast("f") != own:
        raise codebook.unsupported(
            f"{codebook.name} is not the codebook of {kind}, which bitsandbytes' kernels decode "
            "with whatever a file says"
        )


def read_state(stored: StoredTensor, *, nested: bool) -> State:
    """Return what the JSON of a quant_state says, its types and ranges checked."""
    # What it says of nested absmax counts where there are any, as bitsandbytes has it.
    if stored.n_bytes > BNB_MAX_QUANT_STATE:
        raise LimitExceeded(
            "BNB_MAX_QUANT_STATE",
            f"{stored.source.name}: {stored.name}: {stored.n_bytes:,} bytes of JSON",
        )
    try:
        given = json.loads(stored.read())
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise ValueError("quant_state must hold a JSON object")
    kind, shape = given.get("quant_type"), given.get("shape")
    if not stored.name.endswith(f"{QUANT_STATE}{kind}") or kind not in ("nf4", "fp4"):
        raise ValueError(f"quant_type {kind!r:.40} does not match the name {stored.name}")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < END for n in shape):
        raise ValueError("quant_state must have a shape, a list of sizes")
    inner = None
    if nested and "nested_offset" in given:
        offset = given["nested_offset"]
        if type(offset) is not float and not (type(offset) is int and abs(offset) < END):
            raise ValueError("nested_offset of quant_state must be a number")
        inner = Nested(_block_size(given, "nested_blocksize"), float(offset))
    return State(kind, tuple(shape), _block_size(given, "blocksize"), inner)


def _block_size(given: dict[str, Any], key: str) -> int:
    block = given.get(key)
    if type(block) is not int or not 0 < block < END:
        raise ValueError(f"{key} of quant_state must be a positive whole number")
    return block
