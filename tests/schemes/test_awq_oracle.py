"""AWQ checkpoints beside what AutoAWQ's own packing_utils makes of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from fp8_layouts import raw_bytes
from packed_checkpoints import OUTPUTS, SCALES, Awq, as_numpy, check, real_weight, write

import anamnesis as an
from anamnesis.schemes import awq

CASES = [
    *(Awq(size, sym) for size, sym in product((32, 64, 128, -1), (True, False))),
    *(Awq(64, scales=scales) for scales in SCALES if scales != "F16"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autoawq(case: Awq, tmp_path: Path) -> None:
    state = case.pack(real_weight())
    with an.parse(write(tmp_path, state, case.config)) as model:
        check(model, state, case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_small_bands(case: Awq, tmp_path: Path, small_bands: None) -> None:
    state = case.pack(real_weight()[:40, :256].contiguous())
    with an.parse(write(tmp_path, state, case.config)) as model:
        check(model, state, case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_memory(case: Awq) -> None:
    state = case.pack(real_weight())
    exact = case.dequantize(state, torch.float32)
    arrays = [as_numpy(state[name]) for name in ("qweight", "qzeros", "scales")]
    for output, dtype in OUTPUTS.items():
        found = awq.dequantize(*arrays, dtype=output, threads=2)
        assert found.tobytes() == raw_bytes(exact.to(dtype))


def test_every_code_zero_point_and_order(tmp_path: Path) -> None:
    """Words of random bits, so that no nibble can stand in for another."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**31), 2**31, (256 + 4, 12), generator=generator, dtype=torch.int64)
    words = words.to(torch.int32)
    scales = torch.randn((4, 96), generator=generator).half()
    state = {"qweight": words[:256].clone(), "qzeros": words[256:].clone(), "scales": scales}
    with an.parse(write(tmp_path, state, Awq(64).config)) as model:
        check(model, state, Awq(64))
