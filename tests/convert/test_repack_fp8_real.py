"""Real checkpoints in 8-bit floats as each layout: moved to the bit, or for a reason that holds."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.families.fp8.weight import Fp8Weight

ROOT = os.environ.get("ANAMNESIS_REAL")

pytestmark = pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")

SOURCES = (
    *("fp8/exaone_fine_grained.safetensors", "fp8/llama_dynamic_per_channel.safetensors"),
    *("fp8/llama_static_per_tensor.safetensors", "fp8/ministral_per_tensor.safetensors"),
    "fp8/qwen3_1_7b_fine_grained.safetensors",
    *("modern/ct_fp8_block", "modern/ct_fp8_channel", "modern/ct_fp8_channel_f32"),
    *("modern/ct_fp8_group_naive", "modern/ct_fp8_tensor_static", "modern/ct_mxfp8"),
    *("modern/modelopt_fp8", "modern/modelopt_fp8_pb_wo", "modern/modelopt_fp8_pc_pt"),
    *("modern/modelopt_mixed_kv", "modern/modelopt_mxfp8", "modern/mlx_mxfp8"),
    *("modern/fbgemm_fp8", "modern/fp8_block_scale_inv", "modern/deepseek_v4"),
    *("modern/quark_fp8_channel", "modern/quark_fp8_tensor", "modern/quanto_qfloat8"),
    *("modern/torchao_float8_row", "modern/torchao_float8_row_pickle", "modern/torchao_mxfp8"),
    *("modern/comfy_fp8_blockwise", "modern/comfy_fp8_legacy", "modern/comfy_fp8_rowwise"),
    *("modern/comfy_fp8_scaled", "modern/comfy_mxfp8"),
)
TARGETS = (
    *("fp8-block", "fp8-block-ue8m0", "fp8-block-ct", "fp8-channel", "fp8-tensor", "fp8-tensor-ct"),
    *("fp8-block-modelopt", "fp8-channel-modelopt", "fp8-tensor-modelopt"),
    *("mxfp8", "mxfp8-modelopt", "mlx-mxfp8"),
)
GRIDS = re.compile(r"differ where one is for (?:(all)|(each row)|([0-9]+)x([0-9]+) values)")
ACTIVATIONS = "range of activations or of a cache"


def scales_of(weight: Fp8Weight) -> NDArray[np.float32]:
    """The scale of each value of a matrix, as its grid says."""
    grid = weight.grid
    stored = weight.parts[1]
    raw = np.frombuffer(stored.read(), np.uint8)
    dtype = "F8_E8M0" if stored.dtype.name == "U8" else stored.dtype.name
    numbers = raw.view(DTYPES[dtype].numpy()).astype(np.float32)
    each = numbers.reshape(grid.batch * grid.grid_rows, grid.grid_cols)
    rows, cols = weight.shape
    if grid.kind == "tensor":
        return np.full((rows, cols), each[0, 0])
    return each.repeat(grid.block_rows, 0).repeat(grid.block_cols, 1)[:rows, :cols]


def holds(why: str, weight: Fp8Weight) -> bool:
    """Return whether a reason is true of the scales that are stored."""
    scales = scales_of(weight)
    if "not all powers of two" in why:
        return bool((np.frexp(scales)[0] != 0.5).any())
    found = GRIDS.search(why)
    if found is None:
        return why.startswith("rows end within a group") and weight.shape[-1] % 32 != 0
    tall, wide = weight.shape
    if found[2]:
        tall = 1
    elif found[3]:
        tall, wide = int(found[3]), int(found[4])
    blocks = [
        scales[i : i + tall, j : j + wide]
        for i in range(0, scales.shape[0], tall)
        for j in range(0, scales.shape[1], wide)
    ]
    return any((block != block[0, 0]).any() for block in blocks)


def ours(model: an.Model) -> dict[str, Fp8Weight]:
    """The matrices in 8-bit floats that have scales."""
    return {
        name: weight
        for name, weight in model._ledger.weights.items()
        if isinstance(weight, Fp8Weight) and len(weight.parts) == 2 and len(weight.shape) == 2
    }


def has_no_static_scales(config: dict[str, Any]) -> bool:
    """Return whether no config promises static scales of activations or of a cache."""
    section = config.get("quantization_config") or {}
    groups = section.get("config_groups", {}).values()
    inputs = [group.get("input_activations") or {} for group in groups]
    return (
        section.get("activation_scheme", "dynamic") == "dynamic"
        and all(one.get("dynamic", True) for one in inputs)
        and not section.get("kv_cache_scheme")
    )


def planned(model: an.Model, to: str, left: list[str]) -> tuple[dict[str, Any] | None, str]:
    """A plan, or what refuses it."""
    try:
        return model.plan(to, exclude=left).to_dict(), ""
    except an.UnsupportedError as error:
        return None, str(error)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("source", SOURCES)
def test_each_layout(source: str, target: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with an.parse(Path(ROOT or "") / source) as before:
        weights = ours(before)
        assert weights
        values = [n for n, w in before._ledger.weights.items() if w.own_dtype is not None]
        plan, told = planned(before, target, values)
        if plan is None:
            assert target == "fp8-tensor-modelopt"  # which encodes nothing
            (name,) = [one for one in weights if f"{one} [" in told]
            assert holds(told, weights[name])
            return
        reasons = {**plan["plain"], **plan["unmovable"]}
        moved = weights.keys() & plan["repacked"].keys()
        for name in weights.keys() - moved:
            assert holds(reasons[name], weights[name]), reasons[name]
        if not plan["repacked"]:
            return
        codes = before._ledger.weights.keys() - set(values)
        report = before.convert(
            out if before._checkpoint.root else out / "model.safetensors",
            target,
            exclude=values,
            lossless=codes == plan["repacked"].keys(),
            verify=True,
            force=True,
        )
        assert not report.inexact
        lost = {d.name for d in report.dropped if d.reason == ACTIVATIONS}
        with an.parse(out) as after:
            for name in moved:
                one, other = (model[name].numpy(dtype="f32") for model in (before, after))
                assert (one.view("u4") == other.view("u4")).all(), name
            assert lost.isdisjoint(after.stored)
    if (out / "config.json").exists():
        assert has_no_static_scales(json.loads((out / "config.json").read_text()))
