"""The encodings: which stored tensors make one weight, and the way back.

Each module here for an encoding has `find_all(ledger, facts)`, which takes its weights out
of a model's stored tensors, told apart one by one by names, dtypes and shapes, and functions that
decode arrays in memory, or encode them; `int4`, `int8`, `mlx`, `mx` and `nvfp4` have only such
functions. They share these keywords, encoders the last two:

dtype : str
    Of the result: `bf16` (ml_dtypes.bfloat16, the default), `f16` or `f32`.
out : ndarray, optional
    C-contiguous, of the shape and the dtype of the result; written and returned.
threads : int
    Threads to work on.
level : str, optional
    Kernel level, see `anamnesis.base.levels`; by default the best that the CPU has.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["awq", "bnb", "fp8", "ggml", "gptq", "int4", "int8", "mlx", "mx", "nvfp4"]


_WORDS = ("awq", "gptq")  # whose modules are those of a family


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    family = "words." if name in _WORDS else ""
    return import_module(f"anamnesis.schemes.{family}{name}")
