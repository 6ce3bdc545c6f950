"""What is asked for by name is given: a dtype that is named casts plain floats as well."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import Entry

WriteModel = Callable[..., Path]
MATRIX = np.linspace(-70_000, 70_000, 8 * 32, dtype=np.float32).reshape(8, 32)
VECTOR = np.geomspace(1e-3, 9, 32, dtype=np.float32)
VALUES = {
    "a.weight": MATRIX.astype(ml_dtypes.bfloat16),
    "norm.weight": VECTOR,
    "scale": np.float32(1.1).astype(ml_dtypes.bfloat16),
    "n": np.arange(3),
}
NAMES = {"bfloat16": "BF16", "float32": "F32", "int64": "I64"}
PLAIN: dict[str, Entry] = {
    name: (NAMES[array.dtype.name], array.shape, array.tobytes()) for name, array in VALUES.items()
}
OUTPUTS: dict[str, Any] = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}


@pytest.fixture
def model(tmp_path: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_model(PLAIN, name="model.safetensors")


def told(*args: str | Path) -> dict[str, Any]:
    done = CliRunner().invoke(cli, [*map(str, args), "--json", "--force"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def dtypes(path: str | Path) -> dict[str, str]:
    with an.parse(path) as made:
        return {name: tensor.dtype.name for name, tensor in made.stored.items()}


CAST = {"a.weight": "F16", "norm.weight": "F16", "scale": "F16", "n": "I64"}


@pytest.mark.parametrize(
    "asked",
    [
        ["convert", "--to", "f16"],
        ["convert", "--to", "npz-f16"],
        ["convert", "--to", "safetensors", "--dtype", "f16"],
        ["convert", "--to", "FP16"],
        ["remember", "--to", "f16", "--cast-all"],
    ],
)
def test_a_dtype_that_is_named_is_what_comes_out(model: Path, asked: list[str]) -> None:
    verb, *how = asked
    report = told(verb, model, *how, "--threads", "2")
    made = Path(report["output"])
    assert made.stem == "model-f16"
    assert dtypes(made) == CAST
    with an.parse(made) as opened, np.errstate(over="ignore"):
        for name in ("a.weight", "norm.weight", "scale"):
            expected = VALUES[name].astype(np.float32).astype(np.float16)
            assert opened[name].numpy("f16").tobytes() == expected.tobytes()
    n_beyond = int((np.abs(MATRIX.astype(ml_dtypes.bfloat16).astype(np.float32)) >= 65_520).sum())
    assert n_beyond
    assert report["overflows"] == {"a.weight": n_beyond}
    assert report["cast"] == {
        "a.weight": ["BF16", "F16"],
        "norm.weight": ["F32", "F16"],
        "scale": ["BF16", "F16"],
    }


@pytest.mark.parametrize(
    "asked",
    [
        ["convert", "--to", "safetensors", "-o", "out.safetensors"],
        ["convert", "--to", "f16", "--no-cast-all", "-o", "out.safetensors"],
        ["convert", "--to", "npz", "-o", "out.npz"],
        ["convert", "-o", "out.npz"],
        ["convert", "--to", "gguf", "--only", "a.weight", "--only", "norm.weight", "-o", "o.gguf"],
        ["remember", "--to", "f16", "-o", "out.safetensors"],
        ["remember", "--to", "npz-f16", "-o", "out.npz"],
        ["remember", "--to", "f16", "--no-cast-all", "-o", "out.safetensors"],
    ],
)
def test_plain_floats_stay_where_none_is_named(model: Path, asked: list[str]) -> None:
    verb, *how = asked
    report = told(verb, model, *how)
    kept = {name: entry[0] for name, entry in PLAIN.items()}
    made = dtypes(report["output"])
    assert made == {name: kept[name] for name in made}
    assert report["cast"] == {}


@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_vectors_in_gguf_are_f32(model: Path, dtype: str) -> None:
    report = told("convert", model, "--to", f"gguf-{dtype}", "--no-loss")
    read = {t.name: t for t in gguf.GGUFReader(report["output"]).tensors}
    assert read["a.weight"].tensor_type.name == dtype.upper()
    for name in ("norm.weight", "scale"):
        assert read[name].tensor_type.name == "F32"
        expected = VALUES[name].astype(np.float32).reshape(-1)
        assert read[name].data.tobytes() == expected.tobytes()
    assert read["n"].tensor_type.name == "I64"


def test_vectors_that_are_named_are_what_is_asked(model: Path) -> None:
    report = told("convert", model, "--to", "gguf-f32", "--tensor", "norm.weight=f16")
    assert dtypes(report["output"])["norm.weight"] == "F16"


def test_a_named_dtype_is_of_what_is_not_encoded(
    tmp_path: Path, write_model: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    square = np.ones((128, 128), ml_dtypes.bfloat16)
    encoded: Entry = ("BF16", square.shape, square.tobytes())
    model = write_model({"q_proj.weight": encoded, "norm.weight": PLAIN["norm.weight"]})
    for how, norm in (([], "F32"), (["--dtype", "f16"], "F16")):
        report = told("forget", model, "--to", "fp8-block", *how)
        assert report["n_encoded"] == 1
        assert dtypes(report["output"])["norm.weight"] == norm


def test_plan_and_convert_agree(model: Path) -> None:
    for how in (["f16"], ["gguf-f16"], ["gguf-bf16", "--no-cast-all"], ["npz"]):
        planned = told_plan(model, *how)
        report = told("convert", model, "--to", *how)
        assert planned["cast"] == report["cast"]
        assert planned["n_bytes"] == report["n_bytes"] == Path(report["output"]).stat().st_size


def told_plan(model: Path, *how: str) -> dict[str, Any]:
    done = CliRunner().invoke(cli, ["plan", str(model), "--json", "--to", *how])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_the_account_says_what_is_cast(model: Path) -> None:
    done = CliRunner().invoke(cli, ["convert", str(model), "--to", "gguf-f16"])
    lines = done.stdout.splitlines()
    assert "  cast 1 tensor from BF16 to F16" in lines
    assert "  cast 1 tensor from BF16 to F32" in lines
    assert "--cast-all" not in done.stdout


def test_python_has_the_same_rule(model: Path, tmp_path: Path) -> None:
    with an.parse(model) as opened:
        assert opened.convert(tmp_path / "1.npz", "npz-f16").dtypes == {"F16": 3, "I64": 1}
        assert opened.convert(tmp_path / "2.npz", "npz", dtype="f16").dtypes["F16"] == 3
        assert "F16" not in opened.convert(tmp_path / "3.npz", "npz-f16", cast_all=False).dtypes
        assert "F16" not in opened.remember(tmp_path / "4.npz", "f16").dtypes
        assert opened.plan("f16").account.cast.keys() == {"a.weight", "norm.weight", "scale"}
    an.save({"w": VECTOR}, tmp_path / "5.npz", dtype="f16")
    with np.load(tmp_path / "5.npz") as arrays:
        assert arrays["w"].tobytes() == VECTOR.astype(np.float16).tobytes()


# --- blocks of a GGUF file ------------------------------------------------------------------------


def q8_0(path: Path) -> Path:
    blocks = {f"w{i}": Tensor((32,), 8, bytes(34)) for i in range(4)}
    path.write_bytes(gguf_bytes({}, blocks))
    return path


def test_blocks_that_are_kept_are_told_of(tmp_path: Path) -> None:
    source = q8_0(tmp_path / "x-Q8_0.gguf")
    done = CliRunner().invoke(cli, ["convert", str(source), "--to", "gguf"])
    output = tmp_path / "x-Q8_0-copy.gguf"
    assert "  kept 4 weights as stored (Q8_0); gguf-bf16 decodes them" in done.stdout.splitlines()
    assert dtypes(output) == dict.fromkeys(("w0", "w1", "w2", "w3"), "Q8_0")
    report = told("convert", source, "--to", "gguf")
    assert report["kept"] == dict.fromkeys(("w0", "w1", "w2", "w3"), "Q8_0")
    decoded = told("convert", source, "--to", "gguf-bf16")
    assert (decoded["kept"], Path(decoded["output"]).name) == ({}, "x-bf16.gguf")
    planned = CliRunner().invoke(cli, ["plan", str(source), "--to", "gguf"]).stdout
    assert "  kept 4 weights as stored (Q8_0); gguf-bf16 decodes them" in planned.splitlines()


def test_their_suffix_stays_elsewhere(tmp_path: Path) -> None:
    source = q8_0(tmp_path / "x.Q8_0.gguf")
    report = told("convert", source, "--to", "gguf", "-o", f"{tmp_path}/out/")
    assert Path(report["output"]).name == "x.Q8_0.gguf"
    report = told("convert", source, "--to", "gguf", "-o", f"{tmp_path}/")
    assert Path(report["output"]).name == "x.Q8_0-copy.gguf"
