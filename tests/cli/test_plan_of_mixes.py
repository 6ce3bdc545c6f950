"""`amn plan` of a mix of GGUF's types: what each tensor becomes, from headers alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import anamnesis as an
from anamnesis.cli.app import cli
from helpers import gguf_handmade as handmade


@pytest.fixture
def model(tmp_path: Path) -> Path:
    keys = {
        "general.architecture": (handmade.STRING, "llama"),
        "llama.block_count": (handmade.U32, 1),
        "llama.attention.head_count": (handmade.U32, 4),
    }
    shapes = {
        "token_embd.weight": (256, 8),
        "output.weight": (256, 8),
        "blk.0.attn_norm.weight": (256,),
        "blk.0.attn_q.weight": (256, 256),
        "blk.0.attn_v.weight": (256, 64),
        "blk.0.ffn_up.weight": (320, 32),
    }
    tensors = {}
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        tensors[name] = handmade.Tensor(shape, 0, bytes(4 * n))
    path = tmp_path / "tiny.gguf"
    path.write_bytes(handmade.gguf_bytes(keys, tensors))
    return path


def plan(*args: str | Path) -> str:
    done = CliRunner().invoke(cli, ["plan", *map(str, args)], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_every_tensor_has_a_row(model: Path) -> None:
    rows = [line.split() for line in plan(model, "--to", "q4_k_m").splitlines()]
    told = {row[0]: row[1:] for row in rows if row and row[0].endswith("weight")}
    assert told["blk.0.attn_q.weight"] == ["Q4_K", "36.9", "KB", "4.5"]
    assert told["blk.0.attn_v.weight"] == [
        *("Q6_K", "13.4", "KB", "6.562"),
        *("for", "values", "of", "attention"),
    ]
    assert told["blk.0.ffn_up.weight"][0] == "Q5_0"
    assert " ".join(told["blk.0.ffn_up.weight"][4:]) == "rows of 320 fit no Q4_K"
    assert told["blk.0.attn_norm.weight"][-2:] == ["no", "matrix"]


def test_nothing_is_measured_unless_it_is_asked_for(model: Path) -> None:
    assert "Lethe" not in plan(model, "--to", "q4_k_m")
    assert "Lethe" in plan(model, "--to", "q4_k_m", "--full")


def test_scripts_get_all_of_it(model: Path) -> None:
    told = json.loads(plan(model, "--to", "q4_k_m", "--json"))
    tensors = {tensor["name"]: tensor for tensor in told["files"][0]["tensors"]}
    assert tensors["blk.0.attn_q.weight"]["bits"] == 4.5
    assert tensors["output.weight"]["dtype"] == "Q6_K"
    assert told["why"]["output.weight"] == "for the output layer"
    with an.parse(model) as opened:
        assert told == {"path": str(model), **opened.plan("gguf-q4_k_m").to_dict()}


def test_what_the_plan_says_is_what_is_written(model: Path, tmp_path: Path) -> None:
    told = json.loads(plan(model, "--to", "q4_k_m", "--json"))
    an.convert(model, tmp_path / "out.gguf", "q4_k_m")
    with an.parse(tmp_path / "out.gguf") as made:
        wanted = {tensor["name"]: tensor["dtype"] for tensor in told["files"][0]["tensors"]}
        assert {name: tensor.dtype.name for name, tensor in made.stored.items()} == wanted
    assert (tmp_path / "out.gguf").stat().st_size == told["n_bytes"]


@pytest.mark.parametrize(
    ("to", "option", "said"),
    [
        ("gguf", "--pure", "--pure is for a mix of GGUF's types, such as gguf-q4_k_m, not gguf"),
        ("f16", "--leave-output-tensor", "--leave-output-tensor is for a mix of GGUF's types"),
        ("fp8-block", "--imatrix", "--imatrix is for GGUF files, not safetensors"),
    ],
)
def test_options_of_mixes_are_for_mixes(to: str, option: str, said: str, model: Path) -> None:
    asked = [option, str(model)] if option == "--imatrix" else [option]
    done = CliRunner().invoke(cli, ["plan", str(model), "--to", to, *asked])
    assert (done.exit_code, said in done.stderr) == (2, True)
