"""Marlin in 8 bits and 2:4 sparse Marlin, packed by SGLang's and compressed-tensors' own code.

Whatever decodes either runs on a GPU only: the integers that went in tell what must come out.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from gptqmodel.utils.marlin import get_pack_factor, marlin_permute_scales
from safetensors.torch import load_file, save_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from helpers import wheels
from helpers.fp8_layouts import quiet
from helpers.packed_checkpoints import OUTPUTS, write

PROGRAM = Path(__file__).parents[2] / "helpers" / "compress_marlin_24.py"


@pytest.fixture(scope="module")
def compressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marlin_24")
    wheels.run_with("compressed-tensors", PROGRAM, folder)
    return folder


@pytest.mark.against("compressed-tensors' Marlin24Compressor")
@pytest.mark.parametrize("bands", ["usual", "small"])
@pytest.mark.parametrize("names", ["packed", "vllm"])
def test_sparse(names: str, bands: str, compressed: Path, request: pytest.FixtureRequest) -> None:
    want = load_file(compressed / "want.safetensors")
    if bands == "small":
        request.getfixturevalue("small_bands")
    with an.parse(compressed / f"{names}.safetensors") as model:
        assert not model.problems
        assert {f"{name}:f16" for name in model} | model.keys() == want.keys()
        for name, tensor in model.items():
            for level in supported_levels():
                for output, dtype in OUTPUTS.items():
                    found = tensor.numpy(output, level=level).tobytes()
                    assert found == quiet(want[name].to(dtype)), (name, output, level)
            assert tensor.numpy("f16").tobytes() == quiet(want[f"{name}:f16"]), name
            rows, cols = tensor.shape
            some = tensor[rows // 3 :, cols // 3 : -5]
            assert some.tobytes() == quiet(want[name][rows // 3 :, cols // 3 : -5].contiguous())


@pytest.mark.parametrize("names", ["packed", "vllm"])
@pytest.mark.parametrize(("bits", "to"), [(4, "int4"), (4, "gptq-4bit"), (8, "int8-packed")])
def test_codes_are_moved(bits: int, to: str, names: str, compressed: Path, tmp_path: Path) -> None:
    want = load_file(compressed / "want.safetensors")
    whole = tmp_path / "in"
    whole.mkdir()
    shutil.copy(compressed / f"{names}.safetensors", whole / "model.safetensors")
    (whole / "config.json").write_text("{}")
    with an.parse(whole) as model:
        some = [name for name in model if name.startswith(f"b{bits}.group.m128x1024")]
        assert some
        model.select(*some).convert(tmp_path / "out", to, lossless=True)
    with an.parse(tmp_path / "out") as moved:
        for name in some:
            assert moved[name].numpy("f32").tobytes() == quiet(want[name])


@pytest.mark.parametrize("bits", [4, 8])
def test_sparse_that_names_no_two_in_order(bits: int, compressed: Path, tmp_path: Path) -> None:
    """As no compressor writes it, and no tensor core takes it."""
    name = f"b{bits}.group.m64x256"
    stored = load_file(compressed / "packed.safetensors")
    parts = {
        f"a.{end}": stored[f"{name}.{end}"] for end in ("weight_packed", "scale_packed", "meta")
    }
    parts["a.meta"].view(-1)[1] &= 0x0FFF
    save_file(parts, tmp_path / "a.safetensors")
    # The second item of the line is of the first row, or of another: the message has which.
    with (
        an.parse(tmp_path / "a.safetensors") as model,
        pytest.raises(
            an.ParseError, match=r"a\.meta: of out feature \d+, .*from \d+ on"
        ) as refused,
    ):
        model["a.weight"].numpy()
    assert refused.value.offset is not None


def sglang_packing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """SGLang's file of it by itself; what it imports of others is GPTQModel's."""
    layers = "sglang.srt.layers.quantization"
    told: dict[str, dict[str, Any]] = {
        "sgl_kernel.scalar_type": {"ScalarType": object},
        f"{layers}.marlin_utils": {
            "GPTQ_MARLIN_TILE": 16,
            "marlin_permute_scales": marlin_permute_scales,
            "marlin_zero_points": None,
        },
        f"{layers}.utils": {
            "get_pack_factor": get_pack_factor,
            **dict.fromkeys(("gptq_quantize_weights", "quantize_weights", "sort_weights")),
        },
    }
    for name, members in told.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)
    return wheels.module_of("sglang", "sglang/test/test_marlin_utils.py")


@pytest.mark.against("SGLang's packing for Marlin, with GPTQModel's order of scales")
@pytest.mark.parametrize("bands", ["usual", "small"])
@pytest.mark.parametrize("names", [("qweight", "scales"), ("B", "s")], ids=lambda n: n[0])
@pytest.mark.parametrize(
    ("shape", "size"), [((64, 128), 128), ((192, 384), 128), ((128, 256), 32), ((256, 512), 512)]
)
@pytest.mark.parametrize("bits", [4, 8])
def test_dense(
    bits: int,
    shape: tuple[int, int],
    size: int,
    names: tuple[str, str],
    bands: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    rows, cols = shape
    generator = torch.Generator().manual_seed(rows * cols + size)
    codes = torch.randint(0, 2**bits, shape, generator=generator)
    scales = torch.randn((rows, cols // size), generator=generator)
    scales = torch.ldexp(scales, torch.randint(-18, 4, scales.shape, generator=generator)).half()
    with monkeypatch.context() as patch:
        packing = sglang_packing(patch)
        perm = packing.get_weight_perm(bits)
        words = packing.marlin_weights(codes.T, cols, rows, bits, perm)
    turned = marlin_permute_scales(scales.T.contiguous(), cols, rows, size)
    state = dict(zip(names, (words, turned), strict=True))
    if bits == 8:  # as SGLang and vLLM save what they have loaded
        empty = ("qzeros", "g_idx", "g_idx_sort_indices")
        state |= {name: torch.zeros(0, dtype=torch.int32) for name in empty}
    # A product of 11 bits and 8 is exact in float32.
    want = (codes - 2 ** (bits - 1)).float() * scales.float().repeat_interleave(size, 1)
    if bands == "small":
        request.getfixturevalue("small_bands")
    with an.parse(write(tmp_path, state, {"quant_method": "gptq", "bits": bits})) as model:
        assert not model.problems
        assert model["a.weight"].scheme.startswith(f"Marlin {bits}-bit")
        for level in supported_levels():
            for output, dtype in OUTPUTS.items():
                found = model["a.weight"].numpy(output, level=level).tobytes()
                assert found == quiet(want.to(dtype)), (output, level)
