"""Experts that were stacked or split are what transformers and mlx-lm make of the others."""

from __future__ import annotations

from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
import torch
from mlx_lm.utils import load_model
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    CompressedTensorsConfig,
    DeepseekV3Config,
    MixtralConfig,
    Mxfp4Config,
    PretrainedConfig,
)
from transformers.conversion_mapping import get_checkpoint_conversion_mapping
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import anamnesis as an
from anamnesis.convert.loaders.table import ONE_BY_ONE
from anamnesis.schemes.libraries.stacks import OF_MIXTRAL
from convert.test_loads_gptoss import gptoss
from helpers.stacked_models import STACKED, saved_stacked
from helpers.tiny_models import DECODER, EXPERTS, dense_for_mlx, loaded, saved

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

State = dict[str, torch.Tensor]


def singles(kind: str, folder: Path) -> Path:
    """A model as transformers saves it, with single experts."""
    if kind not in ("mixtral", "deepseek_v3"):
        return saved(kind, folder)
    torch.manual_seed(0)
    config: PretrainedConfig = MixtralConfig(
        **DECODER, num_local_experts=4, tie_word_embeddings=False
    )
    if kind == "deepseek_v3":
        config = DeepseekV3Config(
            **{**EXPERTS, "num_key_value_heads": 4}, n_routed_experts=4, n_group=1, topk_group=1,
            n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=32, kv_lora_rank=32,
            qk_rope_head_dim=16, qk_nope_head_dim=16, v_head_dim=32,
        )  # fmt: skip
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(folder)
    return folder


def state(folder: Path) -> State:
    """Of the model that transformers loads; nothing may be missing, or left over."""
    model, told = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.bfloat16, output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    assert not told["mismatched_keys"]
    found: State = model.state_dict()
    return found


def assert_same(ours: State, want: State) -> None:
    assert ours.keys() == want.keys()
    assert [name for name in want if not torch.equal(ours[name], want[name])] == []


@pytest.mark.against("transformers")
@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3"])
def test_stacked_values(kind: str, tmp_path: Path) -> None:
    """They are the parameters that transformers makes of single experts, and back again."""
    source = singles(kind, tmp_path / "in")
    with an.parse(source) as model:
        assert model.remember(tmp_path / "stacked", experts="stacked").put_together
    with an.parse(tmp_path / "stacked") as model:
        assert model.remember(tmp_path / "split", experts="split").taken_apart
        told = {verdict.program: verdict.outcome for verdict in model.plan("bf16").verdicts}
    assert (told["transformers"], told["vLLM"]) == ("loads", "refuses")
    want = state(source)
    assert_same(state(tmp_path / "stacked"), want)
    assert_same(state(tmp_path / "split"), want)
    before, after = (load_file(at / "model.safetensors") for at in (source, tmp_path / "split"))
    assert_same(after, before)


@pytest.mark.against("transformers")
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_stacked_codes(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its FP8 experts are equal, whether it stacks their codes or finds stacks of them."""
    # As on a GPU, without which it dequantises what it loads.
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)
    source = singles(kind, tmp_path / "in")
    with an.parse(source) as model:
        model.forget(tmp_path / "single", "fp8-block")
        model.forget(tmp_path / "stacked", "fp8-block", experts="stacked")
    one, other = (loaded(tmp_path / at).state_dict() for at in ("single", "stacked"))
    stacks = [name for name in one if name.endswith("experts.gate_up_proj")]
    assert stacks
    assert one[stacks[0]].dtype == torch.float8_e4m3fn
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor.float(), other[name].float()), name


@pytest.mark.against("transformers")
@pytest.mark.parametrize("kind", STACKED)
def test_stacks_of_its_classes(kind: str, tmp_path: Path) -> None:
    """Taken apart and put together they are what it saved."""
    source = saved_stacked(kind, tmp_path / "in")
    with an.parse(source) as model:
        assert model.remember(tmp_path / "split", experts="split").taken_apart
    with an.parse(tmp_path / "split") as model:
        assert model.remember(tmp_path / "out", experts="stacked").put_together
    before, after = (load_file(at / "model.safetensors") for at in (source, tmp_path / "out"))
    assert_same(after, before)


@pytest.mark.against("mlx-lm")
@pytest.mark.parametrize("to", ["mlx-4bit", "mlx-mxfp4", "mlx-mxfp8"])
@pytest.mark.parametrize("kind", ["mixtral", "qwen3_moe"])
def test_mlx_lm_loads_stacks(kind: str, to: str, tmp_path: Path) -> None:
    """Also of models whose single experts in codes it does not join."""
    mx.set_default_device(mx.cpu)
    source = dense_for_mlx(kind, tmp_path / "in")
    with an.parse(source) as model:
        report = model.forget(tmp_path / "out", to, experts="stacked")
    assert not [name for name in report.plain if "switch_mlp" in name]
    made, _ = load_model(tmp_path / "out")
    layers = dict(made.named_modules())
    with an.parse(tmp_path / "out") as model:
        names = [name for name in model if "switch_mlp" in name]
        assert len(names) == 6
        for name in names:
            layer = layers[name.removesuffix(".weight")]
            values = mx.dequantize(
                layer.weight, layer.scales, layer.get("biases"), layer.group_size, layer.bits,
                layer.mode,
            )  # fmt: skip
            ours = model[name].numpy("bf16", math="reference").astype(np.float32)
            assert np.array_equal(np.array(values.astype(mx.float32)), ours), name
    logits = made(mx.array(np.arange(20)[None]))
    assert bool(mx.all(mx.isfinite(logits)))


@pytest.mark.against("transformers")
@pytest.mark.parametrize("through", ["mxfp4", "nvfp4", None])
def test_stacks_of_gpt_oss(through: str | None, tmp_path: Path) -> None:
    """Single experts in codes, and values that are encoded, are stacks that it loads as MXFP4."""
    only = {"include": ["*.experts.*"]}
    source = gptoss(tmp_path / "in")
    with an.parse(source) as model:
        if through is None:
            model.remember(tmp_path / "split", experts="split")
            model.remember(tmp_path / "keep", experts="keep")
        else:
            model.convert(tmp_path / "split", through, experts="split", **only)  # type: ignore[arg-type]
    if through is None:  # as it is encoded where the stacks were never apart
        with an.parse(tmp_path / "keep") as model:
            model.convert(tmp_path / "want", "gptoss-mxfp4", **only)  # type: ignore[arg-type]
        source = tmp_path / "want"
    with an.parse(tmp_path / "split") as model:
        report = model.convert(tmp_path / "out", "gptoss-mxfp4", experts="stacked", **only)  # type: ignore[arg-type]
    assert len(report.put_together) == 8
    assert len(report.repacked) == (0 if through is None else 4)
    how = Mxfp4Config(dequantize=True)
    theirs, ours = (
        loaded(folder, quantization_config=how, dtype=torch.bfloat16).state_dict()
        for folder in (source, tmp_path / "out")
    )
    assert_same(ours, theirs)


@pytest.mark.against("transformers")
@pytest.mark.parametrize("to", ["int4", "mxfp4", "fp8-channel"])
def test_split_codes(to: str, tmp_path: Path) -> None:
    """Experts in codes one by one, of stacks of values: equal to those that it makes stacks of."""
    source = singles("qwen3_moe", tmp_path / "in")
    with an.parse(source) as model:
        model.remember(tmp_path / "stacked", experts="stacked")
        model.convert(tmp_path / "want", to, experts="keep")
    with an.parse(tmp_path / "stacked") as model:
        assert model.convert(tmp_path / "out", to, experts="split").taken_apart
    how = CompressedTensorsConfig(dequantize=True)
    theirs, ours = (
        loaded(tmp_path / at, quantization_config=how, dtype=torch.bfloat16).state_dict()
        for at in ("want", "out")
    )
    assert any(name.endswith("experts.gate_up_proj") for name in ours)
    assert_same(ours, theirs)
    before, after = (load_file(tmp_path / at / "model.safetensors") for at in ("want", "out"))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.against("mlx-lm")
def test_mlx_lm_loads_a_second_scale_for_each_expert(tmp_path: Path) -> None:
    """NVFP4 of single experts, moved: its stacks have their values, and run on a GPU alone."""
    mx.set_default_device(mx.cpu)
    source = dense_for_mlx("qwen3_moe", tmp_path / "in")
    with an.parse(source) as model:
        # Only its experts: mlx-lm's other layers take no second scale.
        model.convert(tmp_path / "nvfp4", "nvfp4", include="*.experts.*")
    with an.parse(tmp_path / "nvfp4") as model:
        report = model.convert(tmp_path / "out", "mlx-nvfp4", experts="stacked")
        want = {name: model[name].numpy("bf16") for name in model if ".experts." in name}
    stacks = [name for name in report.put_together if name in report.repacked]
    assert len(stacks) == 6
    assert len(want) == 24
    made, _ = load_model(tmp_path / "out")
    layers = dict(made.named_modules())
    with an.parse(tmp_path / "out") as model:
        ours = {name: model[name].numpy("f32") for name in stacks}
    for name in stacks:
        layer = layers[name.removesuffix(".weight")]
        for expert in range(4):
            values = mx.dequantize(
                layer.weight[expert], layer.scales[expert], None, layer.group_size, layer.bits,
                layer.mode, global_scale=layer.global_scale[expert], dtype=mx.float32,
            )  # fmt: skip
            assert np.array_equal(np.array(values), ours[name][expert]), name
            single = name.replace("switch_mlp", f"experts.{expert}")  # F32's last bits may differ
            rounded = np.array(values.astype(mx.bfloat16).astype(mx.float32))
            assert np.array_equal(rounded, want[single].astype(np.float32)), single


def test_types_with_single_experts() -> None:
    """The list is of types of which transformers merges a list of modules."""
    for kind in ONE_BY_ONE:
        mapping = get_checkpoint_conversion_mapping(kind)
        if mapping is None:  # a part of another model
            continue
        patterns = [
            pattern
            for one in mapping
            if any(type(o).__name__ == "MergeModulelist" for o in getattr(one, "operations", ()))
            for pattern in one.source_patterns
            if "experts" in pattern
        ]
        assert patterns, kind
        assert any("w1" in pattern for pattern in patterns) == (kind in OF_MIXTRAL), kind
