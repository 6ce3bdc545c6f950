"""AWQ checkpoints beside what AutoAWQ's own packing_utils makes of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

import anamnesis as an
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import awq
from helpers.fp8_layouts import quiet, raw_bytes
from helpers.packed_checkpoints import (
    OUTPUTS,
    SCALES,
    Awq,
    as_numpy,
    check,
    random_floats,
    random_words,
    real_weight,
    write,
)

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


@pytest.mark.against("AutoAWQ")
@pytest.mark.parametrize("scales", SCALES)
def test_words_and_scales_of_any_bits(scales: str) -> None:
    """No nibble can stand in for another; scales are infinite, subnormal and NaN too."""
    generator = torch.Generator().manual_seed(1)
    state = {
        "qweight": random_words(320, 12, generator),
        "qzeros": random_words(10, 12, generator),
        "scales": random_floats(10, 96, SCALES[scales], generator),
    }
    exact = Awq(32, scales=scales).dequantize(state, torch.float32)
    arrays = [as_numpy(tensor) for tensor in state.values()]
    for (output, dtype), level in product(OUTPUTS.items(), supported_levels()):
        found = awq.dequantize(*arrays, dtype=output, level=level)
        assert found.tobytes() == quiet(exact.to(dtype)), (output, level)


def test_every_code_zero_point_and_order(tmp_path: Path) -> None:
    """Words of random bits, so that no nibble can stand in for another."""
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**31), 2**31, (256 + 4, 12), generator=generator, dtype=torch.int64)
    words = words.to(torch.int32)
    scales = torch.randn((4, 96), generator=generator).half()
    state = {"qweight": words[:256].clone(), "qzeros": words[256:].clone(), "scales": scales}
    with an.parse(write(tmp_path, state, Awq(64).config)) as model:
        check(model, state, Awq(64))
