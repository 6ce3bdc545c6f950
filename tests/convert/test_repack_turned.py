"""gpt-oss's stacks of experts in other layouts: a name stands for one orientation alone."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import Entry, write_safetensors

ROOT = os.environ.get("ANAMNESIS_REAL")
TARGETS = ("mxfp4", "mxfp4-modelopt", "mlx-mxfp4", "gptoss-mxfp4", "gguf-mxfp4")
EXPERTS, OUT, IN = 3, 64, 64  # as wide as high: no shape tells


def codes(join: str) -> dict[str, Entry]:
    """A stack under transformers' names, or under OpenAI's."""
    rng = np.random.default_rng(3)
    blocks = rng.integers(0, 256, (EXPERTS, OUT, IN // 32, 16), dtype=np.uint8) & 0x77
    scales = rng.integers(118, 130, (EXPERTS, OUT, IN // 32), dtype=np.uint8)
    return {
        f"experts.down_proj{join}blocks": ("U8", blocks.shape, blocks.tobytes()),
        f"experts.down_proj{join}scales": ("U8", scales.shape, scales.tobytes()),
    }


def written(source: Path, out: Path, target: str) -> Path:
    made = out / f"{target}.{'gguf' if target.startswith('gguf') else 'safetensors'}"
    with an.parse(source) as model:
        report = model.convert(made, target, include="*experts*")
    assert len(report.repacked) == 1
    return made


def check(before: Path, after: Path, name: str) -> str:
    """Values of that name are equal; if there is none, another has them or their transpose."""
    with an.parse(before) as old, an.parse(after) as new:
        there = name if name in new else f"{name}.weight"
        one, other = old[name].numpy("f32"), new[there].numpy("f32")
        if there == name:
            assert np.array_equal(one, other)
        else:
            assert np.array_equal(one, other) or np.array_equal(one.swapaxes(1, 2), other)
    return there


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("join", ["_", "."])
def test_a_name_says_the_orientation(join: str, target: str, tmp_path: Path) -> None:
    """In the codes, in the values that are remembered of them, and on the way back."""
    name = "experts.down_proj"
    source = write_safetensors(tmp_path / "in.safetensors", codes(join))
    made = written(source, tmp_path, target)
    there = check(source, made, name)
    if join == "_":
        assert (there == name) == (target == "gptoss-mxfp4")
    with an.parse(made) as model:
        model.remember(tmp_path / "plain.safetensors", dtype="f32")
    assert check(source, tmp_path / "plain.safetensors", name) == there
    (tmp_path / "back").mkdir()
    back = written(made, tmp_path / "back", "gptoss-mxfp4")
    if join == "_" or there == name:
        assert check(source, back, name) == name
        (tmp_path / "home").mkdir()
        home = written(source, tmp_path / "home", "gptoss-mxfp4")
        assert back.read_bytes() == home.read_bytes()
    else:  # it is a layer's weight meanwhile, and turned as all these are
        with an.parse(source) as old, an.parse(back) as new:
            assert np.array_equal(old[name].numpy().swapaxes(1, 2), new[name].numpy())


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("name", "stacks"), [("gptoss_mxfp4", "*experts.*_proj"), ("gptoss_openai", "*mlp?_weight")]
)
def test_published(name: str, stacks: str, target: str, tmp_path: Path) -> None:
    source = Path(str(ROOT), "modern", name)
    made = tmp_path / f"out.{'gguf' if target.startswith('gguf') else 'safetensors'}"
    with an.parse(source) as model:
        report = model.convert(made, target, include=stacks, names="keep")
    assert len(report.repacked) == 2
    for weight in report.repacked:
        check(source, made, weight)
