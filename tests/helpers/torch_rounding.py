"""What torch rounds float32 values to."""

from __future__ import annotations

import numpy as np
import torch

from anamnesis.base.dtypes import DTYPES

QUIET_NAN = {"BF16": 0x7FC0, "F16": 0x7E00, "F32": 0x7FC00000}
BITS = {
    "BF16": (torch.int16, np.uint16),
    "F16": (torch.int16, np.uint16),
    "F32": (torch.int32, np.uint32),
}


def torch_dtype(name: str) -> torch.dtype:
    dtype = getattr(torch, DTYPES[name].torch_name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def expected(values: torch.Tensor, out: str) -> bytes:
    """float32 values rounded by torch, every NaN made the one quiet NaN."""
    rounded = values.to(torch_dtype(out))
    signed, unsigned = BITS[out]
    bits = rounded.contiguous().view(signed).numpy().view(unsigned).copy()
    bits[torch.isnan(rounded).numpy()] = QUIET_NAN[out]
    return bits.tobytes()


def overflow(finite: torch.Tensor, values: torch.Tensor, out: str) -> int:
    return int((torch.isfinite(finite) & torch.isinf(values.to(torch_dtype(out)))).sum())
