"""Functions on arrays take torch's tensors for what they are, FP8 and BF16 too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from anamnesis.schemes import awq, bnb, fp8, ggml, gptq, int4, int8, mx, nvfp4

VALUES = torch.linspace(-1, 1, 256 * 256).reshape(256, 256).to(torch.bfloat16)
CALLS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "fp8": (fp8.quantize, fp8.dequantize),
    "ggml": (lambda a: (ggml.quantize(a, "Q4_K"),), lambda b: ggml.dequantize(b, "Q4_K")),
    "int8": (int8.quantize, int8.dequantize),
    "mx": (mx.quantize, mx.dequantize),
    "nvfp4": (nvfp4.quantize, nvfp4.dequantize),
    "gptq": (gptq.quantize, gptq.dequantize),
    "awq": (awq.quantize, awq.dequantize),
    "bnb": (bnb.quantize_int8, bnb.dequantize_int8),
    "int4": (int4.quantize, lambda *packed: int4.dequantize(packed)),
}


def as_torch(array: Any) -> Any:
    """Return an array as torch's, in its own dtype."""
    if not isinstance(array, np.ndarray):
        return array
    name = str(array.dtype)
    flat = torch.from_numpy(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
    return flat.view(getattr(torch, name)).reshape(array.shape)


@pytest.mark.parametrize("kind", CALLS)
def test_the_same_of_torch(kind: str) -> None:
    quantize, dequantize = CALLS[kind]

    own = VALUES.float().numpy().astype(ml_dtypes.bfloat16)
    made, wanted = quantize(VALUES), quantize(own)
    for one, other in zip(made, wanted, strict=True):
        assert np.array_equal(one, other)
    back = dequantize(*map(as_torch, made))
    assert back.tobytes() == dequantize(*wanted).tobytes()


def test_fp8_as_torch_decodes_it() -> None:
    codes = VALUES.to(torch.float8_e4m3fn)
    for scale in (None, torch.tensor(0.5, dtype=torch.bfloat16), torch.ones(256, 1)):
        ours = fp8.dequantize(codes, scale, dtype=torch.float32)
        theirs = codes.float() * (1 if scale is None else scale.float())
        assert ours.tobytes() == theirs.numpy().tobytes()


def test_meta_and_sparse_tensors_are_refused() -> None:
    for tensor, told in ((VALUES.to("meta"), "'meta'"), (VALUES.float().to_sparse(), "sparse")):
        with pytest.raises(TypeError, match=told):
            int8.quantize(tensor)
