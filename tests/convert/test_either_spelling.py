"""Patterns take Hugging Face's names and llama.cpp's, whichever of them a model has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from anamnesis.cli.demo_models import DEMOS

TO = "gguf-q8_0"
UP = ("model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight")
NORM = ("model.layers.1.input_layernorm.weight", "blk.1.attn_norm.weight")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("llama") / "llama-tiny"
    for name, raw in DEMOS["llama"].make().items():
        (root.parent / name).parent.mkdir(exist_ok=True)
        (root.parent / name).write_bytes(raw)
    return root


@pytest.fixture(scope="module")
def gguf(llama: Path) -> Path:
    path = llama.parent / "llama.gguf"
    an.convert(llama, path, TO)
    return path


def options(pattern: str) -> dict[str, dict[str, Any]]:
    return {
        "overrides": {"overrides": {pattern: "f16"}},
        "include": {"include": [pattern]},
        "exclude": {"exclude": [pattern]},
        "drop": {"drop": [pattern]},
    }


@pytest.mark.sampled(3)
@pytest.mark.parametrize("option", options(""))
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        UP,
        NORM,
        ("model.layers.0", "blk.0"),
        ("*.mlp.*", "*.ffn_[!n]*"),
        ("lm_head.weight", "output.weight"),
    ],
)
def test_both_spellings_give_the_same_file(
    llama: Path, tmp_path: Path, theirs: str, ours: str, option: str
) -> None:
    if option == "drop" and theirs == "model.layers.0":
        pytest.skip("not a case: a model without its first layer")
    if option == "include" and theirs == NORM[0]:
        pytest.skip("not a case: nothing is encoded")
    made = []
    for spelling in (theirs, ours):
        report = an.convert(llama, tmp_path / spelling, "gguf-q4_k_m", **options(spelling)[option])
        (tmp_path / spelling).rename(tmp_path / "made")
        made.append((tmp_path / "made").read_bytes())
        is_said = spelling == theirs and option != "drop"
        assert list(report.matched) == ([theirs] if is_said else [])
    assert made[0] == made[1]


@pytest.mark.parametrize("option", options(""))
def test_on_the_way_back(gguf: Path, tmp_path: Path, option: str) -> None:
    to = "safetensors" if option in ("overrides", "drop") else "int8"
    made = []
    for i, spelling in enumerate(UP):
        an.convert(gguf, f"{tmp_path}/{i}/", to, dtype="bf16", **options(spelling)[option])
        made.append((tmp_path / f"{i}" / "model.safetensors").read_bytes())
    assert made[0] == made[1]


def test_what_is_dropped_is_said_by_its_own_name(llama: Path) -> None:
    with an.parse(llama) as model:
        account = model.plan(TO, drop=["blk.0.ffn_up.weight"]).account
        assert (UP[0], "as asked") in [(one.name, one.reason) for one in account.dropped]
        assert account.n_bytes_in == model.plan(TO, drop=UP[0]).account.n_bytes_in


def test_the_output_s_names_come_first(llama: Path) -> None:
    # "*.ffn_*" is llama.cpp's alone; "*norm*" is in both, and means what llama.cpp calls so.
    with an.parse(llama) as model:
        assert model.plan(TO, overrides={"*norm*": "f16"}).account.matched == {}


@pytest.mark.parametrize("option", options(""))
def test_what_is_in_neither_is_an_error(llama: Path, option: str) -> None:
    with an.parse(llama) as model, pytest.raises(ValueError, match=f"{option}: no weight matches"):
        model.plan(TO, **options("model.layers.7")[option])
