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
from click.testing import CliRunner

from anamnesis.base.levels import LEVEL_VARIABLE
from anamnesis.cli.app import ALIASES, COMMANDS, ENVIRONMENT, cli
from anamnesis.cli.errors import TRACEBACK_VARIABLE
from anamnesis.cli.grouped import Command
from helpers.cli_runs import amn, environment

PROJECT = Path(__file__).parents[2]
SCRIPTS = sysconfig.get_path("scripts")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_parse(name: str) -> None:
    text = CliRunner().invoke(cli, [name, "--help"]).stdout
    assert max(map(len, text.splitlines())) <= 80
    assert all(part in text for part in ("\nExamples:\n", "\nExit codes:\n"))
    assert "ANAMNESIS_" not in text
    context = click.Context(cli, info_name="amn")
    command = cli.get_command(context, name)
    assert command is not None
    assert (command.help or "").splitlines()[0] == COMMANDS[name]
    examples = re.findall(rf"\bamn {name}\b(.*?)(?:[|>]|$)", text.partition("Examples:")[2], re.M)
    assert examples
    for example in examples:
        command.make_context(name, shlex.split(example), parent=context)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_usual_options_are_on_one_screen(name: str) -> None:
    usual = CliRunner().invoke(cli, [name, "-h"], prog_name="amn").stdout
    lines = usual.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[2].strip() == COMMANDS[name]
    assert lines[-1].split(maxsplit=3)[:3] == ["-h", "/", "--help"]
    whole = CliRunner().invoke(cli, [name, "--help"]).stdout
    for shown in re.findall(r"--[a-z][\w-]+", usual):
        assert shown in whole


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_in_one_group(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, Command)
    grouped = [option for _, options in command.groups() for option in options]
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert sorted(map(str, grouped)) == sorted(map(str, options))
    whole = CliRunner().invoke(cli, [name, "--help"]).stdout
    for title, options_of_it in command.groups():
        shown = [option for option in options_of_it if not option.hidden]
        assert (f"\n{title}:\n" in whole) == bool(shown)
        section = whole.partition(f"\n{title}:\n")[2].partition("\n\n")[0]
        for option in shown:
            assert re.search(rf"^  {re.escape(option.opts[0])}\b", section, re.M), option


@pytest.mark.sampled(5)
@pytest.mark.parametrize("columns", [20, 40, 60, 80, 200])
@pytest.mark.parametrize("how", ["-h", "--help"])
def test_help_fits_a_terminal(columns: int, how: str) -> None:
    for name in COMMANDS:
        told = amn(name, how, env={"COLUMNS": str(columns)}).stdout
        shown = told.partition("Examples:")[0].splitlines()
        assert max(map(len, shown)) <= max(columns, 34)  # the longest name of an option, indented
    whole = amn(how, env={"COLUMNS": str(columns)}).stdout
    assert max(map(len, whole.splitlines())) <= max(columns, 26)


def test_the_environment_is_told_of_once() -> None:
    assert ENVIRONMENT.keys() >= {LEVEL_VARIABLE, TRACEBACK_VARIABLE}
    for args in (["--help"], ["env"]):
        told = CliRunner().invoke(cli, args).stdout
        for name, what in ENVIRONMENT.items():
            assert re.search(rf"^  {name} +{re.escape(what)}$", told, re.M)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["convert", "--exlude", "x"], "(did you mean '--exclude', '--experts' or '--include'?)"),
        (["convert", "--max-shard_size", "1"], "(did you mean '--max-shard-size', "),
        (["parse", "--scheme"], "(did you mean '--schemes'"),
        (
            ["inspect", "--gguf-kv", "a=1"],
            ", which amn forget, amn convert, amn merge",
        ),
        (
            ["inspect", "--cast-all"],
            ", which amn remember, amn forget, amn convert, ",
        ),
        (["scan", "--zzz"], "No such option '--zzz'; see"),
    ],
)
def test_the_nearest_options_are_named(args: list[str], told: str) -> None:
    done = CliRunner().invoke(cli, args, prog_name="amn")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"No such option {args[1]!r}" in done.stderr
    assert told in done.stderr


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
    assert (done.exit_code, done.stderr[:40]) == (2, "amn: error: No such command 'nix': amn i")


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
        assert f"- [amn {name}](commands/{name}.md): {COMMANDS[name]}\n" in shown
        page = site["page_of"](name)
        told = amn(name, "--help").stdout.strip()
        assert f"\n```text\n{told}\n```" in page
        assert page.startswith(f"# amn {name}\n")
    assert site["on_page_markdown"]("another page") == "another page"
    shown = site["on_page_content"]("<pre><code>a --to b</code></pre><code>amn --to x-y</code>")
    assert shown == (
        "<pre><code>a --to b</code></pre>"
        '<code>amn <span style="white-space: nowrap">--to</span> x-y</code>'
    )


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
    assert completed("amn rem", tmp_path) == {"plain,remember"}
    assert completed("amn in", tmp_path) == {"plain,inspect", "plain,info"}
    assert completed("amn remember x --to ", tmp_path) == {
        f"plain,{t}" for t in (*CONTAINERS, "bf16", "f16", "f32")
    }
    assert completed("amn forget x --to fp8-b", tmp_path) == {
        f"plain,fp8-block{more}" for more in ("", "-ue8m0", "-ct", "-modelopt")
    }
    assert completed("amn convert x --to npz", tmp_path) == {"plain,npz"}
    assert completed("amn inspect mod", tmp_path) == {"file,mod"}
    assert completed("amn info mod", tmp_path) == {"file,mod"}
    assert completed("amn remember x -o mod", tmp_path) == {"file,mod"}


def test_several_targets_are_completed(tmp_path: Path) -> None:
    assert completed("amn plan x --to int8,fp8-ch", tmp_path) == {
        f"plain,int8,fp8-channel{more}" for more in ("", "-modelopt")
    }


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_completion(shell: str, tmp_path: Path) -> None:
    if shell == "bash" and shutil.which("bash") is None:
        pytest.skip("not a case: click asks bash for its version")
    script = amn("completion", shell).stdout
    assert f"_AMN_COMPLETE={shell}_complete" in script
    env = {"SHELL": f"/usr/bin/{shell}", "HOME": str(tmp_path)}
    env |= dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"), "")
    assert amn("completion", env=env).stdout == script
    done = amn("--install-completion", env=env)
    path, _, rest = done.stdout.partition(": written; ")
    assert (done.returncode, done.stderr, bool(rest)) == (0, "", True)
    assert Path(path).read_text() == script
    assert Path(path).is_relative_to(tmp_path)
    assert amn("--install-completion", env=env).stdout == done.stdout
    Path(path).write_text("another's")
    kept = amn("--install-completion", env=env)
    assert (kept.returncode, "is another program's" in kept.stderr) == (2, True)
    assert Path(path).read_text() == "another's"
    refused = amn("--install-completion", env={**env, "SHELL": "/bin/csh"})
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "SHELL is csh, which is none of bash, zsh, fish" in refused.stderr


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
        os.write(master, b'eval "$(amn completion bash)"; echo rea""dy\n')
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
