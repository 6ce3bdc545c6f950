"""compressed-tensors' `pack-quantized`: integers of 1 to 8 bits in words.

    weight_packed I32 [..., rows, words]
    weight_scale F32 | F16 | BF16 [..., rows, groups] or [..., rows, 1]
    weight_shape I64 [2], or [3] of stacked experts
    weight_zero_point I32 [..., words of rows, groups], of asymmetric ones
    weight_g_idx I32 [cols], the group of each column where they are in act-order

Codes and zero points are stored plus 2^(bits - 1), which makes no difference to (code - zero).
Since 0.18.0 they are a dense stream of bits; before, a word had as many codes of 3, 5, 6 or 7 bits
as it can hold whole. Names and config are the same: the number of words tells, else the version.

`_dequantize` computes in the scale's dtype, but products with BF16 and F16 scales are exact in
float32, so that the one rounding here gives its bits.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from math import prod

from anamnesis import _core
from anamnesis.base.errors import LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes.claim.facts import QuantFacts
from anamnesis.schemes.claim.ledger import Ledger
from anamnesis.schemes.claim.names import sibling
from anamnesis.schemes.integers.checks import check_scale_dtype, group_size, misshapen
from anamnesis.schemes.integers.weight import IntegerWeight, bits_of, row_bytes, zero_words
from anamnesis.schemes.integers.words import PACKED_MAX_GROUPS

__all__ = ["find"]

_KERNELS = tuple(name for name in _core.INTEGERS if name.startswith("PA"))
_DENSE_SINCE = (0, 18)


def find(codes: StoredTensor, ledger: Ledger, facts: QuantFacts) -> IntegerWeight | None:
    """Return the weight that codes are of, or None if it is of another kind.

    Raises
    ------
    UnsupportedError, ParseError
        If its parts do not fit.
    """
    if codes.name.rpartition(".")[2] != "weight_packed":
        return None
    name = sibling(codes.name, "weight")
    scale, shape, zeros, listed = (
        ledger.find(f"{name}_{part}") for part in ("scale", "shape", "zero_point", "g_idx")
    )
    if scale is None or shape is None or name in ledger.stored:
        return None
    if f"{name}_global_scale" in ledger.stored or len(codes.shape) < 2:
        return None
    check_scale_dtype(scale, codes)
    told = _read_shape(shape, codes)
    kernel = _kernel(codes, told, zeros, scale, facts)
    rows, cols = told[-2:]
    n_groups = _n_groups(scale, codes, told)
    if zeros is not None:
        stacked = (*told[:-2], zero_words(kernel, rows), n_groups)
        if zeros.dtype.name != "I32" or zeros.shape != stacked:
            raise misshapen(zeros, codes, f"I32 {list(stacked)}")
    if listed is not None:
        _check_listed(listed, codes, told, n_groups)
    size = cols if listed is not None else group_size(codes, cols, n_groups, facts.group_sizes)
    parts = (codes, scale, shape, *(part for part in (zeros, listed) if part is not None))
    return IntegerWeight(
        name,
        told,
        parts,
        kernel,
        (1, max(size, 1)),
        zeros,
        1 << (bits_of(kernel) - 1),
        groups=listed,
    )


def _read_shape(shape: StoredTensor, codes: StoredTensor) -> tuple[int, ...]:
    n = len(codes.shape)
    if shape.shape != (n,) or shape.dtype.name not in ("I64", "I32"):
        raise UnsupportedError(
            f"{shape.source.name}: {shape.name} ({shape.describe()}) must be I64 [{n}]"
        )
    told = struct.unpack(f"<{n}{'q' if shape.dtype.name == 'I64' else 'i'}", shape.read())
    if min(told) < 0 or told[:-1] != codes.shape[:-1] or 0 in told:
        raise ParseError(
            f"{shape.name}: {' x '.join(map(str, told))} is no shape of {codes.name} "
            f"({codes.describe()})",
            offset=shape.offset,
            source=shape.source.name,
        )
    return told


def _n_groups(scale: StoredTensor, codes: StoredTensor, shape: tuple[int, ...]) -> int:
    if len(scale.shape) != len(shape) or scale.shape[:-1] != shape[:-1]:
        raise misshapen(scale, codes, f"[{', '.join(map(str, shape[:-1]))}, groups]")
    return scale.shape[-1]


def _check_listed(
    listed: StoredTensor, codes: StoredTensor, shape: tuple[int, ...], n_groups: int
) -> None:
    if listed.dtype.name != "I32" or listed.shape != shape[-1:] or prod(shape[:-2]) != 1:
        raise misshapen(listed, codes, f"I32 [{shape[-1]}] beside one matrix")
    if n_groups > PACKED_MAX_GROUPS:
        raise LimitExceeded("PACKED_MAX_GROUPS", f"{codes.name}: {n_groups:,} groups")


def _kernel(
    codes: StoredTensor,
    shape: tuple[int, ...],
    zeros: StoredTensor | None,
    scale: StoredTensor,
    facts: QuantFacts,
) -> str:
    """Return the bits and the packing that explain the shapes, and the config where several do."""
    rows, cols = shape[-2:]
    fitting = [k for k in _KERNELS if row_bytes(k, cols) == 4 * codes.shape[-1]]
    if not fitting:
        raise misshapen(codes, scale, f"words of 1 to 8 bits for rows of {cols:,} columns")
    if zeros is not None and len(zeros.shape) == len(shape):
        by_zeros = [k for k in fitting if zero_words(k, rows) == zeros.shape[-2]]
        if not by_zeros:
            raise misshapen(zeros, codes, f"zero points of {rows:,} rows in words")
        fitting = by_zeros
    told = [k for k in fitting if bits_of(k) in facts.bits]
    fitting = told or fitting
    if len({bits_of(k) for k in fitting}) == 1 and len(fitting) > 1:
        fitting = _by_version(fitting, facts)
    if len(fitting) > 1:
        raise UnsupportedError(
            f"{codes.source.name}: {codes.name} ({codes.describe()}) holds rows of {cols:,} codes "
            f"of {_named(fitting)}, which take as many words; say which with num_bits, and with "
            "the version of compressed-tensors, in quantization_config of config.json"
        )
    return fitting[0]


def _by_version(fitting: list[str], facts: QuantFacts) -> list[str]:
    version = _version(facts.version)
    if version is None:
        return fitting
    wanted = "PACKED" if version >= _DENSE_SINCE else "PADDED"
    return [k for k in fitting if k.startswith(wanted)]


def _version(told: str | None) -> tuple[int, int] | None:
    major, _, rest = (told or "").partition(".")
    minor = rest.partition(".")[0]
    if not all(n.isascii() and n.isdecimal() and len(n) < 10 for n in (major, minor)):
        return None
    return int(major), int(minor)


def _named(kernels: Iterable[str]) -> str:
    return " or ".join(
        f"{bits_of(k)} bits" + (", padded" if k.startswith("PADDED") else "") for k in kernels
    )
