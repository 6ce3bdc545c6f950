"""Pages of HTML and their charts: no script, nothing fetched, for paper too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import NamedTuple

from anamnesis.base.html import html_table
from anamnesis.base.printable import printable, shortened
from anamnesis.base.sizes import format_size
from anamnesis.schemes.detect.ledger import Ledger

STEPS = 8  # colours of a scale, `s0` to `s7`; `eq` is what is equal
_CELL, _GAP, _LABEL, _TOP = 16, 2, 190, 20
_BAR_WIDTH, _BAR_HEIGHT = 640, 22
_LONGEST = 30  # characters of a label
_BINS, _FEWEST_BINS = 24, 4  # of a histogram; and of one whose last bin has a label
_COLOURS = 8  # of encodings, `c0` to `c7`
_STYLE = Path(__file__).with_name("page.css")
_MOST_ROWS = 50


class Scale(NamedTuple):
    """The colours of figures from `low` to `high`, and what they are called."""

    low: float
    high: float
    unit: str

    def place(self, figure: float, steps: int) -> int:
        """Return on which of some steps a figure is; beyond the ends it is the first or last."""
        at = int((figure - self.low) / (self.high - self.low) * steps)
        return max(0, min(steps - 1, at))

    def step(self, figure: float) -> str:
        """Return the class of a figure's colour."""
        return "eq" if figure == float("inf") else f"s{self.place(figure, STEPS)}"


BITS, DECIBELS = Scale(2, 18, "bits"), Scale(10, 60, "dB")


def label(text: str) -> str:
    """Return a name as a chart shows it, cut in front."""
    text = printable(text)
    return escape(text if len(text) <= _LONGEST else f"…{text[1 - _LONGEST :]}")


def stacked_bar(parts: Mapping[str, int], classes: Mapping[str, str], title: str) -> str:
    """Return shares of a whole as one bar."""
    whole = sum(parts.values()) or 1
    drawn, at = [], 0.0
    for name, value in parts.items():
        width = _BAR_WIDTH * value / whole
        told = escape(f"{printable(name)}: {value / whole:.1%}")
        drawn.append(
            f'<rect class="{classes[name]}" x="{at:.1f}" width="{width:.1f}"'
            f' height="{_BAR_HEIGHT}"><title>{told}</title></rect>'
        )
        at += width
    return _svg(_BAR_WIDTH, _BAR_HEIGHT, title, drawn, "bar")


def grid(
    rows: Mapping[str, Mapping[int, float]], columns: Sequence[int], scale: Scale, title: str
) -> str:
    """Return figures by row and column as cells; those that are missing are left out."""
    place = {column: i for i, column in enumerate(columns)}
    every = max(1, len(columns) // 12)
    middle = _LABEL + _CELL / 2
    drawn = [
        f'<text x="{middle + i * _CELL:.0f}" y="12" text-anchor="middle">{column}</text>'
        for column, i in place.items()
        if i % every == 0
    ]
    for j, (name, figures) in enumerate(rows.items()):
        y = _TOP + j * _CELL
        text = f'<text x="{_LABEL - 8}" y="{y + 12}" text-anchor="end">{label(name)}</text>'
        drawn.append(text)
        for column, figure in figures.items():
            shown = "equal" if figure == float("inf") else f"{figure:.3g} {scale.unit}"
            told = escape(f"layer {column}, {shortened(name)}: {shown}")
            drawn.append(
                f'<rect class="{scale.step(figure)}" x="{_LABEL + place[column] * _CELL}" y="{y}"'
                f' width="{_CELL - _GAP}" height="{_CELL - _GAP}"><title>{told}</title></rect>'
            )
    width, height = _LABEL + len(columns) * _CELL, _TOP + len(rows) * _CELL
    return _svg(width, height, title, drawn)


def legend(scale: Scale, *, with_equal: bool) -> str:
    """Return the colours of a scale, from its lowest figure to its highest."""
    cells = [
        f'<rect class="s{i}" x="{40 + i * _CELL}" y="0" width="{_CELL}" height="{_CELL}"/>'
        for i in range(STEPS)
    ]
    end = 40 + STEPS * _CELL
    texts = [
        f'<text x="34" y="12" text-anchor="end">{scale.low:g}</text>',
        f'<text x="{end + 6}" y="12">{scale.high:g} {escape(scale.unit)}</text>',
    ]
    if with_equal:
        texts.append(f'<rect class="eq" x="{end + 70}" width="{_CELL}" height="{_CELL}"/>')
        texts.append(f'<text x="{end + 92}" y="12">equal</text>')
    return _svg(end + 150, _CELL, f"{scale.low:g} to {scale.high:g} {scale.unit}", cells + texts)


def histogram(counts: Mapping[int, int], title: str) -> str:
    """Return how many values there are of each power of two."""
    first, last = min(counts), max(counts)
    each = -(-(last - first + 1) // _BINS)
    bins = [sum(counts.get(at + i, 0) for i in range(each)) for at in range(first, last + 1, each)]
    most, width = max(bins), 18
    drawn = []
    for i, n in enumerate(bins):
        height = 80 * n / most
        told = escape(f"2^{first + i * each}: {n:,}")
        drawn.append(
            f'<rect class="c0" x="{i * width}" y="{90 - height:.1f}" width="{width - 2}"'
            f' height="{height:.1f}"><title>{told}</title></rect>'
        )
    end = first + (len(bins) - 1) * each
    drawn.append(f'<text x="0" y="104">2^{first}</text>')
    if len(bins) > _FEWEST_BINS:
        at = len(bins) * width
        drawn.append(f'<text x="{at}" y="104" text-anchor="end">2^{end}</text>')
    return _svg(max(len(bins) * width, 80), 110, title, drawn)


def _svg(width: float, height: float, title: str, drawn: Sequence[str], kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    size = "" if kind else f' width="{width:.0f}" height="{height:.0f}"'
    ratio = ' preserveAspectRatio="none"' if kind else ""
    return (
        f'<svg{named} viewBox="0 0 {width:.0f} {height:.0f}"{size}{ratio} role="img"'
        f' aria-label="{escape(title)}">{"".join(drawn)}</svg>'
    )


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
    each = (f"<div><b>{text(figure)}</b>{text(name)}</div>" for name, figure in found.items())
    return f'<div class="figures">{"".join(each)}</div>'


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
    total: Counter[str] = Counter()
    for kinds in sides.values():
        total.update(kinds)
    ordered = [kind for kind, _ in total.most_common()]
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


def model_html(ledger: Ledger, format: str) -> str:
    """Return a table of a model's schemes, and one of its first weights."""
    weights = list(ledger.weights.values())
    sizes: dict[str, tuple[int, int]] = {}
    for weight in weights:
        n, n_bytes = sizes.get(weight.scheme, (0, 0))
        sizes[weight.scheme] = n + 1, n_bytes + weight.n_bytes
    schemes = html_table(
        [(scheme, f"{n:,}", format_size(n_bytes)) for scheme, (n, n_bytes) in sizes.items()],
        head=("scheme", "weights", "stored"),
        caption=format,
    )
    rows = [(one.name, one.scheme, str(list(one.shape))) for one in weights[:_MOST_ROWS]]
    problems = list(ledger.problems.items())
    rows += [(name, "unreadable", str(error)) for name, error in problems[:_MOST_ROWS]]
    n_all = len(ledger.weights.keys() | ledger.problems.keys())
    if n_all > len(rows):
        rows.append(("", f"and {n_all - len(rows):,} more", ""))
    return schemes + html_table(rows, head=("name", "scheme", "shape"))
