"""Codes that are there already, between each two encodings: moved, cast, or why they are not."""

from __future__ import annotations

import json
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Layers, Repack
from anamnesis.schemes.ways import WAYS

TOOL = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "ways.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ways")


def bits(model: an.Model, name: str, dtype: Any) -> NDArray[Any]:
    array = model[name].numpy(dtype)
    return array.view(f"u{array.itemsize}")


def differing(before: an.Model, after: an.Model, name: str) -> Iterator[str]:
    """The dtypes in which a weight's values are others than what its codes have become."""
    again = next(n for n in (name, f"{name}.weight", name.removesuffix(".weight")) if n in after)
    for dtype in ("f32", "bf16", "f16"):
        old, new = bits(before, name, dtype), bits(after, again, dtype)
        new = new if old.shape == new.shape else new.swapaxes(-1, -2)  # gpt-oss's stacks
        sign = np.array(1 << (8 * old.itemsize - 1), old.dtype)
        if ((old != new) & ((old | new) != sign)).any():  # FP4's code 8 is -0 or +0
            yield dtype


def converted(
    model: an.Model, target: str, made: Encoding, names: list[str], out: Path, *, lossless: bool
) -> an.Model:
    """What some weights become, and nothing else."""
    shutil.rmtree(out, ignore_errors=True)
    out.unlink(missing_ok=True)
    out = TOOL["output"](out, target)
    others = [name for name in model if name not in names]
    report = model.convert(out, target, drop=others, lossless=lossless, force=True, names="keep")
    assert set(report.repacked) == set(names)
    if out.is_file() and target == "int8-packed":  # whose words do not say how wide codes are
        out = _with_config(out, made)
    return an.parse(out)


def _with_config(out: Path, made: Encoding) -> Path:
    """A lone file in a directory whose config says what it is."""
    folder = out.with_name("beside")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    out.rename(folder / "model.safetensors")
    declared = made.layout.declare(Layers((), ["model"]))
    (folder / "config.json").write_text(json.dumps({"quantization_config": declared}))
    return folder


@pytest.mark.sampled(19)
@pytest.mark.parametrize("name", TOOL["NAMES"])
def test_values_stay_to_the_bit(name: str, folder: Path) -> None:
    """And what is said of each pair is what is found."""
    said: dict[str, set[str]] = {}
    for path in TOOL["samples"](name, folder):
        groups: dict[tuple[str, str, bool], list[str]] = {}
        made: dict[str, Encoding] = {}
        with an.parse(path) as model:
            inexact = set()
            for target, weight, outcome in TOOL["outcomes"](model):
                if isinstance(outcome, Repack):
                    own = outcome.encodings[0]
                    made[own.id] = own
                    groups.setdefault((target, own.id, outcome.is_exact), []).append(weight)
                    said.setdefault(target, set()).add("cast" if outcome.is_cast else "moved")
                    inexact |= set() if outcome.is_exact else {(target, weight)}
            for (target, way, is_exact), names in groups.items():
                lossless = is_exact and "nvfp4" not in target
                out = folder / "out"
                with converted(model, target, made[way], names, out, lossless=lossless) as after:
                    for weight in names:
                        may = {"f32"} if (target, weight) in inexact else set()
                        assert set(differing(model, after, weight)) <= may, (target, weight)
    told = {target: {ways[name][0]} for target, ways in WAYS.items() if name in ways}
    assert said == told


@pytest.mark.slow
def test_the_table_is_made_of_the_layouts() -> None:
    assert TOOL["PAGE"].read_text(encoding="utf-8") == TOOL["text"](), "python tools/ways.py"


@pytest.mark.parametrize("name", TOOL["NAMES"])
def test_an_encoding_takes_its_own_codes(name: str) -> None:
    assert WAYS[name][name] == ("moved", "")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TOOL["NAMES"])
def test_an_encoding_over_itself_is_unchanged(name: str, folder: Path) -> None:
    """The same tensors, byte for byte, and it is said so."""
    again = folder / ("again.gguf" if name.startswith("gguf-") else "again")
    for path in TOOL["samples"](name, folder):
        shutil.rmtree(again, ignore_errors=True)
        again.unlink(missing_ok=True)
        with an.parse(path) as model:
            codes = [one for one in model if model[one].is_quantized]
            report = model.convert(again, name, include=codes, loss=False, force=True, names="keep")
            before = {one: tensor.read() for one, tensor in model.stored.items()}
        assert set(report.unchanged) == set(codes)
        with an.parse(again) as model:
            assert {one: tensor.read() for one, tensor in model.stored.items()} == before
