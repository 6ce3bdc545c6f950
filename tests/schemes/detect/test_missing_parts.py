"""Of a weight that lacks a part it is said which, and codes are spoken of where there are some."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import anamnesis as an
from helpers.claims import Tensors, directory, empty

M = "model.layers.0.mlp.up_proj"
Case = tuple[dict[str, Any], dict[str, Any], str]


def method(name: str, **more: Any) -> dict[str, Any]:
    return {"quant_method": name, **more}


CT, BNB = method("compressed-tensors", format="pack-quantized"), method("bitsandbytes")
WORDS, BYTES = empty("I32", 8, 8), empty("U8", 8, 32)
STATE = "weight.quant_state.bitsandbytes__nf4 or weight.quant_state.bitsandbytes__fp4"
CASES: dict[str, Case] = {
    "shape": (CT, {"weight_packed": WORDS, "weight_scale": empty("BF16", 8, 2)}, "weight_shape"),
    "scale": (CT, {"weight_packed": WORDS, "weight_shape": empty("I64", 2)}, "weight_scale"),
    "both": (CT, {"weight_packed": WORDS}, "weight_scale, no weight_shape"),
    "scale of floats": (
        CT,
        {"weight_packed": BYTES, "weight_global_scale": empty("F32", 1)},
        "weight_scale",
    ),
    "scale of ModelOpt's": (
        method("modelopt", quant_algo="NVFP4"),
        {"weight": BYTES},
        "weight_scale",
    ),
    "state": (
        BNB,
        {"weight": BYTES, "weight.absmax": empty("F32", 8), "weight.quant_map": empty("F32", 16)},
        STATE,
    ),
    "all of bitsandbytes'": (
        BNB,
        {"weight": BYTES},
        f"weight.absmax, no weight.quant_map, no {STATE}",
    ),
    "SCB": (BNB, {"weight": empty("I8", 8, 64)}, "SCB"),
    "GPTQ's": (method("gptq", bits=4), {"qweight": WORDS}, "qzeros, no scales"),
    "codebooks": (method("aqlm"), {"codes": empty("I16", 8, 8, 1)}, "codebooks, no scales"),
    "HQQ's": (
        method("hqq"),
        {"W_q": BYTES, "nbits": empty("I32"), "scale": empty("F16", 16, 1), "axis": empty("I32")}
        | {"zero": empty("F16", 16, 1)},
        "shape",
    ),
    "quanto's": (method("quanto"), {"weight._data": empty("I8", 8, 32)}, "weight._scale"),
}


def said(root: Path, quantised: dict[str, Any], parts: dict[str, Any]) -> str:
    tensors: Tensors = {f"{M}.{name}": part for name, part in parts.items()}
    config = {"model_type": "llama", "quantization_config": quantised}
    with (
        an.parse(directory(root, config, tensors)) as model,
        pytest.raises((an.UnsupportedError, an.ParseError)) as caught,
    ):
        model.remember(lambda *_: None)
    return str(caught.value)


@pytest.mark.parametrize("case", CASES)
def test_which_part_is_missing(case: str, tmp_path: Path) -> None:
    quantised, parts, words = CASES[case]
    assert f"but there is no {words} beside it" in said(tmp_path, quantised, parts)


def test_scales_beside_plain_weights_are_no_codes(tmp_path: Path) -> None:
    parts = {"weight": empty("BF16", 8, 64), "weight_scale": empty("BF16", 8, 2)}
    words = said(tmp_path, CT, parts)
    assert "belongs to none that can be read" in words
    assert "the codes" not in words
    assert "drop=" in words


def test_bytes_that_are_scales_of_blocks(tmp_path: Path) -> None:
    parts = {"weight": empty("F8_E4M3", 256, 256), "weight_scale_inv": empty("U8", 2, 2)}
    words = said(tmp_path, method("fp8", weight_block_size=[128, 128]), parts)
    assert "is U8, but not one for each 32 columns as in MXFP8" in words
    assert "F8_E8M0" in words
