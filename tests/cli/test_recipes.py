"""Recipes: options of a conversion in a TOML file, for which those of the command line stand in."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from helpers.cli_runs import run
from helpers.handmade import Entry, write_safetensors

PAGE = Path(__file__).parents[2] / "docs" / "command-line.md"
RNG = np.random.default_rng(5)


def bf16(*shape: int) -> Entry:
    return "BF16", shape, RNG.normal(size=shape).astype(ml_dtypes.bfloat16).tobytes()


Q, K, OUT, NORM = (f"layers.0.{name}.weight" for name in ("q_proj", "k_proj", "o_proj", "norm"))
MODEL = {Q: bf16(128, 128), K: bf16(128, 128), OUT: bf16(128, 128), NORM: bf16(128)}


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_safetensors(Path("model.safetensors"), MODEL)


def recipe(text: str) -> str:
    Path("r.toml").write_text(text)
    return "r.toml"


def told(*args: str | Path) -> Any:
    return json.loads(run(*args, "--json", "--force").stdout)


FULL = """
to = "fp8-tensor"
dtype = "f16"
exclude = "*.v_proj.*"
drop = ["layers.0.k_proj"]
verify = true
loss = false

[tensors]
layers.0.o_proj.weight = "int8"
"*.o_proj.*" = "keep"
"""


def test_a_recipe_gives_what_its_options_give(model: Path) -> None:
    path = recipe(FULL.replace("exclude", "# exclude"))
    told("convert", model, "--recipe", path, "-o", "a.safetensors")
    flags = ["--to", "fp8-tensor", "--dtype", "f16", "--drop", "layers.0.k_proj", "--verify"]
    flags += ["--no-loss", "--tensor", f"{OUT}=int8"]
    report = told("convert", model, *flags, "-o", "b.safetensors")
    assert report["encodings"] == {"fp8-tensor": 1, "int8": 1}
    assert report["loss"] is None
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()
    with an.parse(model) as opened:
        opened.convert("c.safetensors", **an.read_recipe(path))
    assert Path("c.safetensors").read_bytes() == Path("a.safetensors").read_bytes()
    told("forget", model, "--recipe", path, "-o", "d.safetensors")
    assert Path("d.safetensors").read_bytes() == Path("a.safetensors").read_bytes()
    plan = told_plan(model, "--recipe", path)
    assert plan["n_bytes"] == Path("a.safetensors").stat().st_size
    assert "Verified" in run("convert", model, "--recipe", path, "--force").stdout


def told_plan(*args: str | Path) -> Any:
    return json.loads(run("plan", *args, "--json").stdout)


@pytest.mark.parametrize(
    ("flags", "encodings"),
    [
        ([], {"fp8-tensor": 1, "int8": 1}),
        (["--to", "int8"], {"int8": 2}),
        (["--tensor", f"{OUT}=bf16"], {"fp8-tensor": 1}),
        (["--exclude", Q], {"int8": 1}),
        (["--drop", OUT], {"fp8-tensor": 2}),
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_the_command_line_wins(
    model: Path, flags: list[str], encodings: dict[str, int], first: bool
) -> None:
    text = FULL.replace('exclude = "*.v_proj.*"', "")
    given = ["--recipe", recipe(text)]
    args = [*given, *flags] if first else [*flags, *given]
    if "--drop" in flags:  # in the place of the recipe's
        Path("r.toml").write_text(text.partition("[tensors]")[0])
    assert told("convert", model, *args)["encodings"] == encodings


def test_what_is_dropped_is_so_wherever_it_stands(model: Path) -> None:
    path = recipe('to = "bf16"\n[tensors]\n"layers.0.*" = "f16"\n"*.norm.*" = "drop"\n')
    assert told("convert", model, "--recipe", path)["dtypes"] == {"F16": 3}


def test_tables_of_gguf(model: Path) -> None:
    path = recipe(
        'to = "gguf-f16"\n[rename]\n"layers" = "blk"\n'
        '[metadata]\ngeneral.name = "tiny"\n"x.n" = {type = "uint8", value = 7}\n'
    )
    report = told("convert", model, "--recipe", path)
    with an.parse(report["output"]) as made:
        assert all(name.startswith("blk.0.") for name in made)
        assert made.metadata["general.name"] == "tiny"
        assert made.metadata["x.n"] == 7


def test_a_resumed_run_is_of_the_same_recipe(model: Path) -> None:
    plans = {}
    for text in ('to = "fp8-tensor"', 'to = "int8"', f'to = "int8"\n[tensors]\n"{Q}" = "keep"'):
        with an.parse(model) as opened:
            plans[opened.plan(**an.read_recipe(recipe(text))).digest()] = text
    assert len(plans) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'to = "bf16"\nexlude = "a"',
            "line 2: there is no key 'exlude' (did you mean 'exclude', 'experts' or",
        ),
        ("[tensor]\na = 'b'", "line 1: there is no key 'tensor' (did you mean 'tensors',"),
        ('to = "f8-block"', "line 1: to: there is no target 'f8-block' (did you mean 'fp8-bl"),
        ("\n\nverify = 1", "line 3: verify: must be true or false, not 1"),
        ("max-shard-size = 'x'", "line 1: max-shard-size: 'x' is not a size like 5GB, 500MB or 2"),
        ("max-shard-size = 0", "line 1: max-shard-size: '0' is not a size greater than zero"),
        ("exclude = [1]", "line 1: exclude: must be a text, not 1"),
        ('dtype = "f8"', "line 1: dtype: 'f8' is none of bf16, f16, f32"),
        ('[tensors]\n"*.a" = "bf16"\n"*.b" = "int9"', "line 3: *.b: there is no encoding 'int9'"),
        ("tensors = 3", "line 1: tensors must be a table"),
        ("to = ", "Invalid value (at "),
        ("to = 'a'\nto = 'b'\n\n", "Cannot overwrite a value (at "),
    ],
)
def test_what_is_wrong_is_named_with_its_line(model: Path, text: str, message: str) -> None:
    path = recipe(text)
    with pytest.raises(ValueError, match=r"^r\.toml") as caught:
        an.read_recipe(path)
    assert message in str(caught.value)
    done = run("convert", model, "--recipe", path, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "text",
    [
        "[metadata]\n" + ".".join("a" * 5000) + " = 1",
        "[tensors]\n" + ".".join("a" * 5000) + " = 'keep'",
        "[metadata]\na = " + "[" * 5000 + "]" * 5000,
    ],
)
def test_what_is_nested_too_deep_is_said_to_be(model: Path, text: str) -> None:
    with pytest.raises(ValueError, match=r"^r\.toml.*: is nested too deep$"):
        an.read_recipe(recipe(text))


def test_a_key_in_two_spellings_is_refused(model: Path) -> None:
    text = "max_shard_size = 5000\nmax-shard-size = 6000"
    with pytest.raises(ValueError, match=r"^r\.toml, line 2: max-shard-size: is there already"):
        an.read_recipe(recipe(text))


def test_a_file_that_cannot_be_read(model: Path) -> None:
    assert "none.toml: No such file" in run("plan", model, "--recipe", "none.toml", code=2).stderr
    Path("r.toml").write_bytes(b"\xff")
    assert "r.toml: " in run("plan", model, "--recipe", "r.toml", code=2).stderr


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run("demo", "llama")
    found = re.search(r"^```toml\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert found is not None
    report = told("convert", "llama-tiny", "--recipe", recipe(found[1]))
    assert Path(report["output"]).name == "llama-tiny-fp8"
    plain = {name for name, why in report["plain"].items() if why == "as an override asks"}
    assert plain == {
        *(f"model.layers.{i}.self_attn.o_proj.weight" for i in range(2)),
        *(f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up", "down")),
    }
    assert [dropped["name"] for dropped in report["dropped"]] == ["model.embed_tokens.weight"]
    assert sum(why == "excluded" for why in report["plain"].values()) == 2
