"""Codes that could be moved, if what is written beside them were not otherwise."""

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


def stored(path: Path) -> dict[str, bytes]:
    with an.parse(path) as model:
        return {name: tensor.read() for name, tensor in model.stored.items()}


@pytest.mark.parametrize(
    ("name", "to", "why"),
    [
        (
            "quark_int4_channel",
            "awq-4bit-32",
            {
                "its scales are BF16, and F16 in AWQ",
                "one config.json cannot describe awq-4bit-32 and awq-4bit-64",
            },
        ),
        (
            "awq_gemv",
            "gptq-4bit-32",
            {"a zero point is 0, which has no place where they are stored less 1, as by GPTQ"},
        ),
    ],
)
def test_they_are_encoded_and_counted(name: str, to: str, why: set[str], tmp_path: Path) -> None:
    with an.parse(real(name)) as model:
        planned = model.plan(to).account
        report = model.convert(tmp_path / "out", to)
        model.remember(tmp_path / "values")
    assert not report.repacked
    assert report.requantised == planned.requantised
    assert set(report.unmovable.values()) == why == set(planned.unmovable.values())
    with an.parse(tmp_path / "values") as model:
        model.forget(tmp_path / "want", to, exclude=[*report.plain])
    assert stored(tmp_path / "out") == stored(tmp_path / "want")


@pytest.mark.parametrize(
    ("name", "to", "as_", "n", "n_left"),
    [
        ("mlx_mxfp8", "fp8-block-ct", "fp8-block-ct-1x32", 8, 1),
        ("modelopt_mxfp8", "fp8-block-ct", "fp8-block-ct-1x32", 6, 1),
        ("modelopt_int4_awq", "int4-channel", "int4-128", 5, 2),
    ],
)
def test_plain_weights_stay_plain_beside_codes_that_are_moved(
    name: str, to: str, as_: str, n: int, n_left: int, tmp_path: Path
) -> None:
    why = f"one config.json cannot describe {to} and {as_}"
    with an.parse(real(name)) as model:
        left = [one for one, told in model.plan(to).account.plain.items() if told == why]
        report = model.convert(tmp_path / "out", to)
        model.convert(tmp_path / "want", to, exclude=left)
    assert set(report.repacked.values()) == {as_}
    assert (len(report.repacked), len(left)) == (n, n_left)
    assert not report.requantised
    assert stored(tmp_path / "out") == stored(tmp_path / "want")


def test_nothing_of_it_passes_where_nothing_may_be_lost(tmp_path: Path) -> None:
    with (
        an.parse(real("awq_gemv")) as model,
        pytest.raises(an.UnsupportedError, match=r"down_proj.*a zero point is 0"),
    ):
        model.convert(tmp_path / "out", "gptq-4bit-32", lossless=True)
    assert not (tmp_path / "out").exists()
