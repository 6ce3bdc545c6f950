"""Parts of integers that are missing, misshapen or open: one clear line, and no assertion."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from exercise import exercise

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes, write_safetensors

Tensors = dict[str, Entry]
WIDTHS = {"I32": 4, "U32": 4, "I64": 8, "BF16": 2, "F32": 4, "I8": 1, "U8": 1, "F8_E4M3": 1}


def zeros(dtype: str, *shape: int) -> Entry:
    n_bytes = WIDTHS[dtype]
    for n in shape:
        n_bytes *= n
    return dtype, shape, bytes(n_bytes)


def told(*shape: int) -> Entry:
    return "I64", (len(shape),), struct.pack(f"<{len(shape)}q", *shape)


PACKED: Tensors = {
    "a.weight_packed": zeros("I32", 8, 12),
    "a.weight_scale": zeros("BF16", 8, 3),
    "a.weight_shape": told(8, 96),
    "a.weight_zero_point": zeros("I32", 1, 3),
}
MLX: Tensors = {
    "a.weight": zeros("U32", 4, 3),
    "a.scales": zeros("BF16", 4, 1),
    "a.biases": zeros("BF16", 4, 1),
}
BYTES: Tensors = {"a.weight": zeros("I8", 4, 6), "a.weight_scale": zeros("F32", 4, 1)}
CT = {"quantization_config": {"quant_method": "compressed-tensors"}}

# What is changed or taken away, and what the error says.
WRONG: dict[str, tuple[Tensors, dict[str, Entry | None], str]] = {
    "no scale": (PACKED, {"a.weight_scale": None}, "there is no weight_scale beside it"),
    "no shape": (PACKED, {"a.weight_shape": None}, "there is no weight_shape beside it"),
    "a scale in 8 bits": (
        PACKED,
        {"a.weight_scale": zeros("U8", 8, 3)},
        "a.weight_scale of a.weight_packed has dtype U8",
    ),
    "a shape of other rows": (PACKED, {"a.weight_shape": told(9, 96)}, "9 x 96 is no shape of"),
    "a negative shape": (PACKED, {"a.weight_shape": told(8, -96)}, "8 x -96 is no shape of"),
    "a shape of three": (PACKED, {"a.weight_shape": told(1, 8, 96)}, r"must be I64 \[2\]"),
    "more columns than words": (
        PACKED,
        {"a.weight_shape": told(8, 960)},
        "words of 1 to 8 bits for rows of 960 columns is expected",
    ),
    "scales of other rows": (
        PACKED,
        {"a.weight_scale": zeros("BF16", 7, 3)},
        r"a.weight_scale \(BF16 \[7, 3\]\) does not fit",
    ),
    "more scales than columns": (
        {k: v for k, v in PACKED.items() if k != "a.weight_zero_point"},
        {"a.weight_scale": zeros("BF16", 8, 97)},
        "97 scales do not fit rows of 96 columns",
    ),
    "zero points of other rows": (
        PACKED,
        {"a.weight_zero_point": zeros("I32", 4, 3)},
        r"a.weight_zero_point \(I32 \[4, 3\]\) does not fit",
    ),
    "zero points of other groups": (
        PACKED,
        {"a.weight_zero_point": zeros("I32", 1, 2)},
        r"a.weight_zero_point \(I32 \[1, 2\]\) does not fit",
    ),
    "groups of other columns": (
        PACKED,
        {"a.weight_g_idx": zeros("I32", 95)},
        r"a.weight_g_idx \(I32 \[95\]\) does not fit",
    ),
    "a group that is not there": (
        PACKED,
        {"a.weight_g_idx": ("I32", (96,), bytes(4 * 95) + struct.pack("<i", 3))},
        "a.weight_g_idx: column 95 is in group 3, but there are 3 groups",
    ),
    "a group before the first": (
        PACKED,
        {"a.weight_g_idx": ("I32", (96,), struct.pack("<i", -1) + bytes(4 * 95))},
        "column 0 is in group -1",
    ),
    "MLX without biases": (MLX, {"a.biases": None}, "a.biases is missing"),
    "MLX without scales": (MLX, {"a.scales": None}, "a.scales is missing"),
    "MLX of no width": (MLX, {"a.weight": zeros("U32", 4, 31)}, "a scale for each 32, 64 or 128"),
    "MLX of other rows": (MLX, {"a.scales": zeros("BF16", 3, 1)}, r"a.scales \(BF16 \[3, 1\]\)"),
    "MLX of other biases": (MLX, {"a.biases": zeros("F32", 4, 1)}, r"a.biases \(F32 \[4, 1\]\)"),
    "MLX left open": (
        MLX,
        {"a.weight": zeros("U32", 4, 8)},
        "8 bits in groups of 32.*say which with bits and group_size",
    ),
    "bytes without a scale": (
        BYTES,
        {"a.weight_scale": None},
        "there is no weight_scale beside it",
    ),
    "bytes with other scales": (
        BYTES,
        {"a.weight_scale": zeros("F32", 5, 1)},
        r"a scale of shape \[5, 1\] does not fit \[4, 6\]",
    ),
    "bytes with other zero points": (
        BYTES,
        {"a.weight_zero_point": zeros("I8", 4)},
        r"a.weight_zero_point \(I8 \[4\]\) does not fit",
    ),
    "bytes with smoothed inputs": (
        BYTES,
        {"a.pre_quant_scale": zeros("BF16", 6)},
        "cannot be decoded yet",
    ),
}


MODELOPT: Tensors = {"a.weight": zeros("U8", 4, 64), "a.weight_scale": zeros("F32", 8, 2)}
TORCHAO: Tensors = {
    "a._weight_qdata": zeros("I8", 4, 32),
    "a._weight_scale": zeros("BF16", 2, 4),
    "a._weight_zero_point": zeros("BF16", 2, 4),
}
HQQ: Tensors = {
    "a.W_q": zeros("U8", 4, 16),
    "a.scale": zeros("BF16", 8, 1),
    "a.zero": zeros("BF16", 8, 1),
    "a.shape": told(4, 32),
    "a.nbits": ("I32", (), struct.pack("<i", 4)),
    "a.axis": ("I32", (), struct.pack("<i", 1)),
}
BITNET: Tensors = {"a.weight": zeros("U8", 4, 6), "a.weight_scale": zeros("BF16", 1)}
QUARK: Tensors = {
    "a.weight": zeros("I32", 64, 2),
    "a.weight_scale": zeros("BF16", 2, 16),
    "a.weight_zero_point": zeros("I32", 2, 2),
}
QUANTO: Tensors = {
    "a.q_proj.weight._data._data": zeros("U8", 2, 96),
    "a.q_proj.weight._scale": zeros("BF16", 4, 1),
    "a.q_proj.weight._shift": zeros("BF16", 4, 1),
}
MXFP6: Tensors = {"a.weight": zeros("U8", 4, 48), "a.weight_scale": zeros("U8", 4, 2)}
METHODS = {
    "quanto": QUANTO,
    "modelopt": MODELOPT,
    "torchao": TORCHAO,
    "hqq": HQQ,
    "bitnet": BITNET,
    "quark": QUARK,
}
WORDS = {"export": {"pack_method": "order"}, "layers": {"x": {"weight": {"dtype": "int4"}}}}
SECTIONS: dict[str, dict[str, Any]] = {"quark": WORDS}  # what a config says besides

# The same by method.
WRONG_BY: list[tuple[str, dict[str, Entry | None], str]] = [
    (
        "modelopt",
        {"a.weight_scale": zeros("F32", 4, 2)},
        r"a.weight_scale \(F32 \[4, 2\]\) does not",
    ),
    (
        "modelopt",
        {"a.weight_scale": zeros("F32", 8, 65)},
        "65 scales do not fit rows of 64 columns",
    ),
    (
        "modelopt",
        {"a.pre_quant_scale": zeros("BF16", 64)},
        "a.pre_quant_scale .*: the layer's input must be multiplied by it, as no ordinary model",
    ),
    ("modelopt", {"a.pre_quant_scale": zeros("BF16", 63)}, "ModelOpt cannot be decoded"),
    (
        "torchao",
        {"a._weight_scale": zeros("BF16", 2, 3)},
        r"a._weight_scale \(BF16 \[2, 3\]\) does",
    ),
    (
        "torchao",
        {"a._weight_zero_point": zeros("F32", 2, 4)},
        r"a._weight_zero_point \(F32 \[2, 4\]\)",
    ),
    ("torchao", {"a._weight_scale": None}, "cannot be decoded yet"),
    ("torchao", {"a._weight_act_pre_scale": zeros("BF16", 64)}, "cannot be decoded yet"),
    ("hqq", {"a.scale": zeros("BF16", 7, 1)}, r"a.W_q \(U8 \[4, 16\]\) does not fit"),
    ("hqq", {"a.zero": zeros("BF16", 1, 8)}, r"a.zero \(BF16 \[1, 8\]\) does not fit"),
    ("hqq", {"a.axis": ("I32", (), struct.pack("<i", 0))}, r"a.W_q \(U8 \[4, 16\]\) does not fit"),
    ("hqq", {"a.nbits": ("I32", (), struct.pack("<i", 7))}, "HQQ cannot be decoded yet"),
    (
        "hqq",
        {"a.nbits": ("I32", (), struct.pack("<i", 3))},
        r"a.W_q \(U8 \[4, 16\]\) does not fit a.scale .*; 3-bit codes of a matrix of 4 x 32",
    ),
    ("hqq", {"a.packing": ("U8", (7,), b"3bit_33")}, "HQQ cannot be decoded yet"),
    ("hqq", {"a.packing": ("U8", (7,), b"2bit_u8")}, "2-bit codes of a matrix of 4 x 32 is"),
    ("hqq", {"a.packing": zeros("U8", 1 << 10)}, "HQQ cannot be decoded yet"),
    (
        "quanto",
        {"a.q_proj.weight._shift": zeros("BF16", 4)},
        r"a.q_proj.weight._shift \(BF16 \[4\]\) does not fit",
    ),
    ("quanto", {"a.q_proj.weight._shift": None}, "quanto cannot be decoded yet"),
    ("quanto", {"a.q_proj.weight._shift": zeros("I8", 4, 1)}, "quanto cannot be decoded yet"),
    (
        "quanto",
        {
            "a.q_proj.weight._scale": zeros("BF16", 9, 1),
            "a.q_proj.weight._shift": zeros("BF16", 9, 1),
        },
        r"does not fit a.q_proj.weight._scale .*; 5 or 3 rows of bytes is expected",
    ),
    (
        "quanto",
        {
            "a.q_proj.weight._data._data": zeros("U8", 1, 96),
            "a.q_proj.weight._scale": zeros("BF16", 2, 1),
            "a.q_proj.weight._shift": zeros("BF16", 2, 1),
        },
        "may hold qint4 or qint2: 2 rows take as many bytes in both",
    ),
    (
        "quanto",
        {"a.q_proj.bias": zeros("BF16", 3)},
        "a.q_proj.weight is stored as 4 groups of 96 values and no shape",
    ),
    ("hqq", {"a.nbits": zeros("F32")}, r"a.nbits \(F32 \[\]\) must be I32 or I64 \[1\]"),
    ("hqq", {"a.shape": told(1 << 40, 1 << 40)}, r"a.W_q \(U8 \[4, 16\]\) does not fit"),
    ("hqq", {"a.zero": None}, "HQQ cannot be decoded yet"),
    ("bitnet", {"a.weight_scale": zeros("BF16", 4)}, r"a.weight_scale \(BF16 \[4\]\) does not fit"),
    ("bitnet", {"a.weight_scale": None}, "BitNet cannot be decoded yet"),
    (
        "quark",
        {"a.weight_scale": zeros("F32", 2, 15)},
        r"a.weight_scale \(F32 \[2, 15\]\) does not fit a.weight \(I32 \[64, 2\]\); \[groups, 16\]",
    ),
    (
        "quark",
        {"a.weight_scale": zeros("F32", 65, 16), "a.weight_zero_point": zeros("I32", 65, 2)},
        "65 scales do not fit rows of 64 columns",
    ),
    ("quark", {"a.weight_scale": zeros("F32", 16)}, r"\[64\], or one scale, is expected"),
    (
        "quark",
        {"a.weight_zero_point": None},
        "but no a.weight_zero_point; give the whole directory",
    ),
    ("quark", {"a.weight_zero_point": zeros("I8", 2, 16)}, r"I32 \[2, 2\] is expected"),
    (
        "quark",
        {"a.weight_scale": zeros("F32", 64), "a.weight_zero_point": zeros("I32", 64)},
        r"a.weight_zero_point \(I32 \[64\]\) does not fit .*; I32 \[8\] is expected",
    ),
    (
        "quark",
        {"a.weight": zeros("I8", 64, 16), "a.weight_zero_point": zeros("I32", 2, 2)},
        r"I8 \[2, 16\] is expected",
    ),
    ("quark", {"a.weight": zeros("I8", 64, 15)}, r"\[groups, 15\] is expected"),
    ("quark", {"a.weight_scale": None}, "Quark cannot be decoded yet"),
    (
        "bitnet",
        {"a.weight_scale": ("F32", (1,), struct.pack("<I", 1))},
        "too small to divide by in float32",
    ),
]


@pytest.mark.parametrize(("method", "changes", "message"), WRONG_BY)
def test_what_does_not_fit_a_method_is_refused(
    method: str, changes: dict[str, Entry | None], message: str, tmp_path: Path
) -> None:
    tensors = {k: v for k, v in {**METHODS[method], **changes}.items() if v is not None}
    with pytest.raises((an.ParseError, an.UnsupportedError), match=message) as caught:
        remembered(tmp_path, config_of(method), tensors)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_what_fits_a_method_is_read(method: str, tmp_path: Path) -> None:
    assert remembered(tmp_path, config_of(method), METHODS[method])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"export": {}}, "may hold order or reorder; say which with export.pack_method"),
        ({"layers": {}}, "may hold int4 or uint4; say which with dtype of weight"),
        (
            {"more": {"weight": [{"dtype": "uint4"}, {"dtype": "fp8"}, 4]}},
            "may hold int4 or uint4; say which with dtype of weight",
        ),
    ],
    ids=str,
)
def test_quark_left_open_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    section = {"quant_method": "quark", **WORDS, **changes}
    with pytest.raises(an.UnsupportedError, match=message):
        remembered(tmp_path, {"quantization_config": section}, QUARK)


def config_of(method: str) -> dict[str, Any]:
    section = {"quant_method": method, **SECTIONS.get(method, {})}
    return {"hidden_size": 192, "quantization_config": section}


# A config, whether there is a bias of 2, and the shape that 4 groups of 96 have.
SHAPES: list[tuple[str, dict[str, int], bool, tuple[int, int] | None]] = [
    ("q_proj", {"hidden_size": 192}, False, (2, 192)),
    ("o_proj", {"hidden_size": 2}, False, (2, 192)),
    ("x", {"hidden_size": 192, "intermediate_size": 2}, False, (2, 192)),
    ("x", {"hidden_size": 192}, True, (2, 192)),
    ("x", {"hidden_size": 192}, False, None),
    ("x", {"hidden_size": 4, "vocab_size": 96}, False, (4, 96)),
    ("q_proj", {"hidden_size": 64}, False, None),
    ("q_proj", {"hidden_size": 384}, False, None),  # would have groups of 128
    (
        "x",
        {"hidden_size": 192, "num_attention_heads": 96, "num_key_value_heads": 1},
        False,
        (2, 192),
    ),
    ("q_proj", {}, True, None),
]


@pytest.mark.parametrize(("layer", "config", "has_bias", "shape"), SHAPES, ids=str)
def test_quanto_has_its_shapes_from_the_config(
    layer: str,
    config: dict[str, int],
    has_bias: bool,
    shape: tuple[int, int] | None,
    tmp_path: Path,
) -> None:
    tensors = {k.replace("q_proj", layer): v for k, v in QUANTO.items()}
    tensors |= {f"a.{layer}.bias": zeros("BF16", 2)} if has_bias else {}
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = {f"a.{layer}": {"weights": "qint4"}}
    (tmp_path / "quantization_map.json").write_text(json.dumps(told))
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with an.parse(tmp_path) as model:
        if shape is not None:
            assert model[f"a.{layer}.weight"].shape == shape
        else:
            assert "no shape" in str(model.problems[f"a.{layer}.weight._data._data"])


def test_scales_of_inputs_pass_beside_their_weight(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("modelopt")))
    tensors = {**MODELOPT, "a.pre_quant_scale": zeros("BF16", 64)}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    with an.parse(tmp_path) as model:
        assert set(model.problems) == {"a.pre_quant_scale"}
        raw = model.remember_to_bytes(allow_unknown=True)
        assert an.parse(raw)["a.weight"].shape == (8, 64)
    assert raw.count(b'"a.pre_quant_scale":{"dtype":"BF16","shape":[64]') == 1


@pytest.mark.parametrize(
    ("more", "is_folded"),
    [
        ({"a.pre_quant_scale": zeros("BF16", 64)}, True),
        ({"a.pre_quant_scale": zeros("F8_E4M3", 64)}, False),
        ({"a.pre_quant_scale": zeros("BF16", 1, 64)}, False),
        # SVDQuant's, to which a product is added
        (
            {"a.pre_quant_scale": zeros("BF16", 64), "a.svdquant_lora_a": zeros("BF16", 4, 64)},
            False,
        ),
    ],
)
def test_scales_of_inputs_are_folded_where_asked_and_right(
    more: Tensors, is_folded: bool, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config_of("modelopt")))
    write_safetensors(tmp_path / "model.safetensors", {**MODELOPT, **more})
    with an.parse(tmp_path, fold_pre_quant_scale=True) as model:
        assert (not model.problems) == is_folded
        assert all("fold_pre_quant_scale" not in str(e) for e in model.problems.values())
        if is_folded:
            assert list(model) == ["a.weight"]
            assert an.parse(model.remember_to_bytes())["a.weight"].shape == (8, 64)


@pytest.mark.parametrize(
    ("tensors", "dtypes", "message"),
    [
        (MXFP6, ["fp6_e2m3"], None),
        (MXFP6, ["fp6_e3m2"], None),
        (MXFP6, [], "may hold fp6_e2m3 or fp6_e3m2; say which"),
        (MXFP6, ["fp6_e2m3", "fp6_e3m2"], "may hold fp6_e2m3 or fp6_e3m2; say which"),
        (
            {**MXFP6, "a.weight_scale": zeros("U8", 3, 2)},
            ["fp6_e2m3"],
            r"a.weight_scale \(U8 \[3, 2\]\) does not fit .*; \[4, 2\] is expected",
        ),
        ({"a.weight": MXFP6["a.weight"]}, ["fp6_e2m3"], "Quark cannot be decoded yet"),
        ({**MXFP6, "a.weight_scale": zeros("U8")}, ["fp6_e2m3"], "cannot be decoded yet"),
    ],
)
def test_mxfp6(tensors: Tensors, dtypes: list[str], message: str | None, tmp_path: Path) -> None:
    groups = {str(i): {"weight": {"dtype": dtype}} for i, dtype in enumerate(dtypes)}
    told = {"quantization_config": {"quant_method": "quark", "layers": groups}}
    if message is None:
        assert remembered(tmp_path, told, tensors)
        return
    with pytest.raises((an.ParseError, an.UnsupportedError), match=message):
        remembered(tmp_path, told, tensors)


def remembered(path: Path, config: dict[str, Any], tensors: Tensors) -> bytes:
    path.joinpath("config.json").write_text(json.dumps(config))
    write_safetensors(path / "model.safetensors", tensors)
    return an.parse(path).remember_to_bytes()


@pytest.mark.parametrize("name", WRONG)
def test_what_does_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    base, changes, message = WRONG[name]
    tensors = {k: v for k, v in {**base, **changes}.items() if v is not None}
    with pytest.raises((an.ParseError, an.UnsupportedError), match=message) as caught:
        remembered(tmp_path, CT, tensors)
    assert "\n" not in str(caught.value)
    exercise(safetensors_bytes(tensors))


@pytest.mark.parametrize("base", [PACKED, MLX, BYTES], ids=["packed", "MLX", "bytes"])
def test_what_fits_is_read(base: Tensors, tmp_path: Path) -> None:
    assert remembered(tmp_path, CT, base)


# Three bits in rows of 40: four words, dense or padded.
OPEN = {
    "a.weight_packed": zeros("I32", 8, 4),
    "a.weight_scale": zeros("BF16", 8, 1),
    "a.weight_shape": told(8, 40),
}


def config(version: str | None, bits: int | None = 3) -> dict[str, Any]:
    weights = {"weights": {"num_bits": bits}}
    section = {"quant_method": "compressed-tensors", "config_groups": {"group_0": weights}}
    return {"quantization_config": section | ({"version": version} if version else {})}


@pytest.mark.parametrize("version", ["0.17.1", "0.18.0", "0.18.1.a20260612", "1.0"])
def test_the_version_tells_how_words_are_packed(version: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config(version)))
    write_safetensors(tmp_path / "model.safetensors", OPEN)
    model = an.parse(tmp_path)
    kernel = "padded3" if version == "0.17.1" else "packed3"
    assert model["a.weight"]._weight.id.startswith(kernel)


@pytest.mark.parametrize(
    ("version", "bits", "cols", "words"),
    [(None, 3, 40, 4), ("new", 3, 40, 4), ("0.x", 3, 40, 4), ("0.18.0", None, 8, 1)],
)
def test_open_packing_is_refused(
    version: str | None, bits: int | None, cols: int, words: int, tmp_path: Path
) -> None:
    tensors = {**OPEN, "a.weight_packed": zeros("I32", 8, words), "a.weight_shape": told(8, cols)}
    with pytest.raises(an.UnsupportedError, match="take as many words; say which with num_bits"):
        remembered(tmp_path, config(version, bits), tensors)


LAYERS = {"a": {"bits": 2, "group_size": 128}}


@pytest.mark.parametrize(
    ("section", "cols"),
    [({"bits": 4, "group_size": 64}, 64), ({"bits": 8, "group_size": 32}, 32), (LAYERS, 128)],
    ids=str,
)
def test_mlx_config_settles_what_is_open(
    section: dict[str, Any], cols: int, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"quantization": section}))
    tensors = {**MLX, "a.weight": zeros("U32", 4, 8)}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    assert an.parse(tmp_path)["a.weight"].shape == (4, cols)


@pytest.mark.parametrize("method", ["torchao", "hqq"])
def test_two_weights_of_a_name_are_refused(method: str) -> None:
    tensors = {**METHODS[method], "a.weight": zeros("BF16", 4, 4)}
    with pytest.raises(
        an.UnsupportedError, match=r"holds codes of a\.weight, but there is another"
    ):
        an.parse(safetensors_bytes(tensors)).remember_to_bytes()
    exercise(safetensors_bytes(tensors))


@pytest.mark.parametrize(
    "told",
    [
        {"format": "int8_tensorwise", "convrot_groupsize": 64},
        {"format": "int8_blockwise", "group_size": 4, "convrot": True},
        {"format": "int8_blockwise", "group_size": 4, "params": {"convrot": True}},
    ],
    ids=str,
)
def test_rotations_that_nobody_makes_are_refused_by_name(told: dict[str, Any]) -> None:
    marker = json.dumps(told).encode()
    tensors = {**BYTES, "a.comfy_quant": ("U8", (len(marker),), marker)}
    with pytest.raises(an.UnsupportedError, match=rf"convrot {told['format']} \(ComfyUI\) cannot"):
        an.parse(safetensors_bytes(tensors)).remember_to_bytes()


@pytest.mark.parametrize(("value", "is_dropped"), [(1.0, True), (0.5, False)])
def test_scales_beside_plain_weights_go_if_they_are_1(value: float, is_dropped: bool) -> None:
    tensors: Tensors = {
        "scaled_fp8": zeros("F8_E4M3", 2),
        "a.weight": zeros("F8_E4M3", 4, 6),
        "a.scale_weight": ("F32", (), struct.pack("<f", 0.25)),
        "b.weight": zeros("BF16", 4, 6),
        "b.scale_weight": ("F32", (), struct.pack("<f", value)),
    }
    model = an.parse(safetensors_bytes(tensors))
    assert set(model.problems) == (set() if is_dropped else {"b.scale_weight"})
    assert ("b.scale_weight" in [drop.name for drop in model._ledger.dropped]) is is_dropped


def test_two_encodings_of_a_name_are_refused() -> None:
    gptq = {
        "a.qweight": zeros("I32", 4, 32),
        "a.qzeros": zeros("I32", 1, 4),
        "a.scales": zeros("BF16", 1, 32),
    }
    model = an.parse(safetensors_bytes({**HQQ, **gptq}))
    assert model.problems.keys() == {*HQQ, *gptq}
    exercise(safetensors_bytes({**HQQ, **gptq}))
