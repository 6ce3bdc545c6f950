"""Pages of HTML: no script, nothing fetched, light and dark, for paper too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from anamnesis.base.printable import printable
from anamnesis.base.sizes import format_size
from anamnesis.convert.report.charts import Scale, grid, legend, stacked_bar

_COLOURS = 8  # of encodings, `c0` to `c7`
_STYLE = """
:root{color-scheme:light dark;--ink:#1c1e21;--page:#fff;--soft:#666b73;--line:#d9dce1;--eq:#d3d7de;
--c0:#3b6fb6;--c1:#d1793a;--c2:#4f9a63;--c3:#a2539b;--c4:#b8a12f;--c5:#4aa3a8;--c6:#c0546a;--c7:#7d7f86}
@media(prefers-color-scheme:dark){:root{--ink:#e3e5e8;--page:#15171a;--soft:#9aa0a8;--line:#33373d;
--eq:#3a3f46;--c0:#6d9fe0;--c1:#e59a63;--c2:#79bd8a;--c3:#c685c0;--c4:#d3bf5c;--c5:#74c4c8;
--c6:#de8093;--c7:#a0a3aa}.amn .s0{fill:#7b2d96}.amn .s1{fill:#6a5bb5}.amn .s2{fill:#4f7fb5}}
.amn{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--page)}
body.amn{max-width:62rem;margin:1.5rem auto;padding:0 1rem}
.amn h1{font-size:1.4rem}.amn h2{font-size:1.1rem;margin:2rem 0 .5rem}
.amn p{margin:.4rem 0}.amn .soft{color:var(--soft)}
.amn .figures{display:flex;flex-wrap:wrap;gap:.6rem 2rem;margin:1rem 0}
.amn .figures b{display:block;font-size:1.5rem;font-weight:600}
.amn .wide{overflow-x:auto;margin-bottom:.6rem}.amn svg{max-width:none;display:block}
.amn svg.bar{width:100%;height:22px;border-radius:3px}
.amn svg text{font:11px system-ui,sans-serif;fill:var(--ink)}
.amn table{border-collapse:collapse;width:100%;font-size:.9rem}
.amn th{color:var(--soft);font-weight:600;text-align:left}
.amn td,.amn th{padding:.25rem .7rem .25rem 0;border-bottom:1px solid var(--line)}
.amn td,.amn th{vertical-align:top}
.amn .n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.amn td.name{overflow-wrap:anywhere;min-width:11rem}
.amn .key{display:inline-block;margin:0 1rem .2rem 0;white-space:nowrap}
.amn .key i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
.s0{fill:#440154}.s1{fill:#46327e}.s2{fill:#365c8d}.s3{fill:#277f8e}.s4{fill:#1fa187}
.s5{fill:#4ac16d}.s6{fill:#a0da39}.s7{fill:#fde725}.eq{fill:var(--eq)}
@media print{body.amn{max-width:none;margin:0}.amn details{display:block}
.amn h2{break-after:avoid}.amn tr{break-inside:avoid}.amn svg{max-width:100%;height:auto}}
""" + "".join(f".c{i}{{fill:var(--c{i});background:var(--c{i})}}" for i in range(_COLOURS))


def document(title: str, sections: Iterable[str]) -> str:
    """Return a whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head>"
        f'<body class="amn"><h1>{text(title)}</h1>{"".join(sections)}</body></html>\n'
    )


def fragment(sections: Iterable[str]) -> str:
    """Return sections as a notebook shows them."""
    return f'<div class="amn"><style>{_STYLE}</style>{"".join(sections)}</div>'


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
    kind = ' class="n"' if i in numbers else ' class="name"' if i == 0 else ""
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
