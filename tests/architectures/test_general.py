"""What general.* says of directories of all names, cards and configs: as llama.cpp's package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anamnesis.architectures.general_keys import general_keys
from anamnesis.base.errors import LimitExceeded, ParseError
from anamnesis.base.limits import Budget, ParseLimits
from helpers import general_cases
from helpers.general_cases import CASES, Case

EXPECTED = json.loads(general_cases.RECORDED.read_text())


def found_in(root: Path, case: Case, limits: ParseLimits | None = None) -> list[list[Any]]:
    """Return key, type and value, in the order in which they are written."""
    keys = general_keys(root, case.config, case.shapes, Budget(limits or ParseLimits()))
    return [
        [key, "array" if isinstance(told["value"], list) else told["type"], told["value"]]
        for key, told in keys.items()
    ]


@pytest.mark.parametrize(("case", "expected"), list(zip(CASES, EXPECTED, strict=True)))
def test_as_recorded(case: Case, expected: list[list[Any]], tmp_path: Path) -> None:
    assert found_in(general_cases.write(case, tmp_path), case) == expected


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"top_k": 1.5}', "top_k"),
        ('{"top_k": 3000000000}', "top_k"),
        ('{"temperature": "warm"}', "temperature"),
        ('{"mirostat": true}', "mirostat"),
        ('{"temperature": 1e300}', "temperature"),
        ('{"sequence": 3}', "sequence"),
    ],
)
def test_sampling_of_a_wrong_type(text: str, name: str, tmp_path: Path) -> None:
    case = Case("Foo", generation=text)
    root = general_cases.write(case, tmp_path)
    with pytest.raises(ParseError, match=f"generation_config.json: {name} must be"):
        found_in(root, case)


@pytest.mark.parametrize(
    "told",
    [
        *("yes", "2024-01-02", "7", "1.0", "0x1f", "1_000", "2001-01-01 10:00:00", "1:30", ".inf"),
        *("&a x", "*a", "!x y", "|\n  text", ">-\n  text", "one\n  two", "{a: b}", "[a, [b]]"),
        *("'a", '"a', '"\\x41"', "'a' b", "a: b", "@x", "`x`", "%x", "\n  a:\n    b: c", "[a"),
    ],
)
def test_values_that_are_left_out(told: str, tmp_path: Path) -> None:
    """The directory's name says it then."""
    case = Case("Foo-7B", card=f"---\nname: {told}\nlicense: mit\n---\n")
    found = found_in(general_cases.write(case, tmp_path), case)
    assert ["general.name", "string", "Foo 7B"] in found
    assert ["general.license", "string", "mit"] in found


def test_a_card_that_is_not_text(tmp_path: Path) -> None:
    case = Case("Foo")
    root = general_cases.write(case, tmp_path)
    (root / "README.md").write_bytes(b"---\nlicense: \xff\n---\n")
    with pytest.raises(ParseError, match="UTF-8"):
        found_in(root, case)


def test_a_card_is_held_against_limits(tmp_path: Path) -> None:
    case = Case("Foo", card="---\nlicense: mit\n---\n" + "x" * 10_000)
    root = general_cases.write(case, tmp_path)
    with pytest.raises(LimitExceeded):
        found_in(root, case, ParseLimits(max_single_alloc=1000))


def test_the_working_directory_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = general_cases.write(Case("Foo-7B"), tmp_path)
    monkeypatch.chdir(root)
    keys = general_keys(Path(), {}, {}, Budget(ParseLimits()))
    assert keys["general.name"]["value"] == "Foo 7B"
