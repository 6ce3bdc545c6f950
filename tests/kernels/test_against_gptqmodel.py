"""Scalar against GPTQModel's and AutoAWQ's own unpacking, both run here.

The other levels are compared with scalar in test_levels.py. Both oracles are needed: that one is
missing is a failure. The formula is that of GPTQModel's `convert_gptq_file`: (q - z) * s, all in
float32. Of AutoAWQ, whose package needs an old transformers, only the file that unpacks is loaded.
"""

from __future__ import annotations

import importlib.util
from importlib.metadata import distribution
from types import ModuleType

import numpy as np
import pytest
import torch
from gptqmodel.nn_modules.qlinear.torch import TorchLinear
from gptqmodel.utils import model_dequant
from gptqmodel.utils.model import convert_gptq_v1_to_v2_format_module
from kernel_cases import OUTPUTS, PACKINGS, Bytes, Packed, random_inputs, run
from test_against_torch import as_tensor, expected, overflow

# rows, cols, group size, first column, groups listed; whole words of 3 bits are 32 values.
SHAPES = (
    (32, 32, 32, 0, 0),
    (64, 96, 16, 40, 0),
    (32, 256, 128, 128, 0),
    (160, 64, 64, 0, 0),
    (96, 416, 1 << 20, 7, 0),
    (64, 288, 1, 0, 9),
    (32, 320, 1, 0, 300),
)


def autoawq() -> ModuleType:
    file = distribution("autoawq").locate_file("awq/utils/packing_utils.py")
    spec = importlib.util.spec_from_file_location("packing_utils", str(file))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def words(raw: Bytes, *shape: int) -> torch.Tensor:
    return torch.from_numpy(raw.view(np.int32).reshape(shape))


def with_ones(qzeros: torch.Tensor, bits: int) -> torch.Tensor:
    """Zero points of v1 as GPTQModel's loader turns them into those of v2."""
    layer = TorchLinear(bits, 32, True, False, 32, 32, bias=False)
    layer.register_buffer("qzeros", qzeros.clone())
    convert_gptq_v1_to_v2_format_module(layer, bits, torch.int32)
    return layer.qzeros


def unpacked(case: Packed, codes: Bytes, zeros: Bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes [cols, rows] and zero points [groups, rows] as the canonical library reads them."""
    qzeros = words(zeros, case.n_groups, -1)
    if case.packing == "AWQ4":
        library = autoawq()
        stored = library.unpack_awq(words(codes, case.cols, -1), qzeros, 4)
        q, z = library.reverse_awq_order(*stored, 4)
        return q & 15, z & 15
    if case.zeros_less_one:
        qzeros = with_ones(qzeros, case.bits)
    q = model_dequant.unpack_rows(words(codes, -1, case.rows), case.bits)
    return q, model_dequant.unpack_cols(qzeros, case.bits)


def group_of(case: Packed, groups: Bytes) -> torch.Tensor:
    if case.listed_groups:
        return torch.from_numpy(groups.view("<i4")).long()
    cols = case.first_col + torch.arange(case.cols)
    return cols // case.group_size - case.first_col // case.group_size


@pytest.mark.parametrize("out", OUTPUTS)
@pytest.mark.parametrize("scale", ["F16", "BF16", "F32"])
@pytest.mark.parametrize("name", PACKINGS)
def test_scalar_is_canonical(name: str, scale: str, out: str, rng: np.random.Generator) -> None:
    for i, (rows, cols, group_size, first_col, listed) in enumerate(SHAPES):
        less_one = name != "AWQ4" and i % 2 == 1
        case = Packed(name, out, rows, cols, group_size, scale, less_one, first_col, listed)
        inputs = random_inputs(case, rng)
        q, z = unpacked(case, *inputs[:2])
        g = group_of(case, inputs[3])
        s = as_tensor(inputs[2], scale).to(torch.float32).reshape(case.n_groups, rows)
        values = ((q.to(torch.float32) - z.to(torch.float32)[g]) * s[g]).t()
        assert run(case, "scalar", inputs) == (
            expected(values, out),
            overflow(values, values, out),
        )
