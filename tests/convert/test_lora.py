"""Adapters merged into weights, equal to the bit to what PEFT's merge_and_unload gives."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors.torch import load_file, save_file
from transformers import (
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    GPT2Config,
    GPT2LMHeadModel,
    GptOssConfig,
    GptOssForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
)

import anamnesis as an
from anamnesis import _core

# Of peft and transformers, of what they do themselves.
IGNORED = (FutureWarning, UserWarning, RuntimeWarning)
pytestmark = [pytest.mark.filterwarnings(*(f"ignore::{one.__name__}" for one in IGNORED))]

FEW = ["q_proj", "v_proj", "down_proj"]
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
Made = Callable[[], PreTrainedModel]


def llama(*, tied: bool = False) -> PreTrainedModel:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=320,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            tie_word_embeddings=tied,
        )
    )


def gpt2(width: int = 64) -> PreTrainedModel:
    ends = {"bos_token_id": 1, "eos_token_id": 1}
    return GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=width, n_head=4, vocab_size=300, **ends))


def mixtral() -> PreTrainedModel:
    return MixtralForCausalLM(
        MixtralConfig(
            vocab_size=320,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
        )
    )


VISION = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 28,
    "patch_size": 14,
}


def llava() -> PreTrainedModel:
    """Return a model of two parts, whose names in files are not those of its modules."""
    text = llama().config
    return LlavaForConditionalGeneration(
        LlavaConfig(vision_config=CLIPVisionConfig(**VISION), text_config=text)
    )


def gemma3() -> PreTrainedModel:
    text = {**llama().config.to_dict(), "head_dim": 16}
    config = Gemma3Config(text_config=text, vision_config=VISION, mm_tokens_per_image=4)
    return Gemma3ForConditionalGeneration(config)


def t5() -> PreTrainedModel:
    sizes = {"d_model": 64, "d_ff": 96, "d_kv": 16, "num_heads": 4, "num_layers": 2}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    return T5ForConditionalGeneration(T5Config(vocab_size=300, **sizes, **ends))


def gpt_oss(inner: int = 48) -> PreTrainedModel:
    """Return a model whose files have stacks of experts, [experts, in, out]."""
    return GptOssForCausalLM(
        GptOssConfig(
            vocab_size=320,
            hidden_size=64,
            intermediate_size=inner,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_local_experts=4,
            pad_token_id=None,
        )
    )


CASES: dict[str, tuple[Made, dict[str, Any]]] = {
    "plain": (llama, {"r": 16, "lora_alpha": 32, "target_modules": FEW}),
    "rank 1": (llama, {"r": 1, "target_modules": FEW}),
    "rank 100": (llama, {"r": 100, "target_modules": FEW}),
    "rslora": (llama, {"r": 16, "lora_alpha": 32, "target_modules": FEW, "use_rslora": True}),
    "patterns": (
        llama,
        {
            "r": 8,
            "target_modules": FEW,
            "rank_pattern": {"down_proj": 4},
            "alpha_pattern": {"q_proj": 3, "layers.1.self_attn.v_proj": 5},
        },
    ),
    "dora": (llama, {"r": 16, "lora_alpha": 32, "target_modules": FEW, "use_dora": True}),
    "tied embeddings": (
        lambda: llama(tied=True),
        {"r": 8, "target_modules": ["q_proj", "embed_tokens"]},
    ),
    "tied head": (lambda: llama(tied=True), {"r": 8, "target_modules": ["q_proj", "lm_head"]}),
    "tied head of GPT-2": (gpt2, {"r": 8, "target_modules": ["lm_head"]}),
    "tied head and embeddings": (
        lambda: llama(tied=True),
        {"r": 8, "target_modules": ["lm_head", "embed_tokens"]},
    ),
    "whole modules that are tied": (
        lambda: llama(tied=True),
        {"r": 8, "target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
    ),
    "all parts": (llava, {"r": 8, "target_modules": "all-linear", "bias": "all"}),
    "embeddings of a part": (
        llava,
        {"r": 8, "target_modules": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]},
    ),
    "a projector": (
        gemma3,
        {"r": 8, "target_modules": ["q_proj"], "modules_to_save": ["multi_modal_projector"]},
    ),
    "routers": (mixtral, {"r": 4, "target_modules": ["q_proj", "gate"]}),
    "embeddings": (llama, {"r": 8, "target_modules": ["embed_tokens", "lm_head"]}),
    "rounded products": (llama, {"r": 8, "target_modules": FEW, "init_lora_weights": "mica"}),
    "embeddings, dora": (llama, {"r": 8, "target_modules": ["embed_tokens"], "use_dora": True}),
    "whole modules": (
        llama,
        {"r": 8, "target_modules": ["q_proj"], "modules_to_save": ["lm_head", "embed_tokens"]},
    ),
    "Conv1D": (gpt2, {"r": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True}),
    "Conv1D, dora": (
        gpt2,
        {"r": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True, "use_dora": True},
    ),
    "Conv1D, dora of many norms": (
        partial(gpt2, 500),
        {"r": 8, "target_modules": ["attn.c_proj", "mlp.c_proj", "c_fc"], "use_dora": True},
    ),
    "dora of many norms": (
        lambda: LlamaForCausalLM(
            LlamaConfig(
                vocab_size=320,
                hidden_size=512,
                intermediate_size=1004,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
            )
        ),
        {"r": 8, "target_modules": FEW, "use_dora": True},
    ),
    "biases of layers": (
        gpt2,
        {"r": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "lora_only"},
    ),
    "all biases": (
        gpt2,
        {"r": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True, "bias": "all"},
    ),
    "biases of factors": (
        gpt2,
        {"r": 8, "target_modules": ["c_attn"], "fan_in_fan_out": True, "lora_bias": True},
    ),
    "experts": (
        mixtral,
        {"r": 8, "lora_alpha": 16, "target_modules": ["q_proj"], "target_parameters": EXPERTS},
    ),
    "patterns of experts": (
        mixtral,
        {
            "r": 8,
            "target_modules": ["q_proj"],
            "target_parameters": EXPERTS,
            "rank_pattern": {"experts.down_proj": 4},
            "alpha_pattern": {"gate_up_proj": 4, "layers.1.self_attn.q_proj": 6},
        },
    ),
    "parameters": (
        llama,
        {
            "r": 8,
            "target_modules": ["v_proj"],
            "target_parameters": ["q_proj.weight", "layers.1.mlp.down_proj.weight"],
            "alpha_pattern": {"q_proj.weight": 3, "down_proj": 5},
            "rank_pattern": {"v_proj": 2},
        },
    ),
    "parameters of Conv1D": (
        gpt2,
        {"r": 8, "target_modules": [], "target_parameters": ["c_attn.weight"]},
    ),
    "stacks in files": (
        gpt_oss,
        {"r": 4, "target_modules": ["q_proj"], "target_parameters": EXPERTS},
    ),
    "one square stack": (
        partial(gpt_oss, 64),
        {"r": 4, "target_modules": [], "target_parameters": EXPERTS[1:]},
    ),
    "one square stack of gates": (
        partial(gpt_oss, 32),
        {"r": 4, "target_modules": [], "target_parameters": EXPERTS[:1]},
    ),
    "one stack of experts": (
        mixtral,
        {"r": 4, "target_modules": [], "target_parameters": EXPERTS[1:]},
    ),
}


def adapted(make: Made, settings: dict[str, Any]) -> PeftModel:
    """Return a model with an adapter whose tensors are all of some size."""
    torch.manual_seed(0)
    model = get_peft_model(make().to(torch.bfloat16), LoraConfig(**settings))
    torch.manual_seed(3)
    for name, tensor in model.named_parameters():
        if "magnitude" in name:
            tensor.data *= 1 + 0.1 * torch.rand_like(tensor)
        elif "lora_" in name:
            torch.nn.init.normal_(tensor, std=0.05)
        elif tensor.requires_grad:
            tensor.data += 0.01
    return model


def trained(make: Made, settings: dict[str, Any], folder: Path) -> Path:
    adapted(make, settings).save_pretrained(folder)
    return folder


def base_of(make: Made, folder: Path) -> Path:
    torch.manual_seed(0)
    make().to(torch.bfloat16).save_pretrained(folder)
    return folder


def merged_by_peft(base: Path, *adapters: Path) -> dict[str, torch.Tensor]:
    kind = json.loads((base / "config.json").read_text())["architectures"][0]
    model = globals()[kind].from_pretrained(base, dtype=torch.bfloat16)
    for adapter in adapters:
        model = PeftModel.from_pretrained(model, adapter).merge_and_unload()
    found: dict[str, torch.Tensor] = model.state_dict()
    return found


def assert_same(base: Path, out: Path, wanted: dict[str, torch.Tensor]) -> None:
    kind = json.loads((base / "config.json").read_text())["architectures"][0]
    ours = globals()[kind].from_pretrained(out, dtype=torch.bfloat16).state_dict()
    assert ours.keys() == wanted.keys()
    for name, tensor in wanted.items():
        n = (ours[name].view(torch.int16) != tensor.contiguous().view(torch.int16)).sum().item()
        assert n == 0, f"{name}: {n} of {tensor.numel()} differ"


@pytest.mark.parametrize("case", CASES)
def test_a_merge_is_pefts(tmp_path: Path, case: str) -> None:
    make, settings = CASES[case]
    base, adapter = base_of(make, tmp_path / "base"), trained(make, settings, tmp_path / "adapter")
    wanted = merged_by_peft(base, adapter)
    report = an.convert(base, tmp_path / "out", "safetensors", lora=adapter)
    assert report.edited
    assert_same(base, tmp_path / "out", wanted)


def with_the_head(base: Path, *, said: bool) -> None:
    """Store the tied head of a Llama, too; its config says that it is tied, or nothing."""
    tensors = load_file(base / "model.safetensors")
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    config = json.loads((base / "config.json").read_text())
    config |= {"tie_word_embeddings": True if said else None}
    (base / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("modules", [["embed_tokens"], ["lm_head"], ["lm_head", "embed_tokens"]])
def test_a_head_that_is_tied_and_stored_changes_with_the_embeddings(
    tmp_path: Path, modules: list[str]
) -> None:
    make, settings = partial(llama, tied=True), {"r": 8, "target_modules": modules}
    base, adapter = base_of(make, tmp_path / "base"), trained(make, settings, tmp_path / "adapter")
    with_the_head(base, said=True)
    wanted = merged_by_peft(base, adapter)
    an.convert(base, tmp_path / "out", "safetensors", lora=adapter)
    assert_same(base, tmp_path / "out", wanted)


def test_a_stored_head_is_refused_if_nothing_says_whether_it_is_tied(tmp_path: Path) -> None:
    make, settings = partial(llama, tied=True), {"r": 8, "target_modules": ["embed_tokens"]}
    base, adapter = base_of(make, tmp_path / "base"), trained(make, settings, tmp_path / "adapter")
    with_the_head(base, said=False)
    with pytest.raises(an.UnsupportedError, match="not say whether they are tied"):
        an.convert(base, tmp_path / "out", "safetensors", lora=adapter)


def test_all_copies_of_tied_embeddings_change(tmp_path: Path) -> None:
    """Older files of T5 have them under each of their names."""
    settings = {"r": 8, "target_modules": ["shared"]}
    base, adapter = base_of(t5, tmp_path / "base"), trained(t5, settings, tmp_path / "adapter")
    tensors = load_file(base / "model.safetensors")
    for name in ("encoder.embed_tokens", "decoder.embed_tokens", "lm_head"):
        tensors[f"{name}.weight"] = tensors["shared.weight"].clone()
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    wanted = merged_by_peft(base, adapter)
    an.convert(base, tmp_path / "out", "safetensors", lora=adapter)
    assert_same(base, tmp_path / "out", wanted)


@pytest.mark.parametrize(
    ("make", "module"),
    [
        (partial(llama, tied=True), "embed_tokens"),
        (partial(llama, tied=True), "model.embed_tokens"),
        (partial(llama, tied=True), "lm_head"),
        (gpt2, "wte"),
        (t5, "shared"),
    ],
)
def test_one_of_tied_modules_alone_is_refused(tmp_path: Path, make: Made, module: str) -> None:
    settings = {"r": 8, "target_modules": r".*\.(q_proj|c_attn|q)", "modules_to_save": [module]}
    base, adapter = base_of(make, tmp_path / "base"), trained(make, settings, tmp_path / "adapter")
    with pytest.raises(an.UnsupportedError, match=rf"has only '.*{module}\.weight'; PEFT"):
        an.convert(base, tmp_path / "out", "safetensors", lora=adapter)


def test_tied_modules_that_became_two_are_refused(tmp_path: Path) -> None:
    make, settings = CASES["whole modules that are tied"]
    base, adapter = base_of(make, tmp_path / "base"), trained(make, settings, tmp_path / "adapter")
    file = adapter / "adapter_model.safetensors"
    tensors = load_file(file)
    tensors["base_model.model.lm_head.weight"][-1, -1] += 1
    save_file(tensors, file)
    with pytest.raises(an.UnsupportedError, match="differ, but are one in the base"):
        an.convert(base, tmp_path / "out", "safetensors", lora=adapter)


@pytest.mark.parametrize("said", [False, True])
def test_the_base_says_which_layers_are_conv1d(tmp_path: Path, said: bool) -> None:
    """A square one fits either way, and the config may have the flag of another layer."""
    settings = {"r": 8, "target_modules": ["attn.c_proj"], "fan_in_fan_out": True}
    base, adapter = base_of(gpt2, tmp_path / "base"), trained(gpt2, settings, tmp_path / "adapter")
    wanted = merged_by_peft(base, adapter)
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "fan_in_fan_out": said}))
    an.convert(base, tmp_path / "out", "safetensors", lora=adapter)
    assert_same(base, tmp_path / "out", wanted)


def test_a_flag_of_other_layers_turns_no_linear_one(tmp_path: Path) -> None:
    """PEFT saves the flag of the layer that it adapted last, and goes by the class of each."""
    settings = {"r": 8, "target_modules": ["q_proj", "v_proj", "down_proj", "lm_head"]}
    base, adapter = (
        base_of(llama, tmp_path / "base"),
        trained(llama, settings, tmp_path / "adapter"),
    )
    config = json.loads((adapter / "adapter_config.json").read_text())
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "fan_in_fan_out": True}))
    wanted = merged_by_peft(base, adapter)
    an.convert(base, tmp_path / "out", "safetensors", lora=adapter)
    assert_same(base, tmp_path / "out", wanted)


def test_several_are_rounded_one_after_the_other(tmp_path: Path) -> None:
    base = base_of(llama, tmp_path / "base")
    adapters = []
    for i, r in enumerate((4, 16)):
        settings = {"r": r, "lora_alpha": 8 * (i + 1), "target_modules": FEW}
        adapters.append(trained(llama, settings, tmp_path / f"adapter{i}"))
    an.convert(base, tmp_path / "out", "safetensors", lora=adapters)
    assert_same(base, tmp_path / "out", merged_by_peft(base, *adapters))


def test_threads_and_bands_change_nothing(tmp_path: Path) -> None:
    base = base_of(mixtral, tmp_path / "base")
    adapter = trained(mixtral, CASES["experts"][1], tmp_path / "adapter")
    outputs = []
    for threads in (1, 7):
        out = tmp_path / f"out{threads}"
        an.convert(base, out, "safetensors", lora=adapter, threads=threads)
        outputs.append((out / "model.safetensors").read_bytes())
    assert outputs[0] == outputs[1]


def test_a_weight_scales_what_is_added(tmp_path: Path) -> None:
    base = base_of(llama, tmp_path / "base")
    adapter = trained(llama, CASES["plain"][1], tmp_path / "adapter")
    config = json.loads((adapter / "adapter_config.json").read_text())
    an.convert(base, tmp_path / "half", "safetensors", lora={adapter: 0.5})
    (adapter / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 16}))
    an.convert(base, tmp_path / "out", "safetensors", lora=adapter)
    assert_same(base, tmp_path / "half", merged_by_peft(base, adapter))
    one, other = (tmp_path / name / "model.safetensors" for name in ("half", "out"))
    assert one.read_bytes() == other.read_bytes()


def test_a_quantised_base_is_decoded_and_encoded_anew(tmp_path: Path) -> None:
    base = base_of(llama, tmp_path / "base")
    adapter = trained(llama, CASES["plain"][1], tmp_path / "adapter")
    an.forget(base, tmp_path / "fp8", "fp8-tensor-ct")
    report = an.convert(tmp_path / "fp8", tmp_path / "out", "fp8-tensor-ct", lora=adapter)
    assert report.loss is not None
    an.remember(tmp_path / "fp8", tmp_path / "plain", "f32")
    an.convert(tmp_path / "plain", tmp_path / "merged", "bf16", lora=adapter)
    an.convert(tmp_path / "merged", tmp_path / "wanted", "fp8-tensor-ct")
    got, wanted = (load_file(tmp_path / n / "model.safetensors") for n in ("out", "wanted"))
    for name, tensor in wanted.items():
        if "proj" in name and "lm_head" not in name and tensor.dtype == torch.float8_e4m3fn:
            assert torch.equal(got[name].view(torch.uint8), tensor.view(torch.uint8)), name


@pytest.mark.parametrize("inner", [32, 48, 64])
@pytest.mark.parametrize("stacks", [EXPERTS, EXPERTS[:1], EXPERTS[1:]])
def test_single_experts_are_rows_of_a_stack_in_turn(
    tmp_path: Path, inner: int, stacks: list[str]
) -> None:
    make = partial(gpt_oss, inner)
    settings = {"r": 4, "target_modules": [], "target_parameters": stacks}
    base, adapter = base_of(make, tmp_path / "base"), trained(make, settings, tmp_path / "adapter")
    an.forget(base, tmp_path / "fp8", "fp8-tensor-ct")
    an.remember(tmp_path / "fp8", tmp_path / "stacks", "f32")
    for name in ("fp8", "stacks"):
        an.convert(tmp_path / name, tmp_path / f"{name}-out", "bf16", lora=adapter)
    got, wanted = (
        load_file(tmp_path / f"{n}-out" / "model.safetensors") for n in ("fp8", "stacks")
    )
    assert got.keys() == wanted.keys()
    assert all(torch.equal(got[name], tensor) for name, tensor in wanted.items())


def test_diffusers_metadata_has_the_config_of_each_component(tmp_path: Path) -> None:
    components: dict[str, tuple[Made, dict[str, Any]]] = {
        "transformer": (llama, CASES["patterns"][1]),
        "text_encoder": (llama, {**CASES["rslora"][1], "target_modules": ["k_proj"]}),
        "text_encoder_2": (gpt2, CASES["Conv1D, dora"][1]),
    }
    found: list[dict[str, Any]] = [{}, {}, {}, {}]
    for component, (make, settings) in components.items():
        torch.manual_seed(0)
        plain, model = make().to(torch.bfloat16).state_dict(), adapted(make, settings)
        config = model.peft_config["default"].to_dict()
        config |= {key: list(value) for key, value in config.items() if isinstance(value, set)}
        tensors = get_peft_model_state_dict(model)
        values = (plain, tensors, config, model.merge_and_unload().state_dict())
        for into, one in zip(found, values, strict=True):
            names = (name.removeprefix("base_model.model.") for name in one)
            into |= dict(zip((f"{component}.{name}" for name in names), one.values(), strict=True))
    base, factors, said, wanted = found
    save_file({name: tensor.clone() for name, tensor in base.items()}, tmp_path / "b.safetensors")
    adapter = tmp_path / "pytorch_lora_weights.safetensors"
    save_file(factors, adapter, {"lora_adapter_metadata": json.dumps(said)})
    an.convert(tmp_path / "b.safetensors", tmp_path / "out.safetensors", lora=tmp_path)
    for name, tensor in load_file(tmp_path / "out.safetensors").items():
        assert torch.equal(tensor, wanted[name]), name


def small_integers(rng: np.random.Generator, *shape: int) -> torch.Tensor:
    """Return values of which sums and products are exact, in any order."""
    return torch.from_numpy(rng.integers(-8, 8, shape).astype(np.float32))


def test_kohyas_names_fit_a_single_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    modules = {
        "model.diffusion_model.input_blocks.4.1.transformer_blocks.0.attn1.to_q": (32, 24),
        "model.diffusion_model.input_blocks.1.0.in_layers.2": (8, 4, 3, 3),
        "cond_stage_model.transformer.text_model.encoder.layers.0.mlp.fc1": (16, 12),
    }
    weights = {f"{m}.weight": small_integers(rng, *s) for m, s in modules.items()}
    names = (
        "lora_unet_input_blocks_4_1_transformer_blocks_0_attn1_to_q",
        "lora_unet_input_blocks_1_0_in_layers_2",
        "lora_te_text_model_encoder_layers_0_mlp_fc1",
    )
    tensors, wanted = {}, {}
    for name, (module, shape) in zip(names, modules.items(), strict=True):
        down, up = small_integers(rng, 2, *shape[1:]), small_integers(rng, shape[0], 2)
        one = (1,) * (len(shape) - 2)
        tensors[f"{name}.lora_down.weight"] = down
        tensors[f"{name}.lora_up.weight"] = up.reshape(shape[0], 2, *one)
        tensors[f"{name}.alpha"] = torch.tensor(1.0)
        product = (up @ down.reshape(2, -1)).reshape(shape) * 0.5
        wanted[f"{module}.weight"] = weights[f"{module}.weight"] + product
    save_file(weights, tmp_path / "sd.safetensors")
    save_file(tensors, tmp_path / "style.safetensors")
    out = tmp_path / "out.safetensors"
    an.convert(tmp_path / "sd.safetensors", out, lora=tmp_path / "style.safetensors")
    for name, tensor in load_file(out).items():
        assert torch.equal(tensor, wanted[name]), name


@pytest.mark.parametrize("case", ["plain", "dora"])
def test_mlxs_factors_lie_the_other_way(tmp_path: Path, case: str) -> None:
    base = base_of(llama, tmp_path / "base")
    adapter = trained(llama, CASES[case][1], tmp_path / "adapter")
    tensors = load_file(adapter / "adapter_model.safetensors")
    mlx = {
        name.removeprefix("base_model.model.")
        .replace("lora_A.weight", "lora_a")
        .replace("lora_B.weight", "lora_b")
        .replace("lora_magnitude_vector", "m"): tensor.permute(
            *reversed(range(tensor.ndim))
        ).contiguous()
        for name, tensor in tensors.items()
    }
    (tmp_path / "mlx").mkdir()
    save_file(mlx, tmp_path / "mlx" / "adapters.safetensors")
    told = {
        "fine_tune_type": "dora" if "dora" in case else "lora",
        "lora_parameters": {"rank": 16, "scale": 2.0},
    }
    (tmp_path / "mlx" / "adapter_config.json").write_text(json.dumps(told))
    an.convert(base, tmp_path / "out", "safetensors", lora=tmp_path / "mlx")
    assert_same(base, tmp_path / "out", merged_by_peft(base, adapter))


@pytest.mark.parametrize("inner", [1, 8, 33, 128])
def test_each_level_gives_the_sums_of_blas(inner: int) -> None:
    rng = np.random.default_rng(inner)
    rows, cols, panel = 70, 200, _core.PANEL
    left = rng.standard_normal((rows, inner), np.float32)
    right = rng.standard_normal((inner, cols), np.float32)
    weight = rng.standard_normal((rows, cols), np.float32)
    wanted = weight + (torch.from_numpy(left) @ torch.from_numpy(right)).numpy() * np.float32(0.3)
    padded = np.zeros((inner, -(-cols // panel) * panel), np.float32)
    padded[:, :cols] = right
    panels = np.ascontiguousarray(padded.reshape(inner, -1, panel).transpose(1, 0, 2)).reshape(-1)
    for level in an.supported_levels():
        values = weight.copy()
        number = _core.LEVELS[level]
        _core.add_product(values.reshape(-1), left.reshape(-1), panels, 0.3, cols, inner, 0, number)
        assert np.array_equal(values.view(np.int32), wanted.view(np.int32)), level
