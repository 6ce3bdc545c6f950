"""INT4 of values that were decoded from it, or trained for it: they get their codes back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.base.dtypes import DTypeName
from anamnesis.convert.request.targets import encoding

MODEL = "model.layers.0.mlp.experts.0.up_proj.weight"


def values(dtype: str, largest: int, seed: int) -> NDArray[Any]:
    """What a layer of random codes decodes to, each group's largest of one magnitude or less."""
    import ml_dtypes

    rng = np.random.default_rng(seed)
    scalar = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}[dtype]
    least = -8 if largest == 8 else -largest
    codes = rng.integers(least, min(largest, 7) + 1, (64, 16, 32))
    codes[:, :, 0] = -8 if largest == 8 else largest
    scales = (rng.uniform(0.5, 2, (64, 16, 1)) * 2.0**-9).astype(scalar)
    return (codes.astype(np.float32) * scales.astype(np.float32)).astype(scalar).reshape(64, 512)


def written(source: Path, target: str, out: Path, **options: Any) -> Path:
    with an.parse(source) as model:
        model.convert(out, target, **options)
    return out


@pytest.mark.parametrize("dtype", ["BF16", "F16", "F32"])
@pytest.mark.parametrize("largest", [7, 8, 6, 5])
def test_decoded_values_get_their_values_back(
    dtype: DTypeName, largest: int, tmp_path: Path
) -> None:
    array = values(dtype, largest, largest)
    an.save({MODEL: array}, tmp_path / "in.safetensors")
    out = written(tmp_path / "in.safetensors", "int4-32-qat", tmp_path / "out.safetensors")
    with an.parse(out) as model:
        again = model[MODEL].numpy(dtype)
    assert again.tobytes() == array.tobytes()


@pytest.mark.parametrize("group", [32, 128])
def test_a_published_model_comes_back_to_the_byte(group: int, tmp_path: Path) -> None:
    """Of what was quantised by the largest magnitude, where that is 7 or -8 steps."""
    rng = np.random.default_rng(group)
    an.save({MODEL: rng.normal(size=(128, 512)).astype("f2")}, tmp_path / "plain.safetensors")
    first = written(tmp_path / "plain.safetensors", f"int4-{group}", tmp_path / "a.safetensors")
    plain = written(first, "f16", tmp_path / "b.safetensors")
    written(plain, f"int4-{group}-qat", tmp_path / "c.safetensors", expect_same=first)
    with pytest.raises(an.OutputError, match="are not as in"):
        written(plain, f"int4-{group}", tmp_path / "d.safetensors", expect_same=first)
    assert not (tmp_path / "d.safetensors").exists()


def test_other_values_get_the_usual_bytes(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    an.save({MODEL: rng.normal(size=(64, 512)).astype("f4")}, tmp_path / "in.safetensors")
    usual = written(tmp_path / "in.safetensors", "int4-32", tmp_path / "usual.safetensors")
    written(tmp_path / "in.safetensors", "int4-32-qat", tmp_path / "o.st", expect_same=usual)


@pytest.mark.parametrize("name", ["int4-asym-32-qat", "int4-channel-qat", "int4-2048-qat"])
def test_settings_that_do_not_go_together(name: str) -> None:
    with pytest.raises(ValueError, match="qat is for symmetric codes in groups"):
        encoding(name)
