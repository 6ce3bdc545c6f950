"""One table of options: commands, functions and recipes have what its rows say."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, fields
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import click
import pytest

import anamnesis as an
from anamnesis.cli.app import COMMANDS, cli
from anamnesis.cli.grouped import Command
from anamnesis.convert.request.options import OPTIONS, Option, flag_of, options_of, rows_of
from anamnesis.convert.request.recipe import KEYS
from anamnesis.convert.request.request import (
    ConvertOptions,
    ExpertsName,
    MixOptions,
    NamesName,
    RememberOptions,
    Request,
)
from anamnesis.opening import LayoutName, ParseOptions
from anamnesis.schemes.core.rounding import MathName

# What has no text: values, functions, and what a variable of the environment says.
IN_PYTHON_ALONE = {"progress", "cancel", "edit", "level", "mmap", "limits"}
WORDS = {"layout": LayoutName, "experts": ExpertsName, "names": NamesName, "math": MathName}


def named(*calls: str) -> set[str]:
    return {row.name for row in OPTIONS if row.call in calls}


def command(name: str) -> Command:
    found = cli.get_command(click.Context(cli), name)
    assert isinstance(found, Command)
    return found


def test_functions_take_the_options_of_the_table() -> None:
    remember, mix = set(RememberOptions.__annotations__), set(MixOptions.__annotations__)
    own = set(ConvertOptions.__annotations__) - remember - mix
    assert named("parse") == set(ParseOptions.__annotations__) - IN_PYTHON_ALONE - {"strict"}
    assert named("limits") == {field.name for field in fields(an.ParseLimits)}
    assert named("remember") == remember - IN_PYTHON_ALONE
    assert named("convert") == own
    assert named("mix") == mix
    assert named("fit") == set(signature(an.Model.fit).parameters) - {"self", "options", "full"}
    assert {row.name for row in OPTIONS if row.recipe} <= {*ConvertOptions.__annotations__, "to"}


def test_words_are_those_of_the_types() -> None:
    shared = [row for row in OPTIONS if row.kind.choices and row.name != "color"]
    assert {row.name: row.kind.choices for row in shared} == {
        name: get_args(of) for name, of in WORDS.items()
    }


def test_defaults_are_those_of_a_request() -> None:
    defaults = {field.name: field.default for field in fields(Request)}
    rows = [row for row in OPTIONS if row.call in ("remember", "convert") and row.name != "loss"]
    for row in rows:
        if row.default is not None or row.kind.check is not None:
            assert defaults[row.name] in (row.default, MISSING), row.name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_options_of_its_rows(name: str) -> None:
    of = command(name)
    shown = rows_of(name)
    made = {(param.name, *param.opts): param for _, group in of.groups() for param in group}
    del made["help", "-h"]
    assert [*made] == [(r.name, *r.flags.partition("/")[0].split()) for r in _in_groups(of, shown)]
    assert len({row.flags for row in shown}) == len(shown)
    for row in shown:
        param = made[row.name, *row.flags.partition("/")[0].split()]
        assert (param.help, param.group, param.multiple) == (
            row.help,
            row.group,
            row.kind.many or row.name == "to",  # which refuses what contradicts itself
        )


def _in_groups(of: Command, rows: list[Option]) -> list[Option]:
    return [row for title, _ in of.groups() for row in rows if row.group == title]


def test_an_argument_is_called_by_its_flag() -> None:
    assert {name: flag_of(name) for name in ("overrides", "metadata", "loss", "limits")} == {
        "overrides": "--tensor",
        "metadata": "--gguf-metadata",
        "loss": "--no-loss",
        "limits": None,
    }
    flags: dict[str, set[str]] = {}
    for row in OPTIONS:
        if row.call:
            flags.setdefault(row.name, set()).add(row.flag)
    assert all(len(some) == 1 for some in flags.values())
    assert options_of("scan", "limits").keys() == named("limits")


def test_the_page_of_recipes_has_all_keys() -> None:
    told = set(re.findall(r"`\[?([a-z-]+)\]?`", an.read_recipe.__doc__ or ""))
    assert told >= KEYS.keys()


VALUES: list[Any] = [True, 0, 1, -1, 1.5, "", "x", "bf16", [], [1], ["x"], [["x"]], {}, {"a": 1}]


@pytest.mark.parametrize("key", KEYS)
def test_a_recipe_takes_a_value_or_names_its_line(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    taken = []
    for value in (*VALUES, *KEYS[key].choices, {"a": "keep"}):
        Path("r.toml").write_text(f"\n{key} = {json.dumps(value).replace(':', ' =')}\n")
        try:
            taken += [value] if an.read_recipe("r.toml") is not None else []
        except ValueError as error:
            assert str(error).startswith("r.toml, line 2: "), value  # noqa: PT017
    assert 0 < len(taken) < len(VALUES)


@pytest.mark.parametrize("row", [r for r in OPTIONS if r.kind.check], ids=lambda row: row.flag)
def test_functions_refuse_what_the_command_line_does(row: Option) -> None:
    wrong = "nonsense" if row.kind.choices else 0
    with pytest.raises(ValueError, match=rf"^{row.name} must be "):
        row.check(wrong)


@pytest.mark.parametrize("name", ["imatrix", "split_max_size", "tokenizer_pre"])
def test_what_is_for_gguf_files_is_refused_elsewhere(name: str) -> None:
    value: Any = 5 if name == "split_max_size" else "x"
    with (
        an.parse(b"\x02\0\0\0\0\0\0\0{}") as model,
        pytest.raises(ValueError, match=f"^{name} is for GGUF files, not safetensors$"),
    ):
        model.plan("bf16", **{name: value})
