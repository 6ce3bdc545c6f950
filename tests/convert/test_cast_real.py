"""Real checkpoints of 4-bit floats cast: the values before are the values after, to the bit."""

from __future__ import annotations

import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.views.transposed import Transposed

ROOT = os.environ.get("ANAMNESIS_REAL")

pytestmark = pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")

MXFP4 = (
    *("ct_mxfp4", "modelopt_mxfp4", "mlx_mxfp4", "quark_mxfp4", "torchao_mxfp4"),
    *("autoround_mxfp4", "deepseek_v4", "gptoss_mxfp4", "gptoss_openai"),
)
TARGETS = ("nvfp4", "nvfp4-modelopt", "mlx-nvfp4")


def narrowed(name: str, folder: Path) -> Path:
    """A checkpoint of which the exponents span 17: of 2^-17 to 1."""
    made = folder / name
    shutil.copytree(Path(ROOT or "") / "modern" / name, made)
    for path in made.glob("*.safetensors"):
        raw = bytearray(path.read_bytes())
        (start,) = struct.unpack("<Q", raw[:8])
        start += 8
        for key, told in json.loads(raw[8:start]).items():
            is_scale = key.endswith(("scale", "scales")) and told["dtype"] in ("U8", "F8_E8M0")
            if is_scale:
                begin, end = (start + at for at in told["data_offsets"])
                bytes_ = np.frombuffer(bytes(raw[begin:end]), np.uint8)
                raw[begin:end] = (110 + bytes_ % 18).astype(np.uint8).tobytes()
        path.write_bytes(raw)
    return made


def of_mxfp4(model: an.Model) -> set[str]:
    return {name for name, weight in model.items() if "MXFP4" in weight.scheme}


def check_values(before: an.Model, after: an.Model, name: str) -> None:
    """Equal to the bit, but for code 8, which is +0 in some layouts."""
    ours = before[name].numpy(dtype="f32")
    own = name if name in after else f"{name}.weight"
    theirs = after[own].numpy(dtype="f32")
    if isinstance(before._ledger.weights[name], Transposed):  # gpt-oss's experts
        theirs = np.ascontiguousarray(theirs.swapaxes(-1, -2))
    differ = ours.view("u4") != theirs.view("u4")
    assert not ours[differ].any()
    assert not theirs[differ].any()


def of_report(model: an.Model, report: an.Report, ours: set[str]) -> set[str]:
    """The weights as they are written: the matrices of a stack that is taken apart."""
    stacks = ours & report.taken_apart.keys()
    pieces = {*report.recast, *report.requantised} - set(model)
    assert len(pieces) == sum(report.taken_apart[name] for name in stacks)
    return (ours - stacks) | pieces


def check_cast(
    model: an.Model, report: an.Report, ours: set[str], made: Path, folder: Path
) -> None:
    """Each weight that is cast has the values that it had, also as a matrix of a stack."""
    model.remember(folder / "apart", "f32", experts="split" if report.taken_apart else "keep")
    with an.parse(made) as after, an.parse(folder / "apart") as apart:
        for weight in ours & set(report.recast):
            check_values(model if weight in model else apart, after, weight)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MXFP4)
def test_what_spans_little_is_cast(name: str, target: str, tmp_path: Path) -> None:
    with an.parse(narrowed(name, tmp_path)) as model:
        report = model.convert(tmp_path / "out", target)
        ours = of_mxfp4(model)
        assert set(report.recast) == ours
        assert ours
        assert not report.unmovable
        with an.parse(tmp_path / "out") as made:
            for weight in ours:
                check_values(model, made, weight)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MXFP4)
def test_what_spans_too_much_is_told(name: str, target: str, tmp_path: Path) -> None:
    """Each weight is cast, or there is a reason."""
    with an.parse(Path(ROOT or "") / "modern" / name) as model:
        report = model.convert(tmp_path / "out", target)
        coded = of_mxfp4(model)
        ours = of_report(model, report, coded)
        why = {**report.unmovable, **report.plain}
        assert all("exponents" in why[weight] for weight in ours - set(report.recast))
        assert set(report.recast) <= ours
        check_cast(model, report, ours, tmp_path / "out", tmp_path)
        if ours - set(report.recast):
            with pytest.raises(an.UnsupportedError, match="exponents"):
                model.plan(target, lossless=True, exclude=sorted(set(model) - coded))


@pytest.mark.parametrize("target", ["mxfp8", "fp8-channel", "fp8-tensor-ct", "fp8-block-ct-16x32"])
@pytest.mark.parametrize("name", MXFP4)
def test_as_8_bits(name: str, target: str, tmp_path: Path) -> None:
    """Each weight is cast, or there is a reason; MXFP8 takes all but scales of 255."""
    with an.parse(Path(ROOT or "") / "modern" / name) as model:
        report = model.convert(tmp_path / "out", target)
        ours = of_report(model, report, of_mxfp4(model))
        why = {**report.unmovable, **report.plain}
        expected = "255" if target == "mxfp8" else "a block spans more"
        assert all(expected in why[weight] for weight in ours - set(report.recast))
        check_cast(model, report, ours, tmp_path / "out", tmp_path)
