"""BitNet's ternary codes in blocks: as ggml and gguf-py quantise what they stand for."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import ggml_c
import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis import _core
from helpers.bitnet import bitnet_file

pytestmark = [pytest.mark.usefixtures("small_bands"), pytest.mark.against("ggml, gguf-py")]

ROOT = os.environ.get("ANAMNESIS_REAL")
RNG = np.random.default_rng(27)
NAME = "a.weight"
TYPES = ("TQ1_0", "TQ2_0")


def moved(model: an.Model, type: str, out: Path) -> an.Report:
    return model.convert(out, f"gguf-{type.lower()}", verify=True, lossless=True, force=True)


def check(model: an.Model, type: str, out: Path, name: str = NAME) -> NDArray[Any]:
    """The blocks are those that both make of the values, and stand for these."""
    report = moved(model, type, out)
    assert list(report.repacked) == [name]
    values = model[name].numpy("f32")
    kind = gguf.GGMLQuantizationType[type]
    (tensor,) = (t for t in gguf.GGUFReader(out).tensors if t.name == name)
    blocks = np.array(tensor.data)
    assert (blocks == gguf.quants.quantize(values, kind)).all()
    own = ggml_c.ggml().quantize(_core.BLOCKS[type], values).reshape(blocks.shape)
    assert (blocks == own).all()
    theirs = np.ascontiguousarray(gguf.quants.dequantize(blocks, kind), np.float32)
    assert theirs.tobytes() == values.tobytes()
    with an.parse(out) as after:
        assert after[name].numpy("f32").tobytes() == values.tobytes()
    return blocks


@pytest.mark.parametrize("type", TYPES)
def test_every_byte_of_digits(type: str, tmp_path: Path) -> None:
    """Each sequence of five digits in each place, and blocks of zeros, whose scale is 0."""
    five = np.stack(np.unravel_index(np.arange(3**5), (3,) * 5), 1).astype(np.int8) - 1
    rows = []
    for turn in range(0, 3**5, 3):
        each = np.roll(five, turn, axis=0)
        rows.append(
            np.concatenate((each[:32].T.ravel(), each[32:48].T.ravel(), each[48:52, :4].T.ravel()))
        )
    codes = np.concatenate((np.stack(rows), np.zeros((3, 256), np.int8)))
    codes = np.concatenate((codes, codes[:, ::-1]), axis=1)
    assert codes.shape == (84, 512)
    with an.parse(bitnet_file(NAME, codes, 0.375)) as model:
        blocks = check(model, type, tmp_path / "a.gguf")
    assert not blocks[-1, -2:].any()


@pytest.mark.parametrize("type", TYPES)
def test_every_scale_of_half_floats(type: str, tmp_path: Path) -> None:
    """All positive finite ones; there is one for a tensor, so they are taken in turns."""
    halves = np.arange(1, 0x7C00, 331, dtype=np.uint16).view(np.float16)
    codes = RNG.integers(-1, 2, (8, 256)).astype(np.int8)
    for scale in halves.tolist():
        with an.parse(bitnet_file(NAME, codes, scale)) as model:
            check(model, type, tmp_path / "a.gguf")


@pytest.mark.parametrize("type", TYPES)
def test_there_and_back(type: str, tmp_path: Path) -> None:
    """Into the other type, into words, into MLX's codes and its own again."""
    codes = RNG.integers(-1, 2, (64, 512)).astype(np.int8)
    with an.parse(bitnet_file(NAME, codes, 0.75)) as model:
        check(model, type, tmp_path / "a.gguf")
        values = model[NAME].numpy("f32").tobytes()
    other = next(one for one in TYPES if one != type)
    targets = ("int4", "int8", "int8-packed", "gptq-4bit", "gptq-8bit", "awq-4bit", "bnb-int8")
    with an.parse(tmp_path / "a.gguf") as model:
        check(model, other, tmp_path / "b.gguf")
        for target in (*targets, "mlx-2bit", "mlx-4bit", "gguf-q4_0", "gguf-q4_1", "gguf-q8_0"):
            out = tmp_path / (f"{target}.gguf" if "gguf" in target else target)
            report = model.convert(out, target, verify=True)
            assert list(report.repacked) == [NAME]
            if NAME in report.inexact:
                continue
            if out.is_file() and out.suffix != ".gguf":
                continue
            with an.parse(out) as after:
                assert after[NAME].numpy("f32").tobytes() == values
    with an.parse(tmp_path / "mlx-2bit") as model:
        check(model, type, tmp_path / "c.gguf")
    assert (tmp_path / "c.gguf").read_bytes() == (tmp_path / "a.gguf").read_bytes()


@pytest.mark.parametrize("type", TYPES)
def test_what_they_cannot_hold(type: str, tmp_path: Path) -> None:
    codes = RNG.integers(-1, 2, (8, 256)).astype(np.int8)
    target = f"gguf-{type.lower()}"
    why = "its scales are F32, and F16 in"
    model = an.parse(bitnet_file(NAME, codes, 0.1))
    with pytest.raises(an.UnsupportedError, match=why):
        model.convert(tmp_path / "a.gguf", target, lossless=True)
    with an.parse(bitnet_file(NAME, codes[:, :128], 0.5)) as model:
        with pytest.raises(an.UnsupportedError, match=r"rows of 128 values are no whole .* blocks"):
            model.convert(tmp_path / "a.gguf", "gguf", overrides={NAME: target})
        model.convert(tmp_path / "a.gguf", target, lossless=True)  # as llama-quantize falls back
        with an.parse(tmp_path / "a.gguf") as after:
            assert after[NAME].scheme == "Q4_0"
    codes[3, 7] = 2
    with an.parse(bitnet_file(NAME, codes, 0.5)) as model:
        if type == "TQ1_0":
            with pytest.raises(an.UnsupportedError, match="which is no ternary digit"):
                model.convert(tmp_path / "b.gguf", target)
        else:
            model.convert(tmp_path / "b.gguf", target)
            with an.parse(tmp_path / "b.gguf") as after:
                assert after[NAME].numpy().tobytes() == model[NAME].numpy().tobytes()


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("type", TYPES)
def test_published(type: str, tmp_path: Path) -> None:
    """ggml's own blocks in the other type, and back again."""
    path = Path(str(ROOT), "gguf", "synthetic_tq2_0.gguf")
    with an.parse(path) as model:
        out = io.BytesIO()
        report = model.convert(out, f"gguf-{type.lower()}", lossless=True)
        with an.parse(out.getvalue()) as after:
            for name in report.repacked:
                assert after[name].numpy().tobytes() == model[name].numpy().tobytes()
