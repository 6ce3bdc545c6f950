"""Which stored tensors make a weight of bitsandbytes: those beside a quant_state or an SCB."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from anamnesis import _core
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.bnb.four_bit import FourBitWeight
from anamnesis.schemes.bnb.int8 import Int8Weight
from anamnesis.schemes.bnb.layouts import (
    ABSMAX,
    END,
    STORAGE,
    Nested,
    State,
    check_four_bit,
    check_int8,
)
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.core.weight import Weight

__all__ = ["find_all", "four_bit"]

BNB_MAX_QUANT_STATE = 65_536  # bytes; a real one has fewer than 300

_QUANT_STATE = ".quant_state.bitsandbytes__"
_CODEBOOKS = _core.BNB_CODEBOOKS
_FOUR_BIT_PARTS = ("absmax", "quant_map")
_NESTED_PARTS = ("nested_absmax", "nested_quant_map")


def find_all(ledger: Ledger, facts: QuantFacts) -> None:
    """Take what has a quant_state or an SCB beside it; no config is asked."""
    for stored in ledger.free():
        if ledger.find(stored.name) is None:
            continue
        if _QUANT_STATE in stored.name:
            _claim(ledger, stored, _four_bit_names(stored.name, ledger), four_bit)
        elif stored.name.rpartition(".")[2] == "SCB":
            _claim(ledger, stored, _int8_names(stored.name, ledger), _int8)


def _four_bit_names(state: str, ledger: Ledger) -> list[str]:
    name = state.rpartition(_QUANT_STATE)[0]
    nested = f"{name}.nested_absmax" in ledger.stored
    parts = _FOUR_BIT_PARTS + (_NESTED_PARTS if nested else ())
    return [name, *(f"{name}.{part}" for part in parts), state]


def _int8_names(scb: str, ledger: Ledger) -> list[str]:
    marker = sibling(scb, "weight_format")
    return [sibling(scb, "weight"), scb, *([marker] if marker in ledger.stored else ())]


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
            raise UnsupportedError(
                f"{key.source.name}: {names[found.index(None)]}, which belongs to {key.name}, is "
                "missing: it may be in another shard, or belong to another weight",
                remedy="allow_unknown=True passes the rest through as it is",
            )
        weight = make(parts)
    except AnamnesisError as error:
        ledger.refuse([part.name for part in parts], error)
    except ValueError as error:
        problem = ParseError(f"{names[0]}: {error}", offset=key.offset, source=key.source.name)
        ledger.refuse([part.name for part in parts], problem)
    else:
        ledger.take(weight)


def four_bit(parts: list[StoredTensor]) -> FourBitWeight:
    """Return the weight of parts that are all there, the quant_state last."""
    nested = len(parts) > 4
    state = _read_state(parts[-1], nested=nested)
    _expect(parts[0], STORAGE)
    _expect(parts[1], ("U8",) if nested else ABSMAX)
    for part in parts[2:-1]:
        _expect(part, ("F32",))
    if nested and state.nested is None:
        raise ValueError("quant_state has no nested_blocksize and nested_offset for nested_absmax")
    check_four_bit(parts, state)
    kind = state.kind.upper()
    _check_codebook(parts[2], kind)
    return FourBitWeight(parts[0].name, state.shape, tuple(parts), kind, state.block, state.nested)


def _check_codebook(codebook: StoredTensor, kind: str) -> None:
    """Refuse another codebook than bitsandbytes' own, which its kernels have instead of the file's.

    Raises
    ------
    UnsupportedError
    """
    values, own = (memoryview(raw).cast("f") for raw in (codebook.read(), _CODEBOOKS[kind]))
    if values != own:
        raise UnsupportedError(
            f"{codebook.source.name}: {codebook.name} is not the codebook of {kind}, which "
            "bitsandbytes' kernels decode with whatever a file says"
        )


def _read_state(stored: StoredTensor, *, nested: bool) -> State:
    """Return what the JSON of a quant_state says, its types and ranges checked.

    What it says of nested absmax counts where there are any, as bitsandbytes has it.
    """
    if stored.n_bytes > BNB_MAX_QUANT_STATE:
        raise LimitExceeded(
            "BNB_MAX_QUANT_STATE",
            f"{stored.source.name}: {stored.name}: {stored.n_bytes:,} bytes of JSON",
        )
    try:
        told = json.loads(stored.read())
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ValueError("quant_state must hold a JSON object")
    kind, shape = told.get("quant_type"), told.get("shape")
    if not stored.name.endswith(f"{_QUANT_STATE}{kind}") or kind not in ("nf4", "fp4"):
        raise ValueError(f"quant_type {kind!r:.40} does not match the name {stored.name}")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < END for n in shape):
        raise ValueError("quant_state must have a shape, a list of sizes")
    inner = None
    if nested and "nested_offset" in told:
        offset = told["nested_offset"]
        if type(offset) is not float and not (type(offset) is int and abs(offset) < END):
            raise ValueError("nested_offset of quant_state must be a number")
        inner = Nested(_block_size(told, "nested_blocksize"), float(offset))
    return State(kind, tuple(shape), _block_size(told, "blocksize"), inner)


def _block_size(told: dict[str, Any], key: str) -> int:
    block = told.get(key)
    if type(block) is not int or not 0 < block < END:
        raise ValueError(f"{key} of quant_state must be a positive whole number")
    return block


def _int8(parts: list[StoredTensor]) -> Int8Weight:
    """Return the weight of its codes, its SCB and maybe its weight_format."""
    codes, scb, *marker = parts
    _expect(codes, ("I8",))
    _expect(scb, ("F32",))
    if marker and (marker[0].n_bytes > 8 or any(marker[0].read())):
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name} is not stored in rows, according to "
            f"{marker[0].name}; bitsandbytes has dropped its other layouts"
        )
    check_int8(codes, scb)
    return Int8Weight(codes.name, codes.shape, tuple(parts))


def _expect(stored: StoredTensor, dtypes: tuple[str, ...]) -> None:
    if stored.dtype.name not in dtypes:
        raise UnsupportedError(
            f"{stored.source.name}: {stored.name} has dtype {stored.dtype}; "
            f"{' or '.join(dtypes)} is expected"
        )
