"""HQQ's own pickles, beside what its layers dequantise."""

from __future__ import annotations

import copy
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from hqq.core.quantize import BaseQuantizeConfig, HQQLinear, Quantizer

import anamnesis as an
from helpers.fp8_layouts import quiet, raw_bytes

pytestmark = pytest.mark.against("HQQ")

M = "model.layers.0.mlp.up_proj"
SCALE = {"nbits": 8, "channel_wise": True, "group_size": 128, "optimize": False}
ZERO = {"nbits": 8, "channel_wise": False, "group_size": None, "optimize": False}
# What `quantize` was given until 2024: how scales and zero points are quantised.
NESTED: dict[str, tuple[Any, Any]] = {
    "plain": (None, None),
    "zero points": (None, ZERO),
    "zero points in groups": (None, SCALE),
    "both": (SCALE, ZERO),
    "both alike": (SCALE, SCALE),
    "scales in columns": ({**SCALE, "group_size": 64, "axis": 1}, None),
}


def layer(dtype: torch.dtype, scale: Any = None, zero: Any = None, **how: Any) -> HQQLinear:
    torch.manual_seed(1)
    config = BaseQuantizeConfig(**how)
    made = HQQLinear(None, config, compute_dtype=dtype, device="cpu")
    weight = torch.randn(64, 256)
    made.quantize(weight, config["weight_quant_params"], scale, zero)
    return made


def as_now(made: HQQLinear) -> dict[str, Any]:
    """The dictionary that `serialize_weights` takes."""
    made.encoded_state_dict = False
    return dict(made.state_dict())


def as_before(made: HQQLinear) -> dict[str, Any]:
    """The one of versions before 0.1.8."""
    return {"W_q": made.W_q.data, "meta": made.meta, "bias": None}


def offloaded(made: HQQLinear) -> dict[str, Any]:
    state = as_before(made)
    end = "_q" if made.meta["quant_zero"] else ""
    pair = [state["meta"].pop(f"zero{end}"), state["meta"].pop(f"scale{end}")]
    state["meta"]["zero_scale"] = torch.stack(pair)
    return state


F32 = {"compute_dtype": torch.float32}


def in_float32(made: HQQLinear) -> torch.Tensor:
    """HQQ's answer where it computes in float32."""
    exact = copy.deepcopy(made)
    for name in ("meta", "meta_zero", "meta_scale"):
        meta = exact.meta if name == "meta" else exact.meta.get(name)
        if meta is not None:
            meta |= F32
            Quantizer.cuda(None, meta, "cpu")
    values: torch.Tensor = exact.dequantize()
    return values


def check(folder: Path, state: dict[str, Any], rounded: torch.Tensor, exact: torch.Tensor) -> None:
    torch.save({M: state, "model.norm": {"weight": torch.ones(8)}}, folder / "qmodel.pt")
    with an.parse(folder / "qmodel.pt") as model:
        assert sorted(model) == [f"{M}.weight", "model.norm.weight"]
        tensor = model[f"{M}.weight"]
        found = torch.from_numpy(tensor.numpy("f32", math="reference"))
        assert raw_bytes(found) == quiet(rounded.float())
        assert raw_bytes(torch.from_numpy(tensor.numpy())) == quiet(exact)
        assert raw_bytes(torch.from_numpy(tensor[3:40])) == quiet(exact[3:40].contiguous())


DTYPES = (torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("nbits", [8, 4, 3, 2, 1])
def test_now(nbits: int, axis: int, dtype: torch.dtype, tmp_path: Path) -> None:
    made = layer(dtype, nbits=nbits, group_size=64, axis=axis)
    rounded, exact = made.dequantize(), in_float32(made)
    check(tmp_path, as_now(made), rounded, exact)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("nested", "way"),
    [*product(NESTED, (as_now, as_before)), ("plain", offloaded), ("both alike", offloaded)],
)
def test_quantised_scales(nested: str, way: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    made = layer(dtype, *NESTED[nested], nbits=4, group_size=64, axis=0)
    rounded, exact = made.dequantize(), in_float32(made)
    check(tmp_path, way(made), rounded, exact)


def test_codes_as_floats(tmp_path: Path) -> None:
    made = layer(torch.bfloat16, nbits=4, group_size=64, view_as_float=True)
    check(tmp_path, as_before(made), made.dequantize(), in_float32(made))


def test_a_directory(tmp_path: Path) -> None:
    """What `save_quantized` writes, config.json beside."""
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    (source / "config.json").write_text('{"model_type": "llama"}')
    made = layer(torch.float16, nbits=4, group_size=64)
    torch.save({M: as_now(made)}, source / "qmodel.pt")
    with an.parse(source) as model:
        model.remember(out, dtype="f32")
    assert sorted(path.name for path in out.iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    with an.parse(out) as model:
        assert raw_bytes(torch.from_numpy(model[f"{M}.weight"].numpy())) == quiet(in_float32(made))


def test_scales_of_4_bits(tmp_path: Path) -> None:
    made = layer(torch.float16, {**SCALE, "nbits": 4}, nbits=4, group_size=64)
    torch.save({M: as_before(made)}, tmp_path / "qmodel.pt")
    with an.parse(tmp_path / "qmodel.pt") as model, pytest.raises(an.UnsupportedError) as caught:
        model.remember(lambda *_: None)
    assert "holds scales in 4 bits; HQQ's are of 8" in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "value"), [("axis", 2), ("axis", 0), ("shape", torch.Size([1, 7])), ("packing", "")]
)
def test_scales_of_scales_that_do_not_fit(setting: str, value: Any, tmp_path: Path) -> None:
    made = layer(torch.float16, {**SCALE, "axis": 1}, nbits=4, group_size=64)
    state = as_before(made)
    state["meta"]["meta_scale"][setting] = value
    torch.save({M: state}, tmp_path / "qmodel.pt")
    with an.parse(tmp_path / "qmodel.pt") as model:
        assert f"{M}.W_q" in model.problems
