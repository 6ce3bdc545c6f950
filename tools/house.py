"""What each file of the package is: the first line of its docstring, folder by folder.

    python tools/house.py      prints it

It is also a hook of the site, which puts it in the place of `<!-- house -->`.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "anamnesis"
MARK = "<!-- house -->"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page as mkdocs will render it."""
    return markdown.replace(MARK, house()) if MARK in markdown else markdown


def modules() -> list[Path]:
    """Return the Python and Cython files of the package, those of a folder together."""
    found = [*PACKAGE.rglob("*.py"), *PACKAGE.glob("*.pyx")]
    return sorted(found, key=lambda path: (path.parent, path.name))


def first_line(path: Path) -> str:
    """Return the first line of a module's docstring; empty if it has none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":  # no Python, but it begins with the docstring
        text = text.partition('"""')[2].partition('"""')[0]
        return text.partition("\n")[0]
    return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]


def house() -> str:
    """Return a heading for each folder, and a table of its files."""
    folders: dict[Path, list[Path]] = {}
    for path in modules():
        folders.setdefault(path.parent, []).append(path)
    return "\n\n".join(_section(folder, files) for folder, files in folders.items())


def _section(folder: Path, files: list[Path]) -> str:
    lines = {path.name: first_line(path) for path in files}
    what = lines.pop("__init__.py", "")
    rows = [f"| `{name}` | {line} |" for name, line in lines.items()]
    table = ["| file | what it is |", "| --- | --- |", *rows] if rows else []
    head = [f"### {folder.relative_to(PROJECT).as_posix()}/", "", what, ""]
    return "\n".join([*head, *table]).rstrip()


if __name__ == "__main__":
    print(house())
