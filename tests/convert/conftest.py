"""A small model of several dtypes, and the toys by name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from handmade import Entry, write_index, write_safetensors
from toys import Rows

import anamnesis as an
from anamnesis.convert import plan, targets


def tensors() -> dict[str, Entry]:
    """Weights of each kind: floats of three widths, a quantised one, and what is neither."""
    rng = np.random.default_rng(5)

    def floats(dtype: str, *shape: int) -> Entry:
        kinds = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}
        return dtype, shape, rng.normal(size=shape).astype(kinds[dtype]).tobytes()

    codes = rng.integers(0, 0x7F, 128 * 256, np.uint8).tobytes()
    return {
        "a.weight": floats("F32", 64, 48),
        "b.weight": floats("BF16", 130, 100),
        "norm.weight": floats("BF16", 7),
        "q.weight": ("F8_E4M3", (128, 256), codes),
        "q.weight_scale_inv": ("F32", (1, 2), np.float32([0.01, 0.02]).tobytes()),
        "lm_head.weight": floats("F16", 32, 48),
        "ids": ("I64", (3,), np.arange(3).tobytes()),
    }


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Know the toys by name, and make bands of a few kilobytes."""
    monkeypatch.setitem(targets.CONTAINERS, "toy", ("toys", "SummedWriter"))
    monkeypatch.setitem(
        targets.ENCODINGS, "toy-rows", targets.Entry("toys:Rows", "safetensors", "")
    )
    monkeypatch.setattr(plan, "BAND_BYTES", 4096)


@pytest.fixture(params=["file", "directory"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The model, once a file and once a directory of two shards."""
    found = tensors()
    if request.param == "file":
        return write_safetensors(tmp_path / "in.safetensors", found, {"made": "by hand"})
    names = list(found)
    shards = {
        "model-00001-of-00002.safetensors": {name: found[name] for name in names[:5]},
        "model-00002-of-00002.safetensors": {name: found[name] for name in names[5:]},
    }
    for name, part in shards.items():
        write_safetensors(tmp_path / "in" / name, part, {"format": "pt"})
    write_index(tmp_path / "in", {t: name for name, part in shards.items() for t in part})
    config = {"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}}
    (tmp_path / "in" / "config.json").write_text(json.dumps(config))
    (tmp_path / "in" / "tokenizer.json").write_text("{}")
    return tmp_path / "in"


@pytest.fixture
def model(source: Path) -> Iterator[an.Model]:
    """The model, parsed."""
    with an.parse(source) as parsed:
        yield parsed


@pytest.fixture
def out(source: Path) -> Path:
    """Where it goes to."""
    return source.with_name(source.name.replace("in", "out"))


@pytest.fixture
def rows() -> Rows:
    """The toy encoding."""
    return Rows()
