"""AutoAWQ's other layouts, packed by its own layers, beside what its decoder makes of GEMM's.

Its decoders of these run on a GPU only: the same integers in its GEMM layout tell what they are.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers.fp8_layouts import quiet
from helpers.packed_checkpoints import OUTPUTS, autoawq_packing, write

pytestmark = pytest.mark.against("AutoAWQ")

State = dict[str, torch.Tensor]


def layer_of(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A file of AutoAWQ's layers by itself: its package imports what is gone."""
    util = ModuleType("awq.utils.module")
    util.try_import = lambda _: (None, "")  # type: ignore[attr-defined]
    for package in ("awq", "awq.utils", "awq.modules", "awq.modules.linear"):
        monkeypatch.setitem(sys.modules, package, ModuleType(package))
    monkeypatch.setitem(sys.modules, "awq.utils.module", util)
    monkeypatch.setitem(sys.modules, "awq.utils.packing_utils", autoawq_packing())
    path = f"awq/modules/linear/{name}.py"
    file = next(f for f in distribution("autoawq").files or () if str(f) == path)
    spec = importlib.util.spec_from_file_location(name, str(file.locate()))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def integers(rows: int, cols: int, size: int, *, symmetric: bool) -> tuple[torch.Tensor, ...]:
    """Codes, zero points and scales of all values; scales subnormal, negative and 0 too."""
    generator = torch.Generator().manual_seed(rows * cols + size)
    codes = torch.randint(0, 16, (rows, cols), generator=generator)
    zeros = torch.randint(0, 16, (rows, cols // size), generator=generator)
    scales = torch.randn((rows, cols // size), generator=generator)
    exponents = torch.randint(-18, 4, scales.shape, generator=generator)
    scales = torch.ldexp(scales, exponents).half()
    scales[scales == 0] = 1
    return codes, torch.full_like(zeros, 8) if symmetric else zeros, scales


def packed(name: str, parts: tuple[torch.Tensor, ...], size: int, patch: Any) -> State:
    """What a layer of AutoAWQ stores of a matrix whose codes are exactly these."""
    codes, zeros, scales = parts
    layers = {
        "gemv": "WQLinear_GEMV",
        "gemv_fast": "WQLinear_GEMVFast",
        "marlin": "WQLinear_Marlin",
    }
    rows, cols = codes.shape
    linear = torch.nn.Linear(cols, rows, bias=False)
    wide = [t.float().repeat_interleave(size, 1) for t in (zeros, scales)]
    linear.weight.data = (codes - wide[0]) * wide[1]
    layer = getattr(layer_of(name, patch), layers[name])
    # As floats, so that the layer's own quotients are the codes again.
    told = {"scales": scales.float(), "zeros": None if name == "marlin" else zeros.float()}
    made = layer.from_linear(linear, 4, size, **told)
    parts_of = ("qweight", "scales") if name == "marlin" else ("qweight", "qzeros", "scales")
    return {part: getattr(made, part).contiguous() for part in parts_of}


def exact(parts: tuple[torch.Tensor, ...], size: int) -> torch.Tensor:
    """AutoAWQ's decoder, of the same integers in its GEMM layout, in float32."""
    codes, zeros, scales = parts
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def words(matrix: torch.Tensor) -> torch.Tensor:
        eights = matrix.T.reshape(matrix.shape[1], -1, 8)[:, :, order].long()
        summed = (eights << torch.arange(0, 32, 4)).sum(-1)
        return (summed - ((summed >> 31) << 32)).to(torch.int32)

    decoder = autoawq_packing().dequantize_gemm
    weight: torch.Tensor = decoder(words(codes), words(zeros), scales.float().T, 4, size)
    return weight.T.contiguous()


CASES = [
    *(("gemv", shape, size) for shape in ((8, 128), (40, 512), (104, 1024)) for size in (64, 128)),
    *(("gemv", (24, 384), 32), ("gemv", (16, 384), 384)),
    *(("gemv_fast", (8, 128), 64), ("gemv_fast", (40, 512), 32), ("gemv_fast", (104, 1024), 128)),
    *(("gemv_fast", (16, 384), 384), ("gemv_fast", (128, 128), 64)),
    *(("marlin", (64, 128), 128), ("marlin", (256, 384), 128), ("marlin", (192, 128), 32)),
]


@pytest.mark.parametrize("bands", ["usual", "small"])
@pytest.mark.parametrize(("name", "shape", "size"), CASES, ids=str)
def test_layout(
    name: str,
    shape: tuple[int, int],
    size: int,
    bands: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    parts = integers(*shape, size, symmetric=name == "marlin")
    with monkeypatch.context() as patch:
        state = packed(name, parts, size, patch)
    want = exact(parts, size)
    if bands == "small":
        request.getfixturevalue("small_bands")
    config = {"quant_method": "awq", "bits": 4, "group_size": size, "version": name}
    with an.parse(write(tmp_path, state, config)) as model:
        assert model["a.weight"].scheme.startswith(("AWQ GEMV", "Marlin"))
        for level in supported_levels():
            for output, dtype in OUTPUTS.items():
                found = model["a.weight"].numpy(output, level=level)
                assert found.shape == shape
                assert found.tobytes() == quiet(want.to(dtype)), (output, level)
        some = model["a.weight"][shape[0] // 2 :, shape[1] // 3 :]
        assert some.dtype == np.float32
        assert some.tobytes() == quiet(want[shape[0] // 2 :, shape[1] // 3 :].contiguous())


def test_as_autogptq_calls_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = integers(128, 256, 128, symmetric=True)
    state = packed("marlin", parts, 128, monkeypatch)
    renamed = {"B": state["qweight"], "s": state["scales"]}
    renamed["workspace"] = torch.zeros(16, dtype=torch.int32)
    with an.parse(write(tmp_path, renamed, {"is_marlin_format": True, "bits": 4})) as model:
        assert not model.problems
        assert model["a.weight"].numpy("f32").tobytes() == quiet(exact(parts, 128))


def test_products_of_no_integer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = integers(8, 128, 64, symmetric=False)
    state = packed("gemv_fast", parts, 64, monkeypatch)
    state["qzeros"][1, 5] = -state["scales"][1, 5] * 2.5
    with (
        an.parse(write(tmp_path, state, {"group_size": 64})) as model,
        pytest.raises(an.ParseError, match="out feature 5 in group 1 is not"),
    ):
        model["a.weight"].numpy()
