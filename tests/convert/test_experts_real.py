"""Experts of real checkpoints, stacked and split: the values before are the values after."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.convert.request.request import ExpertsName

ROOT = os.environ.get("ANAMNESIS_REAL")

pytestmark = pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")


def real(name: str) -> Path:
    assert ROOT is not None
    return Path(ROOT) / "modern" / name


def values(path: Path) -> dict[str, bytes]:
    with an.parse(path) as model:
        return {name: model[name].numpy("f32").tobytes() for name in model}


@pytest.mark.parametrize(
    ("name", "asked"),
    [("gptoss_mxfp4", "split"), ("mlx_experts", "split"), ("deepseek_v4", "stacked")],
)
def test_values(name: str, asked: ExpertsName, tmp_path: Path) -> None:
    """Codes that are cut or joined are decoded as those of the others, which were decoded first."""
    with an.parse(real(name)) as model:
        report = model.remember(tmp_path / "ours", "f32", experts=asked)
        model.remember(tmp_path / "plain", "f32", experts="keep")
    assert report.taken_apart or report.put_together
    with an.parse(tmp_path / "plain") as model:
        model.remember(tmp_path / "want", experts=asked)
    assert values(tmp_path / "ours") == values(tmp_path / "want")


def test_gpt_oss_there_and_back(tmp_path: Path) -> None:
    """Its stacks are compressed-tensors' matrices for a while; all values are what they were."""
    only = "*.experts.*"
    with an.parse(real("gptoss_mxfp4")) as model:
        report = model.convert(tmp_path / "ct", "mxfp4", experts="split", include=only)
    assert len(report.repacked) == 9
    with an.parse(tmp_path / "ct") as model:
        back = model.convert(tmp_path / "out", "gptoss-mxfp4", experts="stacked", include=only)
    assert len(back.repacked) == 2
    assert not back.requantised
    assert values(tmp_path / "out") == values(real("gptoss_mxfp4"))


def test_what_cannot_be_cut(tmp_path: Path) -> None:
    """Zero points lie down the rows, in words of several."""
    with an.parse(real("ct_w4_experts3d")) as model:
        with pytest.raises(an.UnsupportedError, match="cannot be cut between its rows"):
            model.remember(tmp_path / "out", experts="split")
        model.remember(tmp_path / "out", experts="keep")
