"""One model, as a page."""

from __future__ import annotations

from collections.abc import Iterator

from anamnesis.base.printable import format_size, shortened
from anamnesis.convert.compare.comparison import Comparison
from anamnesis.convert.compare.page import comparison_page
from anamnesis.convert.overview.overview import Counted, Overview
from anamnesis.convert.report.charts import BITS, histogram
from anamnesis.convert.report.layers import map_of
from anamnesis.convert.report.name_groups import groups
from anamnesis.convert.report.page import (
    Page,
    details,
    figures,
    layers,
    paragraph,
    section,
    sizes,
    table,
    text,
)
from anamnesis.schemes.core.weight import Weight

_LONGEST, _MOST_FACTS = 200, 200


def overview_page(found: Overview) -> Page:
    """Return a page about one model."""
    return Page(found.path, tuple(filter(None, _sections(found))))


def pair_page(compared: Comparison, *counted: Counted) -> Page:
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
    yield figures(_figures(found))
    yield table(("", ""), found.inspection.rows())
    yield section("Problems and notes", _findings(found))
    yield section("Bytes by encoding", sizes({"": _kinds(found)}))
    yield section("Bits per value by layer", _map(found))
    yield from _of_numbers(found.counted) if found.counted is not None else ()
    yield section("Every weight", details("Weights that are alike are one row", _account(found)))
    yield section("Metadata", details("What the files say of themselves", _metadata(found)))
    if found.counted is None:
        yield paragraph("Headers alone were read, not values.")


def _of_numbers(found: Counted, whose: str = "") -> Iterator[str]:
    yield section(f"Scales{whose}", _scales(found))
    yield section(f"Zeros{whose}, and codes at the end of their range", _numbers(found))


def _figures(found: Overview) -> dict[str, str]:
    told = found.inspection
    shown = {"weights": f"{len(found.weights):,}", "stored": format_size(told.n_bytes)}
    if told.n_parameters is not None:
        shown["parameters"] = f"{told.n_parameters:,}"
    if told.bits_per_weight is not None:
        shown["bits a parameter"] = f"{told.bits_per_weight:.2f}"
    return shown


def _findings(found: Overview) -> str:
    rows = [(one.kind, one.severity, str(one)) for one in found.findings]
    return table(("What", "", "Where"), rows)


def _bits(weight: Weight) -> float:
    return 8 * weight.n_bytes / weight.n_elements if weight.n_elements else 0.0


def _kinds(found: Overview) -> dict[str, int]:
    kinds: dict[str, int] = {}
    for weight in found.weights:
        kinds[weight.family] = kinds.get(weight.family, 0) + weight.n_bytes
    return dict(sorted(kinds.items(), key=lambda kind: -kind[1]))


def _map(found: Overview) -> str:
    rows, columns = map_of((weight.name, _bits(weight)) for weight in found.weights)
    return layers(rows, columns, BITS, "bits per value, by layer and module")


def _scales(found: Counted) -> str:
    charts = [
        f"<p>{text(kind)}: {sum(numbers.scales.values()):,} scales by their power of two</p>"
        + histogram(numbers.scales, f"scales of {kind} by their power of two")
        for kind, numbers in found.numbers.items()
        if numbers.scales
    ]
    return "".join(charts)


def _numbers(found: Counted) -> str:
    rows = []
    for kind, (zeros, n) in found.zeros.items():
        numbers = found.numbers.get(kind)
        last = ""
        if numbers is not None and numbers.n_codes:
            last = f"{numbers.n_last:,} ({numbers.n_last / numbers.n_codes:.3%})"
        rows.append((kind, f"{n:,}", f"{zeros:,} ({zeros / max(n, 1):.3%})", last))
    return table(("Encoding", "Values", "Zeros", "At the end of the range"), rows, (1, 2, 3))


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
    return table(("Weights", "Count", "Encoding", "Shape", "Bits", "Bytes"), rows, (1, 4, 5))


def _metadata(found: Overview) -> str:
    items = list(found.inspection.metadata.items())[:_MOST_FACTS]
    return table(("Key", "Value"), [(key, shortened(str(v), _LONGEST)) for key, v in items])
