"""Layers that draft tokens (MTP) are kept, left plain, and listed so that programs find them."""

from __future__ import annotations

import json
import re
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries.mtp import left_drafts, plain_drafts
from convert.test_experts import NUMPY, Arrays, experts, saved, stacked, stored

BACKBONE = {
    f"model.layers.{i}.{n}": (128, 128) for i in range(2) for n in ("self_attn.q_proj.weight",)
}
HEADS = {"model.embed_tokens.weight": (160, 128), "lm_head.weight": (160, 128)}
BLOCK: dict[str, tuple[int, ...]] = {
    "self_attn.q_proj.weight": (128, 128),
    "mlp.up_proj.weight": (128, 128),
}
OF_DEEPSEEK = {
    "eh_proj.weight": (128, 256),
    "enorm.weight": (128,),
    "hnorm.weight": (128,),
    "embed_tokens.weight": (160, 128),
    "shared_head.norm.weight": (128,),
    "shared_head.head.weight": (160, 128),
    **BLOCK,
}
OF_QWEN = {
    "fc.weight": (128, 256),
    "norm.weight": (128,),
    "pre_fc_norm_hidden.weight": (128,),
    **{f"layers.0.{name}": shape for name, shape in BLOCK.items()},
}
IN_A_LIST: dict[str, tuple[int, ...]] = {f"0.{name}": shape for name, shape in BLOCK.items()}
TWO = {"num_hidden_layers": 2}

# By what they are called: the module, what is in it, the type and the config of the model.
DRAFTS: dict[str, tuple[str, dict[str, tuple[int, ...]], str, dict[str, Any]]] = {
    "Qwen3-Next": ("mtp", OF_QWEN, "qwen3_next", TWO),
    "MiMo": ("model.mtp", OF_QWEN, "mimo_v2_flash", TWO),
    "Ernie": ("model.mtp_block", IN_A_LIST, "ernie4_5_moe", TWO),
    "DeepSeek-V3": ("model.layers.2", OF_DEEPSEEK, "deepseek_v3", TWO),
    "told": ("model.layers.2", BLOCK, "glm4_moe", {**TWO, "num_nextn_predict_layers": 1}),
    "eagle": ("eagle_module", OF_QWEN, "llama", TWO),
}
TOOLS = {
    "int8": "llm-compressor",
    "int4": "llm-compressor",
    "fp8-block": "transformers",
    "fp8-channel": "llm-compressor",
    "nvfp4-modelopt": "ModelOpt",
    "gptq-4bit": "transformers",
    "awq-4bit": "transformers",
    "bnb-nf4": "transformers",
}


def values(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    rng = np.random.default_rng(len(shapes))
    return {n: rng.standard_normal(s).astype(NUMPY["BF16"]) for n, s in shapes.items()}


def made(folder: Path, kind: str) -> tuple[Path, Arrays]:
    """A model with its drafting layers, and these."""
    root, shapes, model_type, config = DRAFTS[kind]
    drafts = values({f"{root}.{name}": shape for name, shape in shapes.items()})
    folder.mkdir()
    return saved(folder, {**values({**HEADS, **BACKBONE}), **drafts}, model_type, **config), drafts


def quantization(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return dict(config["quantization_config"])


@pytest.mark.parametrize("to", TOOLS)
@pytest.mark.parametrize("kind", DRAFTS)
def test_all_bytes_are_kept(kind: str, to: str, tmp_path: Path) -> None:
    """Nothing of them is dropped or encoded; the rest of the model is."""
    source, drafts = made(tmp_path / "in", kind)
    with an.parse(source) as model:
        report = model.forget(tmp_path / "out", to)
    before, after = stored(source), stored(tmp_path / "out")
    assert {name: after.get(name) for name in drafts} == {name: before[name] for name in drafts}
    assert not report.dropped
    assert report.n_encoded == len(BACKBONE)
    why = f"it drafts tokens, and {TOOLS[to]} does not load it"
    assert {report.plain[name] for name in drafts} == {why}


# Names that vLLM asks for, of layers that it builds: of fused ones it asks for their parts.
ASKED = {
    "Qwen3-Next": (
        "mtp.fc",
        "mtp.layers.0.mlp.experts.7.gate_proj",
        "mtp.layers.0.self_attn.o_proj",
    ),
    "DeepSeek-V3": (
        "model.layers.2.eh_proj",
        "model.layers.2.mtp_block.self_attn.kv_b_proj",
        "model.layers.2.mlp.experts.0.up_proj",
        "model.layers.2.shared_head.head",
    ),
}


@pytest.mark.parametrize("kind", ASKED)
def test_lists(kind: str, tmp_path: Path) -> None:
    """Regular expressions of compressed-tensors and GPTQ, ModelOpt's patterns, parts for AWQ."""
    source, _ = made(tmp_path / "in", kind)
    found = {}
    for to in ("int8", "nvfp4-modelopt", "gptq-4bit", "awq-4bit"):
        with an.parse(source) as model:
            model.forget(tmp_path / to, to)
        found[to] = quantization(tmp_path / to)
    patterns = [one[3:] for one in found["int8"]["ignore"] if one.startswith("re:")]
    globs = found["nvfp4-modelopt"]["ignore"]
    excluded = json.loads((tmp_path / "nvfp4-modelopt" / "hf_quant_config.json").read_text())
    assert excluded["quantization"]["exclude_modules"] == globs
    dynamic = [one[2:] for one in found["gptq-4bit"]["dynamic"]]
    parts = found["awq-4bit"]["modules_to_not_convert"]

    def left(name: str) -> list[bool]:
        return [
            any(re.match(one, name) for one in patterns),
            any(fnmatch(name, one) for one in globs),
            any(re.match(one, name) for one in dynamic),
            any(one in name for one in parts),
        ]

    for name in ASKED[kind]:
        assert left(name) == [True] * 4, name
    for name in BACKBONE:
        assert left(name.removesuffix(".weight")) == [False] * 4, name


def test_stacks_in_them(tmp_path: Path) -> None:
    """They are not taken apart, nor encoded, as the model's own are."""
    moe = "model.layers.0.mlp"
    own = stacked(experts(2, 128, 256))
    drafts = {name.replace(moe, "mtp.layers.0.mlp"): array for name, array in own.items()}
    (tmp_path / "in").mkdir()
    source = saved(tmp_path / "in", {**own, **drafts}, "qwen3_5_moe")
    with an.parse(source) as model:
        report = model.forget(tmp_path / "out", "int8")
    assert report.taken_apart.keys() == own.keys()
    after, before = stored(tmp_path / "out"), stored(source)
    assert {name: after[name] for name in drafts} == {name: before[name] for name in drafts}
    assert quantization(tmp_path / "out")["ignore"] == [
        "mtp.layers.0.mlp.experts", r"re:^mtp\..*", "lm_head"
    ]  # fmt: skip


def test_codes_are_moved_and_what_is_asked_for_is_encoded(tmp_path: Path) -> None:
    """A model whose drafting layer is quantised keeps it so; then the lists name layers alone."""
    source, _ = made(tmp_path / "in", "DeepSeek-V3")
    block = [f"model.layers.2.{name}" for name in BLOCK]
    with an.parse(source) as model:
        report = model.forget(
            tmp_path / "fp8", "fp8-block", overrides={"model.layers.2.*proj.weight": "fp8-block"}
        )
    assert not set(block) & report.plain.keys()
    with an.parse(tmp_path / "fp8") as model:
        moved = model.convert(tmp_path / "ct", "fp8-block-ct")
    assert set(block) <= moved.repacked.keys()
    assert not moved.requantised
    ignored = quantization(tmp_path / "ct")["ignore"]
    assert "model.layers.2.shared_head.head" in ignored
    assert not [name for name in ignored if name.startswith("re:")]
    with an.parse(tmp_path / "fp8") as model:
        again = model.convert(tmp_path / "int8", "int8")
    assert set(block) <= again.plain.keys()
    assert r"re:^model\.layers\.2\..*" in quantization(tmp_path / "int8")["ignore"]


def test_models_of_several_parts(tmp_path: Path) -> None:
    """Names of parts have other beginnings in programs."""
    drafts = values({f"mtp.{name}": shape for name, shape in OF_QWEN.items()})
    own = values({n.replace("model.", "model.language_model."): s for n, s in BACKBONE.items()})
    more = {"text_config": {"model_type": "qwen3_5_text", **TWO}, "vision_config": {}}
    (tmp_path / "in").mkdir()
    with an.parse(saved(tmp_path / "in", {**own, **drafts}, "qwen3_5", **more)) as model:
        model.forget(tmp_path / "out", "int8")
    assert r"re:.*mtp\..*" in quantization(tmp_path / "out")["ignore"]


def test_sections_count_layers() -> None:
    config = {"text_config": {**TWO, "num_nextn_predict_layers": 2}}
    names = [f"{at}.layers.{i}.mlp.up_proj.weight" for at in ("lm", "vision") for i in range(5)]
    assert list(left_drafts(names, config, "a tool")) == [names[2], names[3]]
    assert plain_drafts(Layers([n.removesuffix(".weight") for n in names], (), config)) == [
        "lm.layers.2", "lm.layers.3"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.2.mlp.up_proj.weight",
        "attempt.fc.weight",
        "model.mtphidden.weight",
        "blk.61.nextn.eh_proj.weight",
        "model.norm.enorm.weight",
    ],
)
def test_others_are_none(name: str) -> None:
    """A config that does not count them, other words, llama.cpp's names."""
    assert not left_drafts([name], TWO, "a tool")
