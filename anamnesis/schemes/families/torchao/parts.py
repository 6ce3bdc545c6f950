"""torchao's weights in a ledger, and whether they are what the file says."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from anamnesis.base.errors import ParseError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.libraries.torchao_metadata import (
    ACTIVATIONS,
    CODES,
    SCALE,
    ZEROS,
    Described,
    weight_of,
)
from anamnesis.schemes.views.tiles import is_tiled

_UNSAID = Described("")
_FP4 = "float4_e2m1fn_x2"  # torch's name
_IN_ROWS = ("MXTensor", "NVFP4Tensor")  # whose scales are of so many values of a row
_IN_BLOCKS = (
    *("Float8Tensor", "PrototypeFloat8Tensor", "Int4Tensor"),
    *("Int8Tensor", "IntxUnpackedToInt8Tensor"),
)


class Parts(NamedTuple):
    """The names of a weight and of what it is made of."""

    weight: str
    prefix: str
    described: Described

    def is_one_of(self, *kinds: str) -> bool:
        return not self.described.kind or self.described.kind in kinds

    def drop_activation_scales(self, ledger: Ledger) -> None:
        """Drop what only quantised activations need."""
        for name in ACTIVATIONS:
            if ledger.find(self.prefix + name) is not None:
                ledger.drop(self.prefix + name, "scale of activations")


def parts_of(codes: str, facts: QuantFacts) -> Parts | None:
    """Return what a weight's parts are called, if that is the name of its codes."""
    weight = weight_of(codes)
    if weight is None:
        return None
    return Parts(weight, codes.removesuffix(CODES), facts.described.get(weight, _UNSAID))


def refuse_misdescribed(ledger: Ledger, facts: QuantFacts) -> None:
    """Refuse the parts of weights that are not what the file says of them."""
    for weight, said in facts.described.items():
        head, dot, last = weight.rpartition(".")
        prefix = f"{head}{dot}_{last}_"
        codes, scale, zeros = (ledger.find(prefix + part) for part in (CODES, SCALE, ZEROS))
        if codes is None:
            continue
        parts = dict.fromkeys([CODES, SCALE, ZEROS, *said.parts])
        with ledger.refusing(prefix + part for part in parts):
            _check(said, codes, scale, zeros)


def _check(
    said: Described, codes: StoredTensor, scale: StoredTensor | None, zeros: StoredTensor | None
) -> None:
    """Compare a weight's codes, scales and zero points with what the file says of it."""
    if said.kind not in (*_IN_ROWS, *_IN_BLOCKS):
        return
    shape = _shape(said, codes)
    if said.shape not in (None, shape):
        raise _wrong(codes, said, f"of the shape {list(said.shape or ())}")
    if scale is None or not said.block or not codes.n_elements:
        return
    if said.kind in _IN_BLOCKS:
        _check_blocks(said, shape, codes, scale)
        if zeros is not None:
            _check_blocks(said, shape, codes, zeros)
        return
    size = said.block[0]
    if len(said.block) > 1 or size <= 0 or not shape or shape[-1] % size:
        raise _wrong(codes, said, f"in rows of whole blocks of {list(said.block)}")
    rows, groups = prod(shape[:-1]), shape[-1] // size
    fits = said.is_tiled is not True and scale.shape == (*shape[:-1], groups)
    if not fits and not (said.is_tiled is not False and is_tiled(scale, rows, groups)):
        how = "in tiles " if said.is_tiled else ""
        raise scale.malformed(f"{scale} has no scale {how}for each {size:,} values of {codes}")


def _shape(said: Described, codes: StoredTensor) -> tuple[int, ...]:
    per_byte = 2 if said.kind in ("Int4Tensor", "NVFP4Tensor") else 1
    if said.kind == "MXTensor":
        element = said.element or (_FP4 if codes.dtype.name == "U8" else codes.dtype.torch_name)
        if "fp6" in element or "float6" in element:
            what = f"torchao's MXTensor of {element}, one code to a byte, which is not decoded"
            raise codes.unsupported(f"{codes} is {what}")
        per_byte = 2 if element == _FP4 else 1
        if per_byte == 1 and element != codes.dtype.torch_name:
            raise _wrong(codes, said, f"of {element}")
    return (*codes.shape[:-1], codes.shape[-1] * per_byte) if codes.shape else ()


def _check_blocks(
    said: Described, shape: tuple[int, ...], codes: StoredTensor, part: StoredTensor
) -> None:
    """Compare scales or zero points with whole blocks; one alone may have any shape."""
    block = said.block
    if len(block) != len(shape) or any(b <= 0 or n % b for n, b in zip(shape, block, strict=True)):
        raise _wrong(codes, said, f"in whole blocks of {list(block)}")
    grid = tuple(n // b for n, b in zip(shape, block, strict=True))
    if said.kind == "Int4Tensor" and len(grid) > 1:
        grid = (*grid[:-2], grid[-1], grid[-2])
    if part.shape != grid and not prod(part.shape) == prod(grid) == 1:
        what = "zero point" if part.name.endswith(ZEROS) else "scale"
        raise part.malformed(f"{part} has no {what} for each block of {list(block)} of {codes}")


def _wrong(codes: StoredTensor, said: Described, what: str) -> ParseError:
    return codes.malformed(f"{codes} cannot be the codes of torchao's {said.kind} {what}")
