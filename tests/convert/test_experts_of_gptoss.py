"""gpt-oss's experts in other encodings: stacks are moved whole, or as matrices, or encoded."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from convert.test_experts import beside, stored
from convert.test_experts import entries as entries_of
from helpers.alike import files
from helpers.handmade import write_safetensors

N, INNER, OUTER = 4, 128, 256
STACKS = {"gate_up_proj": (2 * INNER, OUTER), "down_proj": (OUTER, INNER)}
MODULE = "model.layers.{}.mlp.experts"
ONLY: dict[str, Any] = {"include": "*.experts.*"}


def gptoss(folder: Path, wide: dict[tuple[int, str], int] | None = None) -> Path:
    """A model of two layers; of the experts named by layer and stack, scales span 34 powers."""
    rng = np.random.default_rng(5)
    tensors: dict[str, Any] = entries_of(beside())
    for layer in range(2):
        for name, (rows, cols) in STACKS.items():
            at, grid = f"{MODULE.format(layer)}.{name}", (N, rows, cols // 32)
            codes = rng.integers(0, 256, (*grid, 16), np.uint8) | 0x11  # no group is all zeros
            scales = rng.integers(118, 124, grid, np.uint8)
            if (layer, name) in (wide or {}):
                scales[(wide or {})[layer, name], :2, 0] = 90, 124
            bias = rng.standard_normal((N, rows)).astype(np.float32)
            tensors[f"{at}_blocks"] = ("U8", codes.shape, codes.tobytes())
            tensors[f"{at}_scales"] = ("U8", grid, scales.tobytes())
            tensors[f"{at}_bias"] = ("F32", bias.shape, bias.tobytes())
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
    told = {"model_type": "gpt_oss", "quantization_config": {"quant_method": "mxfp4"}}
    (folder / "config.json").write_text(json.dumps(told))
    return folder


def values(folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    with an.parse(folder) as model:
        return {name: model[name].numpy("f32") for name in model}


def pieces(layer: int, stack: str, expert: int) -> list[str]:
    """The matrices that hang together: gate and up share what NVFP4 has one of."""
    layers = ("gate_proj", "up_proj") if stack == "gate_up_proj" else ("down_proj",)
    return [f"{MODULE.format(layer)}.{expert}.{one}.weight" for one in layers]


@pytest.mark.parametrize("to", ["nvfp4", "fp8-block-ct", "mxfp8", "mxfp4"])
def test_stacks_that_can_be_moved_stay_whole(to: str, tmp_path: Path) -> None:
    with an.parse(gptoss(tmp_path / "in")) as model:
        plan = model.plan(to, lossless=True, **ONLY)
        report = model.convert(tmp_path / "out", to, lossless=True, **ONLY)
    stacks = {f"{MODULE.format(i)}.{name}" for i in (0, 1) for name in STACKS}
    assert report.repacked.keys() == plan.account.repacked.keys() == stacks
    assert not report.taken_apart
    assert not report.requantised


WIDE = {(0, "down_proj"): 1, (1, "gate_up_proj"): 2}


@pytest.mark.parametrize("to", ["nvfp4", "fp8-block-ct", "fp8-channel"])
def test_what_spans_too_much_is_encoded_matrix_by_matrix(to: str, tmp_path: Path) -> None:
    """And counted; all others are cast, and their values are what they were."""
    source = gptoss(tmp_path / "in", WIDE)
    with an.parse(source) as model:
        plan = model.plan(to)
        report = model.convert(tmp_path / "out", to, verify=True)
        model.remember(tmp_path / "apart", "f32", experts="split")
    anew = {name for (layer, stack), e in WIDE.items() for name in pieces(layer, stack, e)}
    if to != "nvfp4":  # where up, whose exponents are like the others, has scales of its own
        anew = {name for name in anew if "up_proj" not in name}
    everything = {n for i in (0, 1) for s in STACKS for e in range(N) for n in pieces(i, s, e)}
    assert report.requantised.keys() == report.unmovable.keys() == anew
    assert set(report.recast) == everything - anew
    assert not everything & report.plain.keys()
    for name in ("taken_apart", "requantised", "repacked", "unmovable", "plain"):
        assert getattr(plan.account, name) == getattr(report, name), name
    assert tuple(plan.account.recast) == report.recast
    assert sum(report.taken_apart.values()) == 2 * len(everything)  # with their biases
    before, after = values(tmp_path / "apart"), values(tmp_path / "out")
    assert before.keys() == after.keys()
    for name in everything - anew:
        assert np.array_equal(before[name].view("u4"), after[name].view("u4")), name


@pytest.mark.parametrize("to", ["nvfp4", "fp8-block-ct", "int8"])
def test_bytes_are_those_of_values_that_are_encoded(to: str, tmp_path: Path) -> None:
    """What is encoded anew is what it would be if all was decoded first."""
    with an.parse(gptoss(tmp_path / "in", WIDE)) as model:
        report = model.convert(tmp_path / "out", to)
        model.remember(tmp_path / "plain")
    with an.parse(tmp_path / "plain") as model:
        model.convert(tmp_path / "want", to)
    ours, want = stored(tmp_path / "out"), stored(tmp_path / "want")
    assert ours.keys() == want.keys()
    anew = [name.removesuffix("weight") for name in report.requantised]
    assert anew
    compared = [name for name in want if name.startswith(tuple(anew))]
    assert len(compared) >= 2 * len(anew)
    assert [name for name in compared if ours[name] != want[name]] == []


@pytest.mark.parametrize("to", ["nvfp4", "fp8-block-ct", "fp8-channel", "int8"])
def test_lossless_names_the_first(to: str, tmp_path: Path) -> None:
    with an.parse(gptoss(tmp_path / "in", WIDE)) as model:
        for verb in (model.plan, partial(model.convert, tmp_path / "out")):
            with pytest.raises(an.UnsupportedError) as caught:
                verb(to, lossless=True, **ONLY)
            first = "0.gate_proj" if to == "int8" else "1.down_proj"
            assert f"{MODULE.format(0)}.{first}.weight" in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_lossless_where_each_expert_spans_little(tmp_path: Path) -> None:
    """A stack that cannot be cast whole is cast as matrices."""
    source = gptoss(tmp_path / "in")
    with an.parse(source) as model:
        raw = bytearray((source / "model.safetensors").read_bytes())
        for name, own in model.stored.items():
            if name.endswith("_scales"):
                per_expert = own.n_bytes // N
                for expert in range(N):
                    begin = own.offset + expert * per_expert
                    some = np.frombuffer(bytes(raw[begin : begin + per_expert]), np.uint8)
                    raw[begin : begin + per_expert] = (some - 30 + 12 * expert).tobytes()
    (source / "model.safetensors").write_bytes(bytes(raw))
    with an.parse(source) as model:
        report = model.convert(tmp_path / "out", "nvfp4", lossless=True, **ONLY)
        model.remember(tmp_path / "apart", "f32", experts="split")
    assert len(report.recast) == 2 * 3 * N
    before, after = values(tmp_path / "apart"), values(tmp_path / "out")
    for name in report.recast:
        assert np.array_equal(before[name].view("u4"), after[name].view("u4")), name


def test_patterns_decide_what_is_taken_apart(tmp_path: Path) -> None:
    """A stack that is not asked for is no reason; its module goes with another."""
    with an.parse(gptoss(tmp_path / "in", {(0, "down_proj"): 1})) as model:
        report = model.plan("nvfp4", exclude="*.experts.down_proj").account
        assert not report.taken_apart
        assert len(report.recast) == 2
        report = model.plan("nvfp4", include="*.1.mlp.experts.*").account
        assert not report.taken_apart
        assert len(report.recast) == 2
        report = model.plan("nvfp4", experts="keep").account
        assert not report.taken_apart
        assert len(report.recast) == 3
        why = report.plain[f"{MODULE.format(0)}.down_proj"]
        assert why.startswith("exponents of scales span more than 17; ")
        report = model.plan(overrides={"*.experts.down_proj": "nvfp4"}).account
        assert len(report.requantised) == 1
        assert len(report.recast) == 2 * N - 1


def test_asked_for_it_is_the_same(tmp_path: Path) -> None:
    with an.parse(gptoss(tmp_path / "in", WIDE)) as model:
        model.convert(tmp_path / "usual", "nvfp4")
        model.convert(tmp_path / "asked", "nvfp4", experts="split")
    assert files(tmp_path / "usual") == files(tmp_path / "asked")


@pytest.mark.parametrize("to", ["nvfp4-modelopt", "fp8-block"])
def test_stacks_that_no_tool_takes_apart_are_left(to: str, tmp_path: Path) -> None:
    """With the reason, and that of the codes."""
    with an.parse(gptoss(tmp_path / "in", WIDE)) as model:
        account = model.plan(to).account
    left = {f"{MODULE.format(0)}.down_proj", f"{MODULE.format(1)}.gate_up_proj"}
    assert not account.taken_apart
    assert all(account.plain[name].endswith("; experts with biases") for name in left)
    assert len(account.recast) == 2


# --- and back -------------------------------------------------------------------------------------


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["gptoss-mxfp4", "mlx-mxfp4", "mlx-nvfp4", "f32"])
@pytest.mark.parametrize("through", ["nvfp4", "mxfp4"])
def test_matrices_in_codes_are_put_together(through: str, to: str, tmp_path: Path) -> None:
    """Also where each expert has a second scale of its own: all values are what they were."""
    with an.parse(gptoss(tmp_path / "in")) as model:
        model.convert(tmp_path / "apart", through, experts="split", **ONLY)
        model.remember(tmp_path / "want", "f32", experts="split")
    with an.parse(tmp_path / "apart") as model:
        report = model.convert(tmp_path / "out", to, experts="stacked", **ONLY)
    stacks = {name for name in report.put_together if not name.endswith("bias")}
    assert stacks
    assert not report.requantised
    assert to == "f32" or set(report.repacked) == stacks
    with an.parse(tmp_path / "out") as model:
        model.remember(tmp_path / "again", "f32", experts="split")
    want, found = values(tmp_path / "want"), values(tmp_path / "again")
    names = [name for name in want if ".experts." in name]
    assert len(names) == 2 * 2 * 3 * N
    for name in names:
        assert np.array_equal(want[name].view("u4"), found[name].view("u4")), name


def test_values_are_put_together_and_turned(tmp_path: Path) -> None:
    """gpt-oss's single experts of values become the blocks that its stacks become."""
    with an.parse(gptoss(tmp_path / "in")) as model:
        for asked in ("keep", "split"):
            model.remember(tmp_path / asked, experts=asked)
    with an.parse(tmp_path / "keep") as model:
        model.convert(tmp_path / "want", "gptoss-mxfp4")
    with an.parse(tmp_path / "split") as model:
        report = model.convert(tmp_path / "out", "gptoss-mxfp4", experts="stacked", verify=True)
    assert report.encodings == {"gptoss-mxfp4": 4}
    assert stored(tmp_path / "out") == stored(tmp_path / "want")


def test_second_scales_that_differ_within_a_matrix(tmp_path: Path) -> None:
    """Gate and up of an expert are then no stack of codes: they are decoded, and counted."""
    with an.parse(gptoss(tmp_path / "in")) as model:
        model.convert(tmp_path / "apart", "nvfp4", experts="split", **ONLY)
    path = tmp_path / "apart" / "model.safetensors"
    raw = bytearray(path.read_bytes())
    with an.parse(path) as model:
        up = model.stored[f"{MODULE.format(1)}.2.up_proj.weight_global_scale"]
    (old,) = np.frombuffer(raw, np.float32, 1, up.offset)
    raw[up.offset : up.offset + 4] = np.float32(2 * old).tobytes()
    path.write_bytes(bytes(raw))
    with an.parse(tmp_path / "apart") as model:
        account = model.plan("gptoss-mxfp4", experts="stacked", **ONLY).account
        assert list(account.requantised) == [f"{MODULE.format(1)}.gate_up_proj"]
        assert len(account.recast) == 3
        with pytest.raises(an.UnsupportedError, match=r"experts\.gate_up_proj"):
            model.plan("gptoss-mxfp4", experts="stacked", lossless=True, **ONLY)
