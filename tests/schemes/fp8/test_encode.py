"""FP8's codes and scales are byte for byte those of transformers and compressed-tensors."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import FineGrainedFP8Config

import anamnesis as an
from anamnesis.base.levels import LevelName
from anamnesis.schemes import fp8
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.families.fp8.layouts import encoding as fp8_encoding
from helpers.blockwise import CT, LEVELS, assert_stored, check, cropped
from helpers.encoder_oracles import (
    DTYPES,
    array_of,
    compressed_tensors,
    modelopt_fp8,
    padded,
    transformers,
)
from helpers.repacks import stored

pytestmark = pytest.mark.against("transformers, compressed-tensors")

REAL = os.environ.get("ANAMNESIS_REAL")
SHAPES = ((1, 1), (3, 8), (130, 200), (9, 1544))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("scale_fmt", "format"), [("float", "e4m3"), ("float", "e5m2"), ("ue8m0", "e4m3")]
)
@pytest.mark.parametrize("block", [(128, 128), (1, 32), (7, 5)], ids=str)
def test_fp8_blocks(
    block: tuple[int, int], scale_fmt: str, format: str, shape: tuple[int, int], dtype: str
) -> None:
    """Blocks that are not whole are as if zeros came behind."""
    check(
        shape,
        dtype,
        lambda array, level: fp8.quantize(
            array,
            "block",
            format=format,
            block=block,
            powers_of_two=scale_fmt == "ue8m0",
            level=level,
        ),
        lambda weight: cropped(
            transformers(padded(weight, block), block, scale_fmt=scale_fmt, format=format),
            shape,
            "q.weight_scale_inv",
        ),
    )


def quantized(kind: str, format: str, array: Any, level: LevelName) -> Any:
    return fp8.quantize(array, kind, format=format, level=level)


def library(block: tuple[int, int] | None, format: str, weight: Any) -> Any:
    return list(transformers(weight, block, format=format).values())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_fp8_of_a_row_or_all(format: str, shape: tuple[int, int], dtype: str) -> None:
    for kind, block in (("channel", (1, shape[1])), ("tensor", None)):
        check(
            shape,
            dtype,
            partial(quantized, kind, format),
            partial(library, block, format),
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["block", "channel", "tensor"])
def test_fp8_of_compressed_tensors(kind: str, shape: tuple[int, int], dtype: str) -> None:
    block = {"block_structure": [128, 128]} if kind == "block" else {}
    check(
        shape,
        dtype,
        lambda array, level: fp8.quantize(array, kind, flavour=CT, level=level),
        lambda weight: cropped(
            compressed_tensors(
                weight, "float-quantized", num_bits=8, type="float", strategy=kind, **block
            ),
            shape,
            "q.weight_scale",
        ),
    )


@pytest.mark.against("ModelOpt")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 8), (130, 200), (128, 256)], ids=str)
@pytest.mark.parametrize("kind", ["block", "channel"])
def test_fp8_of_modelopt(kind: str, shape: tuple[int, int], dtype: str) -> None:
    """With rows of zeros, and of what is less than any normal number of the dtype."""
    check(
        shape,
        dtype,
        lambda array, level: fp8.quantize(array, kind, flavour="ModelOpt", level=level),
        lambda weight: modelopt_fp8(kind, weight),
    )


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("modelopt_fp8", "fp8-tensor-modelopt"),
        ("modelopt_fp8_pc_pt", "fp8-channel-modelopt"),
        ("modelopt_fp8_pb_wo", "fp8-block-modelopt"),
    ],
)
@pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_modelopts_own_is_as_it_is(source: str, to: str, tmp_path: Path) -> None:
    """All but static scales of activations, and what the config says of these."""
    root = Path(REAL or "") / "modern" / source
    with an.parse(root) as model:
        report = model.convert(tmp_path / "out", to, lossless=True)
        before = stored(model)
    assert len(report.unchanged) == len(report.repacked) == 7
    with an.parse(tmp_path / "out") as model:
        assert stored(model) == {k: v for k, v in before.items() if "input_scale" not in k}
    for name in ("config.json", "hf_quant_config.json"):
        theirs, ours = (json.loads((at / name).read_text()) for at in (root, tmp_path / "out"))
        if "config_groups" in theirs.get("quantization_config", {}):
            del theirs["quantization_config"]["config_groups"]["group_0"]["input_activations"]
        assert ours == theirs


def test_modelopt_has_one_size_of_blocks() -> None:
    for more in ({"block": (64, 64)}, {"format": "e5m2"}, {"powers_of_two": True}):
        with pytest.raises(ValueError, match="ModelOpt has E4M3, in blocks of 128x128"):
            fp8.quantize(np.ones((4, 4), np.float32), flavour="ModelOpt", **more)
    with pytest.raises(an.UnsupportedError, match="only takes codes that are there already"):
        fp8.quantize(np.ones((4, 4), np.float32), "tensor", flavour="ModelOpt")


def test_powers_of_two_are_torchs(rng: np.random.Generator) -> None:
    """Every exponent, and all mantissas near a power of two, where a logarithm is rounded."""
    near = np.arange(-64, 65, dtype=np.int64)
    bits = ((np.arange(1, 254, dtype=np.int64) << 23)[:, None] + near).reshape(-1, 1)
    amax = bits.astype(np.uint32).view(np.float32)
    others = rng.uniform(0, 1, (bits.size, 1)) * rng.choice([1e-3, 1.0, 1e5], (bits.size, 1))
    for column in (amax, others.astype(np.float32)):
        want = transformers(torch.from_numpy(column), (1, 1), scale_fmt="ue8m0")
        for level in LEVELS:
            made = fp8.quantize(column, block=(1, 1), powers_of_two=True, level=level)
            assert_stored(made, list(want.values()), level)


def test_more_dimensions() -> None:
    weight = torch.randn(3, 2, 128, 256).to(torch.bfloat16)
    made = fp8.quantize(array_of(weight), "block")
    want = list(transformers(weight, (128, 128)).values())
    assert_stored(made, want, "experts")
    assert [part.shape for part in made] == [tuple(part.shape) for part in want]
    codes, scales = fp8.quantize(array_of(weight), "channel")
    assert (codes.shape, scales.shape) == ((3, 2, 128, 256), (3, 2, 128, 1))


NEXT_TO_NOTHING = 1e-37


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("to", "shape", "zero", "where"),
    [
        ("fp8-block", (256, 384), (200, 300), r"block \[1, 2\]"),
        ("fp8-block-64x32", (256, 384), (200, 300), r"block \[3, 9\]"),
        ("fp8-block", (256, 70016), (255, 70000), r"block \[1, 546\]"),  # a tile
        ("fp8-block-e5m2", (256, 384), (0, 0), r"block \[0, 0\]"),
        ("fp8-tensor", (256, 384), (200, 300), "it"),
    ],
)
def test_zeros_that_become_nans_are_refused_by_name(
    to: str, shape: tuple[int, int], zero: tuple[int, int], where: str, threads: int, tmp_path: Path
) -> None:
    """The library's scale is zero there, and its reciprocal infinite; without zeros it is well."""
    weight = torch.full(shape, NEXT_TO_NOTHING, dtype=torch.bfloat16)
    name = "model.layers.0.mlp.up_proj.weight"
    for is_zero in (False, True):
        weight[zero] = 0.0 if is_zero else NEXT_TO_NOTHING
        save_file({name: weight}, tmp_path / "in.safetensors")
        with an.parse(tmp_path / "in.safetensors") as model:
            if is_zero:
                told = rf"{name}: {where} has zeros, and beside them only values below 1\.\de-3"
                with pytest.raises(an.UnsupportedError, match=told):
                    model.forget(tmp_path / "out.safetensors", to, force=True, threads=threads)
            else:
                model.forget(tmp_path / "out.safetensors", to, threads=threads, verify=True)


@pytest.mark.parametrize("to", ["fp8-block-ue8m0", "fp8-block-ct", "fp8-channel", "fp8-tensor-ct"])
def test_other_scales_of_next_to_nothing_are_never_zero(to: str, tmp_path: Path) -> None:
    weight = torch.full((256, 384), NEXT_TO_NOTHING, dtype=torch.bfloat16)
    weight[200, 300] = 0.0
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({name: weight}, tmp_path / "in.safetensors")
    with an.parse(tmp_path / "in.safetensors") as model:
        report = model.forget(tmp_path / "out.safetensors", to)
    assert report.loss is not None
    assert report.loss.weights[name].is_finite
    with an.parse(tmp_path / "out.safetensors") as model:
        assert np.isfinite(model[name].numpy()).all()


def test_transformers_config() -> None:
    for encoding, settings in (
        (fp8_encoding(), {}),
        (fp8_encoding("tensor"), {"weight_block_size": None}),
        (
            fp8_encoding(block_size=(64, 32), powers_of_two=True),
            {"weight_block_size": [64, 32], "scale_fmt": "ue8m0"},
        ),
    ):
        config = FineGrainedFP8Config(modules_to_not_convert=["lm_head"], **settings)
        want = json.loads(json.dumps(config.to_dict()))
        assert encoding.layout.declare(Layers(["lm_head"])) == want
