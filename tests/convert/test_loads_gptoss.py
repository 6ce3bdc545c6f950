"""gpt-oss in MXFP4, taken to another layout and back, is loaded by transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import GptOssConfig, GptOssForCausalLM, Mxfp4Config

import anamnesis as an
from helpers.tiny_models import DECODER, loaded

pytestmark = [
    pytest.mark.against("transformers"),
    pytest.mark.filterwarnings("default"),
]


def gptoss(folder: Path) -> Path:
    """Write a small model whose experts are random codes, as OpenAI's are laid out."""
    config = GptOssConfig(
        **{**DECODER, "intermediate_size": 64},
        head_dim=32,
        num_local_experts=4,
        num_experts_per_tok=2,
        initial_context_length=64,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    GptOssForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    tensors = load_file(folder / "model.safetensors")
    for name, weight in list(tensors.items()):
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, cols, rows = weight.shape  # [experts, in, out] as a model has it
            blocks = (experts, rows, cols // 32)
            tensors[f"{name}_blocks"] = torch.randint(0, 256, (*blocks, 16), dtype=torch.uint8)
            tensors[f"{name}_scales"] = torch.randint(118, 124, blocks, dtype=torch.uint8)
            del tensors[name]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    told = json.loads((folder / "config.json").read_text())
    plain = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens"]
    told["quantization_config"] = {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [*plain, "lm_head"],
    }
    (folder / "config.json").write_text(json.dumps(told))
    return folder


@pytest.mark.parametrize("through", ["mxfp4", "mxfp4-modelopt", "mlx-mxfp4", None])
def test_dequantised(through: str | None, tmp_path: Path) -> None:
    source = gptoss(tmp_path / "in")
    middle = source
    if through is not None:
        with an.parse(source) as model:
            model.convert(tmp_path / "middle", to=through, include=["*.experts.*"])
        middle = tmp_path / "middle"
    with an.parse(middle) as model:
        report = model.convert(tmp_path / "out", to="gptoss-mxfp4", include=["*.experts.*"])
    assert len(report.repacked) == 4
    models = [
        loaded(folder, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.bfloat16)
        for folder in (source, tmp_path / "out")
    ]
    theirs, ours = (model.state_dict() for model in models)
    for name, tensor in theirs.items():
        assert torch.equal(ours[name], tensor), name
    with an.parse(tmp_path / "out") as model:
        for name in report.repacked:
            kept = name.removesuffix(".weight")
            want = model[kept].numpy("f32")
            assert torch.equal(ours[kept].float(), torch.from_numpy(want)), name
    with torch.no_grad():
        found = [model.eval()(torch.arange(20)[None]).logits for model in models]
    assert torch.equal(*found)
