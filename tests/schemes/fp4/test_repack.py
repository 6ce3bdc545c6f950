"""4-bit floats that are moved from one layout to another: which bytes that makes."""

from __future__ import annotations

import io
import struct

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.families.fp4.equal_scales import match
from anamnesis.schemes.families.fp4.formats import FORMATS
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import safetensors_bytes
from helpers.repacks import (
    CODES,
    CT,
    EXPONENTS,
    MLX,
    MXFP4,
    NVFP4,
    SCALES,
    blocks_of,
    check,
    comfy,
    entry,
    f32,
    repacked,
    stored,
)

pytestmark = pytest.mark.usefixtures("small_bands")

_NVFP4 = 40  # ggml's number of the type


@pytest.mark.parametrize("target", NVFP4)
@pytest.mark.parametrize("source", NVFP4)
def test_nvfp4(source: str, target: str) -> None:
    check(NVFP4[source], target, NVFP4[target])


def test_rows_and_columns_are_padded_for_comfyui() -> None:
    tensors = {
        **CT,
        "a.weight_packed": entry("U8", CODES[:37]),
        "a.weight_scale": entry("F8_E4M3", SCALES[:37]),
    }
    codes, scales = CODES.copy(), SCALES.copy()
    codes[37:], scales[37:] = 0, 0
    made = check(tensors, "comfy-nvfp4", comfy(codes, scales, (37, 64)))
    back = io.BytesIO()
    made.convert(back, "nvfp4")
    assert stored(an.parse(back.getvalue())) == stored(an.parse(safetensors_bytes(tensors)))


@pytest.mark.parametrize("target", [*MXFP4, "gguf-mxfp4"])
@pytest.mark.parametrize("source", MXFP4)
def test_mxfp4(source: str, target: str) -> None:
    blocks = blocks_of(CODES, EXPONENTS, 1, 32)
    want = MXFP4.get(target, {"a.weight": ("MXFP4", [48, 64], blocks)})
    check(MXFP4[source], target, want)


def test_nvfp4_in_ggmls_blocks() -> None:
    tensors = {**MLX}
    del tensors["a.global_scale"]
    blocks = blocks_of(CODES, SCALES, 4, 16)
    made = check(tensors, "gguf-nvfp4", {"a.weight": ("NVFP4", [48, 64], blocks)})
    back = io.BytesIO()
    made.convert(back, "mlx-nvfp4")
    assert stored(an.parse(back.getvalue())) == stored(an.parse(safetensors_bytes(tensors)))


@pytest.mark.parametrize("source", NVFP4)
def test_nvfp4_in_ggmls_blocks_with_a_second_scale(source: str) -> None:
    """llama.cpp has it in a tensor beside the blocks."""
    blocks = blocks_of(CODES, SCALES, 4, 16)
    want = {"a.weight": ("NVFP4", (48, 64), blocks), "a.scale": entry("F32", f32(1 / 64))}
    made = check(NVFP4[source], "gguf-nvfp4", want)
    assert made["a.weight"].scheme == "NVFP4 (GGUF)"
    back, same = io.BytesIO(), io.BytesIO()
    made.convert(back, source)
    assert stored(an.parse(back.getvalue())) == stored(an.parse(safetensors_bytes(NVFP4[source])))
    made.convert(same, "gguf")
    assert stored(an.parse(same.getvalue())) == stored(made)
    plain = an.parse(made.remember_to_bytes("f32"))
    assert set(plain) == {"a.weight"}
    assert (plain["a.weight"].numpy() == made["a.weight"].numpy("f32")).all()


def test_a_second_scale_for_each_expert_in_ggmls_blocks() -> None:
    tensors = {
        "a.weight": entry("U8", CODES.reshape(2, 24, 32)),
        "a.weight_scale": entry("F8_E4M3", SCALES.reshape(2, 24, 4)),
        "a.weight_scale_2": entry("F32", f32(1.0, 0.75)),
    }
    blocks = blocks_of(CODES, SCALES, 4, 16)
    want = {
        "a.weight": ("NVFP4", (2, 24, 64), blocks),
        "a.scale": entry("F32", f32(1.0, 0.75)),
    }
    check(tensors, "gguf-nvfp4", want)


@pytest.mark.parametrize(("n", "type"), [(2, 0), (1, 1)], ids=["two", "F16"])
def test_a_second_scale_that_does_not_fit(n: int, type: int) -> None:
    blocks = blocks_of(CODES, SCALES, 4, 16)
    scale = Tensor((n,), type, bytes(n * (4 - 2 * type)))
    raw = gguf_bytes({}, {"a.weight": Tensor((64, 48), _NVFP4, blocks), "a.scale": scale})
    with pytest.raises(an.AnamnesisError, match=r"a\.scale .* must be one F32"):
        an.parse(raw).remember_to_bytes()


def test_a_scale_with_a_sign_beside_a_second_scale() -> None:
    """ggml reads it without the sign; nothing writes it."""
    blocks = blocks_of(CODES, SCALES | 0x80, 4, 16)
    scale = Tensor((1,), 0, f32(0.5).tobytes())
    raw = gguf_bytes({}, {"a.weight": Tensor((64, 48), _NVFP4, blocks), "a.scale": scale})
    with pytest.raises(an.AnamnesisError, match="which is no scale that ggml writes"):
        an.parse(raw).remember_to_bytes()


def test_experts_of_gpt_oss_come_out_turned() -> None:
    codes, scales = CODES.reshape(3, 16, 32), EXPONENTS.reshape(3, 16, 2)
    tensors = {
        "experts.down_proj_blocks": entry("U8", codes.reshape(3, 16, 2, 16)),
        "experts.down_proj_scales": entry("U8", scales),
    }
    made = repacked(tensors, "mxfp4")
    assert stored(made) == {
        "experts.down_proj.weight_packed": ("U8", [3, 16, 32], codes.tobytes()),
        "experts.down_proj.weight_scale": ("U8", [3, 16, 2], scales.tobytes()),
    }
    with an.parse(safetensors_bytes(tensors)) as before:
        ours = before["experts.down_proj"].numpy()
    assert ours.shape == (3, 64, 16)
    assert (made["experts.down_proj.weight"].numpy() == ours.swapaxes(1, 2)).all()
    back = io.BytesIO()
    made.convert(back, "gptoss-mxfp4")
    assert stored(an.parse(back.getvalue())) == stored(an.parse(safetensors_bytes(tensors)))


def test_code_8_stays_code_8() -> None:
    """ModelOpt reads +0 where compressed-tensors reads -0."""
    tensors = {**CT, "a.weight_packed": entry("U8", np.full((48, 32), 0x88, np.uint8))}
    made = repacked(tensors, "nvfp4-modelopt")
    assert stored(made)["a.weight"][2] == b"\x88" * (48 * 32)
    with an.parse(safetensors_bytes(tensors)) as before:
        assert (before["a.weight"].numpy().view("u4") == 1 << 31).all()
    assert not made["a.weight"].numpy().view("u4").any()


def test_second_scales_of_which_float32_has_no_partner() -> None:
    """1 / 24 is no float32: BF16 and F16 are equal even so, and it says that F32 is not."""
    tensors = {**CT, "a.weight_global_scale": entry("F32", f32(24.0))}
    with an.parse(safetensors_bytes(tensors)) as model:
        out = io.BytesIO()
        report = model.convert(out, "nvfp4-modelopt")
        assert report.inexact == ("a.weight",)
        assert "1 repacked without loss (1 in BF16 and F16 only)" in str(report)
        assert model.plan("nvfp4-modelopt").to_dict()["inexact"] == ["a.weight"]
        made = an.parse(out.getvalue())
        for dtype in ("bf16", "f16"):
            one, other = (m["a.weight"].numpy(dtype=dtype).view("u2") for m in (model, made))
            assert (one == other).all()
        one, other = (m["a.weight"].numpy() for m in (model, made))
        assert (one != other).any()


@pytest.mark.parametrize("second", [0.0, float("inf"), float("nan"), 1e-45, 3e38, -2.0, 42.0])
@pytest.mark.parametrize("new", ["ct-nvfp4", "modelopt-nvfp4", "mlx-nvfp4", "gguf-nvfp4"])
@pytest.mark.parametrize("old", ["ct-nvfp4", "modelopt-nvfp4", "mlx-nvfp4"])
def test_any_second_scale_has_a_partner_or_none(old: str, new: str, second: float) -> None:
    found = match(FORMATS[old], struct.pack("<f", second), FORMATS[new])
    if found is None:
        assert old != new
    elif found.is_exact:
        ours, theirs = (
            np.frombuffer(FORMATS[k].scales(s).table, "<f4")
            for k, s in ((old, struct.pack("<f", second)), (new, found.second))
        )
        assert np.array_equal(ours, theirs, equal_nan=True) or found.differing


def test_a_second_scale_for_each_expert() -> None:
    """If one of them needs one, all are given one."""
    codes, scales = CODES.reshape(2, 24, 32), SCALES.reshape(2, 24, 4)
    tensors = {
        "a.weight": entry("U8", codes),
        "a.weight_scale": entry("F8_E4M3", scales),
        "a.weight_scale_2": entry("F32", f32(1.0, 0.5)),
    }
    want = {
        "a.weight": entry("U32", codes.view("<u4")),
        "a.scales": entry("U8", scales),
        "a.global_scale": entry("F32", f32(2688.0, 1344.0)),
    }
    check(tensors, "mlx-nvfp4", want)
