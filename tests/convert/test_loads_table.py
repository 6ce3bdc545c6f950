"""Each cell of the table of loaders, tried: transformers and mlx-lm load what it says, and no more.

`loads` is a model with nothing missing and nothing left over, whose logits are near those of the
model before; `refuses` an error, or something missing or left over; `wrong` nothing of the kind,
and logits of another model.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
import torch
import transformers
from mlx_lm.utils import load_model
from transformers import AutoModelForCausalLM, GPT2Config, conversion_mapping
from transformers.quantizers.quantizer_finegrained_fp8 import FineGrainedFP8HfQuantizer

import anamnesis as an
from anamnesis.convert.loaders.table import CELLS, SPLIT_BY_TOOLS
from anamnesis.convert.loaders.verdicts import cell
from helpers.seeing_models import SEEING
from helpers.stacked_models import STACKED, saved_stacked
from helpers.tiny_models import ENCODER, MODELS, dense_for_mlx, saved

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.slow]

OF = {
    "dense": "llama",
    "tied": "qwen2",
    "renamed-head": "gpt_neox",
    "encoder": "bert_mlm",
    "two-stacks": "whisper",
    "experts": "mixtral",
    "apart": "granitemoe",
    "apart-gpt-oss": "gpt_oss",
    "apart-llama4": "llama4",
    "llama4": "llama4",
    "conv1d": "gpt2",
    "t5": "t5",
    "own-linear": "falcon",
    "stacks": "gpt_oss",
    "seeing": "llava",
    "siglip": "gemma3_vl",
}
NATIVE = ("fp8-block", "fp8-block-ue8m0", "fp8-tensor")  # whose layers run on a GPU alone
FAR = 0.5  # of the squared logits: 4 bits take a tenth of that, other weights four times as much


def _proved(test: str) -> list[tuple[str, str]]:
    """Return the encodings and kinds that a test is named for."""
    names = {name for row in CELLS if row.proof.endswith(test) for name in row.encodings}
    return [(name, kind) for name in sorted(names - {"safetensors", "awq-4bit"}) for kind in OF]


def _gpt2() -> Any:
    sizes = {"n_embd": 128, "n_layer": 2, "n_head": 4, "vocab_size": 160, "n_positions": 64}
    return AutoModelForCausalLM.from_config(GPT2Config(**sizes, bos_token_id=1, eos_token_id=2))


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Write a model once for all of its cells."""
    assert ENCODER["vocab_size"] == 160

    @cache
    def made(kind: str) -> Path:
        folder = tmp_path_factory.mktemp(kind)
        if kind == "gpt2":
            torch.manual_seed(0)
            _gpt2().to(torch.bfloat16).save_pretrained(folder)
            return folder
        if kind in SEEING:
            torch.manual_seed(0)
            SEEING[kind]().to(torch.bfloat16).save_pretrained(folder)
            return folder
        assert kind in STACKED or kind in MODELS
        return (saved_stacked if kind in STACKED else saved)(kind, folder)

    return made


def load(folder: Path) -> tuple[Any, dict[str, Any]]:
    (name,) = transformers.AutoConfig.from_pretrained(folder).architectures
    kind = getattr(transformers, name)
    found: tuple[Any, dict[str, Any]] = kind.from_pretrained(
        folder, output_loading_info=True, dtype=torch.bfloat16
    )
    return found


def logits(model: Any) -> torch.Tensor:
    ids = torch.arange(3, 23)[None]
    asked: dict[str, Any] = {"input_ids": ids}
    if model.config.model_type == "whisper":
        sound = torch.arange(16 * 64).reshape(1, 16, 64) / 1024
        asked = {"input_features": sound.to(torch.bfloat16)}
    if model.config.is_encoder_decoder:
        asked["decoder_input_ids"] = ids
    with torch.no_grad():
        found: torch.Tensor = model.eval()(**asked).logits.float()
    return found


def outcome(folder: Path, before: Path, to: str) -> str:
    """Return what transformers makes of a directory."""
    try:
        model, told = load(folder)
        if any(told.values()):
            return "refuses"
        if to in NATIVE:
            return "loads"
        ours = logits(model)
    except (RuntimeError, ValueError, AttributeError):
        return "refuses"
    want = logits(load(before)[0])
    far = ((ours - want) ** 2).sum() / (want**2).sum()
    return "loads" if far < FAR else "wrong"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("to", "kind"), _proved("::test_transformers"))
def test_transformers(
    to: str,
    kind: str,
    dense: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    row = cell("transformers", to, kind)
    assert row is not None
    before = dense(OF[kind])
    monkeypatch.setattr(FineGrainedFP8HfQuantizer, "validate_environment", lambda *_, **__: None)
    if to.startswith("gptq"):  # GPTQModel compiles its kernel for AVX-512 BF16 for two minutes
        kernels = "gptqmodel.nn_modules.qlinear.torch_cpu_avx512"
        monkeypatch.setattr(f"{kernels}.has_avx512_bf16", lambda: False)
    with an.parse(before) as model:
        try:
            plan = model.plan(to)
            report = model.forget(tmp_path / "out", to)
        except an.UnsupportedError:
            assert row.outcome == "unwritten" or kind == "conv1d" or to == "gptoss-mxfp4"
            return
    if kind.startswith("apart") and not report.taken_apart:
        pytest.skip("not a case: it leaves the stacks as they are")
    if kind == "stacks" and to != "gptoss-mxfp4":
        pytest.skip("not a case: the model is of another kind in this encoding")
    found = outcome(tmp_path / "out", before, to)
    told = {verdict.program.partition(" ")[0]: verdict.outcome for verdict in plan.verdicts}
    assert told["transformers"] == found
    if row.outcome != "unwritten":
        assert row.outcome == found


@pytest.mark.parametrize("kind", ["apart", "apart-gpt-oss"])
def test_experts_that_stay_apart(kind: str, dense: Callable[[str], Path], tmp_path: Path) -> None:
    """If one is missing, the others come out of `remember` as they are, which is told."""
    with an.parse(dense(OF[kind])) as model:
        model.forget(tmp_path / "int8", "int8")
    with an.parse(tmp_path / "int8") as model:
        report = model.remember(tmp_path / "out", drop="*.experts.3.up_proj.*")
    assert not report.put_together or len(report.put_together) % 2 == 0
    assert outcome(tmp_path / "out", dense(OF[kind]), "bf16") == "refuses"
    assert any(w.startswith("transformers does not load this") for w in report.warnings)


def test_names_of_llama_cpp(dense: Callable[[str], Path], tmp_path: Path) -> None:
    names = {r"^model\.layers\.(\d+)\.": r"blk.\1.", r"^model\.embed_tokens": "token_embd"}
    before = dense("llama")
    with an.parse(before) as model:
        report = model.convert(tmp_path / "out", "safetensors", rename=names)
    assert outcome(tmp_path / "out", before, "bf16") == "refuses"
    assert "llama.cpp's" in report.warnings[0]


def test_names_of_megatron(dense: Callable[[str], Path], tmp_path: Path) -> None:
    before, names = dense("llama"), {r"^model\.layers\.(\d+)\.mlp\.": r"decoder.layers.\1.mlp."}
    with an.parse(before) as model:
        report = model.convert(tmp_path / "out", "safetensors", rename=names)
    assert outcome(tmp_path / "out", before, "bf16") == "refuses"
    assert "Megatron's" in report.warnings[0]


def test_tensors_without_a_config(dense: Callable[[str], Path], tmp_path: Path) -> None:
    file = tmp_path / "out" / "model.safetensors"
    file.parent.mkdir()
    with an.parse(dense("llama") / "model.safetensors") as model:
        assert not model.convert(file, "safetensors").warnings
        loads = {one.program: one.outcome for one in model.plan("safetensors").verdicts}
    assert loads["transformers"] == "refuses"
    with pytest.raises((OSError, ValueError), match=r"config\.json|model_type"):
        AutoModelForCausalLM.from_pretrained(file.parent)


def _mlx_cells() -> Iterator[tuple[str, str]]:
    for to, _ in _proved("::test_mlx_lm"):
        if (to, "dense") not in seen:
            seen.add((to, "dense"))
            yield to, "llama"
            yield to, "bert"
            yield to, "falcon"


seen: set[tuple[str, str]] = set()


@pytest.mark.against("mlx-lm")
@pytest.mark.parametrize(("to", "kind"), list(_mlx_cells()))
def test_mlx_lm(to: str, kind: str, tmp_path: Path) -> None:
    mx.set_default_device(mx.cpu)
    before = (
        dense_for_mlx(kind, tmp_path / "dense")
        if kind == "llama"
        else saved(kind, tmp_path / "dense")
    )
    with an.parse(before) as model:
        report = model.forget(tmp_path / "out", to)
    if kind != "llama":
        assert "has no class for this model" in report.warnings[0]
        with pytest.raises(ValueError, match="not supported"):
            load_model(tmp_path / "out")
        return
    loaded, _ = load_model(tmp_path / "out")
    assert np.isfinite(np.array(loaded(mx.array(np.arange(20)[None])).astype(mx.float32))).all()


def test_experts_that_only_tools_take_apart() -> None:
    """Models that transformers has stacks of, and no way to join single experts."""
    made = conversion_mapping._build_checkpoint_conversion_mapping()
    joined = {
        kind
        for kind, steps in made.items()
        if any(
            re.search(r"experts.*(\*|\\d)", str(getattr(s, "source_patterns", ""))) for s in steps
        )
    }
    same = conversion_mapping._MODEL_TO_CONVERSION_PATTERN
    joined |= {kind for kind, other in same.items() if other in joined}
    assert {"mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v3", "qwen3_5_moe_text"} <= joined
    assert not joined & SPLIT_BY_TOOLS
