"""Directories of any names: refused, or every tensor and every other file comes out once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

import anamnesis as an

STEMS = [
    *("model", "pytorch_model", "x", "X", "Model", "x.bin", "consolidated", "adapter_model"),
    *("diffusion_pytorch_model", "\u00e9", "e\u0301", "x-1"),
    *(f"{s}-{i:05d}-of-00002" for s in ("model", "pytorch_model") for i in (1, 2)),
]
EXTENSIONS = [".bin", ".pt", ".safetensors", ".safetensors", ""]
FOLDERS = ["", "", "", "", "sub/", "Sub/", "x.safetensors/", "model.safetensors/"]
INDEXES = [
    *("model.safetensors.index.json", "pytorch_model.bin.index.json"),
    *("diffusion_pytorch_model.safetensors.index.json", "x.bin.index.json"),
    *("model.safetensors.index.fp16.json", "consolidated.safetensors.index.json"),
]
SIDECARS = [
    *("config.json", "Config.json", "params.json", "README.md", "readme.md", "x.amn-partial"),
    *("x.safetensors", "sub/model.safetensors", "sub/x.safetensors", "x.pt", "x.bin.safetensors"),
    *("model.safetensors.new", "sub", "quantize_config.json", "a/b/c", "a/b"),
]
REWRITTEN = ("config.json", "params.json")

Tensors = dict[str, np.ndarray[Any, Any]]


@st.composite
def trees(draw: st.DrawFn) -> tuple[dict[str, Tensors], dict[str, dict[str, str]], list[str]]:
    """Return files of weights, indexes, and names of other files."""
    paths = st.builds("{}{}{}".format, *map(st.sampled_from, (FOLDERS, STEMS, EXTENSIONS)))
    names = draw(st.lists(paths, min_size=1, max_size=4, unique=True))
    weights: dict[str, Tensors] = {}
    for name in names:
        n = draw(st.integers(1, 3))
        tensors = draw(st.lists(st.sampled_from("abcdefgh"), min_size=n, max_size=n, unique=True))
        own = draw(st.sampled_from([f"{len(weights)}.", ""]))
        size = draw(st.integers(1, 3))
        weights[name] = {
            own + t: np.full(size, i + 10 * len(weights), np.float32) for i, t in enumerate(tensors)
        }
    indexes = {}
    for index in draw(st.lists(st.sampled_from(INDEXES), max_size=2, unique=True)):
        shards = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
        weight_map = {t: name for name in shards for t in weights[name]}
        if draw(st.integers(0, 3)) == 0:
            weight_map[draw(st.sampled_from(["a", "0.a", "z"]))] = "gone.safetensors"
        indexes[index] = weight_map
    return weights, indexes, draw(st.lists(st.sampled_from(SIDECARS), max_size=4, unique=True))


def write(path: Path, how: Callable[[Path], object]) -> bool:
    """Write a file unless something is in its way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            return False
        how(path)
    except OSError:
        return False
    return True


def write_weights(path: Path, tensors: Tensors) -> None:
    if path.name.endswith(".safetensors"):
        save_file(tensors, path)
    else:
        torch.save({name: torch.from_numpy(t) for name, t in tensors.items()}, path)


@given(trees(), st.sampled_from([None, None, 8, 1000]))
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
def test_nothing_meets(
    tmp_path_factory: Any,
    tree: tuple[dict[str, Tensors], dict[str, dict[str, str]], list[str]],
    limit: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("any")
    root, out = folder / "in", folder / "out"
    weights, indexes, sidecars = tree
    weights = {n: t for n, t in weights.items() if write(root / n, lambda p: write_weights(p, t))}  # noqa: B023
    for name, weight_map in indexes.items():
        text = json.dumps({"weight_map": weight_map})
        write(root / name, lambda path: path.write_text(text))  # noqa: B023
    others = [n for n in sidecars if write(root / n, lambda p: p.write_text(f'{{"x": "{n}"}}'))]  # noqa: B023
    try:
        with an.parse(root) as model:
            wanted = {name: tensor.numpy("f32") for name, tensor in model.items()}
            report = model.remember(out, max_shard_size=limit)
    except an.AnamnesisError as error:
        event(type(error).__name__)
        assert not out.exists()
        assert [p.name for p in folder.iterdir()] == ["in"]
        shutil.rmtree(folder)
        return
    event("written")
    check(root, out, report, weights, others, wanted)
    shutil.rmtree(folder)


def check(
    root: Path,
    out: Path,
    report: an.Report,
    weights: dict[str, Tensors],
    others: list[str],
    wanted: Tensors,
) -> None:
    dropped = {d.name: d.reason for d in report.dropped}

    def is_kept(name: str) -> bool:
        there = out / name
        return there.is_file() and there.read_bytes() == (root / name).read_bytes()

    copied = {name for name in [*weights, *others] if is_kept(name)}
    found: Tensors = {}
    for path in sorted(out.rglob("*.safetensors")):
        if path.is_file() and path.relative_to(out).as_posix() not in copied:
            for name, tensor in load_file(path).items():
                assert name not in found
                found[name] = tensor
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].tobytes() == tensor.tobytes()
    # nothing of the source is gone
    for name, tensors in weights.items():
        if name in copied:
            continue
        if any(f"{name} is left out, and holds other weights" in w for w in report.warnings):
            continue
        is_second = "second copy" in dropped.get(name, "")
        assert is_second or name not in dropped
        for key, tensor in tensors.items():
            if is_second and "Mistral" not in dropped[name]:
                assert found[key].shape == tensor.shape
            elif not is_second and f"{key} in {name}" not in dropped:
                assert found[key].tobytes() == tensor.tobytes()
    for name in others:
        assert name in copied or name in dropped or name in REWRITTEN
        assert name not in REWRITTEN or (out / name).is_file()
    # the indexes are right, and name all shards
    told = {}
    for path in out.glob("*.index*.json"):
        for key, shard in json.loads(path.read_bytes())["weight_map"].items():
            assert load_file(out / shard)[key].tobytes() == found[key].tobytes()
            told[key] = shard
    assert not told or told.keys() == found.keys()
    with an.parse(out) as again:
        assert {name: t.numpy("f32").tobytes() for name, t in again.items()} == {
            name: t.tobytes() for name, t in wanted.items()
        }
