"""Models with transformers' Conv1D that the libraries quantised come out as they load them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from compressed_tensors.utils.match import match_named_modules
from safetensors.torch import load_file
from transformers import (
    BitsAndBytesConfig,
    ClvpConfig,
    ClvpDecoderConfig,
    ClvpEncoderConfig,
    ClvpForCausalLM,
    ClvpModelForConditionalGeneration,
    DecisionTransformerConfig,
    DecisionTransformerModel,
    FineGrainedFP8Config,
    GPT2Config,
    GPT2LMHeadModel,
    ImageGPTConfig,
    ImageGPTModel,
    OpenAIGPTConfig,
    OpenAIGPTLMHeadModel,
    PreTrainedModel,
    VisionEncoderDecoderConfig,
    VisionEncoderDecoderModel,
    ViTConfig,
)
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear
from transformers.pytorch_utils import Conv1D

import anamnesis as an
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.detect.config_facts import QuantFacts, read_facts
from anamnesis.schemes.detect.orientation import CONV1D_TYPES, LINEAR_TYPES, is_conv1d
from anamnesis.schemes.families.fp8.layouts import encoding as fp8_encoding
from anamnesis.schemes.families.integers.layouts.compressed_tensors import (
    int_quantized,
    pack_quantized,
)
from helpers.bnb_cases import unpacked, unpacked_int8

pytestmark = pytest.mark.filterwarnings("default")

TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
SMALL = {"n_layer": 2, "n_head": 2, "n_embd": 64, "vocab_size": 96, "n_positions": 32}
CLVP = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 96}
NOT_TRANSFORMERS = {"jais", "btlm"}, {"qwen", "codeshell", "gpt_refact", "exaone"}


def gpt2(**more: Any) -> GPT2Config:
    return GPT2Config(**SMALL, **TOKENS, **more)


def captioning() -> VisionEncoderDecoderConfig:
    vit = ViTConfig(
        hidden_size=64,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=32,
        patch_size=16,
    )
    return VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        vit, gpt2(is_decoder=True, add_cross_attention=True)
    )


def clvp() -> ClvpConfig:
    encoder = ClvpEncoderConfig(**CLVP, intermediate_size=128, projection_dim=64)
    decoder = ClvpDecoderConfig(**CLVP, n_inner=128, num_mel_attn_blocks=1, feature_size=16)
    return ClvpConfig(
        text_config=encoder.to_dict(),
        speech_config=encoder.to_dict(),
        decoder_config=decoder.to_dict(),
        projection_dim=64,
    )


Make = Callable[[], PreTrainedModel]
MODELS: dict[str, Make] = {
    "gpt2": lambda: GPT2LMHeadModel(gpt2(n_inner=192, add_cross_attention=True)),
    "openai-gpt": lambda: OpenAIGPTLMHeadModel(OpenAIGPTConfig(**SMALL)),
    "imagegpt": lambda: ImageGPTModel(ImageGPTConfig(**SMALL)),
    "decision_transformer": lambda: DecisionTransformerModel(
        DecisionTransformerConfig(
            hidden_size=64, n_layer=2, n_head=2, n_positions=32, state_dim=4, act_dim=2, **TOKENS
        )
    ),
    "clvp": lambda: ClvpModelForConditionalGeneration(clvp()),
    "clvp_decoder": lambda: ClvpForCausalLM(clvp().decoder_config),
    "vision-encoder-decoder": lambda: VisionEncoderDecoderModel(captioning()),
}


def types_with(pattern: str) -> set[str]:
    """Types of models whose code has this, of the transformers that are installed."""
    found = set()
    for code in (Path(transformers.__file__).parent / "models").glob("*/modeling_*.py"):
        if re.search(pattern, code.read_text()):
            for config in code.parent.glob("configuration_*.py"):
                found |= set(re.findall(r'^    model_type = "(.+)"', config.read_text(), re.M))
    return found


def test_all_types_are_known() -> None:
    """A new version of transformers that has one more fails here."""
    found = types_with(r"\bConv1D\(") - {"clvp_encoder"}  # whose layers are all nn.Linear
    assert found == CONV1D_TYPES - NOT_TRANSFORMERS[0]
    assert found <= MODELS.keys()
    names = r"self\.(c_attn|q_attn|kv_attn|c_fc2?|c_proj) = nn\.Linear\("
    assert types_with(names) == LINEAR_TYPES - NOT_TRANSFORMERS[1]
    assert not CONV1D_TYPES & LINEAR_TYPES


@pytest.mark.parametrize("kind", MODELS)
def test_layers_are_told_by_name(kind: str) -> None:
    with torch.device("meta"):
        model = MODELS[kind]()
    facts = read_facts(model.config.to_dict(), {})
    layers = {name: layer for name, layer in model.named_modules() if hasattr(layer, "weight")}
    told = {name for name in layers if is_conv1d(f"{name}.weight", facts)}
    assert told == {name for name, layer in layers.items() if isinstance(layer, Conv1D)}
    assert told
    for name in told:  # without a config they may be either
        with pytest.raises(an.UnsupportedError, match="conv1d"):
            is_conv1d(f"{name}.weight", QuantFacts())


# --- bitsandbytes, by transformers ------------------------------------------------------------

METHODS: dict[str, dict[str, Any]] = {
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    "nf4-nested": {
        "load_in_4bit": True,
        "bnb_4bit_quant_type": "nf4",
        "bnb_4bit_use_double_quant": True,
    },
    "fp4": {"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"},
    "int8": {"load_in_8bit": True},
}


def dequantised(stored: dict[str, torch.Tensor], turned: set[str]) -> dict[str, torch.Tensor]:
    """All weights of a file as bitsandbytes has them, those of Conv1D transposed."""
    found = {}
    for name, tensor in stored.items():
        module, _, last = name.rpartition(".")
        if f"{name}.absmax" in stored:
            value = unpacked(stored, "bf16", name)
        elif f"{module}.SCB" in stored and last == "weight":
            value = unpacked_int8(stored, "bf16", module)
        elif ".weight." in name or last in ("SCB", "weight_format"):
            continue
        else:
            value = tensor
        found[name] = value.T.contiguous() if name.removesuffix(".weight") in turned else value
    return found


@pytest.mark.parametrize(
    ("kind", "method"),
    [("gpt2", method) for method in METHODS] + [(kind, "nf4") for kind in [*MODELS][1:]],
)
def test_bitsandbytes(kind: str, method: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    dense = MODELS[kind]().to(torch.bfloat16)
    dense.save_pretrained(tmp_path / "dense")
    load = type(dense).from_pretrained
    how = BitsAndBytesConfig(**METHODS[method], bnb_4bit_compute_dtype=torch.float32)
    quantised = load(tmp_path / "dense", quantization_config=how, dtype=torch.bfloat16)
    quantised.save_pretrained(tmp_path / "quantised")
    stored = load_file(tmp_path / "quantised" / "model.safetensors")
    with an.parse(tmp_path / "quantised") as model:
        model.remember(tmp_path / "plain")

    turned = {name for name, layer in dense.named_modules() if isinstance(layer, Conv1D)}
    assert turned
    wanted = dequantised(stored, turned)
    written = load_file(tmp_path / "plain" / "model.safetensors")
    assert written.keys() == wanted.keys()
    for name, tensor in written.items():
        assert torch.equal(tensor, wanted[name]), name
    found, told = load(tmp_path / "plain", output_loading_info=True)
    assert not any(told.values()), told
    for name in turned:
        weight = found.get_submodule(name).weight
        assert torch.equal(weight, wanted[f"{name}.weight"]), name
        before = dense.get_submodule(name).weight.float()
        assert (weight.float() - before).abs().mean() < before.abs().mean() / 4, name
    if kind in ("gpt2", "openai-gpt"):
        assert_same_logits(found, dense, wanted)


def assert_same_logits(
    found: PreTrainedModel, dense: PreTrainedModel, wanted: dict[str, torch.Tensor]
) -> None:
    missing, unexpected = dense.load_state_dict(wanted, strict=False)
    assert not unexpected
    assert missing in ([], ["lm_head.weight"])  # which is tied
    ids = torch.arange(40).reshape(2, 20)
    with torch.no_grad():
        want = dense.eval()(ids).logits
        assert want.std() > 0
        assert torch.equal(found.eval()(ids).logits, want)


# --- and back: what is quantised here -------------------------------------------------------------

ENCODINGS = {
    "nf4": "bnb-nf4",
    "nf4-nested": "bnb-nf4-nested",
    "fp4": "bnb-fp4",
    "int8": "bnb-int8",
}


def saved(kind: str, folder: Path) -> PreTrainedModel:
    """A model of a kind, and its files."""
    torch.manual_seed(0)
    dense = MODELS[kind]().to(torch.bfloat16)
    dense.save_pretrained(folder)
    return dense


def raw(stored: dict[str, torch.Tensor]) -> dict[str, Any]:
    return {
        name: (tensor.dtype, tensor.shape, tensor.contiguous().view(-1).view(torch.uint8).tolist())
        for name, tensor in stored.items()
    }


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize(
    ("kind", "method"),
    [("gpt2", method) for method in METHODS] + [(kind, "nf4") for kind in [*MODELS][1:]],
)
def test_bitsandbytes_of_what_is_quantised_here(kind: str, method: str, tmp_path: Path) -> None:
    """transformers turns the weights of Conv1D before it quantises them, and so does this."""
    dense = saved(kind, tmp_path / "dense")
    load = type(dense).from_pretrained
    how = BitsAndBytesConfig(**METHODS[method], bnb_4bit_compute_dtype=torch.bfloat16)
    quantised = load(tmp_path / "dense", quantization_config=how, dtype=torch.bfloat16)
    quantised.save_pretrained(tmp_path / "theirs")
    theirs = load_file(tmp_path / "theirs" / "model.safetensors")
    turned = {name for name, layer in dense.named_modules() if isinstance(layer, Conv1D)}
    named = {f"{name}.weight" for name in turned}
    # What else they quantise than Conv1D goes by the names of a model that this is not about.
    others = [n for n in theirs if f"{n}.absmax" in theirs and n not in named]
    with an.parse(tmp_path / "dense") as model:
        report = model.forget(
            tmp_path / "ours", ENCODINGS[method], include=[*named, *others], verify=True, threads=2
        )
        assert not named & set(report.plain)
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    mine = {name: tensor for name, tensor in ours.items() if name.startswith(tuple(turned))}
    assert len(mine) > 2 * len(turned)
    assert raw(mine) == raw({n: t for n, t in theirs.items() if n.startswith(tuple(turned))})
    if kind == "gpt2":
        assert ours.keys() == theirs.keys()
        ids = torch.arange(40).reshape(2, 20)
        with torch.no_grad():
            found = load(tmp_path / "ours", dtype=torch.bfloat16).eval()(ids).logits
            want = load(tmp_path / "theirs", dtype=torch.bfloat16).eval()(ids).logits
        assert torch.equal(found, want)
    with an.parse(tmp_path / "ours") as model:
        assert {name: model[name].shape for name in named} == {
            f"{name}.weight": tuple(dense.get_submodule(name).weight.shape) for name in turned
        }


@pytest.mark.parametrize(
    "encoding", [fp8_encoding(), int_quantized(), pack_quantized()], ids=lambda e: e.id
)
def test_others_leave_them(encoding: Encoding, tmp_path: Path) -> None:
    """FineGrainedFP8 and llm-compressor ask for nn.Linear, and find none among these."""
    dense = saved("gpt2", tmp_path / "dense")
    how = FineGrainedFP8Config()
    fp8 = replace_with_fp8_linear(dense, ["lm_head"], quantization_config=how)
    assert not any("FP8" in type(layer).__name__ for layer in fp8.modules())
    assert not list(match_named_modules(dense, ["Linear"], ["re:.*lm_head"]))
    with (
        an.parse(tmp_path / "dense") as model,
        pytest.raises(an.UnsupportedError, match=f"no weight of the model suits {encoding.id}"),
    ):
        model.forget(tmp_path / "out", encoding)
