"""Which of several inputs are one, what was replaced, and what is in the way, in one line each."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.cli.demo_models import DEMOS
from helpers.cli_runs import run

ARRAYS = {f"{i}.weight": np.full((64, 96), i, np.float32) for i in range(4)}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def demo() -> None:
    for path, raw in DEMOS["llama"].make().items():
        Path(path).parent.mkdir(exist_ok=True)
        Path(path).write_bytes(raw)


def test_parts_of_one_model_are_one_input() -> None:
    an.save(ARRAYS, "x.gguf", metadata={"general.architecture": "none"})
    an.convert("x.gguf", "s.gguf", "gguf", split_max_size=30_000)
    parts = sorted(map(str, Path().glob("s-*.gguf")))
    assert len(parts) > 1
    done = run("convert", *parts, "--to", "f16", "-o", "out.safetensors")
    assert f"parts of models that others of their parts stand for: {parts[1]}" in done.stderr
    assert len(an.parse("out.safetensors")) == len(ARRAYS)


def test_what_lies_in_the_output_is_no_input() -> None:
    Path("in/deep").mkdir(parents=True)
    an.save(ARRAYS, "in/a.safetensors")
    an.save(ARRAYS, "in/deep/b.safetensors")
    for _ in range(3):
        done = run("convert", "-r", "in", "--to", "f16", "-o", "in/out", "--force")
    assert "left out, as what lies in the output: in/out/a-f16.safetensors" in done.stderr
    found = {str(path) for path in Path("in/out").rglob("*.safetensors")}
    assert found == {"in/out/a-f16.safetensors", "in/out/deep/b-f16.safetensors"}


def test_files_are_left_out_and_tensors_dropped() -> None:
    demo()
    an.save({"x.weight": np.ones(3, np.float32)}, "b.safetensors")
    done = run("convert", "llama-tiny", "b.safetensors", "--to", "gguf-f16", "-o", ".")
    assert "(2.7 MB), left out 1\n" in done.stdout
    assert "dropped" not in done.stdout


@pytest.mark.parametrize("to", ["gguf-q4_k", "gguf-q4_k_m"])
def test_a_type_that_rows_do_not_fit_is_said_to_be_replaced(to: str) -> None:
    blocks = {f"blk.0.{n}.weight": np.ones((64, 96), np.float32) for n in ("ffn_up", "attn_q")}
    an.save(
        {**blocks, "token_embd.weight": np.ones((64, 256), np.float32)},
        "x.gguf",
        metadata={"general.architecture": "llama", "llama.block_count": 1},
    )
    done = run("convert", "x.gguf", "--to", to, "-o", "y.gguf", "-q")
    names = "blk.0.attn_q.weight, blk.0.ffn_up.weight"
    assert f"rows of 96 fit no Q4_K, and become Q5_0: {names}" in done.stderr


@pytest.mark.parametrize("extra", [0, 2])
def test_how_many_tensors_are_not_as_expected(extra: int) -> None:
    others = {f"{i}.weight": np.zeros((64, 96), np.float32) for i in range(len(ARRAYS) + extra)}
    an.save(ARRAYS, "a.safetensors")
    an.save({**others, "0.weight": ARRAYS["0.weight"]}, "b.safetensors")
    done = run("convert", "a.safetensors", "--to", "f32", "--expect-same", "b.safetensors", code=1)
    assert f"{3 + extra} of {4 + extra} tensors are not as in b.safetensors" in done.stderr


def test_a_link_to_nothing_is_called_one() -> None:
    an.save(ARRAYS, "a.safetensors")
    os.symlink("nowhere", "out.safetensors")
    done = run("convert", "a.safetensors", "--to", "f16", "-o", "out.safetensors", code=1)
    assert "out.safetensors: is a link to nothing; remove it" in done.stderr
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("kind", ["fifo", "link"])
def test_a_tokenizer_that_is_no_file(kind: str) -> None:
    demo()
    path = Path("llama-tiny/tokenizer.json")
    path.rename("tokenizer.json")
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to(Path("tokenizer.json").resolve())
    done = run("convert", "llama-tiny", "--to", "gguf", code=1)
    why = "not a regular file" if kind == "fifo" else "a link that leads out of the directory"
    assert f"tokenizer.json is there, but is {why}: put the file itself there" in done.stderr


@pytest.mark.parametrize("prefix", ["module", "_orig_mod"])
def test_a_name_that_all_tensors_lie_below(prefix: str) -> None:
    demo()
    with an.parse("llama-tiny") as model:
        arrays = {f"{prefix}.{name}": model[name].numpy() for name in model}
    an.save(arrays, "llama-tiny/model.safetensors", force=True)
    done = run("convert", "llama-tiny", "--to", "gguf", "-o", "x.gguf", code=1)
    assert f"--select {prefix} takes what lies below that name, and strips it" in done.stderr
    run("convert", "llama-tiny", "--to", "gguf", "-o", "x.gguf", "--select", prefix)


def test_a_folder_whose_weights_are_a_link_out_of_it() -> None:
    Path("in").mkdir()
    an.save(ARRAYS, "a.safetensors")
    Path("in/model.safetensors").symlink_to(Path("a.safetensors").resolve())
    Path("in/config.json").write_text(json.dumps({}))
    done = run("inspect", "in", code=1)
    assert "model.safetensors is a link that leads out of the directory" in done.stderr
