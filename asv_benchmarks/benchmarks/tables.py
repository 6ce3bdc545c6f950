"""The kernels of this checkout, by name, from the tables in csrc/.

asv counts a benchmark's combinations of parameters. Asked of `_core`, which is that of the commit
that is measured, the figures of one with fewer kernels would stand under other kernels' names.
"""

from __future__ import annotations

import re
from pathlib import Path

_TABLES = Path(__file__).parents[2] / "csrc" / "kernels"


def kernels(macro: str, family: str = "") -> tuple[str, ...]:
    """Return the names in the rows of a macro, such as BLOCK; of one family, where rows have it."""
    text = "".join(
        (_TABLES / name).read_text(encoding="utf-8") for name in ("kernels.def", "blocks.def")
    )
    before = f"{family}, " if family else r"(?:[a-z\d]+, )?"
    return tuple(re.findall(rf"^{macro}\({before}([A-Z]\w*),", text, re.MULTILINE))


def block_encoders() -> tuple[str, ...]:
    """Return the types that GGUF blocks are encoded to, and how: `Q4_K`, `Q4_K by importance`."""
    text = (_TABLES / "blocks.def").read_text(encoding="utf-8")
    rows = re.findall(r"^ENCODE\((\w+), \w+, (\w+),", text, re.MULTILINE)
    plain = [name for name, weights in rows if weights != "REQUIRED"]
    return (*plain, *(f"{name} by importance" for name, weights in rows if weights != "IGNORED"))
