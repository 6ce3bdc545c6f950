"""FP8 that is moved, as transformers and compressed-tensors load it: they decode what is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file
from transformers import CompressedTensorsConfig, FineGrainedFP8Config

import anamnesis as an
from helpers.tiny_models import loaded, saved

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.against("transformers, compressed-tensors"),
]


def moved(steps: tuple[str, ...], folder: Path) -> Path:
    """A tiny model that is encoded as the first of some encodings, and then moved.

    What the first leaves stays plain.
    """
    source = saved("llama", folder / "dense")
    left: list[str] = []
    for n, step in enumerate(steps):
        out = folder / f"{n} {step}"
        with an.parse(source) as model:
            report = model.convert(out, step, exclude=left)
            left = [*report.plain]
        assert n == 0 or (report.repacked and not report.requantised)
        source = out
    return source


WAYS = [
    ("fp8-block", "fp8-block-ct"),
    ("fp8-block-ue8m0", "fp8-block-ct"),
    ("fp8-block-ue8m0", "fp8-block"),
    ("fp8-block-ct", "fp8-block"),
    ("fp8-block-ue8m0", "fp8-block-ct", "fp8-block-ue8m0"),
    ("fp8-block", "fp8-block-modelopt", "fp8-block-ct"),
    ("fp8-block-modelopt", "fp8-block"),
    ("fp8-tensor", "fp8-block"),
    ("fp8-tensor", "fp8-block-ct"),
    ("fp8-tensor", "fp8-channel"),
    ("fp8-tensor", "fp8-tensor-ct"),
    ("fp8-tensor", "fp8-channel-modelopt", "fp8-channel"),
    ("fp8-tensor-ct", "fp8-tensor"),
    ("fp8-tensor-ct", "fp8-block"),
    ("fp8-channel", "fp8-channel-modelopt", "fp8-channel"),
    ("fp8-channel-modelopt", "fp8-channel"),
    ("mxfp8", "fp8-block"),
    ("mxfp8", "fp8-block-ct"),
    ("fp8-block-ue8m0", "mxfp8"),
]


BY_TRANSFORMERS = {"fp8-block", "fp8-block-ue8m0", "fp8-tensor"}  # by FineGrainedFP8Config


@pytest.mark.parametrize("steps", WAYS, ids="-".join)
def test_transformers_loads_it(steps: tuple[str, ...], tmp_path: Path) -> None:
    """In float32, for it rounds scales to the dtype that a model is loaded in."""
    out = moved(steps, tmp_path)
    with an.parse(out) as model:
        model.remember(tmp_path / "plain", dtype="f32")
    is_own = steps[-1] in BY_TRANSFORMERS
    kind: Any = FineGrainedFP8Config if is_own else CompressedTensorsConfig
    made = loaded(out, quantization_config=kind(dequantize=True), dtype=torch.float32)
    plain = loaded(tmp_path / "plain", dtype=torch.float32)
    found, wanted = made.state_dict(), plain.state_dict()
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert torch.equal(found[name], tensor), name


OF_COMPRESSED_TENSORS = [way for way in WAYS if way[-1] not in BY_TRANSFORMERS]


@pytest.mark.parametrize("steps", OF_COMPRESSED_TENSORS, ids="-".join)
def test_compressed_tensors_decodes_it(steps: tuple[str, ...], tmp_path: Path) -> None:
    out = moved(steps, tmp_path)
    state = load_file(out / "model.safetensors")
    told = json.loads((out / "config.json").read_text())["quantization_config"]
    config = QuantizationConfig.model_validate(told)
    (scheme,) = config.config_groups.values()
    compressor = BaseCompressor.get_value_from_registry(config.format)
    with an.parse(out) as model:
        names = [name for name in model if model[name].is_quantized]
        assert names
        for name in names:
            module = name.removesuffix("weight")
            parts = {
                key.removeprefix(module): tensor
                for key, tensor in state.items()
                if key.startswith(module)
            }
            theirs = compressor.decompress(parts, scheme)["weight"]
            ours = torch.from_numpy(model[name].numpy(dtype="f32"))
            assert torch.equal(theirs, ours.to(theirs.dtype)), name
