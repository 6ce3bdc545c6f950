"""Every command on every fuzzer's corpus: how it ends, and what it says on stderr and in JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from anamnesis.cli.app import cli
from helpers.cli_runs import strict

FUZZ = Path(__file__).parents[2] / "fuzz"
sys.path.insert(0, str(FUZZ))

EXTENSIONS = {"fuzz_gguf": "gguf", "fuzz_npz": "npz", "fuzz_zip": "zip", "fuzz_pickle": "pkl"}
FUZZERS = (*EXTENSIONS, "fuzz_pth", "fuzz_safetensors")
COMMANDS = (
    *(("parse", "--metadata"), ("parse", "--json"), ("inspect",), ("inspect", "--json")),
    *(("scan",), ("scan", "--json"), ("remember", "--force", "--allow-unknown")),
    ("remember", "--force", "--json", "--allow-foreign"),
    ("convert", "--to", "gguf", "--force", "--cast-all"),
    ("forget", "--to", "fp8-tensor", "--force", "--json", "--verify"),
    ("plan", "--to", "npz-f32", "--json"),
)


def inputs() -> list[tuple[str, bytes]]:
    """Return the files that the fuzzers make of their corpus, with names that fit."""
    from importlib import import_module

    found = []
    for fuzzer in FUZZERS:
        built = import_module(fuzzer)
        for seed in sorted((FUZZ / "corpus" / fuzzer).iterdir()):
            data = seed.read_bytes()
            made = built.file_from(data) if hasattr(built, "file_from") else data
            extension = EXTENSIONS.get(fuzzer, fuzzer.removeprefix("fuzz_"))
            found.append((f"{fuzzer}-{seed.name}.{extension}", made))
    return found


@pytest.mark.sampled(7)
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_every_ending(tmp_path: Path, args: tuple[str, ...]) -> None:
    from endings import complaint

    files = inputs()
    assert len(files) > 90
    codes = set()
    for name, data in files:
        path = tmp_path / name
        path.write_bytes(data)
        done = CliRunner().invoke(cli, [*args, str(path)])
        assert done.exception is None or isinstance(done.exception, SystemExit), name
        assert not complaint(done.stderr, done.exit_code), name
        if "--json" in args:
            told = strict(done.stdout)
            assert told["path"] == str(path)
            assert ("error" in told) == (done.stderr.count("amn: error: ") == 1), name
        codes.add(done.exit_code)
    assert codes <= ({0, 1, 2} if args[0] == "scan" else {0, 1})
    assert len(codes) > 1
