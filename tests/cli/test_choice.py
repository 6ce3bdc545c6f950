"""Which weights are taken, and what each of them costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors import safe_open

import anamnesis as an
from anamnesis.base.patterns import chooser
from anamnesis.cli.app import cli
from helpers.cli_runs import CODES, SMALL, amn, remembered
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import Entry

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


PLAIN: dict[str, Entry] = {
    f"layers.{i}.{name}.weight": ("F32", (16, 16), np.ones((16, 16), np.float32).tobytes())
    for i in (0, 1, 10)
    for name in ("q_proj", "mlp.up")
}


@pytest.mark.parametrize(
    "glob",
    [
        *("layers.0", "layers.1.mlp", "layers.0.q_proj.weight", "*.mlp.*", "*.1", "layers.[01]"),
        *("layers.?.q_proj", "*mlp", "layers.0.", "ayers", "layers.0.q"),
    ],
)
def test_every_verb_takes_the_same_names(
    tmp_path: Path, write_model: WriteModel, glob: str
) -> None:
    path, out = write_model(PLAIN), tmp_path / "out.safetensors"
    names = set(filter(chooser([glob]), PLAIN))

    def written(verb: str, *args: str) -> dict[str, str] | None:
        """Return the dtypes that a verb writes; None if nothing matches."""
        done = run(verb, path, *args, "-o", out, "--force")
        if done.exit_code:
            assert f"no weight matches {glob!r}" in done.stderr
            return None
        with an.parse(out) as made:
            return {name: made.stored[name].dtype.name for name in made}

    as_stored = dict.fromkeys(PLAIN, "F32")
    rest = {name: "F32" for name in PLAIN if name not in names}
    forget = ("forget", "--to", "fp8-tensor")
    wanted = [
        (("remember", "--only", glob), dict.fromkeys(names, "F32")),
        (("remember", "--drop", glob), rest),
        ((*forget, "--include", glob), as_stored | dict.fromkeys(names, "F8_E4M3")),
        (
            (*forget, "--exclude", glob),
            dict.fromkeys(rest, "F8_E4M3") | dict.fromkeys(names, "F32"),
        ),
        ((*forget, "--only", glob), dict.fromkeys(names, "F8_E4M3")),
        (
            ("convert", "--to", "safetensors", "--tensor", f"{glob}=f16"),
            as_stored | dict.fromkeys(names, "F16"),
        ),
    ]
    for args, dtypes in wanted:
        assert written(*args) == (dtypes if names else None), args
    with an.parse(path) as model:
        if names:
            assert model.select(glob).keys() == names
            assert (
                model.select(exclude=glob).keys() == model.select(drop=glob).keys() == rest.keys()
            )
            model.remember(out, "f32", edit={glob: None}, force=True)
            with an.parse(out) as made:
                assert made.keys() == rest.keys()
        else:
            with pytest.raises(ValueError, match="no weight is called"):
                model.select(glob)
            for options in ({"drop": glob}, {"edit": {glob: None}}):
                with pytest.raises(ValueError, match="no weight matches"):
                    model.remember(out, force=True, **options)


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["--only", "*_proj.weight"], {UP, DOWN}),  # whose scales have other names
        (["--include", "*_proj.weight"], {UP, DOWN}),  # what it was called
        (["--drop", "layers"], {NORM}),
        (["--only", "layers", "--drop", "*up*"], {DOWN}),
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
    drops = not {"--drop", "--exclude"}.isdisjoint(args)
    assert ("(as asked): " in done.stdout) is drops
    if not drops:
        assert "left out (outside the selection): " in done.stdout
    with safe_open(out, "np") as file:
        assert set(file.keys()) == names
    if names & {UP, DOWN}:
        assert remembered("bf16") in out.read_bytes()
    stored = json.loads(run("parse", path, *args, "--json").stdout)["tensors"]
    assert {t["name"] for t in stored if "scale" not in t["name"]} == names


def test_a_choice_of_nothing_is_an_error(write_model: WriteModel) -> None:
    done = run("inspect", write_model(MODEL), "--exclude", "*")
    assert done.exit_code == 1
    assert done.stderr.endswith("none of the 3 weights is selected\n")
    done = run("remember", "-o", "x", write_model(MODEL), "--drop", "*")
    assert done.stderr.endswith("none of the 3 weights is left\n")


@pytest.mark.parametrize("option", ["--only", "--drop"])
@pytest.mark.parametrize(
    "verb",
    [
        *(["remember"], ["parse"], ["inspect"], ["forget", "--to", "fp8-tensor"]),
        *(["convert", "--to", "npz"], ["plan", "--to", "int8,npz"]),
    ],
)
def test_a_glob_that_fits_nothing_is_an_error(
    tmp_path: Path, write_model: WriteModel, verb: list[str], option: str
) -> None:
    model = write_model(MODEL)
    done = run(*verb, model, option, "norm", option, "nix")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.endswith(f"model.safetensors: {option}: no weight matches 'nix'\n")
    assert list(tmp_path.iterdir()) == [model]


def test_of_several_inputs_it_is_a_warning(tmp_path: Path, write_model: WriteModel) -> None:
    both = write_model(MODEL, name="both.safetensors"), write_model(SMALL, name="one.safetensors")
    done = run("remember", *both, "-o", f"{tmp_path}/out/", "--drop", "layers.1")
    assert done.exit_code == 0
    assert done.stderr == (f"amn: warning: {both[1]}: --drop: no weight matches 'layers.1'\n")
    with an.parse(tmp_path / "out" / "both-bf16.safetensors") as made:
        assert set(made) == {UP, NORM}
    with an.parse(tmp_path / "out" / "one-bf16.safetensors") as made:
        assert set(made) == {UP, NORM}


def test_a_checkpoint_without_its_averages_in_one_run(tmp_path: Path) -> None:
    names = [f"{top}.{name}" for top in ("model", "model_ema") for name in "ab"]
    values = {name: np.full((4, 6), i, np.float16) for i, name in enumerate(names)}
    stored = {f"state_dict.{name}": array for name, array in values.items()}
    an.save({**stored, "optimizer.a": np.ones(3)}, tmp_path / "sd.ckpt")
    args = ["--to", "f32", "--select", "state_dict", "--drop", "model_ema.*"]
    out = tmp_path / "out.safetensors"
    done = run("convert", tmp_path / "sd.ckpt", "-o", out, *args)
    assert done.exit_code == 0, done.stderr
    assert "in 4 tensors, out 2, dropped 2\n" in done.stdout
    assert "  dropped 2 (as asked): model_ema.a, model_ema.b\n" in done.stdout
    with safe_open(out, "np") as file:
        assert set(file.keys()) == {"model.a", "model.b"}
        assert np.array_equal(file.get_tensor("model.b"), values["model.b"])


@pytest.mark.parametrize("to", ["fp8-tensor", "int8", "npz", "gguf"])
def test_what_is_dropped_changes_nothing_else(
    tmp_path: Path, write_model: WriteModel, to: str
) -> None:
    out = tmp_path / "out"
    with an.parse(write_model(MODEL)) as model:
        report = model.convert(out, to, drop="layers.0", metadata={}, verify=True)
        alone = model.select(exclude="layers.0").convert(tmp_path / "alone", to)
        plan = model.plan(to, drop=["layers.0"])
        rest = model.select(exclude="layers.0").plan(to).account
    assert [(d.name, d.reason) for d in report.dropped] == [
        (UP, "as asked"),
        (f"{UP}_scale", "as asked"),
    ]
    assert (report.n_in, report.n_out) == (5, alone.n_out)
    assert out.read_bytes() == (tmp_path / "alone").read_bytes()
    assert (plan.account.n_in, plan.account.n_bytes_in) == (5, rest.n_bytes_in)


def test_drop_of_python(tmp_path: Path, write_model: WriteModel) -> None:
    path = write_model(MODEL)
    for i, write in enumerate(
        (
            lambda out, **how: an.remember(path, out, **how),
            lambda out, **how: an.convert(path, out, "pth", **how),
            lambda out, **how: an.forget(path, out, "fp8-tensor", **how),
        )
    ):
        write(tmp_path / f"{i}", drop=[UP, NORM])
        with an.parse(tmp_path / f"{i}") as made:
            assert {name.removesuffix("_scale") for name in made} == {DOWN}
        with pytest.raises(ValueError, match="drop: no weight matches 'nix'"):
            write(tmp_path / "none", drop="nix")
        with pytest.raises(an.UnsupportedError, match="none of the 3 weights is left"):
            write(tmp_path / "none", drop="*")


def test_schemes_of_each_weight(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(MODEL)
    told = amn("parse", "model.safetensors", "--schemes", cwd=tmp_path).stdout
    bits = 8 + 8 * 32 / 32
    assert "  Weights:    70 parameters, 16 bits each\n" in told
    parts = "    codes F8_E4M3 [8, 4], scales F32 [8, 1]"
    assert told.splitlines()[-5:] == [
        f"  {UP:<29}  per-channel FP8 (E4M3) [8, 4]  32 x {bits:.4g} bits",
        parts,
        f"  {DOWN:<29}  per-channel FP8 (E4M3) [8, 4]  32 x {bits:.4g} bits",
        parts,
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


@pytest.mark.slow
def test_zero_points_that_transformers_refuses_are_told(tmp_path: Path) -> None:
    """At the end of the run, and with transformers' own argument as it is spelt there."""
    assert amn("demo", "awq", str(tmp_path)).returncode == 0
    source, out = str(tmp_path / "llama-tiny-AWQ"), str(tmp_path / "out")
    for done in (
        amn("plan", source, "--to", "int4"),
        amn("convert", source, "--to", "int4", "-o", out),
    ):
        assert "expects no packed zero points" in done.stdout
        assert "CompressedTensorsConfig(dequantize=True)" in done.stdout
