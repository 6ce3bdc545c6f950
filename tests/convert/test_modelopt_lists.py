"""What stays plain in ModelOpt's encodings, and how both of its files list it, beside ModelOpt."""

from __future__ import annotations

import importlib
import inspect
import json
import re
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    BartConfig,
    BartForConditionalGeneration,
    DeepseekV3Config,
    ElectraConfig,
    ElectraForMaskedLM,
    Gemma3TextConfig,
    GemmaConfig,
    LlamaConfig,
    MarianConfig,
    MarianMTModel,
    OPTConfig,
    PhiConfig,
    PretrainedConfig,
    RobertaConfig,
    RobertaForSequenceClassification,
    T5Config,
    T5EncoderModel,
)
from transformers.models.auto import configuration_auto, modeling_auto

import anamnesis as an
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries import modelopt as modelopt_layers
from anamnesis.schemes.libraries.tied_heads import head_of
from helpers.linearising import MODELOPT, modelopt
from helpers.seeing_models import SEEING
from helpers.stacked_models import STACKED
from helpers.tiny_models import DECODER, ENCODER, MODELS, T5, WORDS, save
from helpers.whole_libraries import encoded

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

LATENT: dict[str, Any] = {
    **DECODER,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 128,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 64,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 16,
    "v_head_dim": 32,
    "tie_word_embeddings": False,
}
HALVES: dict[str, Any] = {
    **WORDS,
    "d_model": 128,
    **{f"{half}_layers": 1 for half in ("encoder", "decoder")},
    **{f"{half}_attention_heads": 4 for half in ("encoder", "decoder")},
    **{f"{half}_ffn_dim": 256 for half in ("encoder", "decoder")},
    "decoder_start_token_id": 1,
}
OPT: dict[str, Any] = {**ENCODER, "ffn_dim": 256, "word_embed_proj_dim": 128}


def _decoder(config: PretrainedConfig) -> Callable[[], Any]:
    return lambda: AutoModelForCausalLM.from_config(config)


# Heads that are tied and untied, or in no file, or of no class; embeddings of classes of their own.
KINDS: dict[str, Callable[[], Any]] = {
    **{kind: MODELS[kind] for kind in ("llama", "qwen2", "gemma2", "gpt_neox", "mpt", "mixtral")},
    **{kind: MODELS[kind] for kind in ("qwen2_moe", "bert", "roberta_mlm", "t5", "t5_gated")},
    **SEEING,
    **{kind: STACKED[kind] for kind in ("qwen3_5_moe", "gemma4")},
    "llama_tied": _decoder(LlamaConfig(**DECODER, tie_word_embeddings=True)),
    "gemma": _decoder(GemmaConfig(**DECODER, head_dim=32)),
    "gemma3": _decoder(Gemma3TextConfig(**DECODER, head_dim=32)),
    "opt": _decoder(OPTConfig(**OPT)),
    "phi": _decoder(PhiConfig(**ENCODER)),
    "deepseek_v3": _decoder(DeepseekV3Config(**LATENT)),
    "bart": lambda: BartForConditionalGeneration(BartConfig(**HALVES)),
    "marian": lambda: MarianMTModel(MarianConfig(**HALVES)),
    "t5_encoder": lambda: T5EncoderModel(T5Config(**T5)),
    "electra": lambda: ElectraForMaskedLM(ElectraConfig(**ENCODER, embedding_size=128)),
    "roberta_cls": lambda: RobertaForSequenceClassification(RobertaConfig(**ENCODER)),
}


def lists(folder: Path) -> tuple[list[str], list[str]]:
    told = json.loads((folder / "config.json").read_text())["quantization_config"]
    beside = json.loads((folder / "hf_quant_config.json").read_text())["quantization"]
    return sorted(told["ignore"]), sorted(beside["exclude_modules"])


def is_layer_excluded(prefix: str, patterns: list[str]) -> bool:
    """As vLLM's `ModelOptQuantConfigBase` has it of a layer that is not merged of others."""
    return any(
        prefix == pattern or pattern in prefix or fnmatch(prefix, pattern) for pattern in patterns
    )


@pytest.mark.against("ModelOpt")
@pytest.mark.parametrize(
    ("kind", "to"),
    [
        *((kind, "nvfp4-modelopt") for kind in KINDS),
        *((kind, to) for kind in ("qwen2", "mixtral") for to in MODELOPT if to[0] == "m"),
    ],
)
def test_what_stays_plain(kind: str, to: str, tmp_path: Path) -> None:
    dense = save(KINDS[kind], tmp_path / "dense")
    theirs = modelopt(dense, to, tmp_path / "theirs")
    with an.parse(dense) as model:
        model.forget(tmp_path / "ours", to, verify=True)
    assert encoded(tmp_path / "ours") == encoded(theirs)
    assert lists(tmp_path / "ours") == lists(theirs)
    with an.parse(tmp_path / "ours") as model:
        assert {f"{name}_scale" for name in model if model[name].is_quantized} == encoded(theirs)
    if kind in ("llama", "llama_tied", "qwen2", "gemma", "gemma2", "gemma3", "opt", "mixtral"):
        for patterns in lists(tmp_path / "ours"):
            assert is_layer_excluded("lm_head", patterns)
            assert not is_layer_excluded("model.layers.0.self_attn.qkv_proj", patterns)


@pytest.mark.against("ModelOpt")
def test_patterns() -> None:
    """Names that begin each other, and quantised ones in between."""
    from modelopt.torch.export import quant_utils

    theirs = quant_utils._prefix_wildcard_summarize_exclude_modules
    generator = torch.Generator().manual_seed(0)
    words = ("a", "ab", "a1", "b", "a.b", "ab.b", "b.a")
    for _ in range(3000):
        names = {
            ".".join(words[i] for i in torch.randint(len(words), (n,), generator=generator))
            for n in torch.randint(1, 4, (8,), generator=generator)
        }
        n_plain = int(torch.randint(1, 8, (1,), generator=generator))
        plain, quantised = sorted(names)[:n_plain], sorted(names)[n_plain:]
        ours = modelopt_layers.excluded(Layers(plain, quantised, {"architectures": ["A"]}))
        assert ours == sorted(theirs(plain, quantised))


def test_default_patterns() -> None:
    import modelopt.torch.quantization.config as library

    told = {row["quantizer_name"] for row in library._default_disabled_quantizer_cfg} - {"*"}
    of_megatron = {"*self_attention.conv1d*"}
    assert set(modelopt_layers._TABLE["disabled"]) == told - of_megatron


def embeddings_of_own_classes() -> dict[str, set[str]]:
    """Names of embeddings whose classes have a `forward` of their own, by modules of models."""
    found: dict[str, set[str]] = {}
    for kind in configuration_auto.CONFIG_MAPPING_NAMES:
        name = configuration_auto.model_type_to_module_name(kind)
        try:
            module = importlib.import_module(f"transformers.models.{name}.modeling_{name}")
        except ImportError:
            continue
        kinds: list[Any] = [one for one in vars(module).values() if inspect.isclass(one)]
        own = [
            one.__name__
            for one in kinds
            if issubclass(one, torch.nn.Embedding) and one.forward is not torch.nn.Embedding.forward
        ]
        made = re.findall(rf"self\.(\w+) = (?:{'|'.join(own) or '-'})\(", inspect.getsource(module))
        if made:
            found.setdefault(name, set()).update(made)
    return found


def test_embeddings_of_own_classes() -> None:
    found = embeddings_of_own_classes()
    types: dict[str, set[str]] = {}
    for kind in configuration_auto.CONFIG_MAPPING_NAMES:
        module = configuration_auto.model_type_to_module_name(kind)
        types.setdefault(module, set()).add(kind)
    words = {"embed_tokens", "shared", "embed_tokens_per_layer"}
    scaled = {module for module, names in found.items() if names & words}
    assert len(scaled) > 20
    for module in scaled:
        assert types[module] & modelopt_layers._SCALED, module
    every = set().union(*(types[module] for module in scaled))
    assert every >= modelopt_layers._SCALED
    others = words | {"embed_positions", "visual_embeddings_table"}
    assert {name: names - others for name, names in found.items() if names - others} == {
        "prophetnet": {"position_embeddings"}
    }


def test_heads_of_classes() -> None:
    """Each class that may tie a head has one; a bare one has none."""
    for name, table in vars(modeling_auto).items():
        if not name.endswith("_MAPPING_NAMES"):
            continue
        for kind, classes in table.items():
            for one in [classes] if isinstance(classes, str) else classes:
                found = getattr(transformers, one, None)  # some are named, and not there
                tied = getattr(found, "_tied_weights_keys", None)
                keys = tied if isinstance(tied, dict) else {}
                config = {"model_type": kind, "architectures": [one]}
                heads = [key for key in keys if re.search(r"(lm_head|decoder)\.weight$", key)]
                if any("embed" not in key for key in heads):
                    assert head_of(config), one
    for bare in ("BertModel", "T5EncoderModel", "LlamaForSequenceClassification", "ViTModel"):
        assert head_of({"architectures": [bare]}) is None
