"""Scales that are NaN, infinite or 0 are counted, and the account says so."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import pytest

import anamnesis as an
from helpers.claims import Tensors, empty
from helpers.handmade import Entry, write_safetensors

NAN, INF = float("nan"), float("inf")


def floats(*values: float, shape: tuple[int, ...] | None = None) -> Entry:
    raw = struct.pack(f"<{len(values)}f", *values)
    return "F32", (len(values),) if shape is None else shape, raw


def fp8(scale: Entry) -> Tensors:
    return {"a.weight": empty("F8_E4M3", 4, 32), "a.weight_scale": scale}


def nvfp4(second: float, scales: bytes = b"\x38" * 4) -> Tensors:
    return {
        "a.weight": empty("U8", 4, 8),
        "a.weight_scale": ("F8_E4M3", (4, 1), scales),
        "a.weight_scale_2": floats(second, shape=()),
    }


ONE, ROWS = "a.weight_scale", (4, 1)
CASES: dict[str, tuple[Tensors, dict[str, dict[str, int]]]] = {
    "none": (fp8(floats(1, 2, 3, 4, shape=ROWS)), {}),
    "rows": (
        fp8(floats(NAN, 1, INF, -0.0, shape=ROWS)),
        {ONE: {"nan": 1, "infinite": 1, "zero": 1}},
    ),
    "one": (fp8(floats(-INF, shape=())), {ONE: {"infinite": 1}}),
    "BF16": (
        fp8(("BF16", ROWS, struct.pack("<4H", 0x7F81, 0xFF80, 0x8000, 1))),
        {ONE: {"nan": 1, "infinite": 1, "zero": 1}},
    ),
    "F16": (
        fp8(("F16", ROWS, struct.pack("<4H", 0x7E00, 0xFC00, 0x7C00, 1))),
        {ONE: {"nan": 1, "infinite": 2}},
    ),
    "powers of two": (
        {"a.weight": empty("F8_E4M3", 4, 32), "a.weight_scale": ("U8", ROWS, b"\xff\0\x01\x7f")},
        {ONE: {"nan": 1}},
    ),
    "many": (
        {"a.weight": empty("F8_E4M3", 9000, 8)}
        | {"a.weight_scale": floats(*[1.0, NAN, 0.0] * 3000, shape=(9000, 1))},
        {ONE: {"nan": 3000, "zero": 3000}},
    ),
    "second scale": (nvfp4(0.0), {"a.weight_scale_2": {"zero": 1}}),
    "second scale of NaN": (nvfp4(NAN), {"a.weight_scale_2": {"nan": 1}}),
    "scales of a byte": (nvfp4(1.0, b"\x7f\xff\0\x38"), {ONE: {"nan": 2, "zero": 1}}),
    "rows of INT8": (
        {"a.weight": empty("I8", 4, 8), "a.weight_scale": floats(NAN, 1, 1, 0, shape=ROWS)},
        {ONE: {"nan": 1, "zero": 1}},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("to", ["file", "stream", "function"])
def test_counts(case: str, to: str, tmp_path: Path) -> None:
    tensors, found = CASES[case]
    outputs = {"file": tmp_path / "out.safetensors", "stream": io.BytesIO(), "function": print}
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        report = model.remember(outputs[to])  # type: ignore[arg-type]
    assert report.odd_scales == report.to_dict()["odd_scales"] == found
    assert any("scales without a usual value" in warning for warning in report.warnings) is bool(
        found
    )
    if "nan" in found.get(ONE, {}):
        assert f"{found[ONE]['nan']:,} NaN" in str(report)


def test_each_scale_is_counted_once(tmp_path: Path) -> None:
    """Whatever is made of the weights: stacks are taken apart, and codes moved."""
    prefix = "model.layers.0.mlp.experts"
    tensors = {
        f"{prefix}.{name}": part
        for layer, shape in (("gate_up_proj", (2, 64, 32)), ("down_proj", (2, 32, 32)))
        for name, part in {
            layer: empty("F8_E4M3", *shape),
            f"{layer}_scale": floats(NAN, 0.0, shape=(2, 1, 1)),
        }.items()
    }
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        report = model.remember(tmp_path / "out.safetensors", experts="split")
    counts = {"nan": 1, "zero": 1}
    assert report.odd_scales == {f"{prefix}.{p}_proj_scale": counts for p in ("gate_up", "down")}
