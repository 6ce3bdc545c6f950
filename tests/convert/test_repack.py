"""Codes that are moved from one layout to another: which bytes that makes, and what it says."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.convert.ask import targets
from anamnesis.convert.plan import plan
from anamnesis.schemes import encodings
from anamnesis.schemes.fp4.formats import FORMATS
from anamnesis.schemes.fp4.second_scale import match
from helpers.gguf_handmade import Tensor, gguf_bytes
from helpers.handmade import Entry, safetensors_bytes, write_safetensors

Array = NDArray[Any]
RNG = np.random.default_rng(16)
DTYPES = {"F8_E4M3": "u1", "F16": "f2", "U8": "u1", "I8": "i1", "I32": "i4", "U32": "u4"}


def entry(dtype: str, array: Any) -> Entry:
    array = np.asarray(array)
    return dtype, array.shape, array.tobytes()


def raw(*shape: int) -> Array:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def e4m3(*shape: int) -> Array:
    """Scales of every magnitude, none a NaN."""
    return RNG.integers(1, 127, shape, dtype=np.uint8)


def f16(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float16)


def f32(*values: float) -> Array:
    return np.array(values, np.float32)


def folder(path: Path, tensors: dict[str, Entry], **config: Any) -> Path:
    """A directory whose config settles what shapes leave open."""
    write_safetensors(path / "model.safetensors", tensors)
    (path / "config.json").write_text(json.dumps(config))
    return path


def stored(model: an.Model) -> dict[str, tuple[str, list[int], bytes]]:
    return {t.name: (t.dtype.name, list(t.shape), t.read()) for t in model.stored.values()}


def repacked(tensors: dict[str, Entry], target: str, **options: Any) -> an.Model:
    """The tensors of what a file is repacked as."""
    out = io.BytesIO()
    with an.parse(safetensors_bytes(tensors)) as model:
        report = model.convert(out, target, **options)
        assert report.repacked
        assert report.n_encoded == 0
        assert not report.loss or not report.loss.weights
    return an.parse(out.getvalue())


def check(tensors: dict[str, Entry], target: str, want: dict[str, Entry]) -> an.Model:
    """What is written is what is wanted, and has the values that it had."""
    made = repacked(tensors, target)
    assert stored(made) == {name: (d, list(s), b) for name, (d, s, b) in want.items()}
    with an.parse(safetensors_bytes(tensors)) as before:
        for dtype in ("f32", "bf16"):
            values = [
                array.view(f"u{array.itemsize}")
                for model in (before, made)
                for array in (model[next(iter(model))].numpy(dtype=dtype),)
            ]
            assert (values[0] == values[1]).all()
    return made


# --- 4-bit floats -----------------------------------------------------------------------------

CODES = raw(48, 32) & 0x77  # no code 8, which is +0 to some
SCALES = e4m3(48, 4)
CT = {
    "a.weight_packed": entry("U8", CODES),
    "a.weight_scale": entry("F8_E4M3", SCALES),
    "a.weight_global_scale": entry("F32", f32(64.0)),
}
MODELOPT = {
    "a.weight": entry("U8", CODES),
    "a.weight_scale": entry("F8_E4M3", SCALES),
    "a.weight_scale_2": entry("F32", np.float32(1 / 64)),
}
MARKER = {"format": "nvfp4", "group_size": 16, "orig_dtype": "torch.bfloat16"}


def tiled(scales: Array) -> Array:
    """As cuBLAS has them, one tile at a time."""
    tall, wide = -(-scales.shape[0] // 128), -(-scales.shape[1] // 4)
    out = np.zeros((tall * wide, 512), np.uint8)
    for (r, c), value in np.ndenumerate(scales):
        tile = r // 128 * wide + c // 4
        out[tile, r % 32 * 16 + r % 128 // 32 * 4 + c % 4] = value
    return out.reshape(tall * 128, wide * 4)


def comfy(codes: Array, scales: Array, shape: tuple[int, int]) -> dict[str, Entry]:
    marker = json.dumps({**MARKER, "orig_shape": list(shape)}).encode()
    return {
        "a.weight": entry("U8", (codes << 4) | (codes >> 4)),
        "a.weight_scale": entry("F8_E4M3", tiled(scales)),
        "a.weight_scale_2": entry("F32", np.float32(1 / 64)),
        "a.comfy_quant": entry("U8", np.frombuffer(marker, np.uint8)),
    }


MLX = {
    "a.weight": entry("U32", CODES.view("<u4")),
    "a.scales": entry("U8", SCALES),
    "a.global_scale": entry("F32", np.float32(42)),
}
_NVFP4 = 40  # ggml's number of the type
NVFP4 = {"nvfp4": CT, "nvfp4-modelopt": MODELOPT, "mlx-nvfp4": MLX}
NVFP4["comfy-nvfp4"] = comfy(CODES, SCALES, (48, 64))


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


def blocks_of(codes: Array, scales: Array, per_block: int, group: int) -> bytes:
    """ggml's blocks, one code at a time."""
    flat = np.stack((codes & 15, codes >> 4), -1).reshape(-1, group // 2 * 2)
    halves = bytearray()
    for row in flat:
        for i in range(group // 2):
            halves.append(int(row[i]) | int(row[group // 2 + i]) << 4)
    n_codes = per_block * group // 2
    out = b""
    for i in range(scales.size // per_block):
        out += scales.reshape(-1)[i * per_block : (i + 1) * per_block].tobytes()
        out += bytes(halves[i * n_codes : (i + 1) * n_codes])
    return out


EXPONENTS = RNG.integers(90, 140, (48, 2), dtype=np.uint8)
MXFP4: dict[str, dict[str, Entry]] = {
    "mxfp4": {
        "a.weight_packed": entry("U8", CODES),
        "a.weight_scale": entry("U8", EXPONENTS),
    },
    "mlx-mxfp4": {
        "a.weight": entry("U32", CODES.view("<u4")),
        "a.scales": entry("U8", EXPONENTS),
    },
}


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


# --- packed integers --------------------------------------------------------------------------

AWQ = (0, 2, 4, 6, 1, 3, 5, 7)
Q = RNG.integers(0, 16, (32, 64), dtype=np.uint8)  # [out, in]
Z = RNG.integers(1, 16, (32, 2), dtype=np.uint8)
S = f16(32, 2)


def words(codes: Array, order: tuple[int, ...] = tuple(range(8))) -> Array:
    """Eight codes of the last axis to a word, one at a time."""
    out = np.zeros((*codes.shape[:-1], codes.shape[-1] // 8), np.uint32)
    for place, i in enumerate(order):
        out |= codes[..., i::8].astype(np.uint32) << np.uint32(4 * place)
    return out


def int4(zeros: bool = True, listed: Array | None = None) -> dict[str, Entry]:
    made = {
        "a.weight_packed": entry("I32", words(Q)),
        "a.weight_scale": entry("F16", S),
        "a.weight_zero_point": entry("I32", words(Z.T).T.copy()),
        "a.weight_shape": entry("I64", np.array([32, 64])),
    }
    if not zeros:
        del made["a.weight_zero_point"]
    if listed is not None:
        made["a.weight_g_idx"] = entry("I32", listed)
    return made


def gptq(zeros: Array = Z, listed: Array | None = None) -> dict[str, Entry]:
    runs = np.arange(64, dtype=np.int32) // 32
    return {
        "a.qweight": entry("I32", words(Q).T.copy()),
        "a.qzeros": entry("I32", words(zeros.T - 1)),
        "a.scales": entry("F16", S.T.copy()),
        "a.g_idx": entry("I32", runs if listed is None else listed),
    }


def awq(zeros: Array = Z) -> dict[str, Entry]:
    return {
        "a.qweight": entry("I32", words(np.ascontiguousarray(Q.T), AWQ)),
        "a.qzeros": entry("I32", words(np.ascontiguousarray(zeros.T), AWQ)),
        "a.scales": entry("F16", S.T.copy()),
    }


INT4 = {"int4": int4(), "gptq-4bit": gptq(), "awq-4bit": awq()}
EIGHTS = np.full((32, 2), 8, np.uint8)


@pytest.mark.parametrize("target", INT4)
@pytest.mark.parametrize("source", INT4)
def test_words(source: str, target: str) -> None:
    check(INT4[source], target, INT4[target])


@pytest.mark.parametrize("has_listed", [True, False])
def test_words_of_8_bits(has_listed: bool) -> None:
    """They stay as they are, and get a list of groups if there is none."""
    ours = {
        "a.qweight": entry("I32", RNG.integers(0, 2**31, (16, 32), np.int32)),
        "a.qzeros": entry("I32", RNG.integers(0, 2**31, (2, 8), np.int32)),
        "a.scales": entry("F16", S.T.copy()),
    }
    listed = entry("I32", np.arange(64, dtype=np.int32) // 32)
    wanted = {**ours, "a.g_idx": listed}
    check(wanted if has_listed else ours, "gptq-8bit", wanted)


@pytest.mark.parametrize(
    ("target", "want"), [("gptq-4bit", gptq(EIGHTS)), ("awq-4bit", awq(EIGHTS))]
)
def test_symmetric_words(target: str, want: dict[str, Entry]) -> None:
    check(int4(zeros=False), target, want)


def test_act_order() -> None:
    listed = RNG.permutation(np.arange(64, dtype=np.int32) // 32)
    ours, theirs = int4(listed=listed), gptq(listed=listed)
    check(ours, "gptq-4bit", theirs)
    check(theirs, "int4", ours)
    with pytest.raises(an.UnsupportedError, match="groups are in act-order, which AWQ has not"):
        repacked(ours, "awq-4bit")


def test_what_gptq_and_awq_cannot_hold() -> None:
    zero = {**int4(), "a.weight_zero_point": entry("I32", words(0 * Z.T).T.copy())}
    with pytest.raises(an.UnsupportedError, match="a zero point is 0, which has no place"):
        repacked(zero, "gptq-4bit")
    check(zero, "awq-4bit", awq(0 * Z))
    borrowed = {**gptq(), "a.qzeros": entry("I32", words(0 * Z.T) - np.uint32(0x11111111))}
    check(borrowed, "int4", zero)
    check(borrowed, "awq-4bit", awq(0 * Z))
    for dtype, scales in (("BF16", S.view("u2")), ("F32", S.astype("f4"))):
        other = {**int4(), "a.weight_scale": entry(dtype, scales)}
        with pytest.raises(an.UnsupportedError, match=f"its scales are {dtype}, and F16 in AWQ"):
            repacked(other, "awq-4bit")
    rows = {k: v for k, v in int4(zeros=False).items() if k != "a.weight_shape"}
    rows |= {
        "a.weight_packed": entry("I32", words(Q)[:31]),
        "a.weight_scale": entry("F16", S[:31]),
        "a.weight_shape": entry("I64", np.array([31, 64])),
    }
    with pytest.raises(an.UnsupportedError, match="must be multiples of 8 in GPTQ"):
        repacked(rows, "gptq-4bit")


# --- ggml's blocks ----------------------------------------------------------------------------


def check_q4_1_as_mlx(q4_1: an.Model, out: Path) -> None:
    """In groups of 32, as ggml has them."""
    out.mkdir()
    report = q4_1.convert(out / "model.safetensors", "mlx-4bit")
    assert report.repacked == {"a.weight": "mlx-4bit-32"}
    told = {"quantization": {"bits": 4, "group_size": 32}}
    (out / "config.json").write_text(json.dumps(told))
    with an.parse(out) as model:
        assert stored(model)["a.weight"] == ("U32", [32, 8], words(Q).tobytes())
        assert (model["a.weight"].numpy() == q4_1["a.weight"].numpy()).all()
        again = model.convert(out.parent / "again.safetensors", "mlx-4bit")
        assert again.repacked == report.repacked
        with an.parse(out.parent / "again.safetensors") as copied:
            assert stored(copied) == stored(model)


def test_mlx_as_q4_1(tmp_path: Path) -> None:
    """Groups of 64 repeat their scale and bias."""
    told = {"bits": 4, "group_size": 64}
    scales, biases = f16(32, 1), f16(32, 1)
    tensors = {
        "a.weight": entry("U32", words(Q)),
        "a.scales": entry("F16", scales),
        "a.biases": entry("F16", biases),
    }
    blocks = b""
    for row in range(32):
        for first in (0, 32):
            some = Q[row, first : first + 32]
            blocks += scales[row].tobytes() + biases[row].tobytes()
            blocks += (some[:16] | some[16:] << 4).tobytes()
    with an.parse(folder(tmp_path / "f16", tensors, quantization=told)) as model:
        model.convert(tmp_path / "a.gguf", "gguf-q4_1")
        with an.parse(tmp_path / "a.gguf") as made:
            assert stored(made) == {"a.weight": ("Q4_1", [32, 64], blocks)}
            assert (made["a.weight"].numpy() == model["a.weight"].numpy()).all()
            check_q4_1_as_mlx(made, tmp_path / "mlx")
    tensors |= {name: ("BF16", *tensors[name][1:]) for name in ("a.scales", "a.biases")}
    model = an.parse(folder(tmp_path / "bf16", tensors, quantization=told))
    with pytest.raises(an.UnsupportedError, match="its scales are BF16, and F16 in Q4_1"):
        model.convert(tmp_path / "b.gguf", "gguf-q4_1")


def test_int4_as_q4_0_and_back() -> None:
    blocks = b""
    for row in range(32):
        for group in range(2):
            some = Q[row, 32 * group : 32 * group + 32]
            blocks += S[row, group].tobytes() + (some[:16] | some[16:] << 4).tobytes()
    made = check(int4(zeros=False), "gguf-q4_0", {"a.weight": ("Q4_0", [32, 64], blocks)})
    for target, want in (("int4", int4(zeros=False)), ("awq-4bit", awq(EIGHTS))):
        back = io.BytesIO()
        made.convert(back, target)
        again = stored(an.parse(back.getvalue()))
        assert again == {name: (d, list(s), b) for name, (d, s, b) in want.items()}
    with pytest.raises(an.UnsupportedError, match="no weight of the model suits gguf-q4_0"):
        repacked(int4(), "gguf-q4_0")


def test_codes_that_lie_in_tiles_are_no_rows() -> None:
    """Marlin has the same numbers as Q4_0, but in an order of its own."""
    marlin = {
        "a.B": entry("I32", raw(8, 512, 4).view("i4")[..., 0]),
        "a.s": entry("F16", f16(1, 256)),
    }
    with pytest.raises(an.UnsupportedError, match="no weight of the model suits gguf-q4_0"):
        repacked(marlin, "gguf-q4_0")


@pytest.mark.parametrize("groups", [1, 2])
def test_int8_as_q8_0_and_back(groups: int, tmp_path: Path) -> None:
    codes, scales = raw(32, 64).view("i1"), f16(32, groups)
    tensors = {"a.weight": entry("I8", codes), "a.weight_scale": entry("F16", scales)}
    blocks = b""
    for row in range(32):
        for i in range(2):
            blocks += scales[row, i * groups // 2].tobytes()
            blocks += codes[row, 32 * i : 32 * i + 32].tobytes()
    method = {"quant_method": "compressed-tensors"}
    source = folder(tmp_path / "in", tensors, quantization_config=method)
    with an.parse(source) as before:
        before.convert(tmp_path / "a.gguf", "gguf-q8_0")
        made = an.parse(tmp_path / "a.gguf")
        assert stored(made) == {"a.weight": ("Q8_0", [32, 64], blocks)}
        assert (made["a.weight"].numpy() == before["a.weight"].numpy()).all()
        out = tmp_path / "out" / "model.safetensors"
        out.parent.mkdir()
        made.convert(out, "int8-packed")
        config = targets.encoding("int8-packed").declare([])
        (out.parent / "config.json").write_text(json.dumps({"quantization_config": config}))
        with an.parse(out.parent) as again:
            assert again.stored["a.weight_packed"].dtype.name == "I32"
            assert (again["a.weight"].numpy() == before["a.weight"].numpy()).all()


# --- a conversion -----------------------------------------------------------------------------

MODEL = {
    **{k.replace("a.", "model.layers.0.mlp.up_proj."): v for k, v in CT.items()},
    "model.embed_tokens.weight": entry("BF16", raw(16, 128).view("u2") & 0xBFFF),  # finite
    "model.norm.weight": entry("F32", f32(1, 2, 3)),
}
UP = "model.layers.0.mlp.up_proj.weight"


def test_what_it_says() -> None:
    with an.parse(safetensors_bytes(MODEL)) as model:
        plan = model.plan("comfy-nvfp4").to_dict()
        report = model.convert(io.BytesIO(), "comfy-nvfp4")
    assert plan["repacked"] == report.repacked == {UP: "comfy-nvfp4"}
    assert plan["encodings"] == {"comfy-nvfp4": 1, "bf16": 1, "f32": 1}
    assert report.to_dict()["repacked"] == report.repacked
    assert set(report.plain) == {"model.embed_tokens.weight", "model.norm.weight"}
    assert set(report.plain.values()) == {"not in codes that comfy-nvfp4 holds"}
    assert "; 1 repacked without loss;" in str(report)


def test_a_directory_says_what_it_is(tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_safetensors(source / "model.safetensors", MODEL, {"format": "pt"})
    told = {"quantization_config": {"quant_method": "compressed-tensors"}, "model_type": "llama"}
    (source / "config.json").write_text(json.dumps(told))
    with an.parse(source) as model:
        model.convert(tmp_path / "mlx", "mlx-nvfp4", verify=True)
        model.convert(tmp_path / "out", "mlx-nvfp4", threads=3)
    files = [(tmp_path / at / "model.safetensors").read_bytes() for at in ("mlx", "out")]
    assert files[0] == files[1]
    config = json.loads((tmp_path / "mlx" / "config.json").read_text())
    assert config["model_type"] == "llama"
    section = {"group_size": 16, "bits": 4, "mode": "nvfp4"}
    assert config["quantization"] == config["quantization_config"] == section


@pytest.mark.parametrize("target", ["gptq-4bit", "int4"])
def test_a_run_that_is_killed_and_resumed(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same bytes; nothing under the final name before."""
    monkeypatch.setattr(plan, "BAND_BYTES", 256)
    out = tmp_path / "out.safetensors"

    def stop(done: int, total: int) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    with an.parse(write_safetensors(tmp_path / "a.safetensors", awq())) as model:
        model.convert(tmp_path / "whole.safetensors", target)
        with pytest.raises(KeyboardInterrupt):
            model.convert(out, target, progress=stop, threads=1)
        assert not out.exists()
        report = model.convert(out, target, resume=True)
        assert len(report.repacked) == 1
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_head_that_is_repacked_is_not_declared_plain(tmp_path: Path) -> None:
    """Encoders leave heads as they are, and say so; one that is quantised already is moved."""
    head = {k.replace("a.", "lm_head."): v for k, v in MLX.items()}
    plain = {"model.embed_tokens.weight": MODEL["model.embed_tokens.weight"]}
    with an.parse(folder(tmp_path / "in", {**head, **plain})) as model:
        report = model.convert(tmp_path / "out", "nvfp4")
    assert report.repacked == {"lm_head.weight": "nvfp4"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["model.embed_tokens"]


def test_one_weight_among_others() -> None:
    """An override repacks too; what is excluded comes out as values."""
    both = {**MODEL, **{k.replace("a.", "b."): v for k, v in CT.items()}}
    with an.parse(safetensors_bytes(both)) as model:
        out = io.BytesIO()
        report = model.convert(out, "bf16", overrides={"b.weight": "mlx-nvfp4"})
        assert report.repacked == {"b.weight": "mlx-nvfp4"}
        assert stored(an.parse(out.getvalue()))["b.weight"][0] == "U32"
        out = io.BytesIO()
        report = model.convert(out, "mlx-nvfp4", exclude="b.*")
        assert report.repacked == {UP: "mlx-nvfp4"}
        assert report.plain["b.weight"] == "excluded"
        assert stored(an.parse(out.getvalue()))["b.weight"][0] == "BF16"


def test_a_byte_that_means_something_else_stops_the_run(tmp_path: Path) -> None:
    """255 of an E8M0 is infinite to compressed-tensors, and 2^128 to gpt-oss and ggml."""
    exponents = EXPONENTS.copy()
    exponents[7, 1] = 255
    tensors = {**MXFP4["mxfp4"], "a.weight_scale": entry("U8", exponents)}
    check(tensors, "mlx-mxfp4", {**MXFP4["mlx-mxfp4"], "a.scales": entry("U8", exponents)})
    with an.parse(safetensors_bytes(tensors)) as model:
        with pytest.raises(
            an.UnsupportedError, match=r"a.weight_scale: byte 15 is 255, which gguf"
        ):
            model.convert(tmp_path / "out.gguf", "gguf-mxfp4")
        assert not list(tmp_path.iterdir())


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "a.safetensors", int4())
    with an.parse(path) as model:
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(an.ParseError, match="was cut while it was read"):
            model.convert(tmp_path / "out.safetensors", "awq-4bit")


@pytest.mark.parametrize("name", encodings.LAYOUTS)
def test_layouts_encode_nothing(name: str) -> None:
    encoding = targets.encoding(name)
    assert encoding.id.startswith(name)
    plain = {"a.weight": entry("F32", np.ones((32, 64), np.float32))}
    with an.parse(safetensors_bytes(plain)) as model:
        why = "(it quantises nothing|amn does not quantise to .* yet)"
        told = f"no weight of the model suits {name}.*; {why}; .* does"
        with pytest.raises(an.UnsupportedError, match=told):
            model.convert(io.BytesIO(), name)
        with pytest.raises(an.UnsupportedError, match=f"not in codes that {name}"):
            model.convert(io.BytesIO(), "f32", overrides={"a.weight": name})
    for call in (
        lambda: encoding.parts("a", (1, 1)),
        lambda: encoding.grain((1, 1)),
        lambda: encoding.extents((1, 1), None),  # type: ignore[arg-type]
        lambda: encoding.encode(memoryview(b""), None, ()),  # type: ignore[arg-type]
        lambda: encoding.reopen("a", (1, 1), ()),
    ):
        with pytest.raises(an.UnsupportedError, match="only takes codes that are there already"):
            call()
