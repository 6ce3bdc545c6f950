"""Which weights are taken, and what each of them costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from cli_runs import CODES, SMALL, amn, remembered
from click.testing import CliRunner, Result
from gguf_handmade import Tensor, gguf_bytes
from handmade import Entry
from safetensors import safe_open

from anamnesis.base.patterns import chooser
from anamnesis.cli.app import cli

WriteModel = Callable[..., Path]

MODEL: dict[str, Entry] = {
    **SMALL,
    "layers.1.down_proj.weight": ("F8_E4M3", (8, 4), CODES.tobytes()),
    "layers.1.down_proj.weight_scale": SMALL["layers.0.up_proj.weight_scale"],
}
UP, DOWN, NORM = "layers.0.up_proj.weight", "layers.1.down_proj.weight", "norm.weight"


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(arg) for arg in args])


@pytest.mark.parametrize(
    ("include", "exclude", "chosen"),
    [
        ((), (), {"a", "a.b", "a.b.c", "ab", "A"}),
        (("a",), (), {"a", "a.b", "a.b.c"}),
        (("a.*",), (), {"a.b", "a.b.c"}),
        (("*.c",), (), {"a.b.c"}),
        (("a", "ab"), ("*.b",), {"a", "ab"}),
        (("[!a]*",), (), {"A"}),
        ((), ("*",), set()),
        (("a\n",), (), set()),
    ],
)
def test_globs(include: tuple[str, ...], exclude: tuple[str, ...], chosen: set[str]) -> None:
    is_chosen = chooser(include, exclude)
    assert {name for name in ("a", "a.b", "a.b.c", "ab", "A") if is_chosen(name)} == chosen


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--include", "*_proj.weight"], {UP, DOWN}),  # whose scales have other names
        (["--include", "layers.0", "--include", "norm"], {UP, NORM}),
        (["--exclude", "layers"], {NORM}),
        (["--include", "layers", "--exclude", "*up*"], {DOWN}),
        (["--select", "layers.1"], {"down_proj.weight"}),
        (["--select", "layers.1", "--keep-names"], {DOWN}),
        (["--select", "layers.1.", "--keep-names"], {DOWN}),
        (["--select", "layers", "--keep-names", "--include", "*up*"], {UP}),
        (["--select", "layers", "--exclude", "*up*"], {"1.down_proj.weight"}),
    ],
)
def test_weights_are_taken_with_all_their_parts(
    tmp_path: Path, write_model: WriteModel, args: list[str], names: set[str]
) -> None:
    path, out = write_model(MODEL), tmp_path / "out.safetensors"
    done = run("remember", path, "-o", out, *args)
    assert done.exit_code == 0, done.stderr
    assert "left out (outside the selection): " in done.stdout
    with safe_open(out, "np") as file:
        assert set(file.keys()) == names
    if names & {UP, DOWN}:
        assert remembered("bf16") in out.read_bytes()
    stored = json.loads(run("parse", path, *args, "--json").stdout)["tensors"]
    assert {t["name"] for t in stored if "scale" not in t["name"]} == names


def test_a_choice_of_nothing_is_an_error(write_model: WriteModel) -> None:
    for args in (["--include", "nix"], ["--exclude", "*"]):
        done = run("inspect", write_model(MODEL), *args)
        assert done.exit_code == 1
        assert done.stderr.endswith("none of the 3 weights has a name that is chosen\n")


def test_schemes_of_each_weight(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(MODEL)
    told = amn("parse", "model.safetensors", "--schemes", cwd=tmp_path).stdout
    bits = 8 + 8 * 32 / 32
    assert "  Weights:    70 parameters, 16 bits each\n" in told
    assert told.splitlines()[-3:] == [
        f"  {UP:<29}  per-channel FP8 (E4M3) [8, 4]  32 x {bits:.4g} bits",
        f"  {DOWN:<29}  per-channel FP8 (E4M3) [8, 4]  32 x {bits:.4g} bits",
        f"  {NORM:<29}  {'BF16 [6]':<29}  6 x 16 bits",
    ]
    weights = json.loads(run("parse", tmp_path / "model.safetensors", "--schemes", "--json").stdout)
    assert weights["weights"][0] == {
        "name": UP,
        "scheme": "per-channel FP8 (E4M3)",
        "shape": [8, 4],
        "n_parameters": 32,
        "n_bytes": 64,
        "bits_per_weight": bits,
        "stored": [UP, f"{UP}_scale"],
        "roles": ["codes", "scales"],
    }


def test_inspect_tells_what_a_gguf_becomes(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf_bytes({}, {"w": Tensor((64,), 8, bytes(68))}))  # Q8_0
    for to, size in (("bf16", "128 B (BF16)"), ("f32", "256 B (F32)")):
        lines = run("inspect", path, "--to", to).stdout.splitlines()
        assert f"Size:        68 B (Q8_0) -> {size}" in lines
        assert "Parameters:  64, 8.5 bits each" in lines
    assert json.loads(run("inspect", path, "--json").stdout)["n_parameters"] == 64
