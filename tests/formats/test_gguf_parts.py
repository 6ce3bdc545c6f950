"""GGUF models in several files: one model, and errors that name the part."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.gguf_handmade import I32, STRING, U16, U32, Array, Tensor, gguf_bytes


def part_bytes(number: int, count: int, **changes: Any) -> bytes:
    keys: dict[str, Any] = {
        "split.no": (U16, number),
        "split.count": (U16, count),
        "split.tensors.count": (I32, 2 * count),
    }
    if number == 0:
        keys |= {"general.architecture": (STRING, "llama"), "t": Array(STRING, ["a", "b"])}
    keys |= changes.pop("keys", {})
    names = changes.pop("names", (f"blk.{number}.a", f"blk.{number}.b"))
    data = np.full(64, number, np.float32).tobytes()
    return gguf_bytes(keys, {name: Tensor((32, 2), 0, data) for name in names}, **changes)


def write(folder: Path, count: int = 3) -> list[Path]:
    paths = [folder / f"m-Q4_K_M-{i + 1:05d}-of-{count:05d}.gguf" for i in range(count)]
    for number, path in enumerate(paths):
        path.write_bytes(part_bytes(number, count))
    return paths


@pytest.mark.parametrize("which", [0, 1, 2])
def test_any_part_is_all(which: int, tmp_path: Path) -> None:
    paths = write(tmp_path)
    with an.parse(paths[which]) as model:
        assert list(model) == [f"blk.{i}.{c}" for i in range(3) for c in "ab"]
        assert [t.numpy()[0, 0] for t in model.values()] == [0, 0, 1, 1, 2, 2]
        assert model.metadata["t"] == ["a", "b"]
        assert list(model._checkpoint.shards) == [str(p) for p in paths]
        lines = str(model.inspect()).splitlines()
        assert lines[:4] == [
            "Format:      GGUF v3",
            "Files:       3",
            "Arch:        llama",
            "Tensors:     6",
        ]
        model.remember(tmp_path / "out.safetensors")
    with an.parse(tmp_path / "out.safetensors") as out:
        assert len(out) == 6
        assert {key: out.metadata[key] for key in out.metadata if key != "gguf.header"} == {
            "general.architecture": "llama",
            "t": '["a", "b"]',
            "format": "pt",
        }


def test_names_in_capitals(tmp_path: Path) -> None:
    for path in write(tmp_path):
        path.rename(tmp_path / path.name.upper())
    with an.parse(tmp_path / "M-Q4_K_M-00002-OF-00003.GGUF") as model:
        assert len(model) == 6


def test_output_over_a_part_is_refused(tmp_path: Path) -> None:
    paths = write(tmp_path)
    with an.parse(paths[0]) as model, pytest.raises(an.OutputError, match="is the input"):
        model.remember(paths[2], force=True)


def test_missing_part(tmp_path: Path) -> None:
    paths = write(tmp_path)
    paths[1].unlink()
    with pytest.raises(an.ParseError, match=r"part 1 of 3 .*; m-Q4_K_M-00002-of-00003"):
        an.parse(paths[0])
    paths[2].unlink()
    with pytest.raises(an.ParseError, match=r"00002-of-00003\.gguf and 1 more is missing"):
        an.parse(paths[0])


def test_renamed_part(tmp_path: Path) -> None:
    paths = write(tmp_path)
    other = paths[0].rename(tmp_path / "model.gguf")
    with pytest.raises(an.ParseError, match=r"does not end in -00001-of-00003\.gguf"):
        an.parse(other)


def test_bytes_of_a_part() -> None:
    with pytest.raises(an.ParseError, match=r"part 2 of 3 .* by its path"):
        an.parse(part_bytes(1, 3))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"keys": {"split.no": (U16, 0)}}, r"split\.no is 0 and split\.count 3"),
        ({"keys": {"split.count": (U16, 4)}}, r"split.no is 1 and split.count 4"),
        ({"keys": {"split.count": (STRING, "3")}}, "must be an integer"),
        ({"names": ("blk.0.a", "blk.1.b")}, "tensor 'blk.0.a' is in"),
        ({"names": ("blk.1.a",)}, "promises 6 tensors, but the 3 parts hold 5"),
        ({"n_keys": 10**6}, "keys take at least"),
    ],
)
def test_parts_that_do_not_go_together(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    paths = write(tmp_path)
    paths[1].write_bytes(part_bytes(1, 3, **changes))
    with pytest.raises(an.ParseError, match=match):
        an.parse(paths[0])


def test_a_split_of_one(tmp_path: Path) -> None:
    path = tmp_path / "whatever.gguf"
    path.write_bytes(part_bytes(0, 1))
    with an.parse(path) as model:
        assert len(model) == 2


def test_directory_of_gguf_names_them(tmp_path: Path) -> None:
    write(tmp_path)
    with pytest.raises(an.ParseError, match=r"name one of its GGUF files, such as m-Q4_K_M-00001"):
        an.parse(tmp_path)


# --- parts that say nothing of it, and parts of very many -----------------------------------------


@pytest.mark.parametrize("siblings", [False, True])
def test_part_by_its_name_alone(siblings: bool, tmp_path: Path) -> None:
    """It can be looked at, as llama.cpp would load it; to convert it alone takes a word."""
    tensor = {"a": Tensor((32,), 0, bytes(128))}
    path = tmp_path / "m-Q8_0-00001-of-00002.gguf"
    path.write_bytes(gguf_bytes({}, tensor))
    if siblings:
        (tmp_path / "m-Q8_0-00002-of-00002.gguf").write_bytes(gguf_bytes({}, {"b": tensor["a"]}))
    with an.parse(path) as model:
        assert list(model) == ["a"]
        with pytest.raises(an.UnsupportedError, match=r"part 1 of 2, but has no split\.count"):
            model.remember(tmp_path / "out.safetensors")
        model.remember(tmp_path / "out.safetensors", allow_unknown=True)


@pytest.mark.parametrize("name", ["m.gguf", "m-00001-of-00001.gguf", "m-00001-of-00002.gguf.bak"])
def test_names_of_whole_models(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(gguf_bytes({}, {"a": Tensor((32,), 0, bytes(128))}))
    with an.parse(tmp_path / name) as model:
        model.remember(tmp_path / "out.safetensors")


def test_a_split_of_one_by_the_name_of_another(tmp_path: Path) -> None:
    """What gguf-split says in the header counts."""
    path = tmp_path / "m-00001-of-00002.gguf"
    path.write_bytes(part_bytes(0, 1))
    with an.parse(path) as model:
        model.remember(tmp_path / "out.safetensors")


@pytest.mark.parametrize("number", [0, 99_998])
def test_part_of_a_hundred_thousand(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is looked into once, not a hundred thousand times."""
    path = tmp_path / f"m-{number + 1:05d}-of-99999.gguf"
    keys = {"split.no": (U32, number), "split.count": (U32, 99_999)}
    path.write_bytes(gguf_bytes(keys, {"a": Tensor((32,), 0, bytes(128))}))
    n_calls = 0
    stat = os.stat

    def counting(*args: Any, **how: Any) -> os.stat_result:
        nonlocal n_calls
        n_calls += 1
        return stat(*args, **how)

    monkeypatch.setattr(os, "stat", counting)
    missing = "00002" if number == 0 else "00001"
    with pytest.raises(an.ParseError, match=rf"m-{missing}-of-99999\.gguf and 99,997 more is miss"):
        an.parse(path)
    assert n_calls < 10
