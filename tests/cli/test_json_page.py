"""docs/json.md says what --json writes: key by key, checked against real outputs."""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from anamnesis.cli.app import COMMANDS, cli
from helpers import whole_gguf
from helpers.cli_runs import ORPHAN, SMALL
from helpers.gguf_handmade import F32, Tensor, gguf_bytes

WriteModel = Callable[..., Path]

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
SHAPES = {
    name: json.loads(text)
    for names, text in re.findall(
        r"<!-- shape: ([\w, ]+) -->\n\n```json\n(.*?)```", PAGE.read_text(), re.S
    )
    for name in names.split(", ")
}
TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "any": (object,),
}
OPTIONAL = {"parse": {"weights"}}
NULLABLE = {"loss"}  # objects, of which a shape cannot say it
# What a container has to tell beside, in `amn inspect`.
FACTS = {"version", "byte_order", "arch", "alignment", "kind"}


def differences(value: Any, shape: Any, at: str = "") -> list[str]:
    """Return where a value is not as a shape says; keys are told by `keys_of`."""
    if isinstance(shape, str):
        types = tuple(t for name in shape.split(" or ") for t in TYPES[name])
        is_bool = isinstance(value, bool) and bool not in types and object not in types
        return [] if isinstance(value, types) and not is_bool else [f"{at}: {value!r}, not {shape}"]
    if isinstance(shape, list):
        if not isinstance(value, list):
            return [f"{at}: {value!r} is no list"]
        return [
            d for i, item in enumerate(value) for d in differences(item, shape[0], f"{at}[{i}]")
        ]
    if not isinstance(value, dict):
        return [f"{at}: {value!r} is no object"]
    if "*" in shape:
        return [d for k, item in value.items() for d in differences(item, shape["*"], f"{at}.{k}")]
    missing = [f"{at}: {key} is missing" for key in shape.keys() - value.keys()]
    extra = [f"{at}: {key} is not on the page" for key in value.keys() - shape.keys()]
    inner = [
        d for key in shape.keys() & value.keys() for d in differences(value[key], shape[key], key)
    ]
    return [*missing, *extra, *inner]


def outputs(*args: str | Path) -> list[Any]:
    done = CliRunner().invoke(cli, [*map(str, args), "--json"])
    told = json.loads(done.stdout)
    return told if isinstance(told, list) else [told]


def check(name: str, *args: str | Path) -> None:
    shape = SHAPES[name]
    for told in outputs(*args):
        if name == "inspect":
            told = {key: value for key, value in told.items() if key not in FACTS}
        told = {k: v for k, v in told.items() if v is not None or k not in NULLABLE}
        optional = OPTIONAL.get(name, set()) | NULLABLE
        expected = {k: v for k, v in shape.items() if k in told or k not in optional}
        assert differences(told, expected) == []


@pytest.fixture
def models(tmp_path: Path, write_model: WriteModel) -> list[Path]:
    write_model(SMALL, name="small-fp8.safetensors")
    write_model(SMALL | {"lost.weight_scale": ORPHAN}, name="lost.safetensors")
    write_model(SMALL, name="directory/model.safetensors")
    keys = {"x.nan": (F32, float("nan"))}
    block = Tensor((32,), 8, bytes(34))
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(keys, {"w": block}))
    return [
        tmp_path / n for n in ("small-fp8.safetensors", "lost.safetensors", "directory", "m.gguf")
    ]


def test_the_page_has_every_command() -> None:
    beside = {"error", "imatrix", "list", "part", "pipeline", "plans", "skipped", "ways"}
    assert SHAPES.keys() - beside == set(COMMANDS) - {
        "completion",
        "demo",
        "help",
        "report",
    }


@pytest.mark.parametrize("args", [["parse"], ["parse", "--schemes"], ["inspect"]])
def test_headers(models: list[Path], args: list[str]) -> None:
    check(args[0], *args, *models)
    assert ("weights" in outputs(*args, *models)[0]) == ("--schemes" in args)


def test_two_models(models: list[Path]) -> None:
    small, _, directory, gguf = models
    check("diff", "diff", "--values", small, directory)
    assert outputs("diff", small, gguf)[0]["total"] is None


def test_checks(models: list[Path]) -> None:
    check("check", "check", *models)


def test_importance(tmp_path: Path) -> None:
    (tmp_path / "imatrix.gguf").write_bytes(whole_gguf.imatrix_gguf("moe"))
    (tmp_path / "imatrix.dat").write_bytes(whole_gguf.imatrix_dat("moe"))
    check("imatrix", "inspect", tmp_path / "imatrix.gguf", tmp_path / "imatrix.dat")


def test_conversions(tmp_path: Path, models: list[Path]) -> None:
    out = tmp_path / "out"
    check("remember", "remember", *models, "-o", out, "--allow-unknown", "--to", "f16")
    check(
        "skipped",
        "remember",
        *models,
        "-o",
        out,
        "--allow-unknown",
        "--to",
        "f16",
        "--skip-existing",
    )


def test_encodings(tmp_path: Path, models: list[Path], write_model: WriteModel) -> None:
    values = bytes(2 * 128 * 128)
    tensors = {"a.q_proj.weight": ("BF16", (128, 128), values), "a.norm": ("BF16", (2,), bytes(4))}
    plain = write_model(tensors, name="plain.safetensors")
    encode = (plain, models[3], "--no-conv1d")
    check("plan", "plan", *encode, "--to", "safetensors")
    check("plan", "plan", plain, "--to", "fp8-block")
    check("plan", "plan", plain, "--to", "fp8-block", "--no-loss")
    check("plans", "plan", plain, "--to", "fp8-block,int8,f16")
    shape = {key: kind for key, kind in SHAPES["plan"].items() if key not in {"path", "loss"}}
    for plan in outputs("plan", plain, "--to", "fp8-block,int8,f16")[0]["plans"]:
        assert differences(plan, shape | {"target": "string", "loss": "any"}) == []
    check("forget", "forget", plain, "--to", "fp8-block", "-o", tmp_path / "f.safetensors")
    check("convert", "convert", *encode, "--to", "gguf", "-o", tmp_path / "out")
    out = tmp_path / "p.safetensors"
    check("part", "convert", plain, "--to", "int8", "-o", out, "--part", "1/1")
    check("commit", "commit", out)
    check("list", "convert", "--list")
    check("list", "forget", "--list")
    check("ways", "convert", "--list", "--to", "gptq-4bit")


def test_scans(tmp_path: Path) -> None:
    (tmp_path / "good.pkl").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps(os.system))
    (tmp_path / "cut.pkl").write_bytes(pickle.dumps({"a": 1})[:-1])
    check("scan", "scan", tmp_path)


def test_edits(tmp_path: Path, models: list[Path]) -> None:
    check("edit", "edit", models[0], "--set", "k=v")


def test_errors(tmp_path: Path, models: list[Path]) -> None:
    (tmp_path / "cut.safetensors").write_bytes(models[0].read_bytes()[:-1])
    bad = (tmp_path / "cut.safetensors", tmp_path / "none", tmp_path / "nix")
    for verb in ("parse", "inspect", "remember"):
        check("error", verb, *bad)
    check("error", "remember", models[1])
    check("error", "scan", tmp_path / "none")
    check("error", "commit", tmp_path / "none")
    for pair in ([models[0], bad[0]], [bad[1], models[0]]):
        check("error", "diff", *pair)


def test_env() -> None:
    check("env", "env")


def test_a_shape_can_fail() -> None:
    told = outputs("env")[0]
    assert differences(told | {"more": 1}, SHAPES["env"]) == [": more is not on the page"]
    assert differences(told | {"cpus": "2"}, SHAPES["env"]) == ["cpus: '2', not integer or null"]
    del told["levels"]
    assert differences(told, SHAPES["env"]) == [": levels is missing"]
