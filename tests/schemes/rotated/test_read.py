"""What markers and metadata say of rotated integers, and what is refused of them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes

NAME = "blocks.3.attn.to_q"
INT8, INT4 = {"format": "int8_tensorwise", "convrot": True}, {"format": "convrot_w4a4"}
LEVELS = {"format": "asym_w4a8_int8"}
ROWS, COLS = 3, 512

Tensors = dict[str, Entry]


def entry(dtype: str, array: Any) -> Entry:
    return dtype, array.shape, array.tobytes()


def drawn(*shape: int) -> Any:
    return np.random.default_rng(1).integers(-128, 128, shape).astype(np.int8)


def weight(width: int = COLS, **parts: Entry) -> Tensors:
    found = {f"{NAME}.weight": entry("I8", drawn(ROWS, width))}
    return found | {f"{NAME}.weight_{part}": one for part, one in parts.items()}


def floats(*shape: int) -> Entry:
    return entry("F32", np.random.default_rng(2).random(shape, np.float32))


ROW_SCALES: Any = {"scale": floats(ROWS, 1)}
OF_LEVELS: dict[str, Entry] = {"s_rel": floats(ROWS, COLS // 16), "s_channel": floats(ROWS)}


def marked(tensors: Mapping[str, Entry], said: Any) -> Tensors:
    text = json.dumps(said).encode()
    return {**tensors, f"{NAME}.comfy_quant": ("U8", (len(text),), text)}


def in_metadata(said: Any, name: str = NAME) -> dict[str, str]:
    return {"_quantization_metadata": json.dumps({"layers": {name: said}})}


def values(tensors: Mapping[str, Entry], metadata: Mapping[str, str] | None = None) -> bytes:
    with an.parse(safetensors_bytes(tensors, metadata)) as model:
        assert not model.problems
        assert list(model) == [f"{NAME}.weight"]
        return model[f"{NAME}.weight"].numpy("f32").tobytes()


ALIKE = (
    {**INT8, "convrot_groupsize": 256},
    {**INT8, "params": {"convrot_groupsize": 256}},
    {"format": "int8_tensorwise", "params": {"convrot": True, "convrot_groupsize": 256}},
    {**INT8, "per_row": True, "full_precision_matrix_mult": True, "orig_dtype": "bfloat16"},
    {"convrot": True},
    {"convrot": True, "per_row": True, "convrot_groupsize": 256},
)


@pytest.mark.parametrize("said", ALIKE, ids=str)
def test_markers_that_say_the_same(said: dict[str, Any]) -> None:
    want = values(marked(weight(**ROW_SCALES), INT8))
    assert values(marked(weight(**ROW_SCALES), said)) == want
    assert values(weight(**ROW_SCALES), in_metadata(said)) == want
    assert values(weight(**ROW_SCALES), in_metadata(said, f"net.{NAME}")) == want


@pytest.mark.parametrize(
    "said", [{"convrot": False}, {"per_row": True}, {**INT8, "convrot": False}], ids=str
)
def test_rows_that_are_not_rotated(said: dict[str, Any]) -> None:
    plain = values(marked(weight(**ROW_SCALES), {"format": "int8_tensorwise"}))
    assert values(marked(weight(**ROW_SCALES), said)) == plain
    assert values(marked(weight(**ROW_SCALES), INT8)) != plain


def test_another_group_gives_other_values() -> None:
    found = [
        values(marked(weight(**ROW_SCALES), {**INT8, "convrot_groupsize": group}))
        for group in (4, 16, 64, 256)
    ]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize(
    ("parts", "said"), [(ROW_SCALES, INT8), (ROW_SCALES, INT4), (OF_LEVELS, LEVELS)], ids=str
)
@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_scales_of_16_bits_are_those_in_float32(
    dtype: str, parts: dict[str, Entry], said: dict[str, Any]
) -> None:
    width = COLS if said is INT8 else COLS // 2
    narrow = {role: one for role, one in parts.items() if role != "s_rel"}
    halves = {
        role: ("F16", one[1], np.full(one[1], 0.25, "<f2").tobytes())
        for role, one in narrow.items()
    }
    if dtype == "BF16":
        halves = {r: ("BF16", s, b"\x80\x3e" * (len(b) // 2)) for r, (_, s, b) in halves.items()}
    wide = {r: ("F32", s, np.full(s, 0.25, "<f4").tobytes()) for r, (_, s, _) in halves.items()}
    want = values(marked(weight(width, **{**parts, **wide}), said))
    assert values(marked(weight(width, **{**parts, **halves}), said)) == want


def test_a_stack_of_experts_is_read_as_its_rows() -> None:
    rows = 6
    codes, scales = drawn(rows, COLS), floats(rows, 1)
    flat = {f"{NAME}.weight": entry("I8", codes), f"{NAME}.weight_scale": scales}
    stack: Tensors = {
        f"{NAME}.weight": entry("I8", codes.reshape(2, 3, COLS)),
        f"{NAME}.weight_scale": ("F32", (2, 3, 1), scales[2]),
    }
    said = {**INT8, "num_experts": 2}
    assert values(marked(stack, said)) == values(marked(flat, said))


REFUSED: tuple[tuple[Tensors, dict[str, Any], str], ...] = (
    (weight(**ROW_SCALES), {**INT8, "convrot_groupsize": 48}, "in groups of 48; of 4, 16, 64"),
    (weight(**ROW_SCALES), {**INT8, "convrot_groupsize": 0}, "must hold JSON"),
    (weight(**ROW_SCALES), {**INT8, "convrot_groupsize": "x"}, "must hold JSON"),
    (weight(384, **ROW_SCALES), INT8, "whole groups of 256 columns"),
    (weight(scale=floats(COLS)), INT8, r"\[3, 1\] is expected"),
    (weight(scale=floats(2, 1)), INT8, r"\[3, 1\] is expected"),
    (weight(scale=entry("I8", drawn(ROWS, 1))), INT8, "F32 or F16 or BF16 is expected"),
    (weight(), INT8, "has no blocks.3.attn.to_q.weight_scale"),
    (weight(), INT4, "has no blocks.3.attn.to_q.weight_scale"),
    (weight(COLS // 2, s_rel=OF_LEVELS["s_rel"]), LEVELS, "has no .*weight_s_channel"),
    (weight(COLS // 2, s_channel=OF_LEVELS["s_channel"]), LEVELS, "has no .*weight_s_rel"),
    (weight(COLS, **OF_LEVELS), LEVELS, "a scale for each 16 codes of 4 or 6 bits"),
    (weight(COLS // 2, **OF_LEVELS), {**LEVELS, "group_size": 8}, "whole groups of 256|each 8"),
    (
        weight(COLS * 3 // 4, **OF_LEVELS, codebook=floats(16)),
        LEVELS,
        r"\[16\], of codes of 4 bits, is expected",
    ),
    (
        weight(COLS // 2, **OF_LEVELS, correction=floats(ROWS, COLS // 16)),
        LEVELS,
        r"\[32, 3\], of codes of 4 bits, is expected",
    ),
)


@pytest.mark.parametrize(("tensors", "said", "why"), REFUSED, ids=lambda one: str(one)[:60])
def test_what_is_refused(tensors: Tensors, said: dict[str, Any], why: str) -> None:
    with an.parse(safetensors_bytes(marked(tensors, said))) as model:
        with pytest.raises(an.AnamnesisError, match=why) as error:
            model.remember_to_bytes()
        assert NAME in str(error.value)


def test_a_marker_and_metadata_that_disagree_are_refused() -> None:
    tensors = marked(weight(**ROW_SCALES), INT8)
    with (
        an.parse(safetensors_bytes(tensors, in_metadata("int8_tensorwise"))) as model,
        pytest.raises(an.ParseError, match="disagree on whether its columns are rotated"),
    ):
        model.remember_to_bytes()


def test_an_unmarked_layer_beside_a_rotated_one_is_refused() -> None:
    others: Tensors = {
        "blocks.4.attn.to_q.weight": entry("I8", drawn(ROWS, COLS)),
        "blocks.4.attn.to_q.weight_scale": floats(ROWS, 1),
    }
    with an.parse(safetensors_bytes(marked(weight(**ROW_SCALES), INT8) | others)) as model:
        assert list(model.problems) == list(others)


@pytest.mark.parametrize("to", ["comfy-int8-convrot-48", "comfy-convrot-w4a4-x"])
def test_groups_that_there_are_not(to: str) -> None:
    with (
        an.parse(safetensors_bytes({f"{NAME}.weight": floats(ROWS, COLS)})) as model,
        pytest.raises((an.AnamnesisError, ValueError)),
    ):
        model.convert(io.BytesIO(), to)


def test_rows_that_end_within_a_group_stay_plain() -> None:
    out = io.BytesIO()
    tensors = {f"{NAME}.weight": floats(ROWS, COLS), "blocks.4.ff.weight": floats(ROWS, 300)}
    with an.parse(safetensors_bytes(tensors)) as model:
        report = model.convert(out, "comfy-int8-convrot")
    assert "blocks.4.ff.weight" in str(report.to_dict())
    with an.parse(out.getvalue()) as model:
        assert not model["blocks.4.ff.weight"].is_quantized
        assert model[f"{NAME}.weight"].is_quantized
