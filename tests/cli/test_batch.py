"""Many inputs at once: names, what is skipped, and the extension of the output."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import anamnesis as an
from helpers.cli_runs import SMALL, amn, remembered
from helpers.gguf_handmade import Tensor, gguf_bytes

WriteModel = Callable[..., Path]
PLAIN = {"norm.weight": SMALL["norm.weight"]}


def names(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


def test_an_extension_that_is_not_written_is_refused(
    tmp_path: Path, write_model: WriteModel
) -> None:
    write_model(SMALL)
    done = amn("remember", "model.safetensors", "-o", "out.jit", cwd=tmp_path)
    assert done.returncode == 1
    assert ".jit files cannot be written; name one that ends in " in done.stderr
    assert done.stderr.count("\n") == 1
    assert names(tmp_path) == ["model.safetensors"]
    with pytest.raises(an.OutputError, match="cannot be written"):
        an.parse(tmp_path / "model.safetensors").remember(tmp_path / "out.jit")


def test_several_inputs_do_not_go_into_one_file(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="a.safetensors")
    write_model(SMALL, name="b.safetensors")
    done = amn("remember", "a.safetensors", "b.safetensors", "-o", "all.safetensors", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "amn: error: all.safetensors: is the name of one file, for 2 inputs; name a directory\n"
    )
    assert names(tmp_path) == ["a.safetensors", "b.safetensors"]


def test_an_empty_output_is_an_error(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL)
    done = amn("remember", "model.safetensors", "-o", "", cwd=tmp_path)
    assert done.returncode == 1
    assert "the output's name is empty" in done.stderr


def test_floats_that_are_kept_are_told_of(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", w=np.ones((4, 4), "f4"))
    words = "nothing is quantised: 1 F32 tensor is kept; --cast-all casts it to F16"
    aloud = amn("remember", "p.npz", "--to", "f16", cwd=tmp_path)
    assert aloud.stdout.endswith(f"\n  {words}\n")
    assert names(tmp_path) == ["p.npz", "p.safetensors"]
    quiet = amn("remember", "p.npz", "--to", "f16", "-q", "--force", cwd=tmp_path)
    assert quiet.stderr == f"amn: warning: {words}\n"
    unasked = amn("remember", "p.npz", "--force", cwd=tmp_path)
    assert "nothing is quantised" not in unasked.stdout
    cast = amn("remember", "p.npz", "--to", "f16", "--cast-all", cwd=tmp_path)
    assert "nothing is quantised" not in cast.stdout
    with safe_open(tmp_path / "p-f16.safetensors", "np") as file:
        assert file.get_slice("w").get_dtype() == "F16"
    with safe_open(tmp_path / "p.safetensors", "np") as file:
        assert file.get_slice("w").get_dtype() == "F32"


def test_a_plain_copy_of_itself_has_a_name_too(tmp_path: Path) -> None:
    np.savez(tmp_path / "p.npz", w=np.ones((4, 4), "f4"))
    assert amn("remember", "p.npz", cwd=tmp_path).returncode == 0
    assert amn("remember", "p.safetensors", cwd=tmp_path).returncode == 0
    assert names(tmp_path) == ["p-plain.safetensors", "p.npz", "p.safetensors"]


def test_names_that_would_meet_keep_their_words(tmp_path: Path) -> None:
    for name in ("tiny-Q4_K_M.gguf", "tiny-Q8_0.gguf", "other-Q8_0.gguf"):
        block = Tensor((32,), 8, bytes(34))  # Q8_0
        (tmp_path / name).write_bytes(gguf_bytes({}, {"w": block}))
    done = amn("remember", *(p.name for p in sorted(tmp_path.iterdir())), "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert names(tmp_path / "out") == [
        "other-bf16.safetensors",
        "tiny-Q4_K_M-bf16.safetensors",
        "tiny-Q8_0-bf16.safetensors",
    ]


def test_again_over_everything(tmp_path: Path, write_model: WriteModel) -> None:
    """What `amn remember *` wrote is not remembered once more."""
    write_model(SMALL, name="lora-1-fp8.safetensors")
    write_model(PLAIN, name="norms.safetensors")
    first = amn("remember", *names(tmp_path), cwd=tmp_path)
    assert first.returncode == 0
    assert "norms.safetensors: skipped, nothing in it is quantised\n" in first.stdout
    assert first.stdout.endswith("\n1 of 2 remembered, 1 skipped\n")
    there = names(tmp_path)
    assert there == ["lora-1-bf16.safetensors", "lora-1-fp8.safetensors", "norms.safetensors"]
    left_out = "amn: warning: left out, as outputs of other inputs: lora-1-bf16.safetensors\n"
    again = amn("remember", *there, cwd=tmp_path)
    assert again.returncode == 1
    assert again.stderr.startswith(left_out)
    assert "exists; --force replaces it" in again.stderr
    skipped = amn("remember", *there, "--skip-existing", cwd=tmp_path)
    assert (skipped.returncode, skipped.stderr) == (0, left_out)
    assert skipped.stdout.endswith("\n0 of 2 remembered, 2 skipped\n")
    told = json.loads(amn("remember", *there, "--skip-existing", "--json", cwd=tmp_path).stdout)
    assert [t["skipped"] for t in told] == [
        "lora-1-bf16.safetensors exists",
        "nothing in it is quantised",
    ]
    assert names(tmp_path) == there


def test_below_a_directory(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL, name="in/a-fp8.safetensors")
    write_model(SMALL, name="in/x/b-fp8.safetensors")
    write_model(SMALL, name="in/x/repo-fp8/model.safetensors")
    (tmp_path / "in/x/repo-fp8/config.json").write_text("{}")
    (tmp_path / "in/x/notes.txt").write_text("no model")
    done = amn("remember", "-r", "in", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n3 of 3 remembered\n")
    assert names(tmp_path / "out") == [
        "a-bf16.safetensors",
        "x/b-bf16.safetensors",
        "x/repo-bf16/config.json",
        "x/repo-bf16/model.safetensors",
    ]
    again = amn("remember", "-r", "in", "-o", "out", "--skip-existing", cwd=tmp_path)
    assert again.stdout.endswith("\n0 of 3 remembered, 3 skipped\n")


def test_shards_into_one_file(tmp_path: Path, write_model: WriteModel) -> None:
    halves = list(SMALL.items())
    write_model(dict(halves[:2]), name="m/model-00001-of-00002.safetensors")
    write_model(dict(halves[2:]), name="m/model-00002-of-00002.safetensors")
    (tmp_path / "m" / "config.json").write_text("{}")
    (tmp_path / "m" / "tokenizer.json").write_text("{}")
    done = amn("remember", "m", "-o", "x.safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(
        "in 3 tensors (2 weights, 1 scale), out 2, dropped 0\n"
        "  left out (one file has no room for it): tokenizer.json, config.json\n"
    )
    with safe_open(tmp_path / "x.safetensors", "np") as file:
        assert sorted(file.keys()) == ["layers.0.up_proj.weight", "norm.weight"]
    assert remembered("bf16") in (tmp_path / "x.safetensors").read_bytes()


@pytest.mark.parametrize("verb", ["parse", "inspect", "remember"])
def test_json_lines_come_one_by_one(verb: str, tmp_path: Path, write_model: WriteModel) -> None:
    good = write_model(SMALL, name="a-fp8.safetensors")
    cut = tmp_path / "b-fp8.safetensors"
    cut.write_bytes(good.read_bytes()[:-1])
    again = write_model(SMALL, name="c-fp8.safetensors")
    where = ("-o", tmp_path / "out") if verb == "remember" else ()
    done = amn(verb, good, cut, again, *where, "--jsonl")
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["path"] for one in told] == [str(good), str(cut), str(again)]
    assert [set(one) == {"path", "error"} for one in told] == [False, True, False]
    assert done.returncode == 1
    assert json.loads(amn(verb, good, *where, "--jsonl", "--json").stdout)["path"] == str(good)
