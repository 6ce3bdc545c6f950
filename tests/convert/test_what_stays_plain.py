"""Which weights stay plain, name by name, beside what the encodings' own tools leave.

Where they differ, it is said here, and in docs/formats.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bitsandbytes
import pytest
import torch
import transformers
from safetensors.torch import load_file
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForSequenceClassification,
    BitsAndBytesConfig,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraForMaskedLM,
    FineGrainedFP8Config,
    LlamaConfig,
    LlamaForSequenceClassification,
    LlamaForTokenClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    SiglipVisionConfig,
    SiglipVisionModel,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.integrations.finegrained_fp8 import FP8Linear
from transformers.models.auto import modeling_auto
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.libraries.endings import as_endings, as_patterns
from anamnesis.schemes.libraries.left_plain import left_by_class, linear_refusal
from helpers.seeing_models import SEEING
from helpers.tiny_models import DECODER, ENCODER, MODELS, WORDS, loaded, save
from helpers.whole_libraries import encoded, llm_compressor, modelopt

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

VISION: dict[str, Any] = {
    **{key: size for key, size in ENCODER.items() if key not in WORDS},
    "image_size": 32,
    "patch_size": 16,
}
DISTILBERT: dict[str, Any] = {"dim": 128, "hidden_dim": 256, "n_layers": 2, "n_heads": 4}
LABELS: dict[str, Any] = {"num_labels": 64}

KINDS: dict[str, Callable[[], Any]] = {
    **{kind: MODELS[kind] for kind in ("llama", "mixtral", "qwen2_moe", "t5", "t5_gated", "clip")},
    **{kind: MODELS[kind] for kind in ("bert_mlm", "roberta_mlm", "distilbert_mlm", "whisper")},
    "bert": lambda: BertForSequenceClassification(BertConfig(**ENCODER, **LABELS)),
    "roberta": lambda: RobertaForSequenceClassification(RobertaConfig(**ENCODER, **LABELS)),
    "distilbert": lambda: DistilBertForSequenceClassification(
        DistilBertConfig(**DISTILBERT, **WORDS, **LABELS)
    ),
    "llama_scores": lambda: LlamaForSequenceClassification(LlamaConfig(**DECODER, **LABELS)),
    "llama_tokens": lambda: LlamaForTokenClassification(LlamaConfig(**DECODER, **LABELS)),
    **SEEING,
    "vit": lambda: ViTForImageClassification(ViTConfig(**VISION, **LABELS)),
    "siglip": lambda: SiglipVisionModel(SiglipVisionConfig(**VISION)),
    "albert": lambda: AlbertForMaskedLM(AlbertConfig(**ENCODER, embedding_size=128)),
    "electra": lambda: ElectraForMaskedLM(ElectraConfig(**ENCODER, embedding_size=64)),
}
# What llm-compressor and ModelOpt encode, and is plain here: classifiers, which vLLM has plain, and
# heads that are tied, which are in no file.
BY_BOTH = {
    **{kind: {"classifier"} for kind in ("bert", "distilbert", "vit")},
    **{kind: {"score"} for kind in ("llama_scores", "llama_tokens")},
    "bert_mlm": {"cls.predictions.decoder"},
    "distilbert_mlm": {"vocab_projector"},
    "albert": {"predictions.decoder"},
}
# Other heads that are tied; gates of shared experts, which its own examples leave; and a part of
# torch's MultiheadAttention.
BY_LLM_COMPRESSOR = {
    **BY_BOTH,
    "roberta_mlm": {"lm_head.decoder"},
    "electra": {"generator_lm_head"},
    "whisper": {"proj_out"},
    "qwen2_moe": {f"model.layers.{i}.mlp.shared_expert_gate" for i in range(2)},
    "siglip": {"head.attention.out_proj"},
    "gemma3_vl": {"vision_tower.head.attention.out_proj"},
}
UNKNOWN = {"vit", "siglip", "clip", "whisper"}  # to ModelOpt's export


def ours(dense: Path, to: str, folder: Path) -> set[str]:
    """The modules that are encoded, without experts."""
    with an.parse(dense) as model:
        model.forget(folder, to)
    with an.parse(folder) as model:
        names = {name.removesuffix(".weight") for name in model if model[name].is_quantized}
    return {name for name in names if ".experts." not in name}


def quantised(folder: Path, kind: type[torch.nn.Module], **how: Any) -> set[str]:
    """The modules that transformers makes of a class as it quantises a model, or loads one."""
    (name,) = transformers.AutoConfig.from_pretrained(folder).architectures
    if how:
        model = getattr(transformers, name).from_pretrained(folder, dtype=torch.bfloat16, **how)
    else:
        model = loaded(folder, dtype=torch.bfloat16)
    found = {name for name, module in model.named_modules() if isinstance(module, kind)}
    return {name for name in found if not name.endswith(".experts")}


def names_in_files(dense: Path) -> dict[str, str]:
    """What a file calls the modules that a model has under other names, told by their values."""
    stored = load_file(dense / "model.safetensors")
    by_values = {raw(tensor): name for name, tensor in stored.items() if tensor.ndim == 2}
    return {
        name.removesuffix(".weight"): by_values[raw(tensor)].removesuffix(".weight")
        for name, tensor in loaded(dense, dtype=torch.bfloat16).named_parameters()
        if name not in stored and raw(tensor) in by_values
    }


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()


@pytest.fixture
def no_gpu_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)


@pytest.mark.against("transformers")
@pytest.mark.parametrize("kind", KINDS)
def test_bitsandbytes(kind: str, tmp_path: Path) -> None:
    dense = save(KINDS[kind], tmp_path / "dense")
    how = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4")
    theirs = quantised(dense, bitsandbytes.nn.Linear4bit, quantization_config=how)
    names = names_in_files(dense)
    assert ours(dense, "bnb-nf4", tmp_path / "out") == {names.get(name, name) for name in theirs}
    assert quantised(tmp_path / "out", bitsandbytes.nn.Linear4bit) == theirs


@pytest.mark.against("transformers")
@pytest.mark.usefixtures("no_gpu_asked")
@pytest.mark.parametrize("to", ["fp8-tensor", "fp8-block-64x64"])
@pytest.mark.parametrize("kind", KINDS)
def test_fp8(kind: str, to: str, tmp_path: Path) -> None:
    dense = save(KINDS[kind], tmp_path / "dense")
    how = FineGrainedFP8Config(weight_block_size=None if to == "fp8-tensor" else (64, 64))
    theirs = quantised(dense, FP8Linear, quantization_config=how)
    if to != "fp8-tensor":  # it makes layers even of what it then does not quantise
        shapes = {name: shape_of(module) for name, module in loaded(dense).named_modules()}
        theirs = {name for name in theirs if not any(n % 64 for n in shapes[name])}
    names = names_in_files(dense)
    assert ours(dense, to, tmp_path / "out") == {names.get(name, name) for name in theirs}
    assert quantised(tmp_path / "out", FP8Linear) == theirs


def shape_of(module: torch.nn.Module) -> tuple[int, ...]:
    weight = getattr(module, "weight", None)
    return tuple(weight.shape) if isinstance(weight, torch.Tensor) else ()


def scaled(folder: Path) -> set[str]:
    names = {name.removesuffix(".weight_scale") for name in encoded(folder)}
    return {name for name in names if ".experts." not in name}


@pytest.mark.against("compressed-tensors")
@pytest.mark.parametrize("kind", KINDS)
def test_llm_compressor(kind: str, tmp_path: Path) -> None:
    dense = save(KINDS[kind], tmp_path / "dense")
    theirs = scaled(llm_compressor(dense, tmp_path / "theirs", "W8A8", ["lm_head"]))
    found = ours(dense, "int8", tmp_path / "out")
    assert (theirs - found, found - theirs) == (BY_LLM_COMPRESSOR.get(kind, set()), set())
    if kind not in ("mixtral", "qwen2_moe"):  # whose experts it does not unpack
        loaded(tmp_path / "out", dtype=torch.bfloat16)


@pytest.mark.against("ModelOpt")
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - UNKNOWN))
def test_modelopt(kind: str, tmp_path: Path) -> None:
    dense = save(KINDS[kind], tmp_path / "dense")
    theirs = scaled(modelopt(dense, tmp_path / "theirs"))
    found = ours(dense, "nvfp4-modelopt", tmp_path / "out")
    assert (theirs - found, found - theirs) == (BY_BOTH.get(kind, set()), set())


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("no_gpu_asked")
@pytest.mark.parametrize("to", ["int8", "fp8-channel", "int4", "bnb-nf4", "bnb-int8", "fp8-tensor"])
@pytest.mark.parametrize("left", ["seeing", "speaking"])
@pytest.mark.parametrize("kind", SEEING)
def test_parts_of_models_that_are_left(kind: str, left: str, to: str, tmp_path: Path) -> None:
    """Files have other names for them than transformers, which the config's lists have to fit."""
    dense = save(KINDS[kind], tmp_path / "dense")
    vision = "visual.*" if kind == "qwen2_5_vl" else "vision_tower.*"
    exclude = [vision] if left == "seeing" else [vision, "*layers.0.mlp.*"]
    with an.parse(dense) as model:
        report = model.forget(tmp_path / "out", to, exclude=exclude)
    assert not any(line.startswith("transformers does not") for line in report.warnings)
    with an.parse(tmp_path / "out") as model:
        coded = {name for name in model if model[name].is_quantized}
        assert len(coded) == report.n_encoded > 8
        assert not any(name.startswith(vision[:-1]) for name in coded)
    theirs = loaded(tmp_path / "out", dtype=torch.bfloat16)
    before = loaded(dense, dtype=torch.bfloat16).state_dict()
    names = names_in_files(dense)
    for name, tensor in theirs.state_dict().items():
        module, _, last = name.rpartition(".")
        stored = f"{names.get(module, module)}.{last}"
        if last == "weight" and tensor.ndim == 2 and stored not in coded and name in before:
            assert torch.equal(tensor, before[name]), name


def test_endings_of_names() -> None:
    quantised = ["language_model.model.layers.0.q_proj", "language_model.model.layers.1.q_proj"]
    plain = ["vision_tower.layers.0.q_proj", "lm_head", "layers.0.q_proj"]
    parts = {"vision_config": {"depth": 2}}
    assert as_patterns(Layers(plain, quantised, {"model_type": "llama"})) == plain
    assert as_patterns(Layers(plain, quantised, parts)) == [
        r"re:.*vision_tower\.layers\.0\.q_proj$",
        "re:.*lm_head$",
        "layers.0.q_proj",
    ]
    assert as_endings(Layers(plain, quantised, parts)) == plain


# Classes of layers that are no nn.Linear, and have names like any: their models have rows in the
# table of loaders, or are refused.
OWN = {"FalconLinear", "QuantLinear", "DeepseekV4GroupedLinear"}


def classes() -> Iterator[Any]:
    tasks = ("CAUSAL_LM", "SEQUENCE_CLASSIFICATION", "MASKED_LM", "IMAGE_TEXT_TO_TEXT")
    names = {
        name
        for task in (*(f"FOR_{task}_MAPPING" for task in tasks), "MAPPING")
        for found in vars(modeling_auto)[f"MODEL_{task}_NAMES"].values()
        for name in ([found] if isinstance(found, str) else found)
    }
    for name in sorted(names):
        kind = getattr(transformers, name, None)
        if kind is not None:
            yield kind


def small(config: Any) -> Any:
    for key in ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth"):
        if isinstance(getattr(config, key, None), int):
            setattr(config, key, min(getattr(config, key), 3))
    if isinstance(getattr(config, "layer_types", None), list):
        config.layer_types = config.layer_types[:3]
    for section in vars(config).values():
        if isinstance(section, transformers.PretrainedConfig):
            small(section)
    return config


@pytest.mark.sampled(4)
@pytest.mark.parametrize("part", range(4))
def test_no_layer_that_is_encoded_is_of_another_class(part: int) -> None:
    """Of all models of transformers: else codes would be left over when it is loaded."""
    wrong, n = set(), 0
    for kind in [*classes()][part::4]:
        try:
            config = small(kind.config_class())
            with torch.device("meta"):
                model = kind(config)
        except Exception:  # no model by itself, or of too few layers
            continue
        n += 1
        shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
        left = left_by_class(shapes, "transformers")
        for name, module in model.named_modules():
            weight = f"{name}.weight"
            if type(module) is torch.nn.Linear or isinstance(module, Conv1D):
                continue
            if len(shape_of(module)) == 2 and weight not in left:
                own = type(module).__name__
                why = linear_refusal(weight, shape_of(module), DTYPES["BF16"], "transformers")
                if why is None and own not in OWN:
                    wrong.add((kind.__name__, own, name))
    assert n > 170
    assert wrong == set()
