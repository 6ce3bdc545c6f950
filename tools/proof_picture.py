"""docs/images/proof.svg: what is compared, and how fast it is, from the tables of the pages.

python tools/proof_picture.py     draws it anew, when docs/validated.md or measured.md change
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

__all__ = ["PICTURE", "drawn"]

_DOCS = Path(__file__).parents[1] / "docs"
PICTURE = _DOCS / "images" / "proof.svg"
_ROW = re.compile(r"^\| (.+) \|$", re.M)
_SECONDS = re.compile(r"[0-9.]+")
_WIDTH, _BAR, _LINE = 760, 300, 22  # pixels
_OURS, _THEIRS, _TEXT = "#4051b5", "#b8bfd6", "#333a52"


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading, without its head."""
    text = (_DOCS / page).read_text(encoding="utf-8")
    table = text[text.index(heading) :].split("\n\n| ", 1)[1].split("\n\n", 1)[0]
    return [row.split(" | ") for row in _ROW.findall("| " + table)[2:]]


def _text(x: int, y: int, text: str, *, size: int = 13, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" fill="{_TEXT}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _bar(x: int, y: int, width: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.0f}" height="9" rx="2" fill="{colour}"/>'


def _compared() -> tuple[int, int, int]:
    """Return how many libraries there are, how many values, and how many of them differ."""
    slices = _rows("validated.md", "validated: slices")
    made = _rows("validated.md", "validated: checkpoints")
    n_values = sum(int(row[3].replace(",", "")) for row in (*slices, *made))
    n_differing = sum(int(row[4].partition(" ")[0]) for row in (*slices, *made))
    n_libraries = sum(row[3] != "0" for row in made)
    return n_libraries, n_values, n_differing


def drawn() -> str:
    """Return the picture."""
    n_libraries, n_values, n_differing = _compared()
    rows = [row for row in _rows("measured.md", "## File to file") if row[1] == "2.0 GB"]
    seconds = [[float(_SECONDS.findall(row[i])[0]) for i in (2, 3)] for row in rows]
    scale = _BAR / max(map(max, seconds))
    memory = max(int(row[5].split()[0]) for row in rows)
    parts = [
        _text(
            20,
            34,
            f"The same bits as {n_libraries} libraries give: of {n_values:,} values",
            size=17,
        ),
        _text(
            20,
            58,
            f"{n_differing or 'none'} differ{'' if n_differing else 's'}, NaN payloads aside.",
            size=17,
        ),
        _text(20, 98, "To BF16, 2.0 GB written, in seconds:", size=15),
    ]
    y = 124
    for row, (ours, copied) in zip(rows, seconds, strict=True):
        parts += [
            _text(20, y + 8, row[0]),
            _bar(200, y - 5, ours * scale, _OURS),
            _text(208 + round(ours * scale), y + 4, f"amn remember {ours:.2f}", size=11),
            _bar(200, y + 7, copied * scale, _THEIRS),
            _text(208 + round(copied * scale), y + 16, f"cp of the output {copied:.2f}", size=11),
        ]
        y += 2 * _LINE
    parts.append(
        _text(20, y + 12, f"In at most {memory} MiB of memory, whatever the model's size.", size=15)
    )
    height = y + 34
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        f' font-family="sans-serif">\n<rect width="{_WIDTH}" height="{height}" rx="8"'
        f' fill="#f6f7fb"/>\n{body}\n</svg>\n'
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(), encoding="utf-8")
