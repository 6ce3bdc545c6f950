"""The encodings: which stored tensors make one weight, and the way back.

Each folder of a family takes its weights out of a model's stored tensors, told apart one by one by
names, dtypes and shapes. `awq`, `bnb`, `exl2`, `exl3`, `fp8`, `ggml`, `gptq`, `int4`, `int8`,
`mlx`, `mx` and `nvfp4` have functions that decode arrays in memory, or encode them. They share
these keywords, encoders the last two:

dtype : str, numpy.dtype, scalar type or torch.dtype
    Of the result: `bf16` (ml_dtypes.bfloat16, the default), `f16` or `f32`.
out : ndarray, optional
    C-contiguous, of the shape and the dtype of the result; written and returned.
threads : int, optional
    By default one for each CPU, at most 8 and at most one for each megabyte of the array.
level : str, optional
    Of the kernels, one of `anamnesis.supported_levels()`; by default the best that the CPU has.

All raise TypeError if an array or `out` has another dtype, and ValueError if shapes do not go
together or there is no such setting; those that encode UnsupportedError if a value is infinite or a
NaN. What else they raise they say themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anamnesis.base.lazy import lazily

__all__ = [
    "awq",
    "bnb",
    "exl2",
    "exl3",
    "fp8",
    "ggml",
    "gptq",
    "int4",
    "int8",
    "mlx",
    "mx",
    "nvfp4",
]

if TYPE_CHECKING:
    from anamnesis.schemes import awq, bnb, exl2, exl3, fp8, ggml, gptq, int4, int8, mlx, mx, nvfp4
else:
    __getattr__, __dir__ = lazily(__name__, __all__)
