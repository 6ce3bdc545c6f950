"""GPTQ's and AWQ's functions on arrays that do not go together, and where results go."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from anamnesis.base.dtypes import DTypeName
from anamnesis.base.levels import LevelName, supported_levels
from anamnesis.schemes import awq, gptq


def ints(*shape: int) -> Any:
    return np.random.default_rng(0).integers(-(2**31), 2**31, shape).astype(np.int32)


SCALES = np.random.default_rng(1).standard_normal((2, 64)).astype(np.float16)
G_IDX = (np.arange(128) // 64).astype(np.int32)
GPTQ: dict[str, Any] = {"qweight": ints(16, 64), "qzeros": ints(2, 8), "scales": SCALES}
AWQ: dict[str, Any] = {"qweight": ints(128, 8), "qzeros": ints(2, 8), "scales": SCALES}
MOVED = np.where(np.arange(128) == 5, 7, G_IDX).astype(np.int32)

COMMON: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"qweight": ints(16, 64).astype(np.int64)}, TypeError, "qweight has dtype int64"),
    ({"qzeros": ints(2, 8).astype(np.uint8)}, TypeError, "qzeros has dtype uint8"),
    ({"scales": SCALES.astype(np.float64)}, TypeError, "scales has dtype float64"),
    ({"scales": SCALES.astype(np.int32)}, TypeError, "scales has dtype int32"),
    ({"qweight": ints(1024)}, ValueError, r"qweight I32 \[1024\].* should have 2 dimensions"),
    ({"qzeros": ints(2, 7)}, ValueError, r"qzeros I32 \[2, 7\], scales F16 \[2, 64\].* fit "),
    ({"group_size": 32}, ValueError, r"128 in features do not make 2 groups of 32$"),
    ({"group_size": 0}, ValueError, "positive, or -1 for one group; got 0"),
    ({"group_size": -7}, ValueError, "got -7"),
    ({"group_size": "64"}, TypeError, "group_size must be a whole number"),
    ({"group_size": 64.0}, TypeError, "group_size must be a whole number"),
    ({"dtype": "f64"}, ValueError, "output dtype must be one of"),
    ({"level": "none"}, ValueError, "level 'none'"),
    ({"threads": 0}, ValueError, "threads must be at least 1"),
    ({"out": np.empty((64, 128), np.float32)}, TypeError, "out has dtype float32"),
    (
        {"out": np.empty((128, 64), ml_dtypes.bfloat16)},
        ValueError,
        r"out has shape \(128, 64\), the weight \(64, 128\)",
    ),
    ({"out": np.empty((128, 64), ml_dtypes.bfloat16).T}, ValueError, "C-contiguous"),
]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        *COMMON,
        ({"g_idx": G_IDX.astype(np.int64)}, TypeError, "g_idx has dtype int64"),
        ({"g_idx": G_IDX[:100]}, ValueError, r"g_idx I32 \[100\]: the shapes fit no width"),
        ({"g_idx": MOVED}, ValueError, "^g_idx: in feature 5 is in group 7, .* are 2 groups$"),
        ({"g_idx": -G_IDX}, ValueError, "feature 64 is in group -1"),
        ({"bits": 8}, ValueError, r"^qweight I32 \[16, 64\].* those of 4 bits, not 8$"),
        ({"bits": 5}, ValueError, "those of 4 bits, not 5"),
        ({"bits": 9}, ValueError, "bits must be from 2 to 8; got 9"),
        ({"bits": "4"}, TypeError, "bits must be a whole number"),
        ({"qzeros": ints(1, 8)}, ValueError, r"qzeros I32 \[1, 8\], .* differ in their groups$"),
        ({"qweight": ints(16, 32)}, ValueError, r"\[16, 32\].* \[2, 64\].* out features$"),
        ({"qweight": ints(24, 64)}, ValueError, "groups may be of 96 or 128; say which"),
    ],
)
def test_refuses_gptq(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    assert gptq.dequantize(**GPTQ).shape == (64, 128)
    with pytest.raises(error, match=message):
        gptq.dequantize(**{**GPTQ, **changes})


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        *COMMON,
        ({"qweight": ints(128, 4)}, ValueError, r"^qweight I32 \[128, 4\].* neither GPTQ nor AWQ$"),
        ({"qweight": ints(128, 16), "qzeros": ints(2, 16)}, ValueError, "AWQ in 8 bits"),
        ({"qweight": ints(100, 8)}, ValueError, "groups may be of 50 or 64"),
    ],
)
def test_refuses_awq(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    assert awq.dequantize(**AWQ).shape == (64, 128)
    with pytest.raises(error, match=message):
        awq.dequantize(**{**AWQ, **changes})


@pytest.mark.parametrize("level", supported_levels())
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
def test_out_is_written_and_returned(dtype: DTypeName, level: LevelName) -> None:
    """And strides of the arrays are no matter."""
    for dequantize, arrays in ((gptq.dequantize, GPTQ), (awq.dequantize, AWQ)):
        want = dequantize(**arrays, dtype=dtype)
        out = np.zeros_like(want)
        strided: dict[str, Any] = {name: np.asfortranarray(array) for name, array in arrays.items()}
        assert dequantize(**strided, dtype=dtype, out=out, level=level, threads=3) is out
        assert out.tobytes() == want.tobytes()
