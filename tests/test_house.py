"""Each file of the package says in one line what it is, and the architecture names each folder."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

PROJECT = Path(__file__).parents[1]
HOUSE = runpy.run_path(str(PROJECT / "tools" / "house.py"))
PAGE = PROJECT / "docs" / "architecture.md"
ROW = re.compile(r"^\| `([\w/.]+)` \| ([^|]+) \|$", re.M)

# Words by which a sentence hangs on one that the reader does not see.
HANGING = re.compile(r"\b(the same|that of|those of|the former|the latter|as above)\b", re.I)


def test_a_module_says_in_one_line_what_it_is() -> None:
    for path in HOUSE["modules"]():
        line = HOUSE["first_line"](path)
        assert 0 < len(line) <= 80, path
        assert line.endswith("."), path
        assert not re.search(r"\.\s", line), f"{path}: more than one sentence"
        assert not HANGING.search(line), f"{path}: it cannot be read alone"


def test_lines_are_not_shared() -> None:
    lines = [HOUSE["first_line"](path) for path in HOUSE["modules"]()]
    assert len(set(lines)) == len(lines)


def test_the_architecture_has_a_short_row_for_each_folder() -> None:
    rows = dict(ROW.findall(PAGE.read_text(encoding="utf-8").partition("## Words")[0]))
    package = HOUSE["PACKAGE"]
    folders = {path.parent for path in HOUSE["modules"]()} - {package}
    assert {f"{folder.relative_to(package).as_posix()}/" for folder in folders} <= rows.keys()
    for name in rows:
        assert (package / name).exists() or (PROJECT / name).exists(), name
    assert {name: row for name, row in rows.items() if len(row.split()) > 15} == {}
