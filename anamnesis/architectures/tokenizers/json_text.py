"""JSON as `json.dumps` indents it, long lists made while it is written.

Python's own encoder takes a step for each value where it indents, and a vocabulary has a million.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, NamedTuple

quoted = json.encoder.encode_basestring
_FEW = 4096  # rows that are held at the same time


class Rows(NamedTuple):
    """Entries of an object, or pairs in a list: each as two texts that are JSON already."""

    brackets: str
    rows: Iterable[tuple[str, Any]]


def json_text(given: Any, line: str = "\n") -> Iterator[str]:
    """Yield JSON in pieces; `line` begins the lines of what it stands in."""
    inner = f"{line}  "
    if isinstance(given, Rows):
        yield from _rows(given, line, inner)
    elif isinstance(given, Mapping) and given:
        for i, (key, value) in enumerate(given.items()):
            yield f"{',' if i else '{'}{inner}{quoted(key)}: "
            yield from json_text(value, inner)
        yield f"{line}}}"
    else:
        yield json.dumps(given, ensure_ascii=False, indent=2).replace("\n", line)


def _rows(given: Rows, line: str, inner: str) -> Iterator[str]:
    is_object = given.brackets == "{}"
    row = f"{inner}%s: %s" if is_object else f"{inner}[{inner}  %s,{inner}  %s{inner}]"
    rows, before = map(row.__mod__, given.rows), given.brackets[0]
    while some := ",".join(islice(rows, _FEW)):
        yield before + some
        before = ","
    yield f"{line}{given.brackets[1]}" if before == "," else given.brackets
