"""Front matter: what is read of it is what PyYAML reads."""

from __future__ import annotations

import random
from typing import Any

import pytest
import yaml

from anamnesis.architectures.front_matter import front_matter

PIECES = (
    *("a", "b: c", "'x'", '"y"', "- ", "-", "  ", "    ", "\n", "\n", "\n", "k:", " ", "#", " # c"),
    *("[", "]", ",", "{", "}", "|", ">-", "&a", "*a", "!t", "~", "null", "yes", "1", "1.5", "0x1"),
    *("2020-01-01", "'it''s'", '"\\n"', "name: v", "license: mit", "tags:", "- x", "  - y"),
    *("  v: 1", "?", "%", "@", "`", "é", "://", "http://a.b/c", "a:b", "a #b", "a# b", ":", "'"),
    *("\\", "=", "<<", "...", "--- x", "---x", "1_000", "1:30", "+1", ".5", "1e5", "1.e+5", "0o7"),
    *("019", "08", "0.", "- - a", "- a: b", "  b: c", "1_", "._", "0b", "_1", "\t"),
)


def as_read_here(told: Any) -> Any:
    """Return what stands for a value of YAML: None for a scalar that is no text."""
    if isinstance(told, list):
        return [as_read_here(each) for each in told]
    if isinstance(told, dict):
        return {str(key): as_read_here(value) for key, value in told.items()}
    return told if isinstance(told, str) else None


def drawn(seed: int) -> str:
    draw = random.Random(seed)
    body = "".join(draw.choices(PIECES, k=draw.randrange(1, 14)))
    before, after = draw.choice(("", "k: ", "k:\n")), draw.choice(("", "\nz: w"))
    return f"{before}{body}{after}\n"


@pytest.mark.parametrize("seeds", [range(i, i + 1000) for i in range(0, 4000, 1000)], ids=str)
def test_drawn_texts(seeds: range) -> None:
    n_read = 0
    for text in map(drawn, seeds):
        found = front_matter(f"---\n{text}---\n")
        try:
            expected = yaml.safe_load(text.replace("\t", "  "))
        except (yaml.YAMLError, ValueError):  # a date that there is not
            continue
        if isinstance(expected, dict):
            told = as_read_here(expected)
            assert found == {key: told.get(key) for key in found}, text
            n_read += len(found)
    assert n_read > 200


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", {}),
        ("---", {}),
        ("---\nname: a\n---\nname: b\n", {"name": "a"}),
        ("---\nname: a\nname: b\n", {"name": "b"}),
        ("---\nname: a\nname: {b: c}\n---\n", {}),
        ("---\nlanguage:\n- no\n- yes\n---\n", {"language": ["no", None]}),
        ("---\nx:\n  a: b\n  c: 1\n---\n", {"x": {"a": "b", "c": None}}),
    ],
)
def test_by_hand(text: str, found: dict[str, object]) -> None:
    assert front_matter(text) == found


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "piece", [" ", "a ", "'", "''", '"', "\\", "- ", "[", ",", ":", " :", "a:\n", "#"]
)
def test_long_lines_take_no_longer_each(piece: str) -> None:
    """Many of any of them: what is quadratic would take minutes."""
    n = 200_000 // len(piece)
    for start in ("k: a", "k: '", 'k: "', "k: [", "k:\n- ", "", "'"):
        front_matter(f"---\n{start}{piece * n}x\n---\n")
