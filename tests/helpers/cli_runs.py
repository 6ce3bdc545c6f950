"""Ways to run `amn`, and small models to run it on."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from click.testing import CliRunner, Result

import anamnesis
from anamnesis.cli.app import cli
from helpers.handmade import Entry

CODES = np.arange(8 * 4, dtype=np.uint8).reshape(8, 4) + 0x30
SCALES = np.geomspace(1e-3, 70_000.0, 8, dtype=np.float32).reshape(8, 1)
NORM = np.linspace(-1, 1, 6, dtype=np.float32).astype(ml_dtypes.bfloat16)

SMALL: dict[str, Entry] = {
    "layers.0.up_proj.weight": ("F8_E4M3", (8, 4), CODES.tobytes()),
    "layers.0.up_proj.weight_scale": ("F32", (8, 1), SCALES.tobytes()),
    "norm.weight": ("BF16", (6,), NORM.tobytes()),
}
ORPHAN: Entry = ("F32", (1,), np.float32(1).tobytes())


def remembered(dtype: str) -> bytes:
    """Return what `layers.0.up_proj.weight` is at full precision, by ml_dtypes."""
    target = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}[dtype]
    with np.errstate(over="ignore"):
        values = CODES.view(ml_dtypes.float8_e4m3fn).astype(np.float32) * SCALES
        return values.astype(target).tobytes()


def run(*args: str | Path, code: int = 0) -> Result:
    """Run `amn` in this process, and check how it ends."""
    done = CliRunner().invoke(cli, [str(arg) for arg in args])
    assert done.exit_code == code, done.output
    return done


def strict(text: str) -> Any:
    """Read JSON as the standard has it."""

    def refuse(constant: str) -> Any:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def environment(**extra: str) -> dict[str, str]:
    """Return this process's environment, with the package importable from any folder.

    Output is buffered as users have it.
    """
    ours = ("ANAMNESIS_", "PYTHONUNBUFFERED")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    package = str(Path(anamnesis.__file__).parents[1])
    paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), **extra}


def command(*args: str | Path) -> list[str]:
    """Return the command line of `amn`."""
    return [sys.executable, "-m", "anamnesis", *map(str, args)]


def amn(
    *args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `amn` in this process, where one of its own is not what is tested."""
    words = [str(arg) for arg in args]
    cleared = {name: None for name in os.environ if name.startswith("ANAMNESIS_")}
    with contextlib.chdir(cwd or Path.cwd()):
        runner = CliRunner(catch_exceptions=False, env={**cleared, **(env or {})})
        done = runner.invoke(cli, words, prog_name="amn")
    return subprocess.CompletedProcess(words, done.exit_code, done.stdout, done.stderr)


def amn_process(
    *args: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `amn` as a process of its own, its output in pipes."""
    return subprocess.run(
        command(*args),
        cwd=cwd,
        env=environment(**(env or {})),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        check=False,
        timeout=120,
    )


def python(code: str, *args: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, args)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
