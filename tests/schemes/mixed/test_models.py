"""Checkpoints of many families in one model: each weight comes out as it does by itself."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.codebook_cases import AQLM, AQLM_VALUES, LAYER, VPTQ, VPTQ_VALUES
from helpers.handmade import Entry, write_safetensors
from helpers.recorded import RECORDED

ROOT = os.environ.get("ANAMNESIS_REAL")
FLOATS: dict[str, Any] = {"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}

# Checkpoints that libraries made, put into one model each; the first says `quant_method`.
MIXES = (
    (
        *("ct_int8_channel_asym_f16", "hqq_mixed_bits", "mlx_affine_4bit_mixed", "gptoss_mxfp4"),
        *("comfy_nvfp4", "aqlm", "torchao_int4_plain", "fp8_block_scale_inv", "vptq"),
    ),
    (
        *("modelopt_w4a8_awq", "modelopt_fp8", "awq_marlin", "quanto_qint4", "ct_mxfp6"),
        *("deepseek_v4", "mlx_nvfp4", "ct_w4_g128_actorder"),
    ),
    (
        *("bitnet_bitlinear", "awq_gemv", "ct_sparse24_bitmask", "comfy_kitchen_mixed"),
        *("mlx_mxfp8", "torchao_nvfp4", "ct_w3_dense_asym"),
    ),
    (
        *("quark_int4_group", "quark_mxfp6_e2m3", "autoround_w4_sym_gptq", "hqq_4bit_axis0"),
        *("fbgemm_fp8", "vptq", "torchao_mxfp4"),
    ),
)

# The same of what is in this repository: files of what libraries decode, and what is made by hand.
RECORDED_CASES = {"quark": "uint4-group-reorder", "hqq": "4-axis1", "quanto": "4-3x160-float32"}


def entries(path: Path) -> tuple[dict[str, Entry], dict[str, str]]:
    """The tensors of a file, and its metadata."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    metadata: dict[str, str] = header.pop("__metadata__", None) or {}
    return {
        name: (told["dtype"], tuple(told["shape"]), data[slice(*told["data_offsets"])])
        for name, told in header.items()
    }, metadata


COMFY = "_quantization_metadata"


def mixed(folder: Path, parts: tuple[str, ...]) -> Path:
    """Write a directory of the checkpoints, each a shard, and of what their configs say."""
    configs = {}
    for i, name in enumerate(parts):
        of = Path(ROOT or "", "modern", name)
        tensors, metadata = entries(of / "model.safetensors")
        told = {
            f"{name}.{key}" if key in names(tensors) else key: metadata[key] for key in metadata
        }
        if COMFY in told:
            layers = json.loads(told[COMFY])["layers"]
            told[COMFY] = json.dumps({"layers": {f"{name}.{key}": layers[key] for key in layers}})
        shard = f"model-{i + 1:05}-of-{len(parts):05}.safetensors"
        write_safetensors(
            folder / shard, {f"{name}.{key}": tensors[key] for key in tensors}, told or None
        )
        config = of / "config.json"
        if config.exists():
            text = config.read_text(encoding="utf-8").replace('"model.', f'"{name}.model.')
            configs[name] = json.loads(text)
    (folder / "config.json").write_text(json.dumps(configs))
    return folder


def names(tensors: dict[str, Entry]) -> set[str]:
    """The weights that torchao's parts are of."""
    return {name.replace("._weight_qdata", ".weight") for name in tensors}


def expected(name: str) -> dict[str, Entry]:
    """What the library makes of a checkpoint, in float32 where that is there.

    Nothing of EXL3, of which it is another decoder's; tests/schemes/exl3 has exllamav3's kernels.
    """
    if name == "exl3":
        return {}
    of = Path(ROOT or "", "modern")
    exact = of / f"{name}.expected_f32.safetensors"
    every = entries(of / f"{name}.expected.safetensors")[0]
    told = json.loads((of / f"{name}.json").read_bytes())
    twice = told.get("values_where_it_is_not", {})
    in_f32 = entries(exact)[0] if exact.exists() else {}
    return {
        key: in_f32.get(key, e) for key, e in every.items() if key in in_f32 or key not in twice
    }


def quiet(entry: Entry) -> bytes:
    """Values with the one quiet NaN."""
    values = np.frombuffer(entry[2], FLOATS[entry[0]]).copy()
    values[np.isnan(values)] = np.nan
    return values.tobytes()


def check(model: an.Model, name: str, entry: Entry) -> None:
    dtype: Any = entry[0].lower()
    for level in supported_levels():
        assert model[name].shape == tuple(entry[1])
        assert model[name].numpy(dtype, level=level).tobytes() == quiet(entry), (name, level)


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("parts", MIXES, ids=lambda parts: parts[0])
def test_what_libraries_wrote(parts: tuple[str, ...], tmp_path: Path) -> None:
    with an.parse(mixed(tmp_path, parts)) as model:
        assert not model.problems
        assert len({model[name].scheme for name in model if model[name].parts[1:]}) >= 5
        for part in parts:
            for name, entry in expected(part).items():
                check(model, f"{part}.{name}", entry)


@pytest.mark.slow
@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_everything_at_once(tmp_path: Path) -> None:
    """Configs disagree then, so that many are refused; but no value is another one."""
    here = Path(ROOT or "", "modern")
    every = tuple(sorted(path.parent.name for path in here.glob("*/model.safetensors")))
    refused = set()
    with an.parse(mixed(tmp_path, every)) as model:
        refused = {name.partition(".")[0] for name in model.problems}
        for part in every:
            for name, entry in () if part in refused else expected(part).items():
                check(model, f"{part}.{name}", entry)
        assert all("\n" not in error.message for error in model.problems.values())
    assert len(refused) < len(every) * 9 / 10


# Weights of which each value can be told by looking at it: parts, and what they stand for.
BY_HAND: dict[str, tuple[dict[str, Entry], Any]] = {
    "aqlm": ({name[2:]: entry for name, entry in AQLM.items()}, AQLM_VALUES),
    "vptq": ({name[2:]: entry for name, entry in VPTQ.items()}, VPTQ_VALUES),
    "mxfp4": (
        {
            "weight_packed": ("U8", (1, 16), bytes.fromhex("1032547698badcfe" * 2)),
            "weight_scale": ("U8", (1, 1), bytes([128])),
        },
        [[0, 1, 2, 3, 4, 6, 8, 12, -0.0, -1, -2, -3, -4, -6, -8, -12] * 2],
    ),
    "fp8": (
        {
            "weight": ("F8_E4M3", (2, 2), bytes([0x38, 0xC0, 0x00, 0x7E])),
            "weight_scale_inv": ("F32", (1, 1), np.array([3], "<f4").tobytes()),
        },
        [[3, -6], [0, 1344]],
    ),
    "gptq": (
        {
            "qweight": ("I32", (1, 8), np.array([0x76543210] * 8, "<u4").tobytes()),
            "qzeros": ("I32", (1, 1), bytes([0x00] * 4)),
            "scales": ("F16", (1, 8), np.array([1, 2, 3, 4, 5, 6, 7, 8], "<f2").tobytes()),
        },
        [[(code - 1) * scale for code in range(8)] for scale in range(1, 9)],
    ),
}


def _speaks_of_one(config: dict[str, Any], layer: str) -> None:
    """Let Quark's config speak of its own weight alone."""
    section = config.get("quantization_config", config)
    if "global_quant_config" in section:
        section["layer_quant_config"] = {layer: section.pop("global_quant_config")}


def test_what_is_made_by_hand(tmp_path: Path) -> None:
    """With what libraries decode that are not installed for tests."""
    tensors = {f"{of}.{k}": e for of, (parts, _) in BY_HAND.items() for k, e in parts.items()}
    wanted = {f"{of}.weight": np.array(v, "<f4") for of, (_, v) in BY_HAND.items()}
    section = {"quant_method": "vptq", "config_for_layers": {"vptq": LAYER}, "bits": 4}
    config: dict[str, Any] = {"quantization_config": section}
    for library, case in RECORDED_CASES.items():
        stored, told = entries(RECORDED / f"{library}.safetensors")
        for name, entry in stored.items():
            part = f"{library}.{name.rpartition('/')[2]}"
            if name.startswith(f"{case}/stored/"):
                tensors[part] = entry
            elif name.startswith(f"{case}/"):
                wanted[part] = np.frombuffer(entry[2], "<f4").reshape(entry[1])
        config[library] = json.loads(told[case])
        _speaks_of_one(config[library], library)
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with an.parse(tmp_path) as model:
        assert not model.problems
        assert len({model[name].scheme for name in wanted}) == len(wanted) == 8
        for name, array in wanted.items():
            check(model, name, ("F32", array.shape, array.tobytes()))
