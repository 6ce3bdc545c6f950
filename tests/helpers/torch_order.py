"""The order in which torch's float32 product adds, which its BLAS chooses for the processor.

Numbers that cancel tell it: of 2^40, -2^40 and ones, those are left that are added after both.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

_PLACES = {16: {8: 9, 15: 16}, 64: {16: 17, 63: 64}, 256: {64: 65, 127: 128, 128: 256, 255: 256}}


def _n_before(n: int, at: int) -> int:
    """How many of n numbers are added before the first and another one are together."""
    rows = torch.ones(64, n)
    rows[:, 0], rows[:, at] = 2.0**40, -(2.0**40)
    return n - int(torch.matmul(rows, torch.ones(n, n))[0, 0])


def is_ours() -> bool:
    """Whether it is the order that rotations have."""
    return all(
        _n_before(n, at) == n_before
        for n, places in _PLACES.items()
        for at, n_before in places.items()
    )


def _rotated_in_order(weight: torch.Tensor, h: torch.Tensor, group: int) -> torch.Tensor:
    """`_rotate_weight` of comfy-kitchen with sums in that order, panel by panel."""
    rows = weight.reshape(-1, group)
    panel = 128 if group == 256 else 192
    panels = [range(begin, min(group, begin + panel)) for begin in range(0, group, panel)]
    sums: Any = None
    for columns in [range(0, 4, 2), range(1, 4, 2)] if group == 4 else panels:
        part = torch.zeros_like(rows)
        for k in columns:
            part += rows[:, k : k + 1] * h[:, k]
        sums = part if sums is None else sums + part
    return sums.reshape(weight.shape)


def settle(modules: list[ModuleType]) -> None:
    """Give modules the order where torch has another one."""
    if is_ours():
        return
    for module in modules:
        own = module._rotate_weight

        def rotate(weight: Any, h: Any, group: int, own: Any = own) -> Any:
            is_settled = weight.dtype == torch.float32
            return (_rotated_in_order if is_settled else own)(weight, h, group)

        module._rotate_weight = rotate  # type: ignore[attr-defined]
