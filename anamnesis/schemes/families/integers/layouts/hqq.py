"""HQQ's integers of 1 to 8 bits.

    W_q U8 [rows / (8 / bits), cols], of whose bytes the highest bits hold the first rows; in 3 bits
        I32 [rows / 10, cols], rounded up; also seen as floats
    packing, a text, says so: 5 and 6 bits take 8, and those of 1.58 take 2
    scale, zero F32 | F16 | BF16 [rows, 1] or [1, cols]
    shape I64 [2], of which rows x cols are a view; nbits, axis I32
    others that tell how it was made

    result = round(float32(code - zero) * scale)

Until 2024 scales and zero points could be codes of 8 bits themselves, of pickles only: `scale_q`
or `zero_q` U8, with the same parts again under `meta_scale` or `meta_zero`.

Its `Quantizer.dequantize` does the same in the model's dtype, which is that of the scales, and so
rounds the difference and the product; in float32 it gives these bits.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NamedTuple, Self

from anamnesis.base.dtypes import DTYPES, DType
from anamnesis.base.lazy import NDArray, np
from anamnesis.base.stored import Part, StoredTensor
from anamnesis.schemes.core.layout import Field
from anamnesis.schemes.core.rounding import Rounding
from anamnesis.schemes.detect.config_facts import QuantFacts
from anamnesis.schemes.detect.ledger import Ledger
from anamnesis.schemes.detect.not_weights import sibling
from anamnesis.schemes.families.integers.checks import SCALES
from anamnesis.schemes.families.integers.rows import Planes
from anamnesis.schemes.families.integers.weight import IntegerWeight
from anamnesis.schemes.views.views import made_of

_REFERENCE = Rounding(("differences", "products"))

_NUMBERS = {"I32": "i", "I64": "q"}
_COMPUTED = {b"torch.float16": "F16", b"torch.bfloat16": "BF16", b"torch.float32": "F32"}
_PACKINGS = {b"8bit_u8": 8, b"4bit_u8": 4, b"3bit_32": 3, b"2bit_u8": 2, b"1bit_u8": 1}

# What says how it was made, and nothing more.
_TOLD = (
    *("group_size", "packing", "compute_dtype", "unpack_view_dtype", "view_as_float"),
    *("channel_wise", "encoded_state_dict", "offload_meta", "optimize", "quant_scale"),
    *("quant_zero", "round_zero", "stores_quant_config"),
)

FIELDS = (
    Field("codes", "{module}W_q"),
    Field("scales", "{module}scale"),
    Field("zeros", "{module}zero"),
)
_NEEDED = ("shape", "nbits", "axis")  # numbers, by ordinary names


@dataclass(slots=True, eq=False)
class _Hqq(IntegerWeight):
    """Integers, and their scales and zero points as HQQ computes them where they are codes, too."""

    by_hqq: tuple[StoredTensor, StoredTensor] | None = None

    def by_reference(self, dtype: DType) -> Self:
        own = self
        if self.by_hqq is not None:
            codes, _, _, *others = self.parts
            parts = (codes, *self.by_hqq, *others)
            own = replace(self, parts=parts, zeros=self.by_hqq[1], by_hqq=None)
        return IntegerWeight.by_reference(own, dtype)


class _Numbers(NamedTuple):
    """Scales, or zero points: floats, or codes with scales and zero points of their own."""

    stored: StoredTensor
    shape: tuple[int, ...]
    beside: tuple[StoredTensor, ...] = ()
    columns: int = 0
    axis: int = 0
    dtype: str = ""

    def floats(self, name: str) -> StoredTensor:
        """Return them, computed in a dtype."""
        dtype = DTYPES[name]
        if self.stored.dtype == dtype:
            return self.stored

        def made(units: range, raw: NDArray[Any]) -> NDArray[Any]:
            values = raw.reshape(-1).view(self.stored.dtype.numpy()).astype(dtype.numpy())
            if self.beside:
                at = np.arange(units.start, units.stop)
                at = at // self.columns if self.axis else at % self.columns
                scales, zeros = (one.read() for one in self.beside[:2])
                kinds = [one.dtype.numpy() for one in self.beside[:2]]
                values -= np.frombuffer(zeros, kinds[1]).astype(dtype.numpy())[at]
                values *= np.frombuffer(scales, kinds[0]).astype(dtype.numpy())[at]
            return values.view(np.uint8)

        part = Part(self.stored.name, dtype, self.shape)
        return made_of(part, [self.stored], prod(self.shape), made)


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind."""
    name = FIELDS[0].weight_of(codes.name)
    if name is None or len(codes.shape) != 2:
        return None
    given_by = _given(codes.name, "", ledger)
    scale, zero = (_numbers_of(codes.name, part, ledger) for part in ("scale", "zero"))
    if scale is None or zero is None or any(part not in given_by for part in _NEEDED):
        return None
    dtypes = {one.dtype for one in (scale, zero) if one.dtype}
    if not dtypes and scale.stored.dtype != zero.stored.dtype:
        return None
    given = _integers(given_by["shape"], 2)
    bits = _packed_bits(given_by.get("packing"), given_by["nbits"])
    if bits not in _PACKINGS.values() or min(given) < 1:
        return None
    (axis,) = _integers(given_by["axis"], 1)
    matrix = _matrix(scale, prod(given), axis)
    # Codes may be seen as floats.
    lines = codes.shape[0], codes.dtype.n_bytes(codes.shape[1])
    seen = codes._replace(dtype=DTYPES["U8"], shape=lines)
    width = 4 if bits == 3 else 1
    planes = Planes(bits, in_parts=True, high_first=True, width=width) if bits < 8 else None
    stacked = planes.stacked if planes else 1
    fits = matrix is not None and lines == (-(-matrix[0] // stacked), matrix[1] * width)
    if matrix is None or not fits or (matrix[0] % stacked and bits != 3):
        expected = f"{bits}-bit codes of a matrix of {given[0]:,} x {given[1]:,}"
        raise codes.misshapen(expected, scale.stored)
    if zero.shape != scale.shape:
        raise zero.stored.misshapen(f"{list(scale.shape)}", codes)
    block = (1, matrix[1]) if axis == 1 else (matrix[0], 1)
    own, *others = [scale.stored.dtype.name] if not dtypes else ["F32", *dtypes]
    scales, zeros = scale.floats(own), zero.floats(own)
    return _Hqq(
        name,
        given,
        (seen, scales, zeros, *given_by.values(), *scale.beside, *zero.beside),
        "PACKED8",
        block,
        zeros,
        planes=planes,
        matrix=matrix,
        producer="HQQ",
        reference=_REFERENCE,
        by_hqq=(scale.floats(others[0]), zero.floats(others[0])) if others else None,
    )


def _given(codes: str, nested: str, ledger: Ledger) -> dict[str, StoredTensor]:
    """Return the settings that lie beside codes."""
    found = ((key, ledger.find(sibling(codes, f"{nested}{key}"))) for key in (*_NEEDED, *_TOLD))
    return {key: stored for key, stored in found if stored is not None}


def _numbers_of(codes: str, part: str, ledger: Ledger) -> _Numbers | None:
    """Return scales or zero points; None if there are none."""
    plain = ledger.find(sibling(codes, part))
    if plain is not None:
        is_right = plain.dtype.name in SCALES and plain.n_elements > 0
        return _Numbers(plain, plain.shape) if is_right else None
    stored, nested = ledger.find(sibling(codes, f"{part}_q")), f"meta_{part}."
    pair = [ledger.find(sibling(codes, f"{nested}{one}")) for one in ("scale", "zero")]
    settings = _given(codes, nested, ledger)
    if stored is None or None in pair or any(key not in settings for key in _NEEDED):
        return None
    scale, zero = (one for one in pair if one is not None)
    shape, (axis,) = _integers(settings["shape"], 2), _integers(settings["axis"], 1)
    n, n_scales = prod(shape), max(scale.n_elements, 1)
    bits = _packed_bits(settings.get("packing"), settings["nbits"])
    dtype = settings.get("compute_dtype")
    named = "F16" if dtype is None else _COMPUTED.get(dtype.read() if dtype.n_bytes < 99 else b"")
    if bits != 8 or stored.dtype.name != "U8" or named is None:
        raise stored.unsupported(f"{stored} holds {part}s in {bits} bits; HQQ's are of 8")
    grid = (n_scales, 1) if axis == 1 else (1, n_scales)
    is_right = {scale.dtype.name, zero.dtype.name} <= {*SCALES} and zero.shape == scale.shape
    is_right = is_right and axis in (0, 1) and (scale.shape == grid or scale.n_elements == 1)
    if not is_right or n % n_scales or stored.n_elements != n or min(shape) < 1:
        raise stored.misshapen(f"{part}s of {list(shape)}", scale)
    beside = (scale, zero, *settings.values())
    return _Numbers(stored, shape, beside, n // n_scales if axis == 1 else n_scales, axis, named)


def _packed_bits(packing: StoredTensor | None, nbits: StoredTensor) -> int:
    """Return the bits that a code takes; 0 if that is none of those that are known."""
    if packing is None:
        return _integers(nbits, 1)[0]
    if packing.dtype.name != "U8" or packing.n_bytes > 16:
        return 0
    return _PACKINGS.get(packing.read(), 0)


def _integers(stored: StoredTensor, n: int) -> tuple[int, ...]:
    if stored.dtype.name not in _NUMBERS or stored.n_elements != n:
        raise stored.unsupported(f"{stored} must be I32 or I64 [{n}]")
    return struct.unpack(f"<{n}{_NUMBERS[stored.dtype.name]}", stored.read())


def _matrix(scale: _Numbers, n: int, axis: int) -> tuple[int, int] | None:
    """Return the shape in which each row, or each column, has one scale."""
    n_scales = prod(scale.shape)
    if n % n_scales:
        return None
    if axis == 1 and scale.shape == (n_scales, 1):
        return n_scales, n // n_scales
    return (n // n_scales, n_scales) if axis == 0 and scale.shape == (1, n_scales) else None
