"""Per-weight detection: everything is accounted for, nothing guessed, nothing silent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load

import anamnesis as an
from helpers.claims import Tensors, described, empty, refusal
from helpers.fp8_layouts import (
    LAYOUTS,
    entry,
    product,
    quiet,
    random_codes,
    random_scales,
    raw_bytes,
)
from helpers.handmade import Entry, safetensors_bytes, write_safetensors


def dropped(tensors: Tensors) -> list[str]:
    report = an.parse(safetensors_bytes(tensors)).remember(lambda *_: None)
    return [d.name for d in report.dropped]


# --- all in one file ------------------------------------------------------------------------------


def test_everything_in_one_file(rng: np.random.Generator, tmp_path: Path) -> None:
    tensors: Tensors = {}
    want: dict[str, bytes] = {}
    layouts = [x for x in LAYOUTS if not x.tell]
    for i, layout in enumerate(layouts):
        code = ("F8_E4M3", "F8_E5M2")[i % 2]
        dtype = layout.scale_dtypes[i % len(layout.scale_dtypes)]
        codes = random_codes(rng, layout.shape, code)
        scale = random_scales(rng, layout.scale_shape, dtype)
        suffix = ("_scale", "_scale_inv")[i % 2]
        tensors[f"layers.{i}.weight{suffix}"] = entry(scale)
        tensors[f"layers.{i}.weight"] = entry(codes)
        want[f"layers.{i}.weight"] = quiet(product(codes, layout.expand(scale), "bf16"))
    bare = random_codes(rng, (7, 9), "F8_E5M2")
    tensors["bare.weight"] = entry(bare)
    want["bare.weight"] = quiet(bare.to(torch.bfloat16))
    for name, plain in {
        "norm.weight": torch.randn(5).to(torch.bfloat16),
        "head.weight": torch.randn(5, 3),
        "head.bias": torch.randn(5).half(),
    }.items():
        tensors[name] = entry(plain)
        want[name] = raw_bytes(plain)
    tensors["ids"] = empty("I64", 3)
    want["ids"] = bytes(24)
    tensors["layers.0.input_scale"] = empty("F32")
    out = tmp_path / "out.safetensors"
    model = an.parse(safetensors_bytes(tensors))
    assert not model.problems
    report = model.remember(out, threads=4)
    found = {name: raw_bytes(t) for name, t in load(out.read_bytes()).items()}
    assert found == want
    assert report.n_in == len(tensors)
    assert report.n_out == len(want)
    assert report.n_quantized == len(layouts) + 1
    assert report.n_consumed == len(layouts)
    assert [d.name for d in report.dropped] == ["layers.0.input_scale"]
    assert report.n_in == report.n_out + report.n_consumed + len(report.dropped)


# --- block sizes ----------------------------------------------------------------------------------

OPEN: Tensors = {
    "a.weight": empty("F8_E4M3", 192, 192),
    "a.weight_scale_inv": empty("F32", 2, 2),
}
SETTLES_128: Tensors = {
    "b.weight": empty("F8_E4M3", 256, 384),
    "b.weight_scale_inv": empty("F32", 2, 3),
}
SETTLES_96: Tensors = {
    "c.weight": empty("F8_E4M3", 288, 480),
    "c.weight_scale_inv": empty("F32", 3, 5),
}
LONE_BLOCK: Tensors = {
    "d.weight": empty("F8_E4M3", 96, 256),
    "d.weight_scale_inv": empty("F32", 1, 2),
}


def block_of(model: an.Model, name: str = "a.weight") -> str:
    return model[name].scheme.rpartition(", ")[2]


def test_open_block_size_is_refused() -> None:
    error = refusal(OPEN)
    for part in ("a.weight", "96x96", "128x128", "[192, 192]", "[2, 2]", "block_size="):
        assert part in str(error)


def test_open_block_size_settled_by_the_caller() -> None:
    for size in (96, 128):
        model = an.parse(safetensors_bytes(OPEN), block_size=(size, size))
        assert block_of(model) == f"{size}x{size} blocks"


@pytest.mark.parametrize("order", [1, -1])
def test_open_block_size_settled_by_other_weights(order: int) -> None:
    tensors = dict(list({**OPEN, **SETTLES_128}.items())[::order])
    assert block_of(an.parse(safetensors_bytes(tensors))) == "128x128 blocks"


def test_open_block_size_with_contradictory_weights(tmp_path: Path) -> None:
    other = dict(SETTLES_96)
    model = an.parse(safetensors_bytes({**OPEN, **SETTLES_128, **other}), block_size=(96, 96))
    assert list(model.problems) == ["b.weight", "b.weight_scale_inv"]
    config = {"quantization_config": {"a": {"weight_block_size": [96, 96]}}}
    path = described(tmp_path / "m.safetensors", config, {**OPEN, **other})
    with an.parse(path) as model:
        assert block_of(model) == "96x96 blocks"


def test_a_lone_block_settles_nothing() -> None:
    """96 rows with one row of scales: blocks of 96 rows, or of 128 that are cut off."""
    refusal({**OPEN, **LONE_BLOCK})
    model = an.parse(safetensors_bytes({**OPEN, **LONE_BLOCK, **SETTLES_128}))
    assert block_of(model) == "128x128 blocks"


def test_edges_shorter_than_a_block_are_settled_too() -> None:
    tensors = {
        "a.weight": empty("F8_E4M3", 200, 64),
        "a.weight_scale_inv": empty("F32", 2, 1),
    }
    refusal(tensors)
    model = an.parse(safetensors_bytes({**tensors, **SETTLES_128}))
    assert block_of(model) == "128x128 blocks"


@pytest.mark.parametrize(
    "section",
    [
        {"quantization_config": {"weight_block_size": [128, 128]}},
        {"text_config": {"quantization_config": {"weight_block_size": [128, 128]}}},
        {"compression_config": {"g": {"weights": {"block_structure": "128x128"}}}},
        {
            "quantization_config": {
                "config_groups": {"group_0": {"weights": {"block_structure": [128, 128]}}}
            }
        },
    ],
)
def test_open_block_size_settled_by_config(section: dict[str, Any], tmp_path: Path) -> None:
    with an.parse(described(tmp_path / "m.safetensors", section, OPEN)) as model:
        assert block_of(model) == "128x128 blocks"


def test_two_declared_sizes_that_both_fit_are_refused(tmp_path: Path) -> None:
    groups = {
        "a": {"weights": {"block_structure": [96, 96]}},
        "b": {"weights": {"block_structure": [128, 128]}},
    }
    config = {"quantization_config": {"config_groups": groups}}
    with an.parse(described(tmp_path / "m.safetensors", config, OPEN)) as model:
        assert "96x96 or 128x128" in str(model.problems["a.weight"])
    both = {**OPEN, **SETTLES_128}
    with an.parse(described(tmp_path / "m.safetensors", config, both)) as model:
        assert block_of(model) == "128x128 blocks"


def test_the_caller_overrides_the_config(tmp_path: Path) -> None:
    config = {"quantization_config": {"weight_block_size": [128, 128]}}
    path = described(tmp_path / "m.safetensors", config, OPEN)
    with an.parse(path, block_size=(96, 96)) as model:
        assert block_of(model) == "96x96 blocks"


# --- scales that do not fit -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "scale_shape"),
    [
        ((192, 192), (5, 7)),
        ((192, 192), (191,)),
        ((192, 192), (191, 1)),
        ((192, 192), (2, 2, 2)),
        ((192, 190), (190,)),
        ((3, 64, 64), (2, 1, 1)),
        ((64, 64), (0,)),
        ((64, 64), (128, 1)),
        ((64, 64), (65, 65)),
        ((7,), (7, 1, 2)),
        ((), (2,)),
    ],
)
def test_scale_that_does_not_fit(shape: tuple[int, ...], scale_shape: tuple[int, ...]) -> None:
    tensors = {"a.weight": empty("F8_E4M3", *shape), "a.weight_scale": empty("F32", *scale_shape)}
    error = refusal(tensors)
    assert isinstance(error, an.ParseError)
    assert error.offset is not None
    assert str(list(shape)) in str(error)
    assert str(list(scale_shape)) in str(error)


def test_scale_that_does_not_fit_the_declared_blocks() -> None:
    error = refusal(SETTLES_128, block_size=(96, 96))
    assert isinstance(error, an.ParseError)
    for part in ("96x96", "[256, 384]", "[2, 3]"):
        assert part in str(error)


@pytest.mark.parametrize("dtype", ["I32", "I8", "I64", "F8_E4M3", "BOOL"])
def test_scale_of_a_dtype_that_is_none(dtype: str) -> None:
    tensors = {"a.weight": empty("F8_E4M3", 4, 4), "a.weight_scale": empty(dtype, 4, 1)}
    assert f"dtype {dtype}" in str(refusal(tensors))


def test_u8_scales_are_mx_or_nothing() -> None:
    for shape in ((4, 1), (4,), ()):
        tensors = {"a.weight": empty("F8_E4M3", 4, 64), "a.weight_scale": empty("U8", *shape)}
        assert "MXFP8" in str(refusal(tensors))
    tensors = {"a.weight": empty("F8_E4M3", 1, 32), "a.weight_scale": empty("U8", 1, 1)}
    assert not an.parse(safetensors_bytes(tensors)).problems


# --- accounting -----------------------------------------------------------------------------------

ORPHANS = (
    ("a.weight_scale", "F32"),
    ("a.weight_scale_inv", "F32"),
    ("a.weight_scale_2", "F32"),
    ("a.scale_weight", "F32"),
    ("a.qscale_weight", "F32"),
    ("experts.gate_up_proj_scale_inv", "F32"),
    ("experts.gate_up_proj_scale", "F32"),
    ("experts.gate_up_proj_weight_scale", "F32"),
    ("a.comfy_quant", "U8"),
    ("a.scale", "F8_E8M0"),
)


@pytest.mark.parametrize(("name", "dtype"), ORPHANS)
def test_orphan(name: str, dtype: str, tmp_path: Path) -> None:
    tensors = {"norm.weight": empty("BF16", 4), name: empty(dtype, 4)}
    error = refusal(tensors)
    assert isinstance(error, an.UnsupportedError)
    assert name in str(error)
    model = an.parse(safetensors_bytes(tensors))
    assert list(model.problems) == [name]
    out = tmp_path / "out.safetensors"
    report = model.remember(out, allow_unknown=True)
    assert report.unknown == (name,)
    assert name in str(report)
    assert report.n_in == report.n_out == 2
    with safe_open(out, "np") as file:
        assert sorted(file.keys()) == sorted(tensors)


def test_two_scales_for_one_weight() -> None:
    tensors = {
        "a.weight": empty("F8_E4M3", 4, 4),
        "a.weight_scale": empty("F32", 4, 1),
        "a.weight_scale_inv": empty("F32", 4, 1),
    }
    assert "a.weight_scale" in str(refusal(tensors))


@pytest.mark.parametrize("name", ["a.weight.scale", "a.scales", "a.w_scale", "a.fp8_scale_w"])
def test_scales_under_unknown_names(name: str) -> None:
    """A weight that has codes and beside them something called scale is not a bare one."""
    tensors = {"a.weight": empty("F8_E4M3", 4, 4), name: empty("F32")}
    assert name in str(refusal(tensors))


def test_scale_missing_under_a_config_that_says_fp8(tmp_path: Path) -> None:
    tensors = {"a.weight": empty("F8_E4M3", 4, 4), "b.weight": empty("F8_E4M3", 4, 4)}
    tensors["b.weight_scale"] = empty("F32")
    for method in ("fp8", "fbgemm_fp8", "compressed-tensors", "modelopt", "auto-round", "torchao"):
        config = {"quantization_config": {"quant_method": method}}
        path = described(tmp_path / "m.safetensors", config, tensors)
        with an.parse(path) as model:
            assert list(model.problems) == ["a.weight"]
            with pytest.raises(an.UnsupportedError, match=r"a\.weight .* has no scale"):
                model.remember(lambda *_: None)
            with pytest.raises(an.UnsupportedError, match="has no scale"):
                model["a.weight"]
            report = model.remember(tmp_path / "out.safetensors", allow_unknown=True, force=True)
        assert report.unknown == ("a.weight",)
        passed = load((tmp_path / "out.safetensors").read_bytes())
        assert passed["a.weight"].dtype == torch.float8_e4m3fn


ACTIVATION = (
    "a.input_scale",
    "a.input_scale_inv",
    "a.input_scale_ub",
    "a.activation_scale",
    "a.activation_scale_ub",
    "a.act_scale",
    "a.output_scale",
    "a.scale_input",
    "a.qscale_act",
    "attn.k_scale",
    "attn.v_scale",
    "attn.q_scale",
    "attn.kv_scale",
    "attn.prob_scale",
    "experts.gate_up_proj_input_scale",
    "experts.gate_up_proj_activation_scale",
)


def test_activation_scales_are_dropped_and_listed() -> None:
    tensors = {
        "a.weight": empty("F8_E4M3", 4, 4),
        "a.weight_scale": empty("F32"),
        "attn.k_proj.weight": empty("F8_E4M3", 4, 4),
        "experts.gate_up_proj": empty("F8_E4M3", 2, 4, 4),
    }
    tensors |= {name: empty("F32") for name in ACTIVATION}
    assert sorted(dropped(tensors)) == sorted(ACTIVATION)
    report = an.parse(safetensors_bytes(tensors)).remember(lambda *_: None)
    assert f"dropped {len(ACTIVATION)}" in str(report)
    listed = an.parse(safetensors_bytes(tensors)).inspect().to_dict()
    assert str(len(ACTIVATION)) in json.dumps(listed)


def test_activation_scales_of_an_unquantised_model_stay() -> None:
    tensors = {"a.weight": empty("BF16", 4, 4)} | {name: empty("F32") for name in ACTIVATION}
    model = an.parse(safetensors_bytes(tensors))
    assert sorted(load(model.remember_to_bytes())) == sorted(tensors)
    assert dropped(tensors) == []


def test_ordinary_parameters_called_scale_stay() -> None:
    tensors = {
        "norm.scale": empty("BF16", 4),
        "norm.weight": empty("BF16", 4),
        "attn.logit_scale": empty("F32"),
        "logit_scale": empty("F32"),
        "blocks.0.layer_scale": empty("F32", 4),
        "codebook.zero": empty("F32", 4),
        "ssm.B": empty("F32", 4),
        "ssm.s": empty("F32", 4),
        "relative.biases": empty("F32", 4),
        "img_in.weight": empty("F8_E4M3", 4, 4),
        "quantizer.semantic_residual_vector_quantizer.layers.0.codebook.embed": empty("F32", 4),
    }
    model = an.parse(safetensors_bytes(tensors))
    assert not model.problems
    assert sorted(load(model.remember_to_bytes())) == sorted(tensors)


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2", "F32", "BF16"])
@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_marker_of_scaled_weights(prefix: str, n: int, dtype: str) -> None:
    tensors = {
        f"{prefix}scaled_fp8": empty(dtype, n),
        f"{prefix}a.weight": empty("F8_E4M3", 4, 4),
        f"{prefix}a.scale_weight": empty("F32"),
        f"{prefix}a.scale_input": empty("F32"),
    }
    assert sorted(dropped(tensors)) == [f"{prefix}a.scale_input", f"{prefix}scaled_fp8"]


# --- ComfyUI's per-layer formats ------------------------------------------------------------------


def comfy(layout: str, scale: Entry, *, by_metadata: bool) -> tuple[Tensors, dict[str, str] | None]:
    told = {"format": layout}
    tensors = {"l.a.weight": empty("F8_E4M3", 128, 128), "l.a.weight_scale": scale}
    if by_metadata:
        return tensors, {"_quantization_metadata": json.dumps({"layers": {"l.a": told}}), "x": "y"}
    raw = json.dumps(told).encode()
    return {**tensors, "l.a.comfy_quant": ("U8", [len(raw)], raw)}, None


@pytest.mark.parametrize("by_metadata", [False, True])
def test_a_comfy_layout_that_is_not_read_is_refused(by_metadata: bool) -> None:
    tensors, metadata = comfy("convrot_w4a4", empty("U8", 128, 4), by_metadata=by_metadata)
    assert "convrot_w4a4 (ComfyUI) cannot be decoded yet" in str(
        refusal(tensors, metadata=metadata)
    )


@pytest.mark.parametrize("by_metadata", [False, True])
@pytest.mark.parametrize("layout", ["float8_e4m3fn", "float8_e5m2"])
def test_comfy_fp8(layout: str, by_metadata: bool, tmp_path: Path) -> None:
    tensors, metadata = comfy(layout, empty("F32"), by_metadata=by_metadata)
    tensors["l.a.input_scale"] = empty("F32")
    model = an.parse(safetensors_bytes(tensors, metadata))
    out = tmp_path / "out.safetensors"
    report = model.remember(out)
    assert {d.name for d in report.dropped} == set(tensors) - {"l.a.weight", "l.a.weight_scale"}
    with an.parse(out) as result:
        assert list(result) == ["l.a.weight"]
        assert result.metadata == ({"x": "y"} if by_metadata else {})


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b"null", b"\xff", b'"format"', b"[" * 5000])
def test_comfy_marker_that_is_malformed(raw: bytes) -> None:
    tensors, _ = comfy("float8_e4m3fn", empty("F32"), by_metadata=False)
    tensors["l.a.comfy_quant"] = ("U8", [len(raw)], raw)
    assert isinstance(refusal(tensors), an.ParseError)


@pytest.mark.parametrize("told", ["", "[]", '{"layers": []}', '{"layers": {"a": 1}}', "[" * 5000])
def test_comfy_metadata_that_is_malformed(told: str) -> None:
    tensors, _ = comfy("float8_e4m3fn", empty("F32"), by_metadata=True)
    with pytest.raises(an.ParseError, match="_quantization_metadata"):
        an.parse(safetensors_bytes(tensors, {"_quantization_metadata": told}))


# --- what is not read yet is refused, each by a name of its own -----------------------------------

FOREIGN: dict[str, Tensors] = {
    "INT8 of two scales": {
        "a.weight": empty("I8", 64, 64),
        "a.weight_scale": empty("BF16", 64, 1),
        "a.weight_scale_2": empty("F32"),
    },
    "AWQ GEMV in groups of any size": {
        "a.qweight": empty("I32", 64, 64),
        "a.qzeros": empty("I32", 64, 1),
        "a.scales": empty("F16", 64, 8),
    },
    "QQQ": {
        "a.B": empty("I32", 4, 128),
        "a.s_channel": empty("F32", 1, 64),
        "a.s_group": empty("F16", 1, 64),
    },
    "Marlin 2:4 without meta": {"a.B_24": empty("I32", 2, 128), "a.s": empty("F16", 1, 64)},
    "Marlin 2:4 of other meta": {
        "a.weight_packed": empty("I32", 2, 128),
        "a.scale_packed": empty("F16", 1, 64),
        "a.meta": empty("I32", 2, 128),
    },
    "GPTQ of stacked experts": {
        "experts.w13_qweight": empty("I32", 2, 8, 64),
        "experts.w13_scales": empty("F16", 2, 1, 64),
    },
    "MLX": {
        "a.weight": empty("U32", 64, 8),
        "a.scales": empty("BF16", 64, 1),
        "a.biases": empty("BF16", 64, 1),
    },
    "BitNet": {"a.weight": empty("U8", 16, 64), "a.weight_scale": empty("BF16", 1)},
    "HQQ": {"a.W_q": empty("U8", 32, 64), "a.scale": empty("F16", 64), "a.zero": empty("F16", 64)},
    "torchao": {
        "a._weight_qdata": empty("I32", 1, 1, 32, 4),
        "a._weight_scale_and_zero": empty("BF16", 1, 8, 2),
    },
    "quanto": {
        "a.weight._data._data": empty("U8", 4, 4),
        "a.weight._scale": empty("BF16", 8, 1),
        "a.weight._shift": empty("I8", 8, 1),
    },
    "Quark FP8": {
        "a.weight": empty("F8_E4M3", 4, 4),
        "a.weight_quantizer.scale": empty("F32"),
        "a.weight_quantizer.zero_point": empty("F32"),
    },
    "EXL2 without groups": {"a.q_weight": empty("I32", 8, 64), "a.q_scale_max": empty("F16", 2)},
    "EXL3 without svh": {"a.trellis": empty("I16", 8, 8, 16), "a.suh": empty("F16", 128)},
    "AQLM without scales": {
        "a.codes": empty("I8", 8, 8, 1),
        "a.codebooks": empty("F16", 1, 256, 1, 8),
    },
    "SVDQuant": {"a.qweight": empty("I8", 64, 32), "a.wscales": empty("BF16", 1, 64)},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_quantisation_is_refused(kind: str) -> None:
    tensors = {"norm.weight": empty("BF16", 4), **FOREIGN[kind]}
    error = refusal(tensors)
    assert isinstance(error, an.UnsupportedError)
    assert any(name in str(error) for name in FOREIGN[kind])


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_quantisation_beside_fp8_is_refused(kind: str) -> None:
    tensors = {f"fp8.{k}": v for k, v in SETTLES_128.items()} | FOREIGN[kind]
    error = refusal(tensors)
    assert any(name in str(error) for name in FOREIGN[kind])


def test_remember_counts_what_cannot_be_read(tmp_path: Path) -> None:
    orphans = {f"{c}.weight_scale": empty("F32", 4) for c in "abc"}
    path = write_safetensors(tmp_path / "x.safetensors", orphans)
    with an.parse(path) as model:
        for _ in range(2):
            with pytest.raises(an.UnsupportedError, match=r"a\.weight_scale.* \(and 2 more such"):
                model.remember(tmp_path / "out.safetensors")
        assert "more such" not in str(model.problems["a.weight_scale"])
