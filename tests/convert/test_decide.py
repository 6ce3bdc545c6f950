"""Each weight is decided once: one value says what becomes of it, and all else counts these."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.convert.decide.decide import decide
from anamnesis.convert.decide.decided import Decided
from anamnesis.convert.decide.possible import Fate
from anamnesis.convert.decide.renames import seen_as_asked
from anamnesis.convert.request.resolve import resolve

UP, NORM, LIST = "model.layers.0.up_proj.weight", "model.norm.weight", "model.ids"


def values() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        UP: rng.standard_normal((128, 256)).astype(ml_dtypes.bfloat16),
        NORM: rng.standard_normal(256).astype(np.float32),
        LIST: np.arange(8),
    }


def opened(folder: Path, stored_as: str) -> an.Model:
    path = folder / f"values.{'gguf' if stored_as.startswith('gguf') else 'safetensors'}"
    tensors = values() if stored_as != "gguf-q4_0" else {UP: values()[UP], NORM: values()[NORM]}
    an.save(tensors, path)
    if stored_as in ("safetensors", "gguf"):
        return an.parse(path)
    made = folder / f"made{path.suffix}"
    with an.parse(path) as model:
        model.convert(made, stored_as)
    return an.parse(made)


def decided(model: an.Model, to: str, **options: Any) -> Decided:
    request = resolve(to, None, **options)
    return decide(seen_as_asked(model._checkpoint, model._ledger, request))


def said(fate: Fate) -> tuple[object, ...]:
    return fate.weight, fate.kind, fate.why, [(piece.name, piece.encoding) for piece in fate.pieces]


@pytest.mark.parametrize(
    ("stored_as", "to", "options", "kinds"),
    [
        ("safetensors", "bf16", {"cast_all": False}, ["copied", "copied", "copied"]),
        ("safetensors", "bf16", {}, ["copied", "cast", "copied"]),
        ("safetensors", "bf16", {"overrides": {UP: "f16"}}, ["typed", "cast", "copied"]),
        ("safetensors", "fp8-block", {}, ["quantised", "copied", "copied"]),
        ("fp8-block", "f32", {}, ["decoded", "copied", "copied"]),
        ("fp8-block", "f32", {"overrides": {UP: "keep"}}, ["kept", "copied", "copied"]),
        ("fp8-block", "fp8-block-ct", {}, ["moved", "copied", "copied"]),
        ("fp8-block", "int8", {}, ["requantised", "copied", "copied"]),
        ("gguf-q4_0", "gguf", {}, ["copied", "blocks"]),
        ("gguf-q4_0", "gguf", {"overrides": {UP: "q4_0"}}, ["copied", "moved"]),
    ],
)
def test_a_fate_says_in_one_word_what_becomes_of_a_weight(
    stored_as: str, to: str, options: dict[str, Any], kinds: list[str], tmp_path: Path
) -> None:
    with opened(tmp_path, stored_as) as model:
        found = {fate.weight.name: fate for fate in decided(model, to, **options).fates}
        account = model.plan(to, **options).account
    told = {
        "cast": account.cast,
        "moved": account.repacked,
        "requantised": account.requantised,
        "blocks": account.kept,
    }
    for kind, names in told.items():
        assert set(names) == {name for name, fate in found.items() if fate.kind == kind}
    assert set(account.plain) == {name for name, fate in found.items() if fate.why is not None}
    order = [UP, NORM, LIST] if len(found) == 3 else [NORM, UP]
    assert [found[name].kind for name in order] == kinds


@pytest.mark.parametrize("to", ["bf16", "fp8-block-ct", "int8", "gguf"])
def test_deciding_changes_nothing_and_gives_the_same_again(to: str, tmp_path: Path) -> None:
    with opened(tmp_path, "fp8-block") as model:
        weights, dropped = dict(model._ledger.weights), list(model._ledger.dropped)
        first, second = decided(model, to), decided(model, to)
        assert (model._ledger.weights, model._ledger.dropped) == (weights, dropped)
    assert [said(fate) for fate in first.fates] == [said(fate) for fate in second.fates]


@pytest.mark.parametrize(
    ("to", "options", "why"),
    [
        ("bf16", {"overrides": {NORM: "bf16"}}, "from F32 to BF16"),
        ("f32", {"overrides": {UP: "f16"}}, "from BF16 to F16"),
        ("gguf-f16", {"names": "keep", "overrides": {UP: "f16"}, "drop": LIST}, "from BF16 to F16"),
        ("bf16", {"overrides": {UP: "f32", NORM: "f32"}}, None),
    ],
)
def test_nothing_is_rounded_without_loss_though_an_override_asks_for_it(
    to: str, options: dict[str, Any], why: str | None, tmp_path: Path
) -> None:
    with opened(tmp_path, "safetensors") as model:
        if why is None:
            assert not model.plan(to, lossless=True, **options).warnings
            return
        with pytest.raises(an.UnsupportedError, match=f"it would be rounded {why}"):
            model.plan(to, lossless=True, **options)
