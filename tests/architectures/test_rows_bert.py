"""Encoders that embed texts: positions, names with a head's prefix, and how they pool."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from anamnesis.architectures.pooling import pooling_type
from anamnesis.architectures.tokenizers.folder import Folder
from anamnesis.base.errors import AnamnesisError, LimitExceeded, ParseError, UnsupportedError
from anamnesis.base.limits import UNLIMITED, Budget
from helpers.arch_rows import facts_of, keys_of, published, taken

BERT, XLMR = published("bge-small-en-v1.5"), published("bge-m3")
POSITIONS = "embeddings.position_embeddings.weight"
NOMIC = {
    "architectures": ["NomicBertModel"],
    "model_type": "nomic_bert",
    "activation_function": "swiglu",
    "causal": False,
    "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048,
    "mlp_fc1_bias": False,
    "n_embd": 768,
    "n_head": 12,
    "n_inner": 3072,
    "n_layer": 12,
    "n_positions": 8192,
    "prenorm": False,
    "qkv_proj_bias": False,
    "rotary_emb_base": 1000,
    "rotary_emb_fraction": 1.0,
}


# --- tensors --------------------------------------------------------------------------------------


def test_positions_begin_behind_that_of_padding(tmp_path: Path) -> None:
    found = taken(tmp_path, XLMR, {POSITIONS: (10, 4)})
    assert np.array_equal(found.gguf["position_embd.weight"], found.hf[POSITIONS][2:])
    assert np.array_equal(found.back[POSITIONS][2:], found.hf[POSITIONS][2:])
    assert found.back[POSITIONS].shape == (10, 4)
    assert keys_of(XLMR)["context_length"] == 8192


def test_all_positions_of_bert_are_taken(tmp_path: Path) -> None:
    found = taken(tmp_path, BERT, {POSITIONS: (10, 4)})
    assert np.array_equal(found.gguf["position_embd.weight"], found.hf[POSITIONS])
    assert keys_of(BERT)["context_length"] == 512


@pytest.mark.parametrize("padding", [-1, "x", True, 2**40])
def test_padding_must_be_a_token(padding: Any, tmp_path: Path) -> None:
    with pytest.raises(ParseError):
        taken(tmp_path, {**XLMR, "pad_token_id": padding}, {POSITIONS: (10, 4)})


def test_names_with_a_head_and_tensorflows() -> None:
    arch, facts = facts_of(BERT)
    there = arch.naming.there("bert.encoder.layer.0.output.LayerNorm.gamma", facts)
    assert there == "encoder.layer.0.output.LayerNorm.weight"
    assert arch.naming.there("embeddings.LayerNorm.beta", facts) == "embeddings.LayerNorm.bias"


def test_a_rankers_encoder_has_its_prefix_again() -> None:
    arch, facts = facts_of(published("bge-reranker-v2-m3"))
    for name in ("roberta.embeddings.LayerNorm.weight", "classifier.dense.bias"):
        assert arch.naming.back(arch.naming.there(name, facts), facts) == name


# --- keys -----------------------------------------------------------------------------------------


def test_nomics_models_have_the_positions_that_they_were_trained_for() -> None:
    keys = keys_of(NOMIC)
    assert (keys["context_length"], keys["block_count"], keys["rope.freq_base"]) == (2048, 12, 1000)
    assert keys_of({**NOMIC, "n_positions": 2048})["context_length"] == 512


@pytest.mark.parametrize(
    "facts",
    [{"n_positions": 4096}, {"max_trained_positions": 512}, {"prenorm": True}, {"causal": True}],
)
def test_other_models_of_nomics_are_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError, match=next(iter(facts))):
        keys_of({**NOMIC, **facts})


# --- pooling --------------------------------------------------------------------------------------


def folder(root: Path, modules: Any, **files: Any) -> Path:
    (root / "modules.json").write_text(modules if isinstance(modules, str) else json.dumps(modules))
    for name, told in files.items():
        (root / name).mkdir()
        (root / name / "config.json").write_text(json.dumps(told))
    return root


def pooling(path: Any) -> list[Any]:
    kinds = [("", "Transformer"), (path, "Pooling"), ("2", "Pooling")]
    return [{"path": at, "type": f"sentence_transformers.models.{kind}"} for at, kind in kinds]


@pytest.mark.parametrize(
    ("told", "number"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, 1),
        ({"pooling_mode_mean_tokens": False, "pooling_mode_cls_token": True}, 2),
        ({"pooling_mode_lasttoken": True}, 3),
        ({"pooling_mode": "mean"}, 1),
        ({"pooling_mode": "cls"}, 2),
        ({"pooling_mode": "lasttoken"}, 3),
    ],
)
def test_pooling(told: dict[str, Any], number: int, tmp_path: Path) -> None:
    root = folder(tmp_path, pooling("at"), at=told)
    assert pooling_type(Folder(root, Budget(UNLIMITED))) == number


def test_nothing_says_that_it_pools(tmp_path: Path) -> None:
    assert pooling_type(Folder(tmp_path, Budget(UNLIMITED))) is None
    assert pooling_type(Folder(folder(tmp_path, [{"type": "Dense"}]), Budget(UNLIMITED))) is None


@pytest.mark.parametrize(
    ("modules", "told"),
    [
        ("[", {}),
        ("[" * 100_000, {}),
        ({}, {}),
        ([1], {}),
        (pooling("elsewhere"), {}),
        (pooling("../.."), {}),
        (pooling("/etc"), {}),
        (pooling("\0"), {}),
        (pooling(1), {}),
        (pooling("at"), {"pooling_mode_max_tokens": True}),
        (pooling("at"), {"pooling_mode": ["mean"]}),
    ],
)
def test_malformed(modules: Any, told: Any, tmp_path: Path) -> None:
    with pytest.raises(AnamnesisError) as caught:
        pooling_type(Folder(folder(tmp_path, modules, at=told), Budget(UNLIMITED)))
    assert not isinstance(caught.value, LimitExceeded)


def test_too_large(tmp_path: Path) -> None:
    with pytest.raises(LimitExceeded, match="MODULES_MAX_BYTES"):
        pooling_type(Folder(folder(tmp_path, "[" + " " * (1 << 20) + "]"), Budget(UNLIMITED)))
