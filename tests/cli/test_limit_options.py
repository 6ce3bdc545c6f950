"""Limits from the command line, and what errors tell programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.cli_runs import ORPHAN, SMALL

WriteModel = Callable[..., Path]


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.mark.parametrize(
    "verb",
    [["parse"], ["inspect"], ["remember"], ["convert", "--to", "f32"], ["plan", "--to", "npz"]],
)
@pytest.mark.parametrize(
    ("option", "value", "limit"),
    [
        ("--max-alloc", "50", "max_single_alloc"),
        ("--max-bytes", "100", "max_total_bytes"),
        ("--max-items", "2", "max_item_count"),
    ],
)
def test_a_limit_holds_and_names_its_option(
    write_model: WriteModel, verb: list[str], option: str, value: str, limit: str
) -> None:
    path = write_model(SMALL)
    done = run(*verb, path, option, value)
    assert done.exit_code == 1
    assert done.stderr.endswith(f" [{limit}]; {option} sets how much is allowed\n")
    assert run(*verb, path, "--untrusted").exit_code == 0
    both = run(*verb, path, "--untrusted", option, value)
    assert both.stderr == done.stderr


def test_untrusted_tightens_every_limit() -> None:
    limits = an.ParseLimits.untrusted()
    assert all(getattr(limits, field.name) is not None for field in fields(limits))


@pytest.mark.parametrize("value", ["0", "-1", "many", "nan", "1.5x"])
def test_a_limit_that_is_none(write_model: WriteModel, value: str) -> None:
    for option in ("--max-alloc", "--max-items", "--max-ratio"):
        done = run("parse", write_model(SMALL), option, value)
        assert done.exit_code == 2
        assert done.stderr.startswith(f"amn: error: {option}: ")


def error_of(*args: str | Path) -> dict[str, object]:
    told = json.loads(run(*args, "--json").stdout)["error"]
    assert set(told) == {"class", "message", "file", "tensor", "offset", "limit", "remedy"}
    assert isinstance(told, dict)
    return told


def test_errors_in_json(tmp_path: Path, write_model: WriteModel) -> None:
    path = write_model(SMALL | {"lost.weight_scale": ORPHAN})
    limit = error_of("inspect", path, "--max-items", "2")
    assert (limit["class"], limit["limit"]) == ("LimitExceeded", "max_item_count")
    assert limit["remedy"] == "--max-items sets how much is allowed"
    unknown = error_of("remember", path)
    assert (unknown["class"], unknown["tensor"]) == ("UnsupportedError", "lost.weight_scale")
    assert unknown["file"] == str(path)
    remedy = "--drop leaves it out; --allow-unknown copies it as it is stored"
    assert unknown["remedy"] == remedy
    (tmp_path / "cut.safetensors").write_bytes(path.read_bytes()[:-1])
    cut = error_of("parse", tmp_path / "cut.safetensors")
    assert cut["class"] == "ParseError"
    assert isinstance(cut["offset"], int)
    assert cut["message"] == run("parse", tmp_path / "cut.safetensors").stderr[12:-1]
    none = error_of("parse", tmp_path / "none")
    assert (none["class"], none["file"]) == ("FileNotFoundError", str(tmp_path / "none"))
    second = error_of("diff", path, tmp_path / "cut.safetensors")
    assert second == cut
