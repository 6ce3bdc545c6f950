"""Each layer is in the bits that mlx-lm's own classes give it, or plain where they want it so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm.models
import numpy as np
import pytest
import torch
from mlx.nn import Module
from mlx.utils import tree_flatten
from mlx_lm.utils import MODEL_ARCHITECTURE_REMAPPING, MODEL_REMAPPING, load_model, quantize_model
from transformers import DeepseekV3Config, GraniteConfig

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.convert.request import targets
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries.mlx_models import (
    ALIASES,
    KEEPS_KV_B,
    PLAIN_EXPERTS,
    ROWS,
    class_of,
)
from anamnesis.schemes.libraries.mlx_models import CLASSES as TYPES
from helpers.mlx_classes import classes, config_of, made
from helpers.tiny_models import DECODER, EXPERTS, MODELS, _decoder

pytestmark = [pytest.mark.against("mlx-lm"), pytest.mark.filterwarnings("default")]

CLASSES = dict(classes())
SOURCES = {path.stem: path.read_text() for path in Path(mlx_lm.models.__path__[0]).glob("[!_]*.py")}


@pytest.fixture(autouse=True)
def _on_a_cpu() -> None:
    mx.set_default_device(mx.cpu)


# --- the tables, and mlx-lm's source ----------------------------------------------------------


def test_types_of_another_name() -> None:
    assert ALIASES == MODEL_REMAPPING
    for (kind, architecture), of in MODEL_ARCHITECTURE_REMAPPING.items():
        assert class_of({"model_type": kind, "architectures": [architecture]}) == of


def test_types_that_have_a_class() -> None:
    made = re.compile(r"^(class Model\(|from .* import .*\bModel\b)", re.MULTILINE)
    assert {kind for kind, source in SOURCES.items() if made.search(source)} == TYPES


def test_classes_that_only_stack_plain_experts() -> None:
    """Of those that stack the experts of a file, the ones that never speak of scales."""
    found = {
        kind
        for kind, source in SOURCES.items()
        if re.search(r"experts\.(0|\{\w+\})\.", source) and '"scales"' not in source
    }
    assert found == PLAIN_EXPERTS


def test_classes_that_use_kv_b_as_it_is() -> None:
    """All others that speak of it split it: in `sanitize`, or in that of the class they use."""
    own = {kind for kind, source in SOURCES.items() if "self.kv_b_proj = nn.Linear" in source}
    split = {kind for kind, source in SOURCES.items() if re.search(r"kv_b_proj\.weight\"", source)}
    assert own == KEEPS_KV_B
    assert not own & split
    assert split == {
        *("bailing_hybrid", "bailing_moe_v3", "deepseek_v3", "deepseek_v32", "glm4_moe_lite"),
        *("kimi_k3", "kimi_linear", "longcat_flash", "mistral4"),
    }


def test_every_predicate_has_rows() -> None:
    assert {kind for kind, source in SOURCES.items() if "quant_predicate" in source} <= set(ROWS)
    assert set(ROWS) <= set(SOURCES)


# --- every class ------------------------------------------------------------------------------


def theirs(model: Any) -> dict[str, Any]:
    """What mlx-lm's convert makes of each weight of two dimensions or more."""
    predicate = getattr(model, "quant_predicate", None)
    found: dict[str, Any] = {
        name: False for name, array in tree_flatten(model.parameters()) if array.ndim > 1
    }
    for path, layer in tree_flatten(model.leaf_modules(), is_leaf=Module.is_module):
        if hasattr(layer, "to_quantized") and layer.weight.shape[-1] % 64 == 0:
            told = True if predicate is None else predicate(path, layer)
            found[f"{path}.weight"] = told
    return found


def ours(model: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The same by our tables."""
    encoding = targets.encoding("mlx-4bit")
    shapes = {name: array.shape for name, array in tree_flatten(model.parameters())}
    left = encoding.layout.leaves(shapes, config)
    others = encoding.layout.others(shapes, config)
    found: dict[str, Any] = {}
    for name, shape in shapes.items():
        if len(shape) > 1:
            way = targets.encoding(others[name]) if name in others else encoding
            why = left.get(name) or way.refuses(name, shape, DTYPES["BF16"])
            told = {k: n for k, n in way.layout.declare(Layers([])).items() if k != "mode"}
            found[name] = not why and (way is encoding or told)
    return found


@pytest.mark.parametrize("kind", CLASSES)
def test_each_layer_of(kind: str) -> None:
    model = made(kind, CLASSES[kind])
    want = theirs(model)
    found = ours(model, config_of(kind))
    if kind == "bitnet":  # whose layers it reads in BitNet's own codes, and in nothing else
        return
    if kind == "baichuan_m1":  # which normalises a head that is not quantised
        want["lm_head.weight"] = False
    if kind == "rwkv7":  # which says bits alone; 64 is the usual group
        want = {n: {"group_size": 64, **w} if isinstance(w, dict) else w for n, w in want.items()}
    assert {n: (found[n], want[n]) for n in want if found[n] != want[n]} == {}


# --- whole models -----------------------------------------------------------------------------


MLA: dict[str, Any] = {
    **EXPERTS,
    **dict.fromkeys(("num_key_value_heads", "n_routed_experts"), 4),
    **dict.fromkeys(("n_group", "topk_group", "first_k_dense_replace"), 1),
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "v_head_dim"), 64),
    "qk_rope_head_dim": 32,
}
WHOLE = {
    **MODELS,
    "granite": _decoder(GraniteConfig, **DECODER, tie_word_embeddings=False),
    "deepseek_v3": _decoder(DeepseekV3Config, **MLA),
}


def dense_for_mlx(kind: str, folder: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write a model whose config has the keys that mlx-lm asks for, as older versions wrote it."""
    torch.manual_seed(0)
    WHOLE[kind]().to(dtype).save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["rope_theta"] = config["rope_parameters"]["rope_theta"]
    config.setdefault("num_experts", config.get("num_local_experts"))
    path.write_text(json.dumps(config))
    return folder


def converted(dense: Path, encoding: str) -> tuple[Any, dict[str, Any]]:
    """What mlx-lm's convert makes of a model, and its config."""
    mode = encoding.removeprefix("mlx-")
    how: dict[str, Any] = {"group_size": None, "bits": None, "mode": mode}
    if encoding.endswith("bit"):
        how = {"group_size": 64, "bits": int(mode[0])}
    model, config = load_model(dense)
    return quantize_model(model, config, **how)


def values(model: Any) -> Any:
    """Logits of some words."""
    return np.array(model(mx.array(np.arange(20)[None])).astype(mx.float32))


@pytest.mark.parametrize("encoding", ["mlx-4bit", "mlx-8bit", "mlx-mxfp4", "mlx-nvfp4"])
@pytest.mark.parametrize("kind", ["granite", "qwen3_moe", "mixtral", "qwen2_moe"])
def test_bytes_are_those_of_mlx_lm(kind: str, encoding: str, tmp_path: Path) -> None:
    dense = dense_for_mlx(kind, tmp_path / "dense")
    model, told = converted(dense, encoding)
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "ours", encoding)
    loaded, _ = load_model(tmp_path / "ours")
    want, found = (dict(tree_flatten(m.parameters())) for m in (model, loaded))
    is_plain = re.compile(r"switch_mlp" if kind in PLAIN_EXPERTS else "$^")
    for name in want.keys() | found.keys():
        if not is_plain.search(name):
            assert want[name].dtype == found[name].dtype, name
            assert mx.array_equal(want[name], found[name]), name
    config = json.loads((tmp_path / "ours" / "config.json").read_text())
    section = told["quantization"]
    assert config["quantization"] == config["quantization_config"] == section
    with an.parse(tmp_path / "ours") as read:
        assert not read.problems
        for name, layer in section.items():
            if isinstance(layer, dict):
                assert "INT8" in read[f"{name}.weight"].scheme


@pytest.mark.parametrize("encoding", ["mlx-4bit", "mlx-mxfp4", "mlx-mxfp8", "mlx-nvfp4"])
def test_latent_attention(encoding: str, tmp_path: Path) -> None:
    """mlx-lm loads it, and computes about what it does of its own."""
    dense = dense_for_mlx("deepseek_v3", tmp_path / "dense", torch.float32)  # else no experts run
    model, _ = converted(dense, encoding)
    with an.parse(dense) as plain:
        report = plain.forget(tmp_path / "ours", encoding, dtype="f32")
    split = {name: why for name, why in report.plain.items() if "kv_b_proj" in name}
    assert set(split.values()) == {"kv_b_proj, which mlx-lm splits before it quantises"}
    assert len(split) == 2
    loaded, _ = load_model(tmp_path / "ours")
    layers = dict(loaded.named_modules())
    assert not hasattr(layers["model.layers.0.self_attn.embed_q"], "bits")
    assert hasattr(layers["model.layers.0.self_attn.o_proj"], "bits")
    plain_model, _ = load_model(dense)
    want, theirs_, found = (values(m) for m in (plain_model, model, loaded))
    assert np.abs(found - want).mean() < 1.1 * np.abs(theirs_ - want).mean()


@pytest.mark.parametrize("is_tied", [True, False])
def test_head_that_mlx_lm_drops(is_tied: bool, tmp_path: Path) -> None:
    """It is in the file although it is tied; mlx-lm drops its weight, and no scales."""
    dense = dense_for_mlx("llama", tmp_path / "dense")
    path = dense / "config.json"
    config = json.loads(path.read_text()) | {"tie_word_embeddings": is_tied}
    path.write_text(json.dumps(config))
    with an.parse(dense) as plain:
        report = plain.forget(tmp_path / "ours", "mlx-4bit")
    assert ("lm_head.weight" in report.plain) == is_tied
    load_model(tmp_path / "ours")


_GATE = ((r"mlp\.gate\.(gate_)?proj", "mlp.gate"),)
_BLOCK = (
    (r"(experts\.\d)\.gate_proj", r"\1.w1"),
    (r"(experts\.\d)\.up_proj", r"\1.w3"),
    (r"(experts\.\d)\.down_proj", r"\1.w2"),
    (r"layers\.([123])\.mlp\.(?!e_score)", r"layers.\1.block_sparse_moe."),
    (r"layers\.([123])\.mlp\.e_score", r"layers.\1.block_sparse_moe.gate.e_score"),
)
_STEP = (
    (r"mlp\.gate\.gate", "moe.gate"),
    (r"mlp\.gate\.router_bias", "moe.router_bias"),
    (r"mlp\.experts", "moe"),
    (r"mlp\.share_expert", "share_expert"),
)
_EMBED = ((r"model\.(ngram_embeddings\.word_embeddings|embedding)", "model.embed_tokens"),)


@pytest.mark.parametrize(
    ("kind", "names", "more", "left"),
    [
        ("bailing_moe", _GATE, {}, r"mlp\.gate\.gate_proj"),
        ("bailing_moe", _GATE, {"norm_head": True}, r"mlp\.gate\.gate_proj|^lm_head"),
        ("bailing_moe_linear", _GATE, {"norm_head": True}, r"mlp\.gate\.gate_proj|^lm_head"),
        ("bailing_hybrid", _GATE, {}, r"mlp\.gate\.gate_proj"),
        ("laguna", _GATE, {}, r"mlp\.gate\.proj"),
        ("kimi_linear", _BLOCK, {}, r"layers\.[123]\.mlp\."),
        ("kimi_k3", _BLOCK, {}, "$^"),
        ("step3p5", _STEP, {}, "$^"),
        ("baichuan_m1", (), {}, "^lm_head"),
        ("longcat_flash_ngram", _EMBED, {}, "word_embeddings"),
        ("spark2_5", _EMBED, {}, r"model\.embedding"),
        ("minicpm", (), {}, "$^"),
    ],
)
def test_names_of_published_files(
    kind: str, names: Any, more: dict[str, Any], left: str, tmp_path: Path
) -> None:
    """mlx-lm loads each, and finds what it makes of it itself, but for what stays plain here."""
    weights: dict[str, mx.array] = {}
    for name, array in tree_flatten(made(kind, CLASSES[kind], **more).parameters()):
        floats = mx.issubdtype(array.dtype, mx.floating)
        own = array.astype(mx.bfloat16) if floats else array
        each = [("", own)]
        if own.ndim == 3 and "switch_mlp" in name:
            each = [(f".{i}", one) for i, one in enumerate(own)] if kind != "step3p5" else each
        for place, one in each:
            published = name.replace("switch_mlp", f"experts{place}")
            for old, new in names:
                published = re.sub(old, new, published)
            weights[published] = one
    dense = tmp_path / "dense"
    dense.mkdir()
    mx.save_safetensors(str(dense / "model.safetensors"), weights, {"format": "pt"})
    (dense / "config.json").write_text(json.dumps(config_of(kind, **more)))
    model, _ = converted(dense, "mlx-4bit")
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "ours", "mlx-4bit")
    loaded, _ = load_model(tmp_path / "ours")
    want, found = (dict(tree_flatten(m.parameters())) for m in (model, loaded))
    for name in want.keys() | found.keys():
        if not re.search(left, name):
            assert mx.array_equal(want[name], found[name], equal_nan=True), name


@pytest.mark.parametrize("encoding", ["mxfp4", "mxfp8"])
@pytest.mark.parametrize("kind", ["deepseek_v3", "qwen3_moe"])
def test_codes_that_mlx_lm_misses_are_decoded(kind: str, encoding: str, tmp_path: Path) -> None:
    """Codes of others are moved, but those of what it only loads plain."""
    dense = dense_for_mlx(kind, tmp_path / "dense")
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "packed", encoding)
    with an.parse(tmp_path / "packed") as packed:
        report = packed.convert(tmp_path / "ours", f"mlx-{encoding}")
    missed = "kv_b_proj" if kind == "deepseek_v3" else ".experts."
    assert report.repacked
    assert not any(missed in name for name in report.repacked)
    assert any(missed in name for name in report.plain)
    load_model(tmp_path / "ours")


def test_a_file_alone_says_it_of_each_layer(tmp_path: Path) -> None:
    dense = dense_for_mlx("granite", tmp_path / "dense")
    with an.parse(dense) as plain:
        plain.forget(tmp_path / "directory", "mlx-4bit")
        plain.convert(tmp_path / "alone.safetensors", "mlx-4bit")
    with an.parse(tmp_path / "alone.safetensors") as one, an.parse(tmp_path / "directory") as other:
        for name in other:
            assert one[name].numpy().tobytes() == other[name].numpy().tobytes()


def test_layers_that_are_asked_for_are_declared(tmp_path: Path) -> None:
    """A directory says of each layer what it is in, and mlx-lm takes it."""
    dense = dense_for_mlx("llama", tmp_path / "dense")
    overrides = {"*lm_head*": "mlx-6bit", "*embed*": "mlx-nvfp4"}
    with an.parse(dense) as plain:
        plain.convert(tmp_path / "ours", "mlx-mxfp4", overrides=overrides)
    told = json.loads((tmp_path / "ours" / "config.json").read_text())["quantization"]
    assert told["lm_head"] == {"group_size": 64, "bits": 6}
    assert told["model.embed_tokens"] == {"group_size": 16, "bits": 4, "mode": "nvfp4"}
    loaded, _ = load_model(tmp_path / "ours")
    assert (loaded.lm_head.bits, loaded.model.embed_tokens.mode) == (6, "nvfp4")
    with an.parse(tmp_path / "ours") as read:
        assert not read.problems
