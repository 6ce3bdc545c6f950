"""One model looked at: its weights, and their scales and codes if they are read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.base.limits import ParseLimits
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import run
from anamnesis.convert.check.check import check
from anamnesis.convert.check.findings import Finding
from anamnesis.convert.check.values import ValueCounts, findings_of, look_at
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.report.inspection import Inspection
from anamnesis.convert.request.request import How
from anamnesis.schemes.core.odd_scales import scale_dtype
from anamnesis.schemes.core.roles import CODES, roles
from anamnesis.schemes.core.weight import Weight

_PIECE = 1 << 20
_SCALES = "scales"
_FLOATS = {"F32", "F16", "BF16", "F8_E4M3", "F8_E5M2"}
_BIAS = 127  # of E8M0
# Codes at the end of the range of a dtype, as bytes.
_LAST = {"F8_E4M3": (0x7E, 0xFE), "F8_E5M2": (0x7B, 0xFB), "I8": (0x7F, 0x80)}


@dataclass(slots=True)
class Numbers:
    """What the scales and codes of one encoding come to."""

    scales: Counter[int] = field(default_factory=Counter)  # by their power of two
    n_codes: int = 0  # in dtypes of which the end of the range is known
    n_last: int = 0


class _Part(NamedTuple):
    """A part of quantised weights that is counted, and what it is."""

    tensor: StoredTensor
    of: Numbers
    scale: DType | None  # None of codes


def numbers_of(weights: Sequence[Weight], how: How) -> dict[str, Numbers]:
    """Return what is counted of quantised weights, by encoding in a word."""
    found: dict[str, Numbers] = {}
    lock = threading.Lock()

    def count(part: _Part) -> None:
        for at in range(0, part.tensor.n_bytes, _PIECE):
            how.check()
            n = min(_PIECE, part.tensor.n_bytes - at)
            piece = part.tensor.source.read(part.tensor.offset + at, n)
            powers = _powers(piece, part.scale) if part.scale is not None else {}
            n_last = sum(piece.count(code) for code in _LAST.get(part.tensor.dtype.name, ()))
            with lock:
                part.of.scales.update(powers)
                if part.scale is None:
                    part.of.n_codes += n
                    part.of.n_last += n_last

    run(_parts(weights, found), lambda: count, how.threads)
    return found


def _parts(weights: Sequence[Weight], found: dict[str, Numbers]) -> Iterator[_Part]:
    """Yield the scales of quantised weights, and codes of which the last are known, each once."""
    known: set[str] = set()
    for weight in weights:
        if weight.own_dtype is not None:
            continue
        of = found.setdefault(weight.family, Numbers())
        for role, part in zip(roles(weight), weight.parts, strict=True):
            if part.name in known:
                continue
            known.add(part.name)
            if role == _SCALES:
                yield _Part(part, of, scale_dtype(weight, part))
            elif role == CODES and part.dtype.name in _LAST:
                yield _Part(part, of, None)


def _powers(piece: bytes, dtype: DType) -> dict[int, int]:
    """Return how many scales there are of each power of two; those that are 0 have none."""
    if dtype.name == "F8_E8M0":
        powers = np.frombuffer(piece, np.uint8).astype(np.int64) - _BIAS
    elif dtype.name in _FLOATS:
        values = np.frombuffer(piece, dtype.numpy()).astype(np.float32)
        values = values[np.isfinite(values) & (values != 0)]
        powers = np.frexp(values)[1].astype(np.int64) - 1
    else:
        return {}
    found, counts = np.unique(powers, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


class Counted(NamedTuple):
    """What the values of a model come to, by encoding in a word."""

    numbers: Mapping[str, Numbers]
    zeros: Mapping[str, tuple[int, int]]  # values that are zero, and all


@dataclass(frozen=True, slots=True)
class Overview:
    """What a model is made of.

    Attributes
    ----------
    path : str
    inspection : Inspection
    weights : tuple of Weight
    findings : tuple of Finding
        What a check of its headers found, and of its values if they were read.
    counted : Counted or None
        None if values were not read.
    """

    path: str
    inspection: Inspection
    weights: tuple[Weight, ...]
    findings: tuple[Finding, ...]
    counted: Counted | None = None


def overview(
    model: Input, inspection: Inspection, limits: ParseLimits, how: How, *, values: bool
) -> Overview:
    """Look at a model: at its headers, and with `values` at all of its numbers."""
    weights = tuple(model.ledger.weights.values())
    findings = check(model, limits, how, values=False).findings
    if not values:
        return Overview(model.path, inspection, weights, findings)
    seen = look_at(weights, how)
    findings += tuple(findings_of(weights, seen))
    return Overview(model.path, inspection, weights, findings, _counted(weights, seen, how))


def counted(model: Input, how: How) -> Counted:
    """Return what the values of a model come to."""
    weights = tuple(model.ledger.weights.values())
    return _counted(weights, look_at(weights, how), how)


def _counted(weights: tuple[Weight, ...], seen: Mapping[str, ValueCounts], how: How) -> Counted:
    zeros: dict[str, tuple[int, int]] = {}
    for weight in weights:
        if weight.name in seen:
            n_zero, n = zeros.get(weight.family, (0, 0))
            one = seen[weight.name]
            zeros[weight.family] = n_zero + one.zeros, n + one.n
    return Counted(numbers_of(weights, how), zeros)
