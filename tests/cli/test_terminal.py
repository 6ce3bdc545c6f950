"""The live bar: on a terminal, and nowhere else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from helpers.cli_runs import SMALL, amn_process, environment
from helpers.handmade import Entry

if sys.platform == "win32":
    pytest.skip("only on Linux and macOS: needs a pseudo-terminal", allow_module_level=True)

import fcntl
import pty
import struct
import termios

from helpers.terminals import final_screen, received

WriteModel = Callable[..., Path]

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"

# Each band takes long enough for the bar to be drawn between.
SLOWLY = """
import sys, time
from anamnesis.convert.resume import protocol as run
from anamnesis.cli.app import main

real = run.StagingSink.write

def write(self, *args):
    real(self, *args)
    time.sleep(0.15)

run.StagingSink.write = write
main(sys.argv[1:])
"""


# Reading takes a while.
READING = """
import sys, time
import anamnesis.opening as opening
from anamnesis.cli.app import main

real = opening.parse

def parse(*args, **options):
    time.sleep(0.8)
    return real(*args, **options)

opening.parse = parse
main(sys.argv[1:])
"""


class Shown(NamedTuple):
    """What a run wrote to its terminal, to its stdout if that was a pipe, and its exit code."""

    terminal: str
    stdout: str
    code: int


def on_terminal(
    *args: str | Path,
    columns: int,
    cwd: Path,
    pipe_stdout: bool = False,
    program: str = SLOWLY,
    **env: str,
) -> Shown:
    """Run `amn`, slowed down, on a pseudo-terminal."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in environment(**env).items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", program, *map(str, args)],
        stdin=slave,
        stdout=subprocess.PIPE if pipe_stdout else slave,
        stderr=slave,
        cwd=cwd,
        env={"TERM": "xterm-256color", "NO_COLOR": "1", **kept} if "TERM" not in env else kept,
    )
    os.close(slave)
    chunks = []
    while chunk := received(master):
        chunks.append(chunk)
    stdout = process.communicate(timeout=60)[0] or b""
    os.close(master)
    return Shown(b"".join(chunks).decode(), stdout.decode(), process.returncode)


def frames(text: str) -> list[str]:
    """Return what was drawn, line by line, without escapes."""
    return [line for line in re.split(r"[\r\n]+", ESCAPE.sub("", text)) if line.strip()]


@pytest.fixture
def model(write_model: WriteModel) -> Path:
    """Four bands of output."""
    large: dict[str, Entry] = {
        "x.weight": ("F8_E4M3", (512, 4096), bytes(512 * 4096)),
        "x.weight_scale": ("F32", (), b"\0\0\x80\x3f"),
    }
    return write_model(large, name="model-fp8.safetensors")


@pytest.mark.parametrize("columns", [80, 120])
def test_bar_is_live(model: Path, tmp_path: Path, columns: int) -> None:
    shown = on_terminal("remember", model.name, "--threads", "1", columns=columns, cwd=tmp_path)
    assert shown.code == 0
    drawn = frames(shown.terminal)
    bars = [line for line in drawn if line.startswith("Recalling... 1 tensor [")]
    assert len(bars) >= 3
    assert all(len(line.rstrip()) < columns for line in drawn)
    assert any("MB/s" in line and line.rstrip().endswith(" left") for line in bars)
    assert any("MB of 4.2 MB" in line for line in bars) == (columns >= 100)
    parsed, recalled, output, account = final_screen(shown.terminal)
    assert parsed == "Parsing...   1 tensor, per-tensor FP8 (E4M3)"
    assert re.fullmatch(r"Recalling\.\.\. 1 tensor \[={20}\] \d+\.\ds", recalled)
    assert output == "Output: model-bf16.safetensors (4.2 MB)"
    assert account == "in 2 tensors (1 weight, 1 scale), out 1, dropped 0"
    assert shown.terminal.index(HIDE_CURSOR) < shown.terminal.rindex(SHOW_CURSOR)


@pytest.mark.parametrize("verb", ["inspect", "plan"])
def test_reading_shows_that_it_goes_on(verb: str, model: Path, tmp_path: Path) -> None:
    args = (verb, model.name, *(("--to", "bf16") if verb == "plan" else ()))
    shown = on_terminal(*args, columns=80, cwd=tmp_path, program=READING)
    assert shown.code == 0
    assert any(
        re.fullmatch(r"Reading \[ *<=> *\] 0\.\ds *", line) for line in frames(shown.terminal)
    )
    assert not any("Reading" in line for line in final_screen(shown.terminal))
    quiet = on_terminal(*args, "--json", columns=80, cwd=tmp_path, program=READING)
    assert "Reading" not in quiet.terminal


def test_bar_of_forget(tmp_path: Path, write_model: WriteModel) -> None:
    rows, columns = 1024, 1024
    weight: Entry = ("F16", (rows, columns), bytes(2 * rows * columns))
    write_model({"q_proj.weight": weight}, name="model-f16.safetensors")
    args = ("forget", "model-f16.safetensors", "--to", "fp8-block", "--threads", "1")
    shown = on_terminal(*args, columns=100, cwd=tmp_path)
    assert shown.code == 0
    assert len([line for line in frames(shown.terminal) if "% " in line]) >= 2
    screen = final_screen(shown.terminal)
    assert re.fullmatch(r"Forgetting\.\.\. 1 tensor \[={20}\] \d+\.\ds", screen[1])
    assert screen[3] == "Lethe distance: none, every value comes back"


def test_bar_keeps_out_of_a_piped_stdout(model: Path, tmp_path: Path) -> None:
    shown = on_terminal("remember", model.name, columns=80, cwd=tmp_path, pipe_stdout=True)
    assert "Recalling... 1 tensor [" in shown.terminal
    assert "\x1b" not in shown.stdout
    assert "\r" not in shown.stdout
    assert [line.split()[0] for line in shown.stdout.splitlines()] == [
        "Parsing...",
        "Recalling...",
        "Output:",
        "in",
    ]


@pytest.mark.parametrize(
    ("args", "env"),
    [(["--quiet"], {}), (["--json"], {}), ([], {"TERM": "dumb"})],
    ids=["quiet", "json", "dumb"],
)
def test_no_bar(model: Path, tmp_path: Path, args: list[str], env: dict[str, Any]) -> None:
    shown = on_terminal("remember", model.name, *args, columns=80, cwd=tmp_path, **env)
    assert shown.code == 0
    assert "\x1b" not in shown.terminal
    if "--quiet" in args:
        assert shown.terminal == ""


def test_no_control_codes_in_pipes(model: Path, tmp_path: Path) -> None:
    done = amn_process("remember", model.name, cwd=tmp_path, env={"TTY_COMPATIBLE": "1"})
    assert (done.returncode, done.stderr) == (0, "")
    assert not [c for c in done.stdout if not c.isprintable() and c != "\n"]


def test_an_error_leaves_the_terminal_in_order(tmp_path: Path, write_model: WriteModel) -> None:
    write_model(SMALL | {"lost.weight_scale": ("F32", (), bytes(4))})
    shown = on_terminal("remember", "model.safetensors", columns=80, cwd=tmp_path)
    assert shown.code == 1
    assert shown.terminal.index(HIDE_CURSOR) < shown.terminal.rindex(SHOW_CURSOR)
    parsed, *error = final_screen(shown.terminal)
    assert parsed.startswith("Parsing...")
    assert error[0].startswith("amn: error: model.safetensors: lost.weight_scale ")


def test_parse_folds_long_names(tmp_path: Path, write_model: WriteModel) -> None:
    name = "model.layers.31.self_attn." + "very_" * 6 + "long_name.weight"
    write_model({name: ("F8_E4M3", (8, 4), bytes(32)), "a": ("U8", (5,), bytes(5))})
    shown = on_terminal("parse", "model.safetensors", columns=80, cwd=tmp_path)
    lines = shown.terminal.replace("\r\n", "\n").splitlines()
    start = 80 - 1 - len("F8_E4M3 [8, 4]      32 B")
    assert lines[-3:] == [
        f"  {name}",
        " " * start + "F8_E4M3 [8, 4]      32 B",
        f"{'  a':<{start}}U8 [5]              5 B",
    ]
    assert all(len(line) < 80 for line in lines)
    narrow = on_terminal("parse", "model.safetensors", columns=40, cwd=tmp_path)
    lines = narrow.terminal.replace("\r\n", "\n").splitlines()
    assert lines[-4:] == [f"  {name}", "    F8_E4M3 [8, 4]  32 B", "  a", "    U8 [5]  5 B"]


def test_parse_folds_schemes(tmp_path: Path, write_model: WriteModel) -> None:
    name = "model.layers.31.self_attn.q_proj.weight"
    scale: Entry = ("F32", (2, 2), bytes(16))
    write_model({name: ("F8_E4M3", (256, 256), bytes(65536)), f"{name}_scale_inv": scale})
    shown = on_terminal("parse", "--schemes", "model.safetensors", columns=80, cwd=tmp_path)
    lines = shown.terminal.replace("\r\n", "\n").splitlines()
    facts = "fine-grained FP8 (E4M3), 128x128 blocks [256, 256]  65,536 x 8.002 bits"
    parts = "codes F8_E4M3 [256, 256], scales F32 [2, 2]"
    assert lines[-3:] == [f"  {name}", f"    {facts}", f"    {parts}"]
    assert all(len(line) < 80 for line in lines)


# --- colours ------------------------------------------------------------------------------------

RED, CYAN, BOLD = "\x1b[1;31m", "\x1b[36m", "\x1b[1m"


def test_labels_and_figures_have_colours(model: Path, tmp_path: Path) -> None:
    shown = on_terminal("inspect", model.name, columns=80, cwd=tmp_path, NO_COLOR="")
    assert f"{CYAN}Format:" in shown.terminal
    assert f"{BOLD}8.4 MB" in shown.terminal or f"{BOLD}4." in shown.terminal
    plain = on_terminal("inspect", model.name, columns=80, cwd=tmp_path)
    assert re.sub(r"\x1b\[[0-9;]*m", "", shown.terminal) == plain.terminal


@pytest.mark.sampled(2)
@pytest.mark.parametrize("verb", ["inspect", "parse", "remember", "plan", "scan", "convert"])
def test_errors_have_colours_on_all_verbs(tmp_path: Path, verb: str) -> None:
    args = ["--to", "f16"] if verb in ("plan", "convert") else []
    shown = on_terminal(verb, "none.gguf", *args, columns=80, cwd=tmp_path, NO_COLOR="")
    assert f"amn: {RED}error:" in shown.terminal


@pytest.mark.parametrize(
    ("args", "env", "has"),
    [
        ([], {}, False),
        ([], {"FORCE_COLOR": "1"}, True),
        ([], {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        (["--color", "always"], {"NO_COLOR": "1"}, True),
        (["--color", "never"], {"FORCE_COLOR": "1"}, False),
        (["--color", "auto"], {}, False),
        (["--color", "always", "--json"], {}, False),
    ],
)
def test_who_wants_colours_in_a_pipe(
    model: Path, tmp_path: Path, args: list[str], env: dict[str, str], has: bool
) -> None:
    done = amn_process("inspect", model.name, *args, cwd=tmp_path, env=env)
    assert (done.returncode, "\x1b" in done.stdout) == (0, has)
