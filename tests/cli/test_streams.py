"""Standard input as a model, standard output as a file."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.cli_runs import SMALL, amn, command, environment
from helpers.gguf_handmade import Tensor, gguf_bytes

WriteModel = Callable[..., Path]


def piped(
    *args: str | Path, data: bytes, cwd: Path, seekable: bool = False
) -> subprocess.CompletedProcess[bytes]:
    """Run `amn` with a model on standard input."""
    (cwd / "stdin").write_bytes(data)
    with open(cwd / "stdin", "rb") as file:
        how: dict[str, Any] = {"stdin": file} if seekable else {"input": data}
        return subprocess.run(
            command(*args),
            cwd=cwd,
            env=environment(),
            capture_output=True,
            check=False,
            timeout=120,
            **how,
        )


def files() -> dict[str, bytes]:
    from io import BytesIO

    from helpers.handmade import safetensors_bytes

    archive = BytesIO()
    np.savez_compressed(archive, w=np.ones((4, 4), "f4"))
    return {
        "safetensors": safetensors_bytes(SMALL),
        "GGUF v3": gguf_bytes({}, {"w": Tensor((1,), 0, bytes(4))}),
        "NPZ, F32": archive.getvalue(),
    }


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seekable", [False, True], ids=["pipe", "file"])
@pytest.mark.parametrize("format", files())
def test_any_format_from_standard_input(tmp_path: Path, format: str, seekable: bool) -> None:
    names = ["-"] if sys.platform == "win32" else ["-", "/dev/stdin"]
    for name in names:
        done = piped("parse", name, data=files()[format], cwd=tmp_path, seekable=seekable)
        assert (done.returncode, done.stderr) == (0, b"")
        assert done.stdout.startswith(f"Parsed {name} (".encode())
        done = piped("inspect", name, data=files()[format], cwd=tmp_path, seekable=seekable)
        assert (done.returncode, done.stderr) == (0, b"")


def test_through_pipes_to_the_same_bytes(tmp_path: Path) -> None:
    data = files()["safetensors"]
    (tmp_path / "m-fp8.safetensors").write_bytes(data)
    assert amn("remember", "m-fp8.safetensors", cwd=tmp_path).returncode == 0
    expected = (tmp_path / "m-bf16.safetensors").read_bytes()
    both = piped("remember", "-", "-o", "-", data=data, cwd=tmp_path)
    assert both.returncode == 0
    assert both.stdout == expected
    assert both.stderr.decode().splitlines()[-2:] == [
        f"Output: standard output ({len(expected)} B)",
        "in 3 tensors (2 weights, 1 scale), out 2, dropped 0",
    ]
    quiet = piped("remember", "-", "-q", "-o", "-", data=data, cwd=tmp_path)
    assert (quiet.stdout, quiet.stderr) == (expected, b"")
    named = piped("remember", "-", "-o", "named.safetensors", data=data, cwd=tmp_path)
    assert named.returncode == 0
    assert (tmp_path / "named.safetensors").read_bytes() == expected
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("-")) == []


def test_standard_input_has_no_name_for_an_output(tmp_path: Path) -> None:
    done = piped("remember", "-", data=files()["safetensors"], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(b"amn: error: standard input has no name; name the output")
    (tmp_path / "out").mkdir()
    done = piped("remember", "-", "-o", "out", data=files()["safetensors"], cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(b"amn: error: standard input has no name; name the output")
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["out", "stdin"]


@pytest.mark.parametrize("data", [b"", b"abc"])
def test_errors_call_it_standard_input(tmp_path: Path, data: bytes) -> None:
    done = piped("inspect", "-", data=data, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(b"amn: error: standard input: ")


@pytest.mark.parametrize("args", [["--json"], ["also"]])
def test_standard_output_takes_one_model(
    tmp_path: Path, write_model: WriteModel, args: list[str]
) -> None:
    done = amn("remember", write_model(SMALL), *args, "-o", "-", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard output takes one model" in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: pseudo-terminals")
def test_a_terminal_is_refused(tmp_path: Path, write_model: WriteModel) -> None:
    import pty

    for args, said in (
        (["remember", str(write_model(SMALL)), "-o", "-"], "standard output is a terminal"),
        (["inspect", "-"], "standard input is a terminal"),
    ):
        master, slave = pty.openpty()
        done = subprocess.run(
            command(*args),
            stdin=slave,
            stdout=slave,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
            timeout=60,
        )
        os.close(slave)
        os.close(master)
        assert done.returncode == 2
        assert said in done.stderr.decode()


@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: named pipes")
def test_a_named_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(
        command("parse", "pipe"), cwd=tmp_path, env=environment(), stdout=subprocess.PIPE
    ) as process:
        (tmp_path / "pipe").write_bytes(files()["GGUF v3"])
        said = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert said.startswith(b"Parsed pipe (GGUF v3)")


@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: descriptors")
def test_closed_standard_output(tmp_path: Path, write_model: WriteModel) -> None:
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command("remember", write_model(SMALL), "-o", "-")],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("amn: error: standard output is closed; ")


@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: descriptors")
@pytest.mark.parametrize("piped_in", [False, True])
def test_standard_output_on_the_input(
    piped_in: bool, tmp_path: Path, write_model: WriteModel
) -> None:
    model = write_model(SMALL)
    before = model.read_bytes()
    with open(model, "rb") as read, open(model, "ab") as written:
        done = subprocess.run(
            command("remember", "-" if piped_in else model, "-o", "-"),
            cwd=tmp_path,
            env=environment(),
            stdin=read,
            stdout=written,
            stderr=subprocess.PIPE,
            check=False,
            timeout=60,
        )
    assert done.returncode == 1
    said = done.stderr.decode().splitlines()
    assert said[-1].endswith("which is the input; name another output")
    assert [line for line in said if line.startswith("amn: ")] == said[-1:]
    assert model.read_bytes() == before
