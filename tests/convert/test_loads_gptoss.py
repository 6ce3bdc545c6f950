"""gpt-oss in MXFP4, taken to another layout and back, is loaded by transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GptOssConfig, GptOssForCausalLM, Mxfp4Config
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import anamnesis as an
from helpers.stacked_models import saved_stacked
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


@pytest.mark.parametrize(
    ("kind", "to"),
    [
        *(("gpt_oss", to) for to in ("nvfp4", "mxfp4", "mxfp8", "fp8-channel", "fp8-block")),
        *(("qwen3_5_moe", to) for to in ("fp8-block-ct", "fp8-block")),
    ],
)
def test_stacks_in_codes_of_others(
    kind: str, to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What transformers does not find is told, where stacks are moved whole."""
    # As on a GPU, without which it dequantises what it loads.
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)
    if kind == "gpt_oss":
        source = gptoss(tmp_path / "in")
    else:
        source = tmp_path / "in"
        with an.parse(saved_stacked(kind, tmp_path / "dense")) as model:
            model.forget(source, "fp8-block")
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out", to, include=["*.experts.*"])
        plan = model.plan(to, include=["*.experts.*"])
    assert len(report.repacked) == 4
    assert not report.taken_apart
    told = {verdict.program.partition(" ")[0]: verdict.outcome for verdict in plan.verdicts}
    if (kind, to) == ("gpt_oss", "fp8-block"):
        with pytest.raises(AssertionError, match="FP8Experts does not support bias"):
            AutoModelForCausalLM.from_pretrained(tmp_path / "out")
        assert told["transformers"] == told["vLLM"] == "refuses"
        return
    _, found = AutoModelForCausalLM.from_pretrained(
        tmp_path / "out", dtype=torch.bfloat16, output_loading_info=True
    )
    loads = not found["missing_keys"] and not found["unexpected_keys"]
    assert loads == ((kind, to) == ("qwen3_5_moe", "fp8-block"))
    assert told["transformers"] == ("loads" if loads else "refuses")
    assert told["vLLM"] == told["transformers"]
