"""Pages of HTML: no script, nothing fetched, light and dark, for paper too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from anamnesis.base.printable import format_size, printable, shortened
from anamnesis.convert.report.charts import Scale, grid, legend, stacked_bar

_COLOURS = 8  # of encodings, `c0` to `c7`
_STYLE = Path(__file__).with_name("page.css")


class Page(NamedTuple):
    """A page of HTML: its title, and its sections in order."""

    title: str
    sections: tuple[str, ...]

    def to_html(self) -> str:
        """Return one whole file, which needs nothing else."""
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>{text(self.title)}</title><style>{_style()}</style></head>"
            f'<body class="amn"><h1>{text(self.title)}</h1>{"".join(self.sections)}</body></html>\n'
        )

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        inside = "".join(self.sections)
        return f'<div class="amn"><style>{_style()}</style>{inside}</div>'

    def __repr__(self) -> str:
        return f"<anamnesis.Page: {self.title}>"


@cache
def _style() -> str:
    return _STYLE.read_text("utf-8")


def text(value: object) -> str:
    """Return text as HTML, with nothing in it that a page would act on."""
    return escape(printable(str(value)))


def section(title: str, *parts: str) -> str:
    """Return a section, empty if it has nothing."""
    inside = "".join(parts)
    return f"<section><h2>{text(title)}</h2>{inside}</section>" if inside else ""


def paragraph(words: str) -> str:
    """Return a sentence that explains."""
    return f'<p class="soft">{text(words)}</p>'


def figures(found: Mapping[str, str]) -> str:
    """Return figures in a row, each above what it is."""
    return f'<div class="figures">{"".join(map(_figure, found.items()))}</div>'


def _figure(one: tuple[str, str]) -> str:
    return f"<div><b>{text(one[1])}</b>{text(one[0])}</div>"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """Return a table that scrolls where it is too wide; some columns are of numbers."""
    body = "".join(
        f"<tr>{''.join(_cell(i, value, numbers) for i, value in enumerate(row))}</tr>"
        for row in rows
    )
    if not body:
        return ""
    named = "".join(
        f'<th class="n">{text(head)}</th>' if i in numbers else f"<th>{text(head)}</th>"
        for i, head in enumerate(heads)
    )
    return f'<div class="wide"><table><tr>{named}</tr>{body}</table></div>'


def _cell(i: int, value: str, numbers: Sequence[int]) -> str:
    if i == 0:
        return f'<td class="name">{text(shortened(value))}</td>'
    kind = ' class="n"' if i in numbers else ""
    return f"<td{kind}>{text(value)}</td>"


def details(summary: str, inside: str) -> str:
    """Return what is shown when it is asked for."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>" if inside else ""


def sizes(sides: Mapping[str, Mapping[str, int]]) -> str:
    """Return bytes by encoding, a bar for each model, with one legend."""
    total: dict[str, int] = {}
    for kinds in sides.values():
        for kind, n_bytes in kinds.items():
            total[kind] = total.get(kind, 0) + n_bytes
    ordered = sorted(total, key=lambda kind: -total[kind])
    classes = {kind: f"c{min(i, _COLOURS - 1)}" for i, kind in enumerate(ordered)}
    parts = []
    for name, kinds in sides.items():
        shown = {kind: kinds[kind] for kind in ordered if kind in kinds}
        keys = (
            f'<span class="key"><i class="{classes[kind]}"></i>{text(kind)}'
            f" {format_size(n_bytes)}</span>"
            for kind, n_bytes in shown.items()
        )
        title = f"{name}: bytes by encoding" if name else "bytes by encoding"
        parts.append(f"<p>{text(name)}</p>" if name else "")
        parts.append(stacked_bar(shown, classes, title) + f"<p>{''.join(keys)}</p>")
    return "".join(parts)


def layers(
    rows: Mapping[str, Mapping[int, float]], columns: Sequence[int], scale: Scale, title: str
) -> str:
    """Return a map of layers and modules with its legend."""
    if not rows:
        return ""
    key = legend(scale, with_equal=any(float("inf") in row.values() for row in rows.values()))
    return f'<div class="wide">{grid(rows, columns, scale, title)}</div>{key}'
