"""Codes that could be moved, but not beside what else is written: they are encoded anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import anamnesis as an

ROOT = os.environ.get("ANAMNESIS_REAL")

pytestmark = pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")


def real(name: str) -> Path:
    assert ROOT is not None
    return Path(ROOT) / "modern" / name


@pytest.mark.parametrize(
    ("name", "to", "why"),
    [
        (
            "mlx_mxfp8",
            "fp8-block-ct",
            "one config.json cannot describe fp8-block-ct and fp8-block-ct-1x32",
        ),
        (
            "modelopt_int4_awq",
            "int4-channel",
            "one config.json cannot describe int4-channel and int4-128",
        ),
        (
            "awq_gemv",
            "gptq-4bit-32",
            "a zero point is 0, which has no place where they are stored less 1, as by GPTQ",
        ),
    ],
)
def test_they_are_encoded_and_counted(name: str, to: str, why: str, tmp_path: Path) -> None:
    with an.parse(real(name)) as model:
        planned = model.plan(to).account
        report = model.convert(tmp_path / "out", to)
        model.remember(tmp_path / "values")
    assert not report.repacked
    assert report.requantised == planned.requantised
    assert set(report.unmovable.values()) == {why} == set(planned.unmovable.values())
    with an.parse(tmp_path / "values") as model:
        model.forget(tmp_path / "want", to, exclude=[*report.plain])
    with an.parse(tmp_path / "out") as ours, an.parse(tmp_path / "want") as want:
        assert {n: t.read() for n, t in ours.stored.items()} == {
            n: t.read() for n, t in want.stored.items()
        }


def test_nothing_of_it_passes_where_nothing_may_be_lost(tmp_path: Path) -> None:
    with (
        an.parse(real("awq_gemv")) as model,
        pytest.raises(an.UnsupportedError, match=r"down_proj.*a zero point is 0"),
    ):
        model.convert(tmp_path / "out", "gptq-4bit-32", lossless=True)
    assert not (tmp_path / "out").exists()
