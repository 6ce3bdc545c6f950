"""Metadata changed where they lie: what other readers see, and what a crash leaves."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file

import anamnesis as an
from anamnesis import editing
from anamnesis.convert.resume.folder import Folder
from helpers.cli_runs import amn
from helpers.gguf_handmade import STRING, Tensor, gguf_bytes
from helpers.handmade import write_safetensors

VALUES = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
ARRAYS = {"a.weight": VALUES, "b": np.ones(3, np.float32)}
KEYS: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "a name",
    "llama.block_count": 1,
    "k.u8": {"type": "uint8", "value": 3},
    "k.texts": ["a", "b"],
    "k.numbers": {"type": "int16", "value": [1, 2]},
    "k.float": {"type": "float64", "value": 0.1},
    "k.flag": True,
}


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    an.save(ARRAYS, tmp_path / "a.gguf", "gguf-q8_0", metadata=KEYS)
    return tmp_path / "a.gguf"


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    an.save(ARRAYS, tmp_path / "a.safetensors", metadata={"format": "pt", "k": "v" * 40})
    return tmp_path / "a.safetensors"


def stored(path: Path) -> dict[str, bytes]:
    with an.parse(path) as model:
        return {name: tensor.read() for name, tensor in model.stored.items()}


def types(path: Path) -> dict[str, tuple[str, Any]]:
    """Return types and values of all keys, as gguf-py reads them."""
    from gguf import GGUFReader

    fields = GGUFReader(path).fields
    return {
        key: ("/".join(kind.name for kind in field.types), field.contents())
        for key, field in fields.items()
        if not key.startswith("GGUF.")
    }


# --- what is written ------------------------------------------------------------------------------

CHANGES: list[tuple[dict[str, Any], list[str], dict[str, tuple[str, Any]]]] = [
    ({"general.name": "b name"}, [], {"general.name": ("STRING", "b name")}),
    ({"general.name": "long " * 50}, [], {"general.name": ("STRING", "long " * 50)}),
    ({"k.u8": 7}, [], {"k.u8": ("UINT8", 7)}),
    ({"k.u8": {"type": "uint32", "value": 7}}, [], {"k.u8": ("UINT32", 7)}),
    ({"k.u8": np.int64(7)}, [], {"k.u8": ("INT64", 7)}),
    ({"k.texts": ["c"]}, [], {"k.texts": ("ARRAY/STRING", ["c"])}),
    ({"k.numbers": [-1, 5, 6]}, [], {"k.numbers": ("ARRAY/INT16", [-1, 5, 6])}),
    ({"k.float": 2}, [], {"k.float": ("FLOAT64", 2.0)}),
    ({"k.flag": False}, ["k.u8"], {"k.flag": ("BOOL", False)}),
    ({"new.text": "x", "new.number": 5}, [], {"new.text": ("STRING", "x")}),
    ({"k.u8": None}, ["k.float", "k.texts"], {}),
    (
        {"general.architecture": "qwen2", "qwen2.block_count": 1},
        ["llama.block_count"],
        {"qwen2.block_count": ("UINT32", 1)},
    ),
    ({}, [], {}),
]


@pytest.mark.parametrize(("new", "gone", "wanted"), CHANGES)
def test_gguf_as_gguf_py_reads_it(
    gguf: Path, new: dict[str, Any], gone: list[str], wanted: dict[str, tuple[str, Any]]
) -> None:
    before, tensors, size = types(gguf), stored(gguf), gguf.stat().st_size
    done = an.edit_metadata(gguf, new, gone)
    after = types(gguf)
    for key, value in wanted.items():
        assert after.pop(key) == value
        before.pop(key, None)
    removed = {*gone, *(key for key, value in new.items() if value is None)}
    assert {k: v for k, v in after.items() if k not in new} == {
        k: v for k, v in before.items() if k not in removed and k not in new
    }
    assert stored(gguf) == tensors
    assert done.in_place == (gguf.stat().st_size == size)
    assert [path.name for path in gguf.parent.iterdir()] == [gguf.name]


@pytest.mark.parametrize(
    ("new", "gone", "in_place"),
    [
        ({"k": "w" * 40}, [], True),
        ({"k": "w"}, [], True),
        ({"k": "ü€😀"}, [], True),
        ({}, ["k", "format"], True),
        ({"k": 'quotes "\\ and\nlines' * 9}, [], False),
        ({"more": "x" * 1000}, ["format"], False),
    ],
)
def test_safetensors_as_itself_reads_it(
    plain: Path, new: dict[str, str], gone: list[str], in_place: bool
) -> None:
    size = plain.stat().st_size
    done = an.edit_metadata(plain, new, unset=gone)
    assert (done.n_set, done.n_unset, done.in_place) == (len(new), len(gone), in_place)
    assert (plain.stat().st_size == size) == in_place
    wanted = {k: v for k, v in ({"format": "pt", "k": "v" * 40} | new).items() if k not in gone}
    with safetensors.safe_open(plain, "np") as opened:
        assert opened.metadata() == (wanted or None)
    for name, array in load_file(plain).items():
        assert array.tobytes() == ARRAYS[name].tobytes()


def test_what_a_header_has_beside_stays(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "a.safetensors", {"a": ("F32", (2,), bytes(8))})
    raw = path.read_bytes()
    n = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + n])
    an.edit_metadata(path, {"k": "v"})
    raw = path.read_bytes()
    after = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    assert after == {"__metadata__": {"k": "v"}, **header}


def test_the_file_keeps_its_permissions(plain: Path, gguf: Path) -> None:
    for path, key in ((plain, "k"), (gguf, "general.name")):
        path.chmod(0o640)
        for value in ("x", "x" * 9000):
            an.edit_metadata(path, {key: value})
            assert stat.S_IMODE(path.stat().st_mode) == 0o640


# --- what is refused ------------------------------------------------------------------------------

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("gguf", {"set": {"k.u8": 300}}, "'k.u8': 300 does not fit u8"),
    ("gguf", {"set": {"k.u8": "x"}}, "'k.u8': 'x' is no u8"),
    ("gguf", {"set": {"k.texts": "x"}}, "'k.texts': 'x' is no array, as the file has there"),
    ("gguf", {"set": {"general.name": ["x"]}}, "is no string, as the file has there"),
    ("gguf", {"set": {"general.alignment": 64}}, "says where tensors lie"),
    ("gguf", {"set": {"split.count": 2}}, "says where tensors lie"),
    ("gguf", {"set": {"GGUF.version": 4}}, "gguf-py opens no file with that key"),
    ("gguf", {"set": {"general.architecture": "qwen2"}}, "keys such as 'llama.block_count' belong"),
    ("gguf", {"unset": "general.architecture"}, "no program would find them"),
    ("gguf", {"set": {"k" * 70000: 2}}, "'k{80}': a key has"),
    ("gguf", {"set": {"": 2}}, "a key has 1 to 65,535 bytes"),
    ("gguf", {"set": {"x": object()}}, "GGUF has no type for object"),
    ("gguf", {"unset": "k.u9"}, r"a\.gguf: there is no key 'k.u9' to remove \(did you mean 'k.u8'"),
    ("gguf", {"set": {"k.u8": 1}, "unset": "k.u8"}, "'k.u8': is both set and removed"),
    ("plain", {"set": {"k": 5}}, "'k': its value must be a string; safetensors has no other types"),
    ("plain", {"set": {"k": "\ud800"}}, "half of a surrogate pair"),
    ("plain", {"unset": ["nope"]}, "there is no key 'nope'"),
]


@pytest.mark.parametrize(("kind", "how", "told"), REFUSED)
def test_refused(kind: str, how: dict[str, Any], told: str, request: pytest.FixtureRequest) -> None:
    path: Path = request.getfixturevalue(kind)
    raw = path.read_bytes()
    with pytest.raises(an.UnsupportedError, match=told) as found:
        an.edit_metadata(path, **how)
    assert "\n" not in str(found.value)
    assert path.read_bytes() == raw
    assert [path.name for path in path.parent.iterdir()] == [path.name]


def test_no_such_file(tmp_path: Path, plain: Path) -> None:
    os.symlink(plain, tmp_path / "link")
    os.link(plain, tmp_path / "hard")
    for path, told in ((tmp_path / "link", "is a link"), (tmp_path / "hard", "has other names")):
        with pytest.raises(an.OutputError, match=told):
            an.edit_metadata(path, {"k": "v"})
    with pytest.raises(an.OutputError, match="is no regular file"):
        an.edit_metadata(tmp_path, {"k": "v"})
    with pytest.raises(FileNotFoundError):
        an.edit_metadata(tmp_path / "nope", {"k": "v"})
    for version, big in ((1, False), (3, True)):
        raw = gguf_bytes(
            {"k": (STRING, "v")}, {"a": Tensor((2,), 0, bytes(8))}, version=version, big=big
        )
        (tmp_path / "old.gguf").write_bytes(raw)
        with pytest.raises(an.UnsupportedError, match="cannot be edited"):
            an.edit_metadata(tmp_path / "old.gguf", {"k": "v"})
    an.save(ARRAYS, tmp_path / "a.npz")
    with pytest.raises(an.UnsupportedError, match="metadata of NPZ files cannot be edited"):
        an.edit_metadata(tmp_path / "a.npz", {"k": "v"})


# --- crashes --------------------------------------------------------------------------------------


@contextmanager
def _stopping_at(n: int) -> Iterator[None]:
    """Kill this process at the n-th step that touches the disk, amid what it writes."""
    steps = iter(range(n))

    def stopping(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if next(steps, None) is None:
                os._exit(9)
            return function(*args, **options)

        return call

    def overwrite(stream: Any, raw: bytes) -> None:
        stream.seek(0)
        for at in range(0, len(raw), third := len(raw) // 3):
            stopping(stream.write)(raw[at : at + third])

    for name in ("create", "move", "remove", "sync", "open"):
        setattr(Folder, name, stopping(getattr(Folder, name)))
    editing._overwrite = overwrite
    yield


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a copy of this process")
@pytest.mark.parametrize("size", [1, 9000])
@pytest.mark.parametrize("kind", ["gguf", "plain"])
def test_a_kill_at_each_step_loses_nothing(
    kind: str, size: int, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(kind)
    key = "general.name" if kind == "gguf" else "k"
    old = path.read_bytes()
    an.edit_metadata(path, {key: "n" * size})
    new = path.read_bytes()
    n_torn = 0
    for n in range(200):
        path.write_bytes(old)
        child = os.fork()
        if child == 0:  # pragma: no cover -- it is killed
            with _stopping_at(n):
                an.edit_metadata(path, {key: "n" * size})
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        undo = path.with_name(f"{path.name}.amn-undo")
        if undo.exists():
            n_torn += path.read_bytes() not in (old, new)
            with pytest.raises(an.ParseError, match="its header is being edited"):
                an.parse(path)
            an.edit_metadata(path)
            assert path.read_bytes() == old
        assert path.read_bytes() in (old, new)
        an.edit_metadata(path, {key: "n" * size})  # whatever lies beside it
        assert path.read_bytes() == new
        assert [p.name for p in path.parent.iterdir()] == [path.name]
        if status == 0:
            break
    assert status == 0
    assert (n_torn > 0) == (len(old) == len(new))


@pytest.mark.parametrize("at", ["create", "sync", "move", "_overwrite"])
def test_a_failure_leaves_the_file_as_it_was(
    plain: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    raw, real = plain.read_bytes(), editing._overwrite
    failed: list[Any] = []

    def failing(*args: Any) -> Any:
        if at == "_overwrite" and failed:
            return real(*args)
        if at == "_overwrite":
            args[0].write(b"torn")
        failed.append(at)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(editing if at == "_overwrite" else Folder, at, failing)
    with pytest.raises(OSError, match="No space"):
        editing._write_header(Folder.named(plain.parent), plain, raw[:64], bytes(64))
    assert plain.read_bytes() == raw
    monkeypatch.undo()
    assert [path.name for path in plain.parent.iterdir() if "undo" in path.name] == []


def test_a_note_of_another_file_is_not_used(plain: Path) -> None:
    raw = plain.read_bytes()
    undo = plain.with_name(f"{plain.name}.amn-undo")
    undo.write_bytes((64).to_bytes(8, "little") + bytes(64) + bytes(64))
    with pytest.raises(an.OutputError, match="is of another file; remove it"):
        an.edit_metadata(plain, {"k": "v"})
    assert plain.read_bytes() == raw


def test_two_runs_at_a_time(plain: Path) -> None:
    with editing._held(plain), pytest.raises(an.OutputError, match="another run is writing it"):
        an.edit_metadata(plain, {"k": "v"})


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("general.name=7", ("general.name", "7", str)),
        ("k.u8=9", ("k.u8", 9, int)),
        ("k.float=2", ("k.float", 2.0, float)),
        ("k.float=inf", ("k.float", float("inf"), float)),
        ("k.flag=false", ("k.flag", False, bool)),
        ('k.texts=["x","y"]', ("k.texts", ["x", "y"], list)),
        ("k.new:u16=4", ("k.new", 4, int)),
        ("k.new=u16:4", ("k.new", 4, int)),
        ("k.new:str=4", ("k.new", "4", str)),
        ("k.new=a=b:c", ("k.new", "a=b:c", str)),
        ("k.u8:str=x", ("k.u8", "x", str)),
    ],
)
def test_typed(gguf: Path, typed: str, wanted: tuple[str, Any, type]) -> None:
    done = amn("edit", gguf, "--set", typed)
    assert done.returncode == 0, done.stderr
    assert "1 key set, 0 removed" in done.stdout
    key, value, kind = wanted
    with an.parse(gguf) as model:
        assert (model.metadata[key], type(model.metadata[key])) == (value, kind)


def test_a_mistyped_type_is_no_key(gguf: Path, plain: Path) -> None:
    done = amn("edit", gguf, "--set", "k.new:uint=4")
    assert (done.returncode, "there is no type 'uint' (did you mean 'uint8'" in done.stderr) == (
        1,
        1,
    )
    assert amn("edit", plain, "--set", "a:b=4").returncode == 0
    assert an.parse(plain).metadata["a:b"] == "4"
    done = amn("edit", plain, "--set", "a:bool=true")
    assert done.stderr.endswith("must be a string; safetensors has no other types\n")


def test_a_read_only_file_stays(gguf: Path) -> None:
    raw = gguf.read_bytes()
    gguf.chmod(0o444)
    for value in ("x", "x" * 9000):
        with pytest.raises(an.OutputError, match="is read-only; make it writable first"):
            an.edit_metadata(gguf, {"general.name": value})
    assert gguf.read_bytes() == raw


def test_said_of_each_file(plain: Path, gguf: Path) -> None:
    done = amn("edit", plain.name, gguf.name, "--unset", "k.u8", "--json", cwd=plain.parent)
    assert done.returncode == 1
    one, other = json.loads(done.stdout)
    assert one["error"]["message"] == "a.safetensors: there is no key 'k.u8' to remove"
    assert other == {"path": "a.gguf", "n_set": 0, "n_unset": 1, "in_place": True}
    wrong = amn("edit", plain, "--set", "k=v", "--unset", "k")
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    assert "--set and --unset both name k" in wrong.stderr
