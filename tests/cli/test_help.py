"""Help, completion and the manual page."""

from __future__ import annotations

import json
import os
import re
import runpy
import select
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import click
import pytest
from cli_runs import amn, environment
from click.testing import CliRunner

from anamnesis.cli.app import ALIASES, COMMANDS, cli

PROJECT = Path(__file__).parents[2]
SCRIPTS = sysconfig.get_path("scripts")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse(name: str) -> None:
    text = CliRunner().invoke(cli, [name, "--help"]).stdout
    assert max(map(len, text.splitlines())) <= 80
    for part in ("Examples:", "Exit codes:", "Environment:", "ANAMNESIS_TRACEBACK"):
        assert part in text
    context = click.Context(cli, info_name="amn")
    command = cli.get_command(context, name)
    assert command is not None
    assert (command.help or "").splitlines()[0] == COMMANDS[name]
    examples = re.findall(rf"\bamn {name}\b(.*?)(?:[|>]|$)", text.partition("Examples:")[2], re.M)
    assert examples
    for example in examples:
        command.make_context(name, shlex.split(example), parent=context)


def test_no_command_shows_help() -> None:
    done = amn()
    assert done.stdout + done.stderr == amn("--help").stdout
    assert done.returncode in (0, 2)  # click 8.1, and later ones


def test_help_is_a_command() -> None:
    assert CliRunner().invoke(cli, ["help"]).stdout == CliRunner().invoke(cli, ["--help"]).stdout
    for name in (*COMMANDS, *ALIASES, "dequantize"):
        asked = CliRunner().invoke(cli, ["help", name])
        assert asked.exit_code == 0
        assert asked.stdout.replace("cli help", "cli").startswith("Usage: cli ")
    done = CliRunner().invoke(cli, ["help", "nix"])
    assert (done.exit_code, done.stderr[:40]) == (2, "amn: error: No such command 'nix'; see c")


def test_env_is_for_bug_reports() -> None:
    done = amn("env", env={"ANAMNESIS_LEVEL": "scalar"})
    assert done.returncode == 0
    for part in ("anamnesis:", "levels:       scalar", "numpy ", "ANAMNESIS_LEVEL scalar"):
        assert part in done.stdout
    assert json.loads(amn("env", "--json").stdout)["environment"] == {}


def test_manual_page() -> None:
    done = subprocess.run(
        [sys.executable, str(PROJECT / "tools" / "man_page.py")],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.startswith(".TH AMN 1")
    plain = done.stdout.replace("\\-", "-")
    context = click.Context(cli, info_name="amn")
    for name in COMMANDS:
        assert f"\n.SS {name}\n" in plain
        command = cli.get_command(context, name)
        assert command is not None
        assert all(opt in plain for p in command.params for opt in p.opts if opt[0] == "-")
    if shutil.which("man") is None:
        return
    shown = subprocess.run(
        ["man", "--warnings", "-l", "-"],
        input=done.stdout,
        env={**os.environ, "MANWIDTH": "80"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert shown.stderr == ""
    assert "amn remember model-fp8.safetensors\n" in shown.stdout


def test_the_site_shows_the_whole_help() -> None:
    site = runpy.run_path(str(PROJECT / "tools" / "site_commands.py"))
    shown = site["on_page_markdown"]((PROJECT / "docs" / "command-line.md").read_text())
    assert site["MARK"] not in shown
    for name in COMMANDS:
        told = amn(name, "--help").stdout.strip()
        assert f"\n## amn {name}\n\n```text\n{told}\n```" in shown
    assert site["on_page_markdown"]("another page") == "another page"


def completed(words: str, cwd: Path) -> set[str]:
    """Return what click answers bash, without the kind."""
    env = environment(
        _AMN_COMPLETE="bash_complete",
        COMP_WORDS=words,
        COMP_CWORD=str(len(words.split(" ")) - 1),
        PATH=SCRIPTS + os.pathsep + os.environ["PATH"],
    )
    done = subprocess.run(
        ["amn"], env=env, cwd=cwd, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("parze", "parse"), ("converg", "convert"), ("Remember", "remember"), ("plans", "plan")],
)
def test_the_nearest_command_is_named(typed: str, meant: str) -> None:
    for args in ([typed, "x"], ["help", typed]):
        done = CliRunner().invoke(cli, args)
        told = f"amn: error: No such command {typed!r} (did you mean {meant!r}?); see "
        assert (done.exit_code, done.stderr[: len(told)]) == (2, told)
        assert done.stderr.count("\n") == 1


CONTAINERS = ("safetensors", "gguf", "npz", "npy", "pth")


def test_what_is_completed(tmp_path: Path) -> None:
    assert completed("amn re", tmp_path) == {"plain,remember"}
    assert completed("amn in", tmp_path) == {"plain,inspect", "plain,info"}
    assert completed("amn remember x --to ", tmp_path) == {
        f"plain,{t}" for t in (*CONTAINERS, "bf16", "f16", "f32")
    }
    assert completed("amn forget x --to fp8-b", tmp_path) == {
        f"plain,fp8-block{more}" for more in ("", "-ue8m0", "-ct")
    }
    assert completed("amn convert x --to npz", tmp_path) == {"plain,npz"}
    assert completed("amn inspect mod", tmp_path) == {"file,mod"}
    assert completed("amn info mod", tmp_path) == {"file,mod"}
    assert completed("amn remember x -o mod", tmp_path) == {"file,mod"}


@pytest.mark.skipif(shutil.which("bash") is None, reason="only on Linux and macOS: bash")
@pytest.mark.skipif(sys.platform == "win32", reason="only on Linux and macOS: pseudo-terminals")
def test_bash_still_completes_files(tmp_path: Path) -> None:
    import pty

    (tmp_path / "model-of-mine.safetensors").touch()
    env = environment(PATH=SCRIPTS + os.pathsep + os.environ["PATH"], PS1="$ ", TERM="dumb")
    master, slave = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        cwd=tmp_path,
        env=env,
        start_new_session=True,
    )
    os.close(slave)
    try:
        os.write(master, b'eval "$(_AMN_COMPLETE=bash_source amn)"; echo rea""dy\n')
        _read_until(master, "ready\r\n")
        os.write(master, b"amn inspect mod\t")
        _read_until(master, "model-of-mine.safetensors")
    finally:
        shell.kill()
        shell.wait()
        os.close(master)


def _read_until(master: int, text: str, seconds: float = 30) -> None:
    shown, end = "", time.monotonic() + seconds
    while text not in shown:
        left = end - time.monotonic()
        assert left > 0, shown
        assert select.select([master], [], [], left)[0], shown
        shown += os.read(master, 4096).decode()
