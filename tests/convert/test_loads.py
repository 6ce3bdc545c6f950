"""What `forget` writes of models of many kinds is loaded by transformers, layer by layer.

Where a name is in question, it is transformers that says it: which layers it makes quantised ones
of, which heads are tied, what it keeps in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bitsandbytes
import pytest
import torch
import transformers
from transformers import CompressedTensorsConfig, FineGrainedFP8Config
from transformers.integrations.finegrained_fp8 import FP8Linear
from transformers.models.auto import modeling_auto
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.schemes.libraries.left_plain import LEFT, linear_refusal
from anamnesis.schemes.libraries.tied_heads import HEADS
from helpers.tiny_models import MODELS, loaded, saved

pytestmark = pytest.mark.filterwarnings("default")

QUANTISED = {
    "fp8-block": lambda layer: isinstance(layer, FP8Linear),
    "fp8-channel": lambda layer: hasattr(layer, "quantization_scheme"),
    "bnb-nf4": lambda layer: isinstance(layer, bitsandbytes.nn.Linear4bit),
    "bnb-int8": lambda layer: isinstance(layer, bitsandbytes.nn.Linear8bitLt),
}
COMPRESSED = (
    *("fp8-block-ct", "fp8-channel", "fp8-tensor-ct", "int8", "int4", "int4-asym"),
    *("nvfp4", "mxfp4", "mxfp8"),
)
# transformers 5.23 unpacks no others of experts; of those of NVFP4 it forgets the second scale.
OF_EXPERTS = ("fp8-block-ct", "fp8-channel", "fp8-tensor-ct", "int4", "mxfp4")


@pytest.fixture
def no_gpu_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers are made as on a GPU, else transformers dequantises FP8 and makes none."""
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)


@pytest.mark.against("transformers")
@pytest.mark.usefixtures("no_gpu_asked")
@pytest.mark.parametrize("to", QUANTISED)
@pytest.mark.parametrize("kind", [kind for kind in MODELS if kind != "falcon"])
def test_the_layers_that_are_quantised(kind: str, to: str, tmp_path: Path) -> None:
    """Those are as many as were written, and no other is; experts are parameters, stacked."""
    dense = saved(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "out", to)
    with an.parse(tmp_path / "out") as model:
        ours = {name.removesuffix(".weight") for name in model if model[name].is_quantized}
    model = loaded(tmp_path / "out", dtype=torch.bfloat16)
    is_quantised = QUANTISED[to]
    theirs = {name for name, layer in model.named_modules() if is_quantised(layer)}
    assert theirs - {name for name in theirs if name.endswith(".experts")} == {
        name for name in ours if ".experts." not in name
    }
    assert len(theirs) >= (4 if to == "fp8-block" else 8)


def values(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """The weights as they are read here, in BF16."""
    with an.parse(folder) as model:
        for name in model:
            array = model[name].numpy("bf16")
            yield name, torch.from_numpy(array.view("int16")).view(torch.bfloat16)


@pytest.mark.against("compressed-tensors")
@pytest.mark.parametrize(
    ("kind", "to"),
    [
        *(("llama", to) for to in COMPRESSED),
        *(("t5", to) for to in COMPRESSED),
        *(("qwen3_moe", to) for to in OF_EXPERTS),
        *(("falcon", to) for to in ("fp8-channel", "int4")),
    ],
)
def test_dequantised_as_it_is_loaded(kind: str, to: str, tmp_path: Path) -> None:
    """To the values that are read here, in BF16; the experts too, which are stacked."""
    dense = saved(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "out", to)
    model = loaded(tmp_path / "out", quantization_config=CompressedTensorsConfig(dequantize=True))
    found = model.state_dict()
    n = 0
    for name, value in values(tmp_path / "out"):
        if ".experts." not in name:
            assert torch.equal(found[name], value), name
            continue
        stack, expert, layer, _ = name.rsplit(".", 3)
        if layer == "down_proj":
            there = found[f"{stack}.down_proj"][int(expert)]
        else:
            both = found[f"{stack}.gate_up_proj"][int(expert)].chunk(2)
            there = both[layer == "up_proj"]
        assert torch.equal(there, value), name
        n += 1
    assert n == (24 if kind == "qwen3_moe" else 0)


@pytest.mark.against("transformers")
@pytest.mark.usefixtures("no_gpu_asked")
@pytest.mark.parametrize("kind", ["mixtral", "qwen2_moe", "qwen3_moe"])
def test_scales_of_experts_are_stacked(kind: str, tmp_path: Path) -> None:
    """Each expert has one, which transformers' converter joins; both ways of loading agree."""
    dense = saved(kind, tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "out", "fp8-tensor")
    native = loaded(tmp_path / "out", dtype=torch.bfloat16).state_dict()
    how = FineGrainedFP8Config(dequantize=True)
    plain = loaded(tmp_path / "out", quantization_config=how, dtype=torch.bfloat16).state_dict()
    with an.parse(tmp_path / "out") as model:
        model.remember(tmp_path / "remembered")
    ours = loaded(tmp_path / "remembered", dtype=torch.bfloat16).state_dict()
    assert ours.keys() == plain.keys()
    stacks = [name for name in plain if name.endswith(".experts.down_proj")]
    assert len(stacks) == 2
    for name, tensor in plain.items():
        assert torch.equal(ours[name], tensor), name
    for name in stacks:
        for stack, n in ((name, 1), (name.replace("down", "gate_up"), 2)):
            codes, scales = native[stack], native[f"{stack}_scale_inv"]
            assert scales.shape == (4, n, 1)
            rows = scales.repeat_interleave(codes.shape[1] // n, dim=1)
            assert torch.equal((codes.float() * rows).bfloat16(), plain[stack]), stack


@pytest.mark.parametrize("to", ["fp8-block-ct", "int4", "bnb-nf4-nested", "bnb-int8"])
def test_shards(to: str, tmp_path: Path) -> None:
    """In several files and an index, the model is the same as in one."""
    dense = saved("llama", tmp_path / "dense")
    with an.parse(dense) as model:
        model.forget(tmp_path / "one", to)
        model.forget(tmp_path / "many", to, max_shard_size=1 << 16)
    assert len(list((tmp_path / "many").glob("model-*.safetensors"))) > 3
    one, many = (loaded(tmp_path / w, dtype=torch.bfloat16).state_dict() for w in ("one", "many"))
    assert one.keys() == many.keys()
    for name, tensor in one.items():
        assert torch.equal(many[name], tensor), name


def test_layers_that_transformers_does_not_quantise(tmp_path: Path) -> None:
    """Of its classes of linear layers, one has a name of its own, and is left by bitsandbytes."""
    dense = saved("falcon", tmp_path / "dense")
    how = transformers.BitsAndBytesConfig(load_in_4bit=True)
    model = loaded(dense, quantization_config=how)
    assert not [m for m in model.modules() if isinstance(m, bitsandbytes.nn.Linear4bit)]
    with an.parse(dense) as model, pytest.raises(an.UnsupportedError, match="FalconLinear"):
        model.forget(tmp_path / "out", "bnb-nf4")


def classes() -> Iterator[tuple[str, Any]]:
    """Each type of models that generates or fills in text, with its classes."""
    words = ("LM", "PRETRAIN", "SEQ", "IMAGE_TEXT")
    for name, table in vars(modeling_auto).items():
        if name.endswith("_MAPPING_NAMES") and any(word in name for word in words):
            for model_type, found in table.items():
                for one in [found] if isinstance(found, str) else found:
                    yield model_type, getattr(transformers, one)


@pytest.mark.slow
def test_names_of_heads_and_of_what_stays_in_float32() -> None:
    """As all classes of transformers say them; a model has one head, or the first counts."""
    heads: dict[str, set[str]] = {}
    for model_type, kind in classes():
        for name in getattr(kind, "_tied_weights_keys", None) or {}:
            module, _, last = name.rpartition(".")
            if last == "weight" and "embed_" not in module and "relative" not in module:
                heads.setdefault(module, set()).add(model_type)
        for name in getattr(kind, "_keep_in_fp32_modules", None) or ():
            if not name.endswith(("norm", "bias", "query_tokens", "time_decay", "time_first")):
                inner = "DenseReluDense." * (name == "wo") + name.removesuffix(".weight")
                inner += ".layer" * (name in ("qformer", "codec_model"))
                weight = f"model.layers.0.{inner}.weight"
                assert linear_refusal(weight, (128, 128), DTYPES["BF16"]), weight
    assert len(heads.pop("lm_head")) > 200
    assert {head: set(types) for head, types in HEADS.items()} == {
        head: types for head, types in heads.items() if head != "prophetnet.decoder.word_embeddings"
    }
    for head in HEADS:
        assert LEFT["output head"].search(head), head
