"""Failures are one line and an exit code, whatever was wrong."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import anamnesis as an
from anamnesis.base.errors import DisallowedGlobal, OutputError, ParseError
from anamnesis.cli.app import COMMANDS, cli
from anamnesis.cli.errors import describe_error, in_options
from anamnesis.model import Model
from helpers.cli_runs import ORPHAN, SMALL, amn, command, environment, python
from helpers.handmade import Entry

WriteModel = Callable[..., Path]

posix_only = pytest.mark.skipif(
    sys.platform == "win32", reason="only on Linux and macOS: signals and pipes"
)


def test_usage_is_exit_code_2(write_model: WriteModel) -> None:
    path = str(write_model(SMALL))
    wrong = [
        ["remember"],
        ["frobnicate"],
        ["remember", path, "--to", "int8"],
        ["remember", path, "--threads", "0"],
        ["remember", path, "--max-shard-size", "5 apples"],
        *(["remember", path, "--block-size", b] for b in ("128", "0x1", "x", "1x2x3", "9" * 20)),
    ]
    for line in wrong:
        done = CliRunner().invoke(cli, line)
        assert done.exit_code == 2, line
        assert done.stdout == ""
        assert done.stderr.startswith("amn: error: ")
        assert done.stderr.startswith("amn: error: --") or done.stderr.endswith(" --help\n")
        assert done.stderr.count("\n") == 1


def test_an_output_is_told_of_as_it_was_typed(tmp_path: Path, write_model: WriteModel) -> None:
    path = str(write_model(SMALL))
    (tmp_path / "there").mkdir(exist_ok=True)
    (tmp_path / "there" / "x.safetensors").touch()
    for out in ("there/x.safetensors", str(tmp_path / "there" / "x.safetensors")):
        done = amn("remember", path, "-o", out, cwd=tmp_path)
        assert done.stderr == f"amn: error: {out}: exists; --force replaces it\n"


def test_a_comma_too_many(write_model: WriteModel) -> None:
    done = amn("plan", str(write_model(SMALL)), "--to", "int4,")
    assert (done.returncode, done.stderr) == (2, "amn: error: --to: 'int4,' has a comma too many\n")


def test_an_unknown_level_is_wrong_usage(write_model: WriteModel) -> None:
    done = amn("remember", write_model(SMALL), env={"ANAMNESIS_LEVEL": "mmx"})
    assert done.returncode == 2
    assert "ANAMNESIS_LEVEL: level 'mmx' is not one of scalar" in done.stderr


@pytest.mark.parametrize("verb", ["parse", "inspect", "remember"])
def test_no_such_file(tmp_path: Path, verb: str) -> None:
    done = amn(verb, "none.safetensors", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "amn: error: none.safetensors: No such file or directory\n"


@pytest.mark.parametrize("verb", ["parse", "inspect", "remember"])
@pytest.mark.parametrize("content", [b"", b"GGUF" + bytes(60), b"\xff" * 100, b"<html>"])
def test_malformed_input_is_one_line(tmp_path: Path, verb: str, content: bytes) -> None:
    (tmp_path / "bad\nname.safetensors").write_bytes(content)
    done = amn(verb, "bad\nname.safetensors", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(r"amn: error: bad\nname.safetensors: ")
    assert done.stderr.count("\n") == 1
    assert [p.name for p in tmp_path.iterdir()] == ["bad\nname.safetensors"]


@pytest.mark.parametrize(
    ("error", "path", "line"),
    [
        (PermissionError(13, "Permission denied", "x/y"), "in", "x/y: Permission denied"),
        (
            OSError(errno.ENOSPC, "No space left on device", "out"),
            "in",
            "out: No space left on device; free some space, or name an output elsewhere with -o",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "ftp://Qwen/Q"),
            "in",
            "ftp://Qwen/Q: No such file or directory; https, hf, s3, gs and az are where models are"
            " read; download it first",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "Qwen/Qwen3-0.6B"),
            "in",
            "Qwen/Qwen3-0.6B: No such file or directory; if it is on the hub,"
            " hf://Qwen/Qwen3-0.6B reads it there",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", "none/m.safetensors"),
            "in",
            "none/m.safetensors: No such file or directory",
        ),
        (OSError(errno.EIO, "Input/output error"), "in", "in: Input/output error"),
        (OSError("no number"), "in", "in: no number"),
        (OSError(errno.EPERM, "Operation not permitted", 5), "in", "in: Operation not permitted"),
        (ParseError("bad", offset=5, source="in/shard"), "in", "in/shard: bad (at byte 5)"),
        (ParseError("bad", source="in"), "./in", "in: bad"),
        (ParseError("bad"), "in", "in: bad"),
        (ParseError("bad line"), "in", "in: bad line"),
        (ParseError("'in.proj' is bad"), "in", "in: 'in.proj' is bad"),
        (OutputError("out: exists"), "in", "out: exists"),
        (MemoryError(), "in", "in: out of memory"),
        (
            OutputError("out: exists", remedy="force=True replaces it"),
            "in",
            "out: exists; --force replaces it",
        ),
        (
            DisallowedGlobal("os", "system"),
            "x.pth",
            "x.pth: pickle refers to os.system, which no tensor needs; --allow-foreign reads the"
            " tensors, and runs nothing",
        ),
        (OutputError("out\n\x1b[1m: exists"), "in", r"out\n\x1b[1m: exists"),
    ],
)
def test_errors_in_words(error: Exception, path: str, line: str) -> None:
    assert describe_error(error, path) == line


@pytest.mark.parametrize(
    ("remedy", "words"),
    [
        ("force=True replaces it", "--force replaces it"),
        ("say which with conv1d=True or conv1d=False", "say which with --conv1d or --no-conv1d"),
        ("say which with block_size=..., or in x", "say which with --block-size, or in x"),
        ("say which with void_dtype='F8_E4M3'", "say which with --void-dtype F8_E4M3"),
        ("anamnesis.scan shows what it refers to", "amn scan shows what it refers to"),
        ("name another output", "name another output"),
    ],
)
def test_remedies_name_options(remedy: str, words: str) -> None:
    assert in_options(remedy) == words


def test_a_problem_that_is_only_listed_names_options_too(write_model: WriteModel) -> None:
    path = write_model(SMALL | {"lost.weight_scale": ORPHAN})
    done = CliRunner().invoke(cli, ["inspect", str(path)])
    assert "; --allow-unknown copies it as it is stored\n" in done.stdout
    assert "; allow_unknown=True copies it as it is stored" in str(an.parse(path).inspect())
    with an.parse(path) as model:
        error = model.problems["lost.weight_scale"]
    assert (error.source, error.tensor) == (str(path), "lost.weight_scale")


def run_with(monkeypatch: pytest.MonkeyPatch, error: BaseException, *args: str) -> Result:
    """Run a command with a library that fails."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Model, "remember", fail)
    monkeypatch.setattr(Model, "inspect", fail)
    return CliRunner().invoke(cli, args)


@pytest.mark.parametrize("verb", ["inspect", "remember"])
def test_a_bug_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, write_model: WriteModel, verb: str
) -> None:
    path = str(write_model(SMALL))
    done = run_with(monkeypatch, ZeroDivisionError("oops"), verb, path)
    assert done.exit_code == 1
    assert done.stderr == (
        f"amn: error: {path}: internal error, please report it: ZeroDivisionError: oops"
        " (ANAMNESIS_TRACEBACK=1 shows where)\n"
    )
    monkeypatch.setenv("ANAMNESIS_TRACEBACK", "1")
    shown = run_with(monkeypatch, ZeroDivisionError("oops"), verb, path)
    assert isinstance(shown.exception, ZeroDivisionError)


def test_an_interrupt_before_anything_is_written(
    monkeypatch: pytest.MonkeyPatch, write_model: WriteModel
) -> None:
    path = str(write_model(SMALL))
    for verb in ("inspect", "remember", "dequantise"):
        done = run_with(monkeypatch, KeyboardInterrupt(), verb, path)
        assert done.exit_code == 130
        assert done.stderr == "amn: interrupted\n"


INTERRUPTED_RUN = """
import os, signal, sys
from anamnesis.convert.resume import protocol as run
from anamnesis.cli.app import main

# What a script starts in the background ignores it, and so do the tests that it runs.
signal.signal(signal.SIGINT, signal.default_int_handler)
real, calls = run.StagingSink.write, []

def write(self, *args):
    real(self, *args)
    calls.append(args)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGINT)

run.StagingSink.write = write
main(sys.argv[1:])
"""


@posix_only
def test_an_interrupted_run_is_resumed_to_the_same_bytes(
    tmp_path: Path, write_model: WriteModel
) -> None:
    codes = bytes(i % 120 for i in range(256)) * 2**14  # several bands
    large: dict[str, Entry] = {
        "x.weight": ("F8_E4M3", (1024, 4096), codes),
        "x.weight_scale": ("F32", (), SMALL["layers.0.up_proj.weight_scale"][2][:4]),
    }
    write_model(large)
    whole = amn("remember", "model.safetensors", "-o", "whole.safetensors", cwd=tmp_path)
    assert whole.returncode == 0
    line = ["remember", "model.safetensors", "--threads", "1"]
    killed = python(INTERRUPTED_RUN, *line, cwd=tmp_path)
    assert killed.returncode == 130
    assert killed.stderr == (
        "amn: interrupted; model-bf16.safetensors.amn-partial has what is done, the same command"
        " with --resume finishes it\n"
    )
    assert not (tmp_path / "model-bf16.safetensors").exists()
    assert (tmp_path / "model-bf16.safetensors.amn-partial").exists()
    resumed = amn(*line, "--resume", cwd=tmp_path)
    assert (resumed.returncode, resumed.stderr) == (0, "")
    assert (tmp_path / "model-bf16.safetensors").read_bytes() == (
        tmp_path / "whole.safetensors"
    ).read_bytes()
    assert not (tmp_path / "model-bf16.safetensors.amn-partial").exists()


@pytest.mark.sampled(2)
@posix_only
@pytest.mark.parametrize("n_tensors", [1, 20_000])
@pytest.mark.parametrize("verb", ["parse", "inspect"])
@pytest.mark.parametrize("also", [[], ["none"]], ids=["success", "failure"])
def test_a_closed_pipe_is_silent(
    write_model: WriteModel, verb: str, n_tensors: int, also: list[str]
) -> None:
    path = write_model({f"tensor{i}": ("U8", (0,), b"") for i in range(n_tensors)})
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(verb, path, *also),
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        check=False,
        timeout=120,
    )
    os.close(writing)
    assert done.stderr in (b"", b"amn: error: none: No such file or directory\n")
    assert done.returncode == 1


@pytest.mark.sampled(13)
@posix_only
@pytest.mark.parametrize(
    "args",
    [
        *(["--help"], ["--version"], ["help"], ["help", "convert"], ["env"], ["completion", "zsh"]),
        *([name, how] for name in COMMANDS for how in ("-h", "--help")),
        *(["convert", "--list"], ["forget", "--list", "--json"], ["demo", "--list"]),
        *(["demo", "out"], ["demo", "llama", "out"], ["scan", "."], ["scan", "--json", "."]),
        *(["plan", "m.safetensors", "--to", to] for to in ("f16", "f16,gguf")),
        *([verb, "m.safetensors", "-o", "o.npz"] for verb in ("remember", "convert")),
        *(["remember", "-r", ".", "-o", "out", *how] for how in ([], ["--json"], ["--jsonl"])),
    ],
    ids=" ".join,
)
def test_every_command_into_a_closed_pipe(
    tmp_path: Path, write_model: WriteModel, args: list[str]
) -> None:
    write_model(SMALL, name="m.safetensors")
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        command(*args),
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        env=environment(),
        check=False,
        timeout=120,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")


def test_a_warning_is_one_line(tmp_path: Path, write_model: WriteModel) -> None:
    path = write_model(SMALL).rename(tmp_path / "bad\n\x1b[1mname.gguf")
    for args in (["parse"], ["inspect"], ["remember", "--quiet"]):
        done = CliRunner().invoke(cli, [*args, str(path)])
        assert done.exit_code == 0
        assert done.stderr.count("\n") == 1
        assert r"bad\n\x1b[1mname.gguf: is safetensors" in done.stderr


CLOSED = """
import os, sys
closed, *line = sys.argv[1:]
for fd in closed:
    os.close(int(fd))
os.execv(sys.executable, [sys.executable, "-m", "anamnesis", *line])
"""


@pytest.mark.sampled(5)
@posix_only
@pytest.mark.parametrize("closed", ["0", "1", "2", "12", "012"])
@pytest.mark.parametrize("verb", ["parse", "inspect", "remember", "scan"])
def test_streams_may_be_closed(
    tmp_path: Path, write_model: WriteModel, verb: str, closed: str
) -> None:
    """What a daemon starts may have no stdout and no stderr."""
    model = write_model(SMALL)
    original = model.read_bytes()
    done = python(CLOSED, closed, verb, model, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr == ""
    assert (done.stdout == "") == ("1" in closed)
    failed = python(CLOSED, closed, verb, "none", cwd=tmp_path)
    assert failed.returncode == (2 if verb == "scan" else 1)
    assert failed.stdout == ""
    assert failed.stderr.count("\n") == ("2" not in closed)
    assert model.read_bytes() == original


@posix_only
def test_standard_input_may_be_closed_where_it_is_asked_for(tmp_path: Path) -> None:
    done = python(CLOSED, "0", "inspect", "-", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "amn: error: standard input is closed; see amn inspect --help\n"


@pytest.mark.sampled(2)
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only on Linux: /dev/full")
@pytest.mark.parametrize("args", [["parse"], ["inspect"], ["remember", "-q", "-o", "-"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("n_bytes", [1, 1 << 17])
def test_a_full_stdout_is_an_error(
    write_model: WriteModel, args: list[str], unbuffered: str, n_bytes: int
) -> None:
    path = write_model(SMALL | {"large": ("U8", (n_bytes,), bytes(n_bytes))})
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(*args, path),
            stdout=full,
            stderr=subprocess.PIPE,
            env={**environment(), "PYTHONUNBUFFERED": unbuffered},
            check=False,
            timeout=120,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"amn: error: stdout: No space left on device")
    assert done.stderr.count(b"\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only on Linux: /dev/full")
@pytest.mark.parametrize("option", ["--json", "--jsonl"])
def test_a_failure_that_a_full_stdout_cannot_take(tmp_path: Path, option: str) -> None:
    none = tmp_path / "none"
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("diff", none, none, option),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            check=False,
            timeout=120,
        )
    assert done.returncode == 2
    assert done.stderr.decode() == f"amn: error: {none}: No such file or directory\n"


def test_an_interrupt_before_a_command_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from anamnesis.cli import app

    def interrupted(*_: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(app.cli, "make_context", interrupted)
    with pytest.raises(SystemExit) as stopped:
        app.main(["inspect", "model.gguf"])
    assert (stopped.value.code, capsys.readouterr().err) == (130, "\namn: interrupted\n")
