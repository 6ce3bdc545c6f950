"""Names are kept where that is asked for, or llama.cpp is not meant for a model; else an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.cli.demo_models import DEMOS

LAYER = {"model.layers.0.mlp.up_proj.weight": np.ones((32, 32), np.float32)}
LORA = {"base_model.model.x.lora_A.weight": np.ones((4, 32), np.float32)}


def folder(root: Path, file: str, tensors: dict[str, Any], **configs: Any) -> Path:
    root.mkdir()
    an.save(tensors, root / file)
    for name, config in configs.items():
        (root / f"{name}.json").write_text(json.dumps(config))
    return root


REFUSED: dict[str, tuple[tuple[str, dict[str, Any], dict[str, Any]], str, str]] = {
    "no class": (
        ("model.safetensors", LAYER, {"config": {"model_type": "qwen3", "num_hidden_layers": 1}}),
        "names no class in `architectures`",
        "names='keep'",
    ),
    "an empty list": (
        (
            "model.safetensors",
            LAYER,
            {"config": {"model_type": "gpt2", "n_layer": 8, "architectures": []}},
        ),
        "names no class in `architectures`",
        "names='keep'",
    ),
    "another class": (
        ("model.safetensors", LAYER, {"config": {"architectures": ["NoneForCausalLM"]}}),
        "'NoneForCausalLM' has no row here",
        "names='keep'",
    ),
    "an adapter": (
        ("adapter_model.safetensors", LORA, {"adapter_config": {"peft_type": "LORA"}}),
        "an adapter is no whole model",
        "merge_and_unload",
    ),
    "Mistral's": (
        ("consolidated.safetensors", LAYER, {"params": {"dim": 8}}),
        "is in Mistral's layout",
        "config.json",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_directory_that_does_not_say_its_names(case: str, tmp_path: Path) -> None:
    (file, tensors, configs), why, what = REFUSED[case]
    root = folder(tmp_path / "in", file, tensors, **configs)
    with pytest.raises(an.UnsupportedError, match=why) as said:
        an.convert(root, tmp_path / "x.gguf", "gguf")
    assert what in str(said.value.remedy)
    an.convert(root, tmp_path / "x.gguf", "gguf", names="keep")
    assert set(an.parse(tmp_path / "x.gguf")) == tensors.keys()


KEPT: dict[str, dict[str, Any]] = {
    "diffusers": {"config": {"_class_name": "UNet2DConditionModel", "hidden_size": 8}},
    "timm": {"config": {"architecture": "resnet50", "num_classes": 1000}},
    "no config": {},
}


@pytest.mark.parametrize("case", KEPT)
def test_a_directory_that_llama_cpp_is_not_meant_for(case: str, tmp_path: Path) -> None:
    root = folder(tmp_path / "in", "model.safetensors", LAYER, **KEPT[case])
    an.convert(root, tmp_path / "x.gguf", "gguf")
    assert set(an.parse(tmp_path / "x.gguf")) == LAYER.keys()


WORDS = {"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a"]}
BLOCK = {"blk.0.ffn_up.weight": np.ones((32, 32), np.float32)}


@pytest.mark.parametrize(
    ("metadata", "tensors", "why"),
    [
        ({"general.architecture": "nobody", **WORDS}, BLOCK, "'nobody' has no row here"),
        ({"general.architecture": "nobody", **WORDS}, LAYER, "'nobody' has no row here"),
        ({"general.architecture": "nobody"}, BLOCK, "'nobody' has no row here"),
        (WORDS, BLOCK, "general.architecture None has no row here"),
    ],
)
def test_a_gguf_of_which_no_directory_can_be_made(
    metadata: dict[str, Any], tensors: dict[str, Any], why: str, tmp_path: Path
) -> None:
    an.save(tensors, tmp_path / "x.gguf", metadata=metadata)
    with pytest.raises(an.UnsupportedError, match=why) as said:
        an.convert(tmp_path / "x.gguf", f"{tmp_path / 'out'}/")
    assert "ends in .safetensors" in str(said.value.remedy)
    an.convert(tmp_path / "x.gguf", tmp_path / "out.safetensors")


def test_a_gguf_of_images_keeps_its_names(tmp_path: Path) -> None:
    an.save(
        {"double_blocks.0.w": np.ones(4)},
        tmp_path / "x.gguf",
        metadata={"general.architecture": "flux"},
    )
    an.convert(tmp_path / "x.gguf", f"{tmp_path / 'out'}/")
    assert set(an.parse(tmp_path / "out")) == {"double_blocks.0.w"}


def test_a_gguf_without_its_tokenizer(tmp_path: Path) -> None:
    for path, raw in DEMOS["llama"].make().items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(raw)
    an.convert(
        tmp_path / "llama-tiny",
        tmp_path / "x.gguf",
        "gguf",
        metadata={"tokenizer.ggml.model": None},
    )
    with pytest.raises(an.ParseError, match="the GGUF has no vocabulary; names='keep'"):
        an.convert(tmp_path / "x.gguf", f"{tmp_path / 'out'}/")
