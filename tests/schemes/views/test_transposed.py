"""Weights that come out transposed are the transposes of those that do not, however cut."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.families.bnb import weight as bnb
from anamnesis.schemes.views import transposed
from helpers.handmade import write_safetensors
from helpers.weight_cases import CASES, NAME, tensors_of

DTYPES_OUT = {"bf16": ml_dtypes.bfloat16, "f16": np.float16, "f32": np.float32}


@pytest.fixture(params=CASES)
def path(request: pytest.FixtureRequest, tmp_path: Path, rng: np.random.Generator) -> Path:
    return write_safetensors(tmp_path / "m.safetensors", tensors_of(request.param, rng))


def expected(path: Path, dtype: Any) -> Any:
    """As if it were nn.Linear's, and that transposed."""
    with an.parse(path, conv1d=False) as model:
        return model[f"{NAME}.weight"].numpy(dtype).T


def check(model: an.Model, dtype: Any, wanted: Any, threads: int) -> None:
    """All ways out agree."""
    name = f"{NAME}.weight"
    raw = np.ascontiguousarray(wanted).tobytes()
    tensor = model[name]
    assert tensor.shape == wanted.shape
    assert tensor.scheme.endswith(", transposed")
    array = tensor.numpy(dtype, threads=threads)
    assert array.shape == wanted.shape
    assert array.tobytes() == raw
    stream = io.BytesIO()
    report = model.remember(stream, dtype, threads=threads)
    with an.parse(stream.getvalue()) as written:
        assert written[name].shape == wanted.shape
        assert written[name].numpy(dtype).tobytes() == raw
    n_infinite = np.isinf(np.asarray(wanted, np.float32)).sum() if dtype == "f16" else 0
    assert report.overflows.get(name, 0) == n_infinite
    arrays: dict[str, Any] = {}
    model.remember(arrays.__setitem__, dtype, threads=threads)
    assert arrays[name].tobytes() == raw


@pytest.mark.parametrize("dtype", DTYPES_OUT)
def test_in_one_band(path: Path, dtype: Any) -> None:
    wanted = expected(path, dtype)
    with an.parse(path, conv1d=True) as model:
        check(model, dtype, wanted, 1)


@pytest.mark.sampled(13)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_in_many_bands_and_tiles(
    path: Path, dtype: Any, small_bands: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = expected(path, dtype)
    for between in (1, 300):
        monkeypatch.setattr(bnb, "_BETWEEN", between)
        monkeypatch.setattr(transposed, "_TILE_VALUES", 2048)
        monkeypatch.setattr(transposed, "_WIDEST_TILE", 64)
        for source in (path, path.read_bytes()):
            with an.parse(source, conv1d=True) as model:
                weight = model[f"{NAME}.weight"]._weight
                if not weight.is_held:
                    assert len(list(weight.bands(DTYPES["F32"], 512))) > 1
                check(model, dtype, wanted, 3)


def test_to_a_file(path: Path) -> None:
    wanted = expected(path, "bf16")
    out = path.with_name("out.safetensors")
    with an.parse(path, conv1d=True) as model:
        model.remember(out)
    with an.parse(out) as model:
        assert model[f"{NAME}.weight"].numpy("bf16").tobytes() == wanted.tobytes("C")
