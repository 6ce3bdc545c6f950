"""A directory output loads in transformers as it stands, and computes the same to the bit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM
from transformers.integrations.finegrained_fp8 import Fp8Dequantize

import anamnesis as an
from helpers.as_transformers_load import assert_loads_as, tiny_llama
from helpers.handmade import write_index

BLOCK = 128


def quantised(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Block by block as DeepSeek does: the largest value becomes 448."""
    rows, cols = weight.shape
    blocks = weight.float().reshape(rows // BLOCK, BLOCK, cols // BLOCK, BLOCK)
    scale = blocks.abs().amax((1, 3)) / 448.0
    codes = (blocks / scale[:, None, :, None]).to(torch.float8_e4m3fn)
    return codes.reshape(rows, cols), scale


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LlamaForCausalLM]:
    """An FP8 repository, and the model that torch makes of it."""
    folder = tmp_path_factory.mktemp("hub") / "llama-fp8"
    reference = tiny_llama()
    reference.save_pretrained(folder)
    (folder / "model.safetensors").unlink()
    canonical = Fp8Dequantize(None)
    shards: list[dict[str, torch.Tensor]] = [{}, {}]
    state = reference.state_dict()
    for i, (name, tensor) in enumerate(state.items()):
        if name.endswith("_proj.weight"):
            codes, scale = quantised(tensor)
            shards[i % 2][name] = codes
            shards[1 - i % 2][f"{name}_scale_inv"] = scale
            tensor.copy_(canonical._dequantize_one(codes, scale, torch.bfloat16))
        else:
            shards[i % 2][name] = tensor.contiguous()
    reference.load_state_dict(state)
    reference.save_pretrained(folder.with_name("by-torch"))
    reference = AutoModelForCausalLM.from_pretrained(folder.with_name("by-torch"))
    names = [f"model-{i:05}-of-00002.safetensors" for i in (1, 2)]
    for shard, file in zip(shards, names, strict=True):
        save_file(shard, folder / file, {"format": "pt"})
    write_index(folder, {t: f for s, f in zip(shards, names, strict=True) for t in s})
    told = json.loads((folder / "config.json").read_bytes())
    told["quantization_config"] = {
        "quant_method": "fp8",
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
    }
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "modeling_own.py").write_text("x = 1\n")
    (folder / "original").mkdir()
    (folder / "original" / "params.json").write_text("{}")
    return folder, reference


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("max_shard_size", [None, 100_000, 10**9])
def test_logits(
    max_shard_size: int | None, published: tuple[Path, LlamaForCausalLM], tmp_path: Path
) -> None:
    source, reference = published
    out = tmp_path / "llama-bf16"
    with an.parse(source) as parsed:
        report = parsed.remember(out, threads=2, max_shard_size=max_shard_size)
    assert report.n_quantized == 14
    assert_loads_as(out, reference)
    for name in ("tokenizer.json", "modeling_own.py", "original/params.json"):
        assert (out / name).read_bytes() == (source / name).read_bytes()
    assert (out / "generation_config.json").is_file()
