"""Two models side by side, as a page."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from anamnesis.base.printable import shortened
from anamnesis.base.sizes import format_size
from anamnesis.convert.compare.figures import NOT_QUALITY, together
from anamnesis.convert.report import html_parts as html
from anamnesis.convert.report.layers import groups, map_of

if TYPE_CHECKING:
    from anamnesis.convert.compare.comparison import Change, Compared, Comparison

_WORST, _LONGEST = 20, 120


def comparison_page(found: Comparison) -> html.Page:
    """Return a comparison as a page."""
    return html.Page("Two models, weight by weight", tuple(filter(None, _sections(found))))


def _sections(found: Comparison) -> Iterator[str]:
    sides = [("A", found.a), ("B", found.b)]
    rows = [(f"{x}: {one.path}", one.format, format_size(one.n_bytes)) for x, one in sides]
    yield html.table(("Model", "Format", "Size"), rows, (2,))
    yield html.figures(_figures(found))
    yield "".join(map(html.paragraph, (found.outcome, *found.notes)))
    yield html.section("Bytes by encoding", html.sizes({"A": found.a.kinds, "B": found.b.kinds}))
    if found.values:
        rows_of, columns = map_of((one.name, one.snr_db) for one in found.weights)
        title = "signal to noise in dB, by layer and module"
        yield html.section(
            "Signal to noise by layer", html.layers(rows_of, columns, html.DECIBELS, title)
        )
    for letter, kind in (("A", "a"), ("B", "b")):
        yield html.section(f"Bits per value of {letter} by layer", _bits(found, kind))
    heads = ("Weight", "A → B", "Differ", "SNR dB", "Mean", "Largest", "Cosine")
    worst = html.table(heads, map(_row, found.worst[:_WORST]), (2, 3, 4, 5, 6))
    yield html.section("The worst twenty", worst)
    for letter, side in sides:
        yield html.section(f"Only in {letter}", _names(side.only))
        yield html.section(f"Left out of {letter}", _names(side.left_out))
        yield html.section(f"Unreadable in {letter}", _names(side.unread))
    yield html.section("Differences of config", _changes(found.config))
    yield html.section("Differences of metadata", _changes(found.metadata))
    yield html.section(
        "Every weight", html.details("Weights that are alike are one row", _account(found))
    )
    yield html.paragraph(
        NOT_QUALITY if found.values else "Headers alone were compared, not values."
    )


def _figures(found: Comparison) -> dict[str, str]:
    same = sum(found.counts.get(state, 0) for state in ("same bytes", "same values", "alike"))
    shown = {
        "weights in both": f"{len(found.weights):,}",
        "are the same" if found.values else "are alike": f"{same:,}",
        "differ": f"{len(found.differing):,}",
        "only in A, only in B": f"{len(found.a.only):,}, {len(found.b.only):,}",
    }
    if found.total is not None and found.differing:
        shown["SNR of all that differs"] = f"{_decibels(found.total.loss.snr_db)} dB"
    return shown


def _decibels(value: float | None) -> str:
    return "-" if value is None or not math.isfinite(value) else f"{value:.1f}"


def _bits(found: Comparison, side: str) -> str:
    stored = ((one.name, getattr(one, side)) for one in found.weights)
    bits = [(name, 8 * s.n_bytes / (math.prod(s.shape) or 1)) for name, s in stored]
    return html.layers(*map_of(bits), html.BITS, "bits per value, by layer and module")


def _row(weight: Compared) -> tuple[str, ...]:
    kinds = " → ".join(dict.fromkeys((weight.a.kind, weight.b.kind)))
    found = weight.difference
    name = f"{weight.name} ({weight.note})" if weight.note else weight.name
    if found is None:
        shapes = " → ".join(str(list(one.shape)) for one in (weight.a, weight.b))
        return name, kinds, shapes if weight.state == "other shape" else weight.state, *[""] * 4
    return (
        name,
        kinds,
        f"{found.differing:,}",
        _decibels(found.loss.snr_db),
        f"{found.loss.mean:.3g}",
        f"{found.loss.largest:.3g}",
        "-" if found.cosine is None else f"{found.cosine:.6f}",
    )


def _account(found: Comparison) -> str:
    def kind(one: Compared) -> tuple[Any, ...]:
        return one.a.kind, one.b.kind, one.a.shape, one.b.shape, one.state, one.note

    rows = []
    for name, some in groups(found.weights, lambda one: one.name, kind):
        first, total = some[0], together(one.difference for one in some)
        shapes = " → ".join(dict.fromkeys(str(list(one.shape)) for one in (first.a, first.b)))
        state = f"{first.state}{f' ({first.note})' if first.note else ''}"
        snr = _decibels(total.loss.snr_db) if total.differing else ""
        rows.append((name, f"{len(some):,}", first.a.kind, first.b.kind, shapes, state, snr))
    heads = ("Weights", "Count", "A", "B", "Shape", "", "SNR dB")
    return html.table(heads, rows, (1, 6))


def _names(names: Mapping[str, str]) -> str:
    rows = [
        (name, f"{len(some):,}", some[0][1])
        for name, some in groups(names.items(), lambda one: one[0], lambda one: one[1])
    ]
    return html.table(("Tensors", "Count", ""), rows, (1,))


def _changes(changes: tuple[Change, ...]) -> str:
    def shown(value: object) -> str:
        return "-" if value is None else shortened(str(value), _LONGEST)

    rows = [(change.key, shown(change.a), shown(change.b)) for change in changes]
    return html.table(("Key", "A", "B"), rows)
