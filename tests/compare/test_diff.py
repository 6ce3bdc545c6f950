"""`amn diff` as a person sees it: exit codes, 80 columns, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.cli_runs import amn
from helpers.pairs_of_models import llama, weights


def diff(*args: str | Path) -> Result:
    return CliRunner(env={"COLUMNS": "80"}).invoke(cli, ["diff", *map(str, args)])


@pytest.fixture
def tuned(tmp_path: Path) -> tuple[Path, Path]:
    arrays = weights()
    arrays["model.layers.1.mlp.up_proj.weight"][3, 5] += 1
    return llama(tmp_path / "a"), llama(tmp_path / "b", arrays)


def test_exit_codes_are_those_of_diff(tuned: tuple[Path, Path], tmp_path: Path) -> None:
    a, b = tuned
    assert diff(a, b).exit_code == 0
    assert diff(a, a, "--values").exit_code == 0
    assert diff(a, b, "--values").exit_code == 1
    for wrong in ([a], [a, b, a], [a, tmp_path / "none"], [a, b, "--nonsense"]):
        assert diff(*wrong).exit_code == 2, wrong
    (tmp_path / "broken.safetensors").write_bytes(b"\xff" * 20)
    broken = amn("diff", a, tmp_path / "broken.safetensors")
    assert broken.returncode == 2
    assert broken.stderr.count("\n") == 1


def test_what_differs_is_named(tuned: tuple[Path, Path]) -> None:
    done = diff(*tuned, "--values")
    assert "21 weights in both: 20 with the same bytes, 1 with other values" in done.stdout
    assert "model.layers.1.mlp.up_proj.weight: 1 of 131,072 values, first at [3, 5]" in done.stdout
    assert "mlp.up_proj  █" in done.stdout
    assert "does not measure the quality" in done.stdout


def test_all_fits_80_columns(tuned: tuple[Path, Path], tmp_path: Path) -> None:
    long = {f"a.very.long.prefix.of.names.{n}": a for n, a in weights().items()}
    other = {n: a * 2 for n, a in long.items()}
    for name, arrays in (("c", long), ("d", other)):
        an.save(arrays, tmp_path / f"{name}.safetensors")
    an.convert(tuned[0], tmp_path / "q.gguf", "gguf-q4_k_m")
    cases = [
        (tmp_path / "c.safetensors", tmp_path / "d.safetensors"),
        (tuned[1], tmp_path / "q.gguf"),
    ]
    for a, b in cases:
        lines = diff(a, b, "--values").stdout.splitlines()
        assert all(len(line) <= 80 for line in lines if not line.startswith(("A ", "B "))), lines
        assert [line for line in lines if line.startswith("…")] or b.suffix == ".gguf"


def test_layers_share_columns_where_there_are_many(tmp_path: Path) -> None:
    one = weights()["model.norm.weight"]
    for name, factor in (("a", 1), ("b", 2)):
        an.save(
            {f"layers.{i}.norm.weight": one * factor for i in range(200)}, tmp_path / f"{name}.npz"
        )
    lines = diff(tmp_path / "a.npz", tmp_path / "b.npz", "--values").stdout.splitlines()
    row = next(line for line in lines if line.startswith("norm "))
    assert 20 < row.count("▁") < 80


def test_json_has_every_weight(tuned: tuple[Path, Path]) -> None:
    told = json.loads(diff(*tuned, "--values", "--json").stdout)
    assert told["same"] is False
    assert len(told["weights"]) == 21
    (one,) = [weight for weight in told["weights"] if weight["state"] == "differs"]
    assert one["difference"]["first"] == [3, 5]
    assert one["difference"]["differing"] == 1


def test_a_selection_is_compared(tuned: tuple[Path, Path]) -> None:
    assert diff(*tuned, "--values", "--only", "*.mlp.*").exit_code == 1
    assert diff(*tuned, "--values", "--drop", "*.mlp.*").exit_code == 0


def test_no_name_reaches_a_terminal_as_it_is(tmp_path: Path) -> None:
    escape = "\x1b[31m"
    one = np.ones((4, 4), np.float32)
    for name, prefix in (("a", ""), ("b", f"{escape}.model.")):
        names = [f"layers.{i}.{escape}{end}.weight" for i in range(2) for end in "xy"]
        arrays = {f"{prefix}{n}": one * len(prefix + "x") for n in names}
        metadata = {escape: name}
        an.save(arrays, tmp_path / f"{name}.safetensors", metadata=metadata)
    for more in ([], ["--values"]):
        done = diff(tmp_path / "a.safetensors", tmp_path / "b.safetensors", *more)
        assert done.exit_code == 1
        assert "\x1b" not in done.stdout
        assert "names below \\x1b[31m.model. in B" in done.stdout
