"""What a model's config and files say is read when it is first asked for, and once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.checkpoint import open as opened
from anamnesis.schemes.detect.config_facts import QuantFacts, read_facts
from helpers.handmade import Entry, write_safetensors

ATTENTION = "transformer.h.0.attn.c_attn"


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[Mapping[str, Any]]:
    """The configs that facts were read from."""
    found: list[Mapping[str, Any]] = []

    def reads(config: Mapping[str, Any], *others: Any) -> QuantFacts:
        found.append(config)
        return read_facts(config, *others)

    monkeypatch.setattr(opened, "read_facts", reads)
    return found


def folder(path: Path) -> Path:
    """A GPT-2 whose layer may be a Conv1D, and experts in stacks."""
    floats = np.linspace(-1, 1, 64 * 64, dtype="f4").tobytes()
    tensors: dict[str, Entry] = {
        f"{ATTENTION}.weight": ("F32", [64, 64], floats),
        "model.layers.0.mlp.experts.gate_up_proj": ("F32", [2, 32, 64], floats),
        "model.layers.0.mlp.experts.down_proj": ("F32", [2, 64, 16], floats[: 4 * 2 * 64 * 16]),
    }
    path.mkdir()
    write_safetensors(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    return path


def test_a_conversion_reads_them_once(tmp_path: Path, readings: list[Mapping[str, Any]]) -> None:
    with an.parse(folder(tmp_path / "m")) as model:
        plan = model.plan("fp8-channel")
        model.convert(tmp_path / "out", "fp8-channel")
    assert f"{ATTENTION}.weight" in plan.account.plain
    assert readings == [{"model_type": "gpt2"}]


def test_some_of_a_model_reads_them_no_more(
    tmp_path: Path, readings: list[Mapping[str, Any]]
) -> None:
    with an.parse(folder(tmp_path / "m")) as model:
        model.select("*c_attn*").plan("fp8-channel")
    assert len(readings) == 1


def test_what_the_caller_says_stays_with_them(tmp_path: Path) -> None:
    with an.parse(folder(tmp_path / "m"), conv1d=False, block_size=(8, 4)) as model:
        facts = model._ledger.facts
    assert facts.conv1d is False
    assert facts.blocks == {(8, 4)}
    assert facts.types == {"gpt2"}
