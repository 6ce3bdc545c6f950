"""Codes that are moved into ggml's blocks and back: which bytes that makes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.convert.request import targets
from anamnesis.schemes.core.layout import Layers
from helpers.handmade import safetensors_bytes
from helpers.repacks import (
    EIGHTS,
    Q,
    S,
    awq,
    check,
    entry,
    f16,
    folder,
    int4,
    raw,
    repacked,
    stored,
    words,
)

pytestmark = pytest.mark.usefixtures("small_bands")


def check_q4_1_as_mlx(q4_1: an.Model, out: Path) -> None:
    """In groups of 32, as ggml has them."""
    out.mkdir()
    report = q4_1.convert(out / "model.safetensors", "mlx-4bit")
    assert report.repacked == {"a.weight": "mlx-4bit-32"}
    told = {"quantization": {"bits": 4, "group_size": 32}}
    (out / "config.json").write_text(json.dumps(told))
    with an.parse(out) as model:
        assert stored(model)["a.weight"] == ("U32", [32, 8], words(Q).tobytes())
        assert (model["a.weight"].numpy() == q4_1["a.weight"].numpy()).all()
        again = model.convert(out.parent / "again.safetensors", "mlx-4bit")
        assert again.repacked == report.repacked
        with an.parse(out.parent / "again.safetensors") as copied:
            assert stored(copied) == stored(model)


def test_mlx_as_q4_1(tmp_path: Path) -> None:
    """Groups of 64 repeat their scale and bias."""
    told = {"bits": 4, "group_size": 64}
    scales, biases = f16(32, 1), f16(32, 1)
    tensors = {
        "a.weight": entry("U32", words(Q)),
        "a.scales": entry("F16", scales),
        "a.biases": entry("F16", biases),
    }
    blocks = b""
    for row in range(32):
        for first in (0, 32):
            some = Q[row, first : first + 32]
            blocks += scales[row].tobytes() + biases[row].tobytes()
            blocks += (some[:16] | some[16:] << 4).tobytes()
    with an.parse(folder(tmp_path / "f16", tensors, quantization=told)) as model:
        model.convert(tmp_path / "a.gguf", "gguf-q4_1")
        with an.parse(tmp_path / "a.gguf") as made:
            assert stored(made) == {"a.weight": ("Q4_1", [32, 64], blocks)}
            assert (made["a.weight"].numpy() == model["a.weight"].numpy()).all()
            check_q4_1_as_mlx(made, tmp_path / "mlx")
    tensors |= {name: ("BF16", *tensors[name][1:]) for name in ("a.scales", "a.biases")}
    model = an.parse(folder(tmp_path / "bf16", tensors, quantization=told))
    with pytest.raises(an.UnsupportedError, match="its scales are BF16, and F16 in Q4_1"):
        model.convert(tmp_path / "b.gguf", "gguf-q4_1", lossless=True)
    assert set(model.convert(tmp_path / "b.gguf", "gguf-q4_1").unmovable) == {"a.weight"}


def test_int4_as_q4_0_and_back() -> None:
    blocks = b""
    for row in range(32):
        for group in range(2):
            some = Q[row, 32 * group : 32 * group + 32]
            blocks += S[row, group].tobytes() + (some[:16] | some[16:] << 4).tobytes()
    made = check(int4(zeros=False), "gguf-q4_0", {"a.weight": ("Q4_0", [32, 64], blocks)})
    for target, want in (("int4", int4(zeros=False)), ("awq-4bit", awq(EIGHTS))):
        back = io.BytesIO()
        made.convert(back, target)
        again = stored(an.parse(back.getvalue()))
        assert again == {name: (d, list(s), b) for name, (d, s, b) in want.items()}
    report = an.parse(safetensors_bytes(int4())).convert(io.BytesIO(), "gguf-q4_0")
    assert set(report.requantised) == {"a.weight"}


def test_codes_that_lie_in_tiles() -> None:
    """Marlin has the same numbers as Q4_0, but in an order of its own."""
    marlin = {
        "a.B": entry("I32", raw(8, 512, 4).view("i4")[..., 0]),
        "a.s": entry("F16", f16(1, 256)),
    }
    made = repacked(marlin, "gguf-q4_0")
    with an.parse(safetensors_bytes(marlin)) as before:
        assert made["a.weight"].numpy().tobytes() == before["a.weight"].numpy().tobytes()


@pytest.mark.parametrize("groups", [1, 2])
def test_int8_as_q8_0_and_back(groups: int, tmp_path: Path) -> None:
    codes, scales = raw(32, 64).view("i1"), f16(32, groups)
    tensors = {"a.weight": entry("I8", codes), "a.weight_scale": entry("F16", scales)}
    blocks = b""
    for row in range(32):
        for i in range(2):
            blocks += scales[row, i * groups // 2].tobytes()
            blocks += codes[row, 32 * i : 32 * i + 32].tobytes()
    method = {"quant_method": "compressed-tensors"}
    source = folder(tmp_path / "in", tensors, quantization_config=method)
    with an.parse(source) as before:
        before.convert(tmp_path / "a.gguf", "gguf-q8_0")
        made = an.parse(tmp_path / "a.gguf")
        assert stored(made) == {"a.weight": ("Q8_0", [32, 64], blocks)}
        assert (made["a.weight"].numpy() == before["a.weight"].numpy()).all()
        out = tmp_path / "out" / "model.safetensors"
        out.parent.mkdir()
        made.convert(out, "int8-packed")
        config = targets.encoding("int8-packed").layout.declare(Layers([]))
        (out.parent / "config.json").write_text(json.dumps({"quantization_config": config}))
        with an.parse(out.parent) as again:
            assert again.stored["a.weight_packed"].dtype.name == "I32"
            assert (again["a.weight"].numpy() == before["a.weight"].numpy()).all()
