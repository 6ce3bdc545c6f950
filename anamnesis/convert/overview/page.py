"""One model looked at, its scales and codes too if they are read; and its page."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anamnesis.base.dtypes import DType
from anamnesis.base.lazy import np
from anamnesis.base.limits import ParseLimits
from anamnesis.base.printable import shortened
from anamnesis.base.sizes import format_size
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import run
from anamnesis.convert.check.check import check
from anamnesis.convert.check.findings import Finding
from anamnesis.convert.check.values import ValueCounts, findings_of, look_at
from anamnesis.convert.compare.compare import Input
from anamnesis.convert.compare.comparison import Comparison
from anamnesis.convert.compare.page import comparison_page
from anamnesis.convert.report import html_parts as html
from anamnesis.convert.report.inspection import Inspection
from anamnesis.convert.report.layers import groups, map_of
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
_LONGEST, _MOST_FACTS = 200, 200


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


def overview_page(found: Overview) -> html.Page:
    """Return a page about one model."""
    return html.Page(found.path, tuple(filter(None, _sections(found))))


def pair_page(compared: Comparison, *counted: Counted) -> html.Page:
    """Return a page about two models, with what the numbers of each show if they were read."""
    page = comparison_page(compared)
    more = [
        part
        for letter, found in zip("AB", counted, strict=False)
        for part in _of_numbers(found, f" of {letter}")
        if part
    ]
    return page._replace(sections=(*page.sections, *more))


def _sections(found: Overview) -> Iterator[str]:
    yield html.figures(_figures(found))
    yield html.table(("", ""), found.inspection.rows())
    findings = [(one.kind, one.severity, str(one)) for one in found.findings]
    yield html.section("Problems and notes", html.table(("What", "", "Where"), findings))
    kinds: Counter[str] = Counter()
    for weight in found.weights:
        kinds[weight.family] += weight.n_bytes
    yield html.section("Bytes by encoding", html.sizes({"": kinds}))
    layers = map_of((weight.name, _bits(weight)) for weight in found.weights)
    bits = html.layers(*layers, html.BITS, "bits per value, by layer and module")
    yield html.section("Bits per value by layer", bits)
    yield from _of_numbers(found.counted) if found.counted is not None else ()
    yield html.section(
        "Every weight", html.details("Weights that are alike are one row", _account(found))
    )
    items = list(found.inspection.metadata.items())[:_MOST_FACTS]
    told = html.table(("Key", "Value"), [(key, shortened(str(v), _LONGEST)) for key, v in items])
    yield html.section("Metadata", html.details("What the files say of themselves", told))
    if found.counted is None:
        yield html.paragraph("Headers alone were read, not values.")


def _of_numbers(found: Counted, whose: str = "") -> Iterator[str]:
    charts = [
        f"<p>{html.text(kind)}: {sum(numbers.scales.values()):,} scales by their power of two</p>"
        + html.histogram(numbers.scales, f"scales of {kind} by their power of two")
        for kind, numbers in found.numbers.items()
        if numbers.scales
    ]
    yield html.section(f"Scales{whose}", *charts)
    rows = []
    for kind, (zeros, n) in found.zeros.items():
        counts = found.numbers.get(kind)
        last = ""
        if counts is not None and counts.n_codes:
            last = f"{counts.n_last:,} ({counts.n_last / counts.n_codes:.3%})"
        rows.append((kind, f"{n:,}", f"{zeros:,} ({zeros / max(n, 1):.3%})", last))
    table = html.table(("Encoding", "Values", "Zeros", "At the end of the range"), rows, (1, 2, 3))
    yield html.section(f"Zeros{whose}, and codes at the end of their range", table)


def _figures(found: Overview) -> dict[str, str]:
    told = found.inspection
    shown = {"weights": f"{len(found.weights):,}", "stored": format_size(told.n_bytes)}
    if told.n_parameters is not None:
        shown["parameters"] = f"{told.n_parameters:,}"
    if told.bits_per_weight is not None:
        shown["bits a parameter"] = f"{told.bits_per_weight:.2f}"
    return shown


def _bits(weight: Weight) -> float:
    return 8 * weight.n_bytes / weight.n_elements if weight.n_elements else 0.0


def _account(found: Overview) -> str:
    rows = [
        (
            name,
            f"{len(some):,}",
            some[0].scheme,
            str(list(some[0].shape)),
            f"{_bits(some[0]):.2f}",
            format_size(sum(one.n_bytes for one in some)),
        )
        for name, some in groups(
            found.weights, lambda one: one.name, lambda one: (one.scheme, one.shape)
        )
    ]
    return html.table(("Weights", "Count", "Encoding", "Shape", "Bits", "Bytes"), rows, (1, 4, 5))
