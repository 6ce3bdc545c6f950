"""Settings behind the name of an encoding."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.convert.request import targets
from anamnesis.schemes import encodings
from helpers.handmade import safetensors_bytes, write_safetensors

IDS = {
    "fp8-block-64x32": "fp8-block-64x32",
    "fp8-block-e5m2": "fp8-block-e5m2",
    "fp8-block-64x64-e5m2-ue8m0": "fp8-block-64x64-e5m2-ue8m0",
    "fp8-block-ct-64x64": "fp8-block-ct-64x64",
    "fp8-tensor-e5m2": "fp8-tensor-e5m2",
    "int4-32": "int4-32",
    "int4-asym-32": "int4-32-asym",
    "int4-channel": "int4-channel",
    "mlx-4bit-32": "mlx-4bit-32",
    "mlx-4bit-64": "mlx-4bit",
    "gptq-4bit-32": "gptq-4bit-32",
    "awq-4bit-64": "awq-4bit-64",
    "bnb-nf4-128": "bnb-nf4-128",
    "bnb-nf4-nested-128": "bnb-nf4-nested-128",
    "bnb-fp4-nested-zeros": "bnb-fp4-nested-zeros",
}


@pytest.mark.parametrize("name", [*IDS, *encodings.ENCODINGS])
def test_an_id_is_a_name(name: str) -> None:
    made = targets.encoding(name)
    assert made.id == IDS.get(name, made.id)
    assert targets.encoding(made.id) == made
    assert targets.target(f"npz-{name}").encoding == made


@pytest.mark.parametrize(
    "name",
    [
        *("int4-", "int4-x", "int4-32-64", "int4-0", "int8-32", "int4--32", "mlx-4bit-7"),
        *(
            "fp8-tensor-64x64",
            "fp8-block-0x64",
            "fp8-block-64",
            "fp8-channel-e5m2",
            "bnb-nf4-zeros",
        ),
        *("bnb-nf4-64x64", "gptq-4bit-e5m2", "nvfp4-32", "-32", "fp8-block-ue8m0-ue8m0"),
    ],
)
def test_settings_that_are_none(name: str) -> None:
    with pytest.raises(ValueError, match=r"there is no|must be|has neither|only FP4"):
        targets.encoding(name)


def test_group_sizes(tmp_path: Path) -> None:
    values = np.random.default_rng(5).normal(size=(32, 128)).astype(np.float32)
    source = write_safetensors(
        tmp_path / "in" / "model.safetensors", {"a.weight": ("F32", (32, 128), values.tobytes())}
    )
    (source.parent / "config.json").write_text("{}")
    with an.parse(source.parent) as model:
        model.forget(tmp_path / "out", "int4-32")
    with an.parse(tmp_path / "out") as made:
        assert made.stored["a.weight_scale"].shape == (32, 4)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["config_groups"]["group_0"]["weights"]["group_size"] == 32


def test_the_second_zero_of_fp4() -> None:
    """What is decoded from it gives its own bytes again."""
    values = np.array([[1.0, -0.0, 0.0, -0.0] * 32], np.float32)
    plain = an.parse(safetensors_bytes({"a.weight": ("F32", (1, 128), values.tobytes())}))
    first, second = io.BytesIO(), io.BytesIO()
    plain.forget(first, "bnb-fp4-zeros")
    decoded = an.parse(first.getvalue())
    assert (np.signbit(decoded["a.weight"].numpy()) == np.signbit(values)).all()
    decoded.forget(second, "bnb-fp4-zeros", dtype="f32")
    assert second.getvalue() == first.getvalue()
