"""The kernels of W4A8 and W6A8 give the same bytes at every level."""

from __future__ import annotations

import numpy as np
import pytest

from anamnesis import _core
from anamnesis.base.levels import resolve_level, supported_levels
from anamnesis.schemes.families.rotated import codebook


@pytest.mark.parametrize("count", [16, 63])
def test_kernels_give_the_same_bytes_at_every_level(count: int) -> None:
    draw = np.random.default_rng(5)
    rows, groups = 40, 6
    values = draw.standard_normal((rows, groups * 16)) * 10.0 ** draw.integers(-30, 30, (rows, 1))
    flat = values.astype(np.float32).reshape(-1)
    numbers = np.arange(-31, 32, dtype=np.float32) if count == 63 else codebook.usual()
    found = []
    for level in supported_levels():
        scales, channels = np.empty(rows * groups, np.float32), np.empty(rows, np.float32)
        _core.w4a8_fit(flat, groups * 16, numbers, scales, channels, resolve_level(level))
        relative = (scales.reshape(rows, -1) / channels[:, None]).reshape(-1)
        tried = np.concatenate([relative, relative * np.float32(0.9)])
        codes, chosen = np.empty(flat.size, np.uint8), np.empty(scales.size, np.uint8)
        _core.w4a8_code(
            flat, groups * 16, numbers, tried, channels, codes, chosen, resolve_level(level)
        )
        found.append(b"".join(one.tobytes() for one in (scales, channels, codes, chosen)))
    assert len(set(found)) == 1


def test_kernels_refuse_other_shapes() -> None:
    floats = np.zeros(32, np.float32)
    few, none = np.zeros(1, np.float32), np.zeros(0, np.uint8)
    with pytest.raises(ValueError, match="group"):
        _core.w4a8_fit(floats, 8, codebook.usual(), floats, floats)
    with pytest.raises(ValueError, match="codebook"):
        _core.w4a8_fit(floats, 32, floats[:15], floats, floats)
    with pytest.raises(ValueError, match="too short"):
        _core.w4a8_fit(floats, 32, codebook.usual(), few, floats)
    with pytest.raises(ValueError, match="too short"):
        _core.w4a8_code(floats, 32, codebook.usual(), floats, floats, none, none)
