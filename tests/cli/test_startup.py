"""Nothing heavy is imported before it is needed: counted in modules, for times vary."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.cli.demo_models import DEMOS
from helpers.cli_runs import SMALL, amn_process, python

HEAVY = {"numpy", "ml_dtypes", "rich"}
OF_A_CONVERSION = {
    "anamnesis.convert.resume.protocol",
    "anamnesis.convert.resume.staging",
    "anamnesis.convert.write.pipeline",
    "hashlib",
}

RUN = """
import contextlib, io, sys
from anamnesis.cli.app import cli
with contextlib.redirect_stdout(io.StringIO()):
    cli.main(sys.argv[1:], standalone_mode=False)
print(*sys.modules)
"""


def modules(*args: str | Path, cwd: Path) -> set[str]:
    """Return the modules that a command imports."""
    done = python(RUN, *args, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_imports_nothing_but_click(tmp_path: Path, option: str) -> None:
    loaded = modules(option, cwd=tmp_path)
    of_a_model = {"anamnesis.model", "anamnesis._core", "anamnesis._io", "anamnesis._parse"}
    assert not loaded & (HEAVY | OF_A_CONVERSION | of_a_model)
    own = {name for name in loaded if name.startswith("anamnesis.cli.")}
    assert own == {"anamnesis.cli.app", "anamnesis.cli.exit_codes"}
    assert "click" in loaded


@pytest.mark.parametrize("command", ["parse", "inspect"])
def test_reading_headers_imports_no_arrays(
    tmp_path: Path, write_model: Callable[..., Path], command: str
) -> None:
    loaded = modules(command, write_model(SMALL), cwd=tmp_path)
    assert not loaded & (HEAVY | OF_A_CONVERSION)
    assert "anamnesis.model" in loaded


def test_only_the_command_that_runs_is_imported(
    tmp_path: Path, write_model: Callable[..., Path]
) -> None:
    from anamnesis.cli.app import COMMANDS

    loaded = modules("inspect", write_model(SMALL), cwd=tmp_path)
    commands = {f"anamnesis.cli.{name}" for name in COMMANDS}
    assert loaded & commands == {"anamnesis.cli.inspect"}


def test_only_likely_schemes_are_imported(tmp_path: Path, write_model: Callable[..., Path]) -> None:
    loaded = modules("inspect", write_model(SMALL), cwd=tmp_path)
    readers = {f"anamnesis.schemes.families.{family}.read" for family in ("fp8", "ggml", "bnb")}
    readers |= {f"anamnesis.schemes.families.integers.layouts.{name}" for name in ("gptq", "awq")}
    assert loaded & readers == {"anamnesis.schemes.families.fp8.read"}
    assert "anamnesis.schemes.fp8" not in loaded


def test_converting_imports_no_arrays(tmp_path: Path, write_model: Callable[..., Path]) -> None:
    assert not modules("remember", write_model(SMALL), cwd=tmp_path) & HEAVY


def test_listing_targets_imports_no_encoder(tmp_path: Path) -> None:
    for command in ("forget", "convert"):
        loaded = modules(command, "--list", cwd=tmp_path)
        assert not loaded & (HEAVY | OF_A_CONVERSION)
        assert "anamnesis.schemes.core.blockwise" not in loaded


def test_planning_imports_no_arrays(tmp_path: Path, write_model: Callable[..., Path]) -> None:
    assert not modules("plan", write_model(SMALL), "--to", "gguf", cwd=tmp_path) & HEAVY


def test_planning_a_mix_imports_nothing_that_writes(
    tmp_path: Path, write_model: Callable[..., Path]
) -> None:
    loaded = modules("plan", write_model(SMALL), "--to", "gguf-q4_k_m", cwd=tmp_path)
    assert not loaded & HEAVY
    assert not [name for name in loaded if name.startswith("anamnesis.convert.resume")]
    assert "anamnesis.convert.write.pipeline" not in loaded


def test_no_encoding_needs_arrays() -> None:
    """To import numpy takes as long as all else that a small conversion does."""
    code = """
import sys
from anamnesis.convert.request.targets import encoding
from anamnesis.schemes.encodings import ENCODINGS, TAKING
for name in (*ENCODINGS, *TAKING):
    encoding(name)
    if "numpy" in sys.modules:
        sys.exit(f"{name} imports numpy")
"""
    done = python(code, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr


def test_version() -> None:
    assert amn_process("--version").stdout == f"anamnesis {an.__version__}\n"


def test_help_shows_both_names_of_a_command() -> None:
    text = amn_process("--help").stdout
    assert "  inspect, info " in text
    assert "  remember, dequantise " in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    "alias",
    [
        ("info", "inspect"),
        *((f"dequanti{z}e", "remember") for z in "sz"),
        *((f"quanti{z}e", "forget") for z in "sz"),
    ],
)
def test_aliases_are_the_same_command(alias: tuple[str, str]) -> None:
    from anamnesis.cli.app import cli

    with cli.make_context("amn", ["--version"], resilient_parsing=True) as context:
        assert cli.get_command(context, alias[0]) is cli.get_command(context, alias[1])


def test_every_public_name_is_there() -> None:
    for name in an.__all__:
        assert getattr(an, name) is not None
    assert dir(an) == sorted(an.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        an.nonsense  # noqa: B018


BLOCKED = """
import sys
class Blocked:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in ("numpy", "ml_dtypes", "torch", "rich"):
            raise ImportError(f"{name} was imported")
sys.meta_path.insert(0, Blocked())
from anamnesis.cli.app import cli
try:
    cli.main(sys.argv[1:], prog_name="amn")
finally:
    print(*sys.modules, file=sys.stderr)
"""
OF_CLICK = {"click._termui_impl", "click.shell_completion", "click.testing"}


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model in each container."""
    root = tmp_path_factory.mktemp("containers")
    for name in ("llama", "fp8-directory", "gptq", "awq", "bnb", "gguf", "mxfp4", "ckpt"):
        for path, raw in DEMOS[name].make().items():
            (root / path).parent.mkdir(exist_ok=True)
            (root / path).write_bytes(raw)
    an.convert(root / "tiny-mxfp4.safetensors", root / "tiny.npz")
    an.convert(root / "tiny-mxfp4.safetensors", root / "tiny.pth")
    np.save(root / "array.npy", np.ones((2, 3)))
    return root


@pytest.mark.parametrize("command", ["parse", "inspect"])
def test_no_container_needs_numpy(containers: Path, command: str) -> None:
    models = sorted(path.name for path in containers.iterdir())
    assert len(models) == 11
    done = python(BLOCKED, command, *models, cwd=containers)
    *said, loaded = done.stderr.splitlines()
    assert (done.returncode, said) == (0, [])
    assert not OF_CLICK & set(loaded.split())
