"""Names in a directory's output: none is written over another, whatever the source's are called."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import anamnesis as an
from anamnesis.convert.plan import files as layout
from anamnesis.convert.plan.files import shard_names
from helpers.handmade import Entry, write_index, write_safetensors
from helpers.models import f32, partials, small_model, tree

INDEX = "model.safetensors.index.json"
TORCH_INDEX = "pytorch_model.bin.index.json"

needs_links = pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
needs_posix = pytest.mark.skipif(os.name == "nt", reason="no such files on Windows")


def floats(*values: float) -> Entry:
    return "F32", (len(values),), f32(*values)


def write_torch(path: Path, tensors: Mapping[str, list[float]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({name: torch.tensor(values) for name, values in tensors.items()}, path)


def write_weight_map(folder: Path, name: str, weight_map: Mapping[str, str]) -> None:
    (folder / name).write_text(json.dumps({"metadata": {}, "weight_map": dict(weight_map)}))


def write_model(
    folder: Path, shards: Mapping[str, Mapping[str, list[float]]], index: str | None = None
) -> Path:
    """Write shards, safetensors or torch's by their names, and an index of all."""
    folder.mkdir(exist_ok=True)
    for name, tensors in shards.items():
        if name.endswith(".safetensors"):
            write_safetensors(folder / name, {t: floats(*v) for t, v in tensors.items()})
        else:
            write_torch(folder / name, tensors)
    if index is not None:
        weight_map = {tensor: name for name, tensors in shards.items() for tensor in tensors}
        write_weight_map(folder, index, weight_map)
    return folder


def remembered(source: Path, out: Path, **how: Any) -> an.Report:
    with an.parse(source) as model:
        return model.remember(out, **how)


def values(out: Path) -> dict[str, list[float]]:
    """All tensors of a directory's shards, each of which must be there once."""
    found: dict[str, list[float]] = {}
    for path in sorted(out.rglob("*.safetensors")):
        for name, tensor in load_file(path).items():
            assert name not in found
            found[name] = tensor.tolist()
    return found


def by_index(out: Path, name: str = INDEX) -> dict[str, list[float]]:
    """All tensors that an index names, each read from the shard that it names."""
    weight_map = json.loads((out / name).read_bytes())["weight_map"]
    return {t: load_file(out / shard)[t].tolist() for t, shard in weight_map.items()}


# --- shards ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        (["pytorch_model.bin"], ["model.safetensors"]),
        (["x.pt"], ["x.safetensors"]),
        (["x.bin", "x.pt"], ["x.bin.safetensors", "x.pt.safetensors"]),
        (["x.bin", "X.pt"], ["x.bin.safetensors", "X.pt.safetensors"]),
        (["\u00e9.bin", "e\u0301.pt"], ["\u00e9.bin.safetensors", "e\u0301.pt.safetensors"]),
        (["x.bin", "x.safetensors"], ["x.bin.safetensors", "x.safetensors"]),
        (["sub/x.bin", "x.pt"], ["sub/x.safetensors", "x.safetensors"]),
        (["model.bin"], ["model.safetensors"]),
        (["model.bin", "x.bin"], ["model.bin.safetensors", "x.safetensors"]),
        (["pytorch_model.bin", "x.bin"], ["model.safetensors", "x.safetensors"]),
        (
            ["pytorch_model.bin", "model.bin"],
            ["pytorch_model.bin.safetensors", "model.bin.safetensors"],
        ),
    ],
    ids=str,
)
def test_names_of_shards(shards: list[str], expected: list[str]) -> None:
    assert list(shard_names(shards).values()) == expected


@pytest.mark.parametrize("names", [("pytorch_model.bin", "model.bin"), ("x.bin", "x.pt")])
def test_shards_of_one_stem(names: tuple[str, str], tmp_path: Path) -> None:
    shards = {names[0]: {"a": [1.0] * 4}, names[1]: {"b": [2.0] * 8}}
    source = write_model(tmp_path / "in", shards, TORCH_INDEX)
    report = remembered(source, tmp_path / "out")
    assert (report.n_in, report.n_out) == (2, 2)
    assert by_index(tmp_path / "out") == {"a": [1.0] * 4, "b": [2.0] * 8}
    assert values(tmp_path / "out") == by_index(tmp_path / "out")


def test_transformers_loads_shards_of_one_stem(tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2Model

    wanted = GPT2Model(GPT2Config(n_embd=8, n_layer=1, n_head=1, vocab_size=9, n_positions=4))
    source = tmp_path / "in"
    source.mkdir()
    wanted.config.save_pretrained(source)
    state = wanted.state_dict()
    weight_map = {t: ("model.bin", "model.pt")[i % 2] for i, t in enumerate(state)}
    for shard in set(weight_map.values()):
        torch.save({t: state[t] for t in state if weight_map[t] == shard}, source / shard)
    write_weight_map(source, TORCH_INDEX, weight_map)
    remembered(source, tmp_path / "out")
    model, told = GPT2Model.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not any(told.values()), told
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[name]), name


@pytest.mark.parametrize("force", [False, True])
def test_sidecar_of_a_shards_name(force: bool, tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", {"sub/pytorch_model.bin": {"a": [1.0]}}, TORCH_INDEX)
    write_safetensors(source / "sub" / "model.safetensors", {"a": floats(9.0)})
    with pytest.raises(
        an.OutputError, match=r"sub/pytorch_model\.bin.* sub/model\.safetensors.*both"
    ):
        remembered(source, tmp_path / "out", force=force)
    assert not (tmp_path / "out").exists()
    assert not partials(tmp_path)


def test_folder_of_a_shards_name(tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", {"pytorch_model.bin": {"a": [1.0]}})
    (source / "model.safetensors").mkdir()
    (source / "model.safetensors" / "notes.txt").write_text("x")
    with pytest.raises(an.OutputError, match=r"model\.safetensors; rename"):
        remembered(source, tmp_path / "out")


def test_index_of_an_indexs_name(tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", {"x.bin": {"a": [1.0]}}, TORCH_INDEX)
    write_model(source, {"y.bin": {"b": [1.0]}}, "model.bin.index.json")
    with pytest.raises(
        an.OutputError,
        match=r"model\.bin\.index\.json and pytorch_model\.bin\.index\.json would both",
    ):
        remembered(source, tmp_path / "out")


# --- file systems that fold names -----------------------------------------------------------------


@needs_posix
def test_sidecars_that_differ_in_case(tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", {"model.safetensors": {"a": [1.0]}})
    sidecars = {"README.md": b"1", "readme.md": b"2", "Sub/x": b"3", "sub/y": b"4", "sub/X": b"5"}
    for name, data in sidecars.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(data)
    remembered(source, tmp_path / "out")
    found = tree(tmp_path / "out")
    assert {n: d for n, d in found.items() if n != "model.safetensors"} == sidecars
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "out"]


@pytest.mark.parametrize(
    "names",
    [
        ("README.md", "readme.md"),
        ("Config.json", "config.json"),
        ("stra\u00dfe", "STRASSE"),
        ("\u00e9", "e\u0301"),
        ("a", "A/b"),
        ("sub/x.", "sub/x"),
    ],
    ids=str,
)
def test_names_that_a_file_system_takes_for_one(
    names: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on one that folds case and accents: what is made is made under the folded name."""
    folded = layout.case_folded
    join = os.path.join
    monkeypatch.setattr(os.path, "join", lambda a, b: join(a, folded(b)))
    for pair in (names, names[::-1]):
        files = [layout.Named(name, f"<{name}>") for name in pair]
        with pytest.raises(an.OutputError) as raised:
            layout.check_distinct(files, tmp_path / "not" / "there")
        assert all(f"<{name}>" in str(raised.value) for name in names)
    assert not list(tmp_path.iterdir())


# --- what cannot be copied or put in place --------------------------------------------------------


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_model(tmp_path / "in", {"model.safetensors": {"a": [1.0]}})


def refused(source: Path, out: Path, monkeypatch: pytest.MonkeyPatch, **how: Any) -> str:
    """Return the error of a conversion that must fail before anything is decoded."""
    from anamnesis.convert.resume import protocol as remember

    monkeypatch.setattr(remember, "run_plan", lambda *_, **__: pytest.fail("decoded"))
    before = tree(out) if out.exists() else None
    with pytest.raises((an.OutputError, OSError)) as raised:
        remembered(source, out, **how)
    assert not partials(source.parent)
    assert (tree(out) if out.exists() else None) == before
    return str(raised.value)


@needs_posix
def test_what_is_no_file_is_left_out(source: Path, tmp_path: Path) -> None:
    os.mkfifo(source / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        here = Path.cwd()
        os.chdir(source)  # the path of a socket must be short
        try:
            listening.bind("socket")
        finally:
            os.chdir(here)
        report = remembered(source, tmp_path / "out")
    assert {(d.name, d.reason) for d in report.dropped} == {
        ("pipe", "not a regular file"),
        ("socket", "not a regular file"),
    }
    assert list(tree(tmp_path / "out")) == ["model.safetensors"]


@needs_posix
@pytest.mark.parametrize("name", ["x.safetensors", "config.json", INDEX, "quantize_config.json"])
def test_what_is_no_file_where_one_is_needed(name: str, source: Path) -> None:
    os.mkfifo(source / name)
    with pytest.raises(an.ParseError, match=f"{name}: not a regular file"):
        an.parse(source)


@needs_links
def test_sidecar_that_leads_nowhere(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (source / "tokenizer.json").symlink_to("gone")
    assert "tokenizer.json" in refused(source, tmp_path / "out", monkeypatch)


@needs_posix
@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() == 0, reason="root reads everything")
def test_unreadable_sidecar(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (source / "tokenizer.json").write_text("{}")
    (source / "tokenizer.json").chmod(0)
    assert "tokenizer.json" in refused(source, tmp_path / "out", monkeypatch)


def test_folder_where_a_file_goes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out" / "model.safetensors").mkdir(parents=True)
    (source / "sub").mkdir()
    (source / "sub" / "x.txt").write_text("x")
    error = refused(source, tmp_path / "out", monkeypatch, force=True)
    assert "is a folder, where a file belongs" in error
    (tmp_path / "out" / "model.safetensors").rmdir()
    (tmp_path / "out" / "sub").write_text("mine")
    assert "where a folder belongs" in refused(source, tmp_path / "out", monkeypatch, force=True)


@needs_links
def test_link_where_a_folder_goes(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sub").symlink_to(tmp_path / "elsewhere")
    (source / "sub").mkdir()
    (source / "sub" / "x.txt").write_text("x")
    assert "where a folder belongs" in refused(source, tmp_path / "out", monkeypatch, force=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_folder_that_must_not_be_written_to(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out" / "sub").mkdir(parents=True)
    (source / "sub").mkdir()
    (source / "sub" / "x.txt").write_text("x")
    access = os.access
    monkeypatch.setattr(os, "access", lambda p, mode: Path(p).name != "sub" and access(p, mode))
    assert "sub" in refused(source, tmp_path / "out", monkeypatch, force=True)


def test_output_that_holds_the_input(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own files could be called as the input's: in/in/x is written as in/x."""
    (source / "in").mkdir()
    (source / "in" / "model.safetensors").write_bytes(b"x")
    assert "holds the input" in refused(source, tmp_path, monkeypatch, force=True)


def test_empty_config_is_kept(source: Path, tmp_path: Path) -> None:
    (source / "config.json").write_text("{}")
    remembered(source, tmp_path / "out")
    assert json.loads((tmp_path / "out" / "config.json").read_bytes()) == {}


# --- indexes of any name --------------------------------------------------------------------------

DIFFUSERS = "diffusion_pytorch_model"


def write_diffusers(folder: Path) -> Path:
    model = small_model()
    first = ("a.weight", "norm.weight", "b.weight_scale_inv")
    names = [f"{DIFFUSERS}-{i:05d}-of-00002.safetensors" for i in (1, 2)]
    shards = {
        names[0]: {k: v for k, v in model.items() if k in first},
        names[1]: {k: v for k, v in model.items() if k not in first},
    }
    for name, tensors in shards.items():
        write_safetensors(folder / name, tensors)
    weight_map = {t: name for name, tensors in shards.items() for t in tensors}
    write_weight_map(folder, f"{DIFFUSERS}.safetensors.index.json", weight_map)
    return folder


@pytest.mark.parametrize("limit", [None, 70_000, 10**9])
def test_index_of_diffusers(limit: int | None, tmp_path: Path) -> None:
    source, out = write_diffusers(tmp_path / "in"), tmp_path / "out"
    remembered(source, out, max_shard_size=limit)
    shards = sorted(p.name for p in out.glob("*.safetensors"))
    n = 1 if limit == 10**9 else 2
    numbered = [f"{DIFFUSERS}-{i:05d}-of-00002.safetensors" for i in (1, 2)]
    assert shards == ([f"{DIFFUSERS}.safetensors"] if n == 1 else numbered)
    index = f"{DIFFUSERS}.safetensors.index.json"
    assert sorted(tree(out)) == sorted([*shards, index])
    assert by_index(out, index) == values(out)
    assert sorted(values(out)) == ["a.weight", "b.weight", "ids", "norm.weight"]
    told = json.loads((out / index).read_bytes())["metadata"]["total_size"]
    assert told == sum(t.nbytes for name in shards for t in load_file(out / name).values())


def test_one_file_of_diffusers_needs_no_index(tmp_path: Path) -> None:
    name = f"{DIFFUSERS}.safetensors"
    source = write_model(tmp_path / "in", {name: {"a": [1.0]}})
    remembered(source, tmp_path / "out")
    assert list(tree(tmp_path / "out")) == [name]


def test_torch_index_of_diffusers(tmp_path: Path) -> None:
    shards = {f"{DIFFUSERS}-{i:05d}-of-00002.bin": {str(i): [float(i)]} for i in (1, 2)}
    source = write_model(tmp_path / "in", shards, f"{DIFFUSERS}.bin.index.json")
    remembered(source, tmp_path / "out")
    assert by_index(tmp_path / "out", f"{DIFFUSERS}.safetensors.index.json") == {
        "1": [1.0],
        "2": [2.0],
    }
    assert len(tree(tmp_path / "out")) == 3


def test_two_indexes(tmp_path: Path) -> None:
    """Each names its own shards still; what none named goes to the first."""
    source = write_model(
        tmp_path / "in", {"x.safetensors": {"x": [1.0]}}, "x.safetensors.index.json"
    )
    write_model(source, {"y.safetensors": {"y": [2.0]}}, "y.safetensors.index.json")
    write_model(source, {"z.safetensors": {"z": [3.0]}})
    remembered(source, tmp_path / "out")
    assert by_index(tmp_path / "out", "x.safetensors.index.json") == {"x": [1.0], "z": [3.0]}
    assert by_index(tmp_path / "out", "y.safetensors.index.json") == {"y": [2.0]}
    assert len(tree(tmp_path / "out")) == 5
    with pytest.raises(an.OutputError, match=r"two indexes, x\..* and y\."):
        remembered(source, tmp_path / "cut", max_shard_size=1)


def test_two_indexes_that_disagree(tmp_path: Path) -> None:
    shards = {"x.safetensors": {"a": [1.0]}, "y.safetensors": {"b": [1.0]}}
    source = write_model(tmp_path / "in", shards, INDEX)
    write_weight_map(source, "other.safetensors.index.json", {"a": "y.safetensors"})
    with pytest.raises(an.ParseError, match=r"two shards for tensor 'a': x\..* and y\."):
        an.parse(source)


def test_shards_by_way_of_the_folder_itself(tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", {"x.safetensors": {"a": [1.0]}})
    write_index(source, {"a": "./x.safetensors"})
    remembered(source, tmp_path / "out")
    assert by_index(tmp_path / "out") == {"a": [1.0]}


# --- adapters -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "main", ["pytorch_model.bin", "model.safetensors", "consolidated.safetensors"]
)
@pytest.mark.parametrize("adapter", ["adapter_model.safetensors", "adapter_model.bin"])
def test_adapter_beside_the_model_is_kept_as_it_is(main: str, adapter: str, tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", {main: {"a": [1.0]}, adapter: {"lora": [9.0]}})
    with an.parse(source) as model:
        assert list(model) == ["a"]
        model.remember(tmp_path / "out")
    assert (tmp_path / "out" / adapter).read_bytes() == (source / adapter).read_bytes()


def test_adapter_alone(tmp_path: Path) -> None:
    source = write_model(tmp_path / "in", {"adapter_model.safetensors": {"lora": [9.0]}})
    remembered(source, tmp_path / "out")
    assert values(tmp_path / "out") == {"lora": [9.0]}


# --- sidecars of a run that was killed ------------------------------------------------------------


def test_resumed_sidecars(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is whole is not copied again; what is torn is, and not into the read-only file."""
    from anamnesis.convert.resume import protocol as remember
    from anamnesis.convert.resume.staging import Staging

    sidecars = {"whole.txt": b"1" * 9, "torn.txt": b"2" * 9, "later.txt": b"3" * 9}
    for name, data in sidecars.items():
        (source / name).write_bytes(data)
        (source / name).chmod(0o444)

    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(remember, "run_plan", killed)
        with pytest.raises(KeyboardInterrupt):
            remembered(source, tmp_path / "out")
    files = tmp_path / "out.amn-partial" / "files"
    for name in ("torn.txt", "later.txt"):
        (files / name).chmod(0o644)
        (files / name).unlink()
    (files / "torn.txt").write_bytes(b"2")
    (files / "torn.txt").chmod(0o444)
    copied = []
    copy = Staging.copy

    def copying(staging: Staging, where: Path, name: str) -> None:
        copied.append(name)
        copy(staging, where, name)

    monkeypatch.setattr(Staging, "copy", copying)
    remembered(source, tmp_path / "out", resume=True)
    assert sorted(copied) == ["later.txt", "torn.txt"]
    assert {n: d for n, d in tree(tmp_path / "out").items() if n in sidecars} == sidecars
