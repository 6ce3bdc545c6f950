"""A directory: shards, an index, configs, links and files that have no business there."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from exercise import exercise
from structured import CONFIGS, HEADS, TAILS, Choices, safetensors_file
from traced import fuzz

import anamnesis as an

SHARDS = (
    *("model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"),
    *("model-00002-of-00003.safetensors", "consolidated.safetensors", "m\udcff.safetensors"),
    *("consolidated-00001-of-00002.safetensors", "sub/model.safetensors", "x-0-of-1.safetensors"),
)
STRAY_SHARDS = (
    *("../model.safetensors", "/etc/passwd", "a\\b.safetensors", "a\0.safetensors", ""),
    *(
        "\ud800.safetensors",
        "c:model.safetensors",
        "n" * 300,
        ".",
        "sub",
        "sub/../model.safetensors",
    ),
)
JSON_FILES = ("config.json", "hf_quant_config.json", "params.json", "quantize_config.json")
BROKEN_JSON = (
    b"",
    b"{",
    b"[" * 5000,
    b'{"a":' * 80 + b"1" + b"}" * 80,
    b"\xff\xfe",
    b'{"a":1e999}',
)
LINKS = ("/etc/hostname", "../outside", "model.safetensors", "missing", ".", "loop.safetensors")
LINK_NAMES = ("loop.safetensors", "config.json", "tokenizer.json", "sub", "model.safetensors")


def check(data: bytes) -> None:
    """Raise whatever a directory brings out that should not come out."""
    choices = Choices(data)
    with tempfile.TemporaryDirectory(prefix="anamnesis-fuzz-") as folder:
        root = Path(folder, "model")
        root.mkdir()
        Path(folder, "outside").write_bytes(b"secret")
        for _ in range(1 + choices.below(6)):
            _add(root, choices)
        with suppress(OSError):
            model = exercise(root)
            if model is not None:
                _remember(root, Path(folder, "out"))
        out = Path(folder, "out")
        assert not any(p.is_file() and p.read_bytes() == b"secret" for p in out.rglob("*"))


def _add(root: Path, choices: Choices) -> None:
    kind = choices.below(8)
    with suppress(OSError):
        if kind < 4:
            _write(root / choices.pick(SHARDS), safetensors_file(choices))
        elif kind == 4:
            index = json.dumps({"weight_map": _weight_map(choices)}).encode()
            _write(root / "model.safetensors.index.json", index)
        elif kind == 5:
            _write(root / choices.pick(JSON_FILES), json.dumps(choices.pick(CONFIGS)).encode())
        elif kind == 6:
            name = choices.pick((*JSON_FILES, "model.safetensors.index.json", "tokenizer.json"))
            _write(root / name, choices.pick(BROKEN_JSON))
        else:
            os.symlink(choices.pick(LINKS), root / choices.pick(LINK_NAMES))


def _weight_map(choices: Choices) -> Any:
    if choices.below(16) == 15:
        return choices.pick((None, [], {"a": 1}, {"a": None}, "a"))
    entries = range(choices.below(8))
    shards = (*SHARDS, *SHARDS, *STRAY_SHARDS)
    return {choices.pick(HEADS) + choices.pick(TAILS): choices.pick(shards) for _ in entries}


def _write(path: Path, raw: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(raw)


def _remember(root: Path, out: Path) -> None:
    """Write a directory; if there are files under its names, they are a model again."""
    with an.parse(root) as model, suppress(an.AnamnesisError):
        model.remember(out, threads=1, allow_unknown=True)
        with an.parse(out) as again:
            assert set(again.stored) == {*model, *model.problems}


if __name__ == "__main__":
    fuzz(check)
