"""Text of hostile files on its way to a terminal."""

from __future__ import annotations

import sys

import pytest

from anamnesis.base.printable import abbreviate, printable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model.layers.0.weight", "model.layers.0.weight"),
        ("Gewicht größer 重み", "Gewicht größer 重み"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("a\r\nb\tc", r"a\r\nb\tc"),
        ("\x9b31m\x7f", r"\x9b31m\x7f"),
        ("right\u202eleft", r"right\u202eleft"),
        ("line\u2028end", r"line\u2028end"),
        ("half \udcff", r"half \udcff"),
    ],
)
def test_escapes(text: str, expected: str) -> None:
    assert printable(text) == expected


def test_nothing_unprintable_comes_through() -> None:
    everything = "".join(map(chr, range(sys.maxunicode + 1)))
    assert printable(everything).isprintable()


def test_long_lists_are_cut() -> None:
    assert abbreviate(["a", "b\n"]) == r"a, b\n"
    assert abbreviate(map(str, range(1005))) == "0, 1, 2, 3, 4 and 1,000 more"
