"""The demo: it must pass, pass again, notice a wrong byte, and leave others' files alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import load_file

from anamnesis.cli import demo_run
from anamnesis.cli.app import cli
from helpers.cli_runs import SMALL, amn, command, environment
from helpers.handmade import write_safetensors

FILES = ["model-bf16.safetensors", "model-fp8.safetensors"]


def test_runs_and_runs_again(tmp_path: Path) -> None:
    first = amn("demo", cwd=tmp_path)
    assert (first.returncode, first.stderr) == (0, "")
    assert "made from a fixed seed" in first.stdout
    assert "$ amn inspect model-fp8.safetensors\nFormat:      Fine-grained FP8" in first.stdout
    assert "$ amn remember model-fp8.safetensors\nParsing...   11 tensors, 3" in first.stdout
    assert "All 11 tensors, 1,050,112 bytes, equal what numpy and ml_dtypes" in first.stdout
    assert max(map(len, first.stdout.splitlines())) <= 80
    assert sorted(p.name for p in tmp_path.iterdir()) == FILES
    before = [(tmp_path / name).read_bytes() for name in FILES]
    again = amn("demo", cwd=tmp_path)
    assert (again.returncode, again.stderr) == (0, "")
    assert "made again" in again.stdout
    assert "$ amn remember model-fp8.safetensors --force\n" in again.stdout
    assert [(tmp_path / name).read_bytes() for name in FILES] == before


def test_as_a_module_in_another_folder(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "anamnesis.cli.demo", str(tmp_path / "new" / "folder")],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == FILES


def test_torch_agrees_with_the_demo(tmp_path: Path) -> None:
    assert amn("demo", tmp_path).returncode == 0
    stored = load_file(tmp_path / FILES[1])
    output = load_file(tmp_path / FILES[0])
    for layer in demo_run.LAYERS:
        codes = stored[f"{layer.name}.weight"].to(torch.float32)
        if layer.scaling == "128x128 blocks":
            scale = stored[f"{layer.name}.weight_scale_inv"]
            scale = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
            scale = scale[: codes.shape[0], : codes.shape[1]]
        else:
            scale = stored[f"{layer.name}.weight_scale"]
        expected = (codes * scale).to(torch.bfloat16)
        assert torch.equal(
            output[f"{layer.name}.weight"].view(torch.int16), expected.view(torch.int16)
        )


def test_the_checkpoint_is_a_believable_one() -> None:
    weights = demo_run.original_weights()
    stored = demo_run.checkpoint(weights)
    for layer in demo_run.LAYERS:
        codes = stored[f"{layer.name}.weight"].astype(np.float32)
        assert np.abs(codes).max() == demo_run.E4M3_MAX
        assert (np.abs(codes) == demo_run.E4M3_MAX).mean() < 0.02
        assert weights[layer.name].dtype == np.float32
    assert stored["model.norm.weight"].dtype == ml_dtypes.bfloat16


def test_a_wrong_byte_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo_run._read_tensor_bytes
    name = "model.layers.0.mlp.up_proj.weight"

    def corrupt(path: Path) -> Mapping[str, bytes]:
        read = real(path)
        return {**read, name: read[name][:-1] + bytes([read[name][-1] ^ 1])}

    monkeypatch.setattr(demo_run, "_read_tensor_bytes", corrupt)
    done = CliRunner().invoke(cli, ["demo", str(tmp_path)])
    assert done.exit_code == 1
    (row,) = [line for line in done.output.splitlines() if "DIFFER" in line]
    assert "mlp.up_proj" in row
    assert "1 of 11 tensors are NOT" in done.output


def test_an_extra_tensor_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = demo_run._read_tensor_bytes
    monkeypatch.setattr(demo_run, "_read_tensor_bytes", lambda path: {**real(path), "extra": b""})
    assert CliRunner().invoke(cli, ["demo", str(tmp_path)]).exit_code == 1


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("own_format", [True, False])
def test_leaves_others_files_alone(tmp_path: Path, name: str, own_format: bool) -> None:
    path = tmp_path / name
    if own_format:
        write_safetensors(path, SMALL, {"made_by": "somebody"})
    else:
        path.write_bytes(b"\xff" * 7)
    before = path.read_bytes()
    done = amn("demo", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        f"amn: error: {name}: exists and is not the demo's; run `amn demo DIRECTORY`"
        " with another one\n"
    )
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_names_are_completed() -> None:
    words = {"_AMN_COMPLETE": "bash_complete", "COMP_WORDS": "amn demo g", "COMP_CWORD": "2"}
    done = CliRunner().invoke(cli, [], prog_name="amn", env=words)
    assert done.stdout.split() == ["plain,gptq", "plain,gguf"]


def test_the_name_of_an_input_finds_its_demo(tmp_path: Path) -> None:
    done = amn("demo", "tiny-mxfp4.safetensors", cwd=tmp_path)
    assert done.stdout == "tiny-mxfp4.safetensors: MXFP4 of compressed-tensors (18.9 KB)\n"
    assert [p.name for p in tmp_path.iterdir()] == ["tiny-mxfp4.safetensors"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("gtpq", "gptq"), ("ggufs", "gguf"), ("llama-tiny-GPTG", "llama-tiny-GPTQ")],
)
def test_a_mistyped_demo_is_no_folder(tmp_path: Path, typed: str, meant: str) -> None:
    done = amn("demo", typed, cwd=tmp_path)
    assert done.returncode == 2
    told = f"there is no demo {typed!r} (did you mean {meant!r}?); amn demo --list shows all"
    assert told in done.stderr
    assert not list(tmp_path.iterdir())
    assert amn("demo", f"{typed}/", cwd=tmp_path).returncode == 0  # a folder may be called so
    assert amn("demo", typed, cwd=tmp_path).returncode == 0  # and is there now


@pytest.mark.parametrize("words", [("s3://b/x",), ("llama", "S3://b/x"), ("gguf", "hf://a/b")])
def test_refuses_an_address_as_its_folder(words: tuple[str, ...], tmp_path: Path) -> None:
    done = amn("demo", *words, cwd=tmp_path)
    said = f"amn: error: {words[-1]}: is an address; a demo is made in a folder here\n"
    assert (done.returncode, done.stderr) == (1, said)
    assert not list(tmp_path.iterdir())


def test_refuses_a_file_as_its_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = amn("demo", "file", cwd=tmp_path)
    assert done.stderr == "amn: error: file: is not a directory; name one\n"
    assert done.returncode == 1


@pytest.mark.parametrize("lines", [0, 1, 12])
def test_who_reads_no_further_hears_of_no_failure(lines: int, tmp_path: Path) -> None:
    with subprocess.Popen(
        command("demo"),
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as shown:
        assert shown.stdout is not None
        assert shown.stderr is not None
        for _ in range(lines):
            shown.stdout.readline()
        shown.stdout.close()
        assert shown.stderr.read() == ""
