"""gpt-oss's experts are encoded as transformers does: what that gave is kept by a tool.

tools/record_mxfp4.py says how. Stacks are turned, rounded to bfloat16, and encoded.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis import _core
from anamnesis.base.levels import supported_levels
from anamnesis.schemes.core import arrays
from anamnesis.schemes.core.bands import cut_into
from anamnesis.schemes.encodings import ENCODINGS
from anamnesis.schemes.encodings import made as made_of
from helpers.handmade import Entry, safetensors_bytes, write_safetensors
from helpers.recorded import RECORDED, read

TOLD, TENSORS = read(RECORDED / "mxfp4/gptoss.safetensors")
CASES = sorted({name.partition("/")[0] for name in TENSORS})
LEVELS = supported_levels()
MODULE = "model.layers.0.mlp.experts"
NUMPY = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32, "U8": np.uint8}

pytestmark = pytest.mark.against(TOLD["library"])


def recorded(case: str, part: str) -> NDArray[Any]:
    dtype, shape, raw = TENSORS[f"{case}/{part}"]
    return np.frombuffer(raw, NUMPY[dtype]).reshape(shape)


def wanted(case: str) -> list[bytes]:
    """As `Mxfp4ReverseDeserialize` saves blocks and scales: turned."""
    return [recorded(case, p).transpose(0, 2, 1).tobytes() for p in ("blocks", "scales")]


@pytest.mark.parametrize("case", CASES)
def test_bytes(case: str) -> None:
    turned = np.ascontiguousarray(recorded(case, "weight").transpose(0, 2, 1))
    with np.errstate(over="ignore"):
        values = turned.astype(ml_dtypes.bfloat16)
    encoding = made_of(ENCODINGS["gptoss-mxfp4"])
    for level in LEVELS:
        for threads in (1, 8):
            made = arrays.encode(encoding, values, threads, _core.LEVELS[level])
            assert [part.tobytes() for part in made] == wanted(case), level


@pytest.mark.parametrize("case", CASES)
def test_a_file(case: str) -> None:
    """In any bands, from any dtype."""
    name = f"{MODULE}.down_proj"
    source = safetensors_bytes({name: TENSORS[f"{case}/weight"]})
    found = []
    with an.parse(source) as model:
        for n_bytes, threads in ((1 << 20, 1), (1, 8), (3000, 3)):
            out = io.BytesIO()
            with cut_into(n_bytes):
                model.convert(out, "bf16", overrides={name: "gptoss-mxfp4"}, threads=threads)
            found.append(out.getvalue())
    assert len(set(found)) == 1
    with an.parse(found[0]) as made:
        parts = [made.stored[f"{name}_{part}"] for part in ("blocks", "scales")]
        assert [part.read() for part in parts] == wanted(case)
        experts, ins, outs = TENSORS[f"{case}/weight"][1]
        assert parts[0].shape == (experts, outs, ins // 32, 16)
        assert parts[1].shape == (experts, outs, ins // 32)
        assert made[name].shape == (experts, ins, outs)


def model_of(gate_up: tuple[int, ...], down: tuple[int, ...]) -> dict[str, Entry]:
    rng = np.random.default_rng(0)
    shapes = {
        f"{MODULE}.gate_up_proj": gate_up,
        f"{MODULE}.gate_up_proj_bias": (gate_up[0], gate_up[-1]),
        f"{MODULE}.down_proj": down,
        "model.layers.0.self_attn.q_proj.weight": (64, 64),
    }
    return {
        name: ("F32", shape, rng.standard_normal(shape).astype(np.float32).tobytes())
        for name, shape in shapes.items()
    }


def test_a_model(tmp_path: Path) -> None:
    """Its experts, and nothing else; stopped and resumed; and read back."""
    source = write_safetensors(
        tmp_path / "in" / "model.safetensors", model_of((3, 64, 192), (3, 96, 64))
    )
    (source.parent / "config.json").write_text('{"model_type": "gpt_oss"}')

    def stop(done: int, total: int) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    with an.parse(source.parent) as model:
        report = model.convert(tmp_path / "out", "gptoss-mxfp4", verify=True)
        with pytest.raises(KeyboardInterrupt):
            model.convert(tmp_path / "again", "gptoss-mxfp4", progress=stop, threads=1)
        model.convert(tmp_path / "again", "gptoss-mxfp4", resume=True)
        assert set(report.plain.values()) == {"no stack of gpt-oss's experts"}
        assert len(report.plain) == 2
        files = [(tmp_path / at / "model.safetensors").read_bytes() for at in ("out", "again")]
        assert files[0] == files[1]
        with an.parse(tmp_path / "out") as made:
            assert report.loss is not None
            for name, loss in report.loss.weights.items():
                values = model[name].numpy().astype(ml_dtypes.bfloat16).astype(np.float32)
                error = np.abs(made[name].numpy() - values)
                assert loss.largest == error.max()
                assert error.max() <= np.abs(values).max() / 4
    told = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert told == {
        "quant_method": "mxfp4",
        "modules_to_not_convert": ["model.layers.0.self_attn.q_proj"],
    }


@pytest.mark.parametrize(
    ("gate_up", "down", "why"),
    [
        ((3, 192, 64), (3, 64, 96), r"experts that are \[out, in\], or may be"),
        ((3, 40, 96), (3, 48, 40), r"inputs are not in whole groups of 32"),
    ],
)
def test_other_stacks(gate_up: tuple[int, ...], down: tuple[int, ...], why: str) -> None:
    source = safetensors_bytes(model_of(gate_up, down))
    with an.parse(source) as model, pytest.raises(an.UnsupportedError, match=why):
        model.convert(io.BytesIO(), "gptoss-mxfp4")


@pytest.mark.parametrize(
    ("config", "biases"),
    [
        ({"model_type": "llama4", "text_config": {"model_type": "llama4_text"}}, False),
        ({"model_type": "openai_privacy_filter"}, True),
        ({}, False),
    ],
    ids=["llama4", "privacy-filter", "no-config"],
)
def test_other_models(config: dict[str, Any], biases: bool, tmp_path: Path) -> None:
    """They have stacks that are turned, too: Llama 4's without biases."""
    tensors = model_of((3, 64, 192), (3, 96, 64))
    made = {name: entry for name, entry in tensors.items() if biases or "bias" not in name}
    source = write_safetensors(tmp_path / "model.safetensors", made)
    (tmp_path / "config.json").write_text(json.dumps(config))
    why = "experts of another model than gpt-oss"
    with an.parse(source.parent) as model, pytest.raises(an.UnsupportedError, match=why):
        model.convert(tmp_path / "out", "gptoss-mxfp4")
