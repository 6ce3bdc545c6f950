"""Weights that are rotated or corrected: what only a config says is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import anamnesis as an
from helpers.claims import NORM, Q, Tensors, directory, empty

FP8: Tensors = {**NORM, f"{Q}.weight": empty("F8_E4M3", 8, 8), f"{Q}.weight_scale": empty("F32")}
TRANSFORMS: list[dict[str, Any]] = [
    {"transform_config": {"config_groups": {"R4": {"type": "hadamard", "apply": []}}}},
    {"config_groups": {"g": {"transform_config": {"config_groups": {"R1": {"type": "x"}}}}}},
    {"quant_method": "gptq", "rotation": "hadamard"},
    {"quant_method": "auto-round", "rotation_config": {"hadamard_type": "random_hadamard"}},
    {"quant_method": "quark", "algo_config": [{"name": "awq"}, {"name": "QuaRot", "r4": True}]},
    {"quant_method": "quark", "algo_config": [{"name": "rotation", "online_r1_rotation": True}]},
    {"quant_method": "fp_quant", "hadamard_group_size": 32},
    {"quant_method": "fp_quant", "transform_block_size": 32},
    {"quant_method": "spinquant", "online_had": True},
    {"quant_method": "gptq", "adapter": {"name": "lora", "rank": 64}},
]
HARMLESS: list[dict[str, Any]] = [
    {"transform_config": {}, "sparsity_config": {}, "config_groups": {"g": {"weights": {}}}},
    {"transform_config": {"config_groups": {}}},
    {"rotation": None, "adapter": None, "rotation_config": {"r4": False}},
    {"kv_cache_scheme": {"num_bits": 8}, "activation_scheme": "static"},
    {"llm_int8_enable_fp32_cpu_offload": True, "modules_to_not_convert": ["rotation_embedding"]},
    {"dynamic": {"+:.*adapter.*": {"bits": 4}}, "ignore": ["hadamard", "lora"]},
    {"quantized_layers": {"model.rotation.adapter": {"quant_algo": "FP8"}}},
    {"algo_config": [{"name": "awq"}, {"name": "smooth"}], "meta": {"opt_rotation_epochs": 10}},
]


@pytest.mark.parametrize("section", TRANSFORMS, ids=str)
@pytest.mark.parametrize("key", ["quantization_config", "compression_config"])
def test_transforms_are_refused(section: dict[str, Any], key: str, root: Path) -> None:
    with an.parse(directory(root, {"text_config": {key: section}}, FP8)) as model:
        assert set(model.problems) == set(FP8)
        with pytest.raises(an.UnsupportedError, match="only the runtime"):
            model.remember(root.parent / "out")
        model.remember(root.parent / "out", allow_unknown=True)
    out = root.parent / "out"
    assert json.loads((out / "config.json").read_bytes())["text_config"][key] == section
    assert (out / "model.safetensors").stat().st_size > 0
    assert load_file(out / "model.safetensors")[f"{Q}.weight"].dtype == torch.float8_e4m3fn


def test_transforms_of_params_are_refused(root: Path) -> None:
    """Mistral's own config may have a section of compressed-tensors."""
    (directory(root, {}, FP8) / "params.json").write_text(
        json.dumps(
            {"dim": 8, "quantization": {"quant_method": "compressed-tensors"} | TRANSFORMS[0]}
        )
    )
    with (
        an.parse(root) as model,
        pytest.raises(an.UnsupportedError, match="'transform_config'"),
    ):
        model.remember(root.parent / "out")


@pytest.mark.parametrize("section", HARMLESS, ids=str)
def test_other_entries_are_no_transforms(section: dict[str, Any], root: Path) -> None:
    with an.parse(directory(root, {"quantization_config": section}, FP8)) as model:
        assert not model.problems


def test_transform_as_compressed_tensors_writes_it(root: Path) -> None:
    transform = pytest.importorskip("compressed_tensors.transform")
    at = [transform.TransformArgs(targets=["Linear"], location="input")]
    scheme = transform.TransformScheme(type="hadamard", apply=at)
    config = transform.TransformConfig(config_groups={"R4": scheme}).model_dump(mode="json")
    section = {"quant_method": "compressed-tensors", "transform_config": config}
    with an.parse(directory(root, {"quantization_config": section}, FP8)) as model:
        assert "'transform_config'" in str(model.problems[f"{Q}.weight"])
