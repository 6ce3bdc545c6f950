"""Charts of a report as SVG, which takes its colours from the page around it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from anamnesis.base.printable import printable, shortened

STEPS = 8  # colours of a scale, `s0` to `s7`; `eq` is what is equal
_CELL, _GAP, _LABEL, _TOP = 16, 2, 190, 20
_BAR_WIDTH, _BAR_HEIGHT = 640, 22
_LONGEST = 30  # characters of a label
_BINS, _FEWEST_BINS = 24, 4  # of a histogram; and of one whose last bin has a label


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
