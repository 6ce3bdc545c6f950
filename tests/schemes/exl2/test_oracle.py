"""EXL2 beside exllamav2's own kernels, run on a CPU under emulated half floats.

What its own packing code makes of random codes is read, and compared with what its
`reconstruct_kernel` gives. That is no GPU: `tests/helpers/exllamav2_emulated.py` says what of CUDA
stands in for what.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import exl2
from helpers.exllamav2_emulated import Mix, State, mixes, pack, reconstruct
from helpers.fp8_layouts import quiet

OUTPUTS: dict[Any, Any] = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ALL = Mix({8: 32, 6: 64, 5: 32, 4: 128, 3: 64, 2: 48}, [8, 6, 5, 4, 3, 2], [0.25] * 2 + [0.125] * 4)
ALONE = [Mix({bits: size}, [bits], [1]) for bits, size in ((8, 32), (6, 32), (5, 64), (4, 96))]
ALONE += [Mix({bits: size}, [bits], [1]) for bits, size in ((3, 32), (2, 16), (2, 80))]
PARTS = ("q_weight", "q_scale", "q_scale_max", "q_groups", "q_invperm")
EDGES = torch.tensor(
    [
        *(0.0, -0.0, 1.0, -1.0, 256.0, 65504.0, -65504.0, float("inf"), float("-inf")),
        *(float("nan"), 6e-8, 6.1e-5, 1.4e-4, 1.53e-5, 7.7e-6, 0.0156, 1e-3, 3.1e-2, 0.33),
    ]
)


def words(mix: Mix) -> str:
    return "-".join(f"{bits}x{mix.group_size[bits]}" for bits in mix.bits)


def write(folder: Path, state: State) -> Path:
    save_file({f"a.{name}": part for name, part in state.items()}, folder / "output.safetensors")
    return folder / "output.safetensors"


def check_reference(path: Path, state: State) -> None:
    """Half floats are the library's; of another dtype, those, rounded once more."""
    want = reconstruct(state)
    with an.parse(path) as model:
        assert not model.problems
        tensor = model["a.weight"]
        assert tensor.shape == tuple(want.shape)
        for level in supported_levels():
            for output, dtype in OUTPUTS.items():
                found = tensor.numpy(output, level=level, math="reference")
                assert found.tobytes() == quiet(want.to(dtype)), (output, level)


def in_float32(mix: Mix, shape: tuple[int, int], maxima: torch.Tensor) -> torch.Tensor:
    """The product in float32 of three things that the library gives exactly, each by itself.

    They are the differences of codes and their half, the squares of scales, and the largest scales
    by 256, of which none is subnormal.
    """
    state = pack(mix, shape, maxima=maxima)
    units = pack(mix, shape, maxima=maxima, codes=lambda bits: (1 << bits - 1) + 1)
    no_maxima = {"q_scale_max": torch.full_like(state["q_scale_max"], 256)}
    no_scales = {"q_scale": torch.zeros_like(state["q_scale"])}
    differences = reconstruct({**state, **no_scales, **no_maxima}).float()
    squares = reconstruct({**units, **no_maxima}).float()
    return differences * (squares * reconstruct({**units, **no_scales}).float())


@pytest.mark.against("exllamav2")
@pytest.mark.parametrize("bands", ["usual", "small"])
@pytest.mark.parametrize("mix", [*ALONE, ALL], ids=words)
def test_reference_is_what_the_library_gives(
    mix: Mix, bands: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    state = pack(mix, (72, 960))
    if bands == "small":
        request.getfixturevalue("small_bands")
    check_reference(write(tmp_path, state), state)


@pytest.mark.against("exllamav2")
@pytest.mark.parametrize("mix", mixes(), ids=words)
def test_whatever_the_converter_chooses(mix: Mix, tmp_path: Path) -> None:
    state = pack(mix, (40, 1184))
    check_reference(write(tmp_path, state), state)


@pytest.mark.against("exllamav2")
def test_scales_of_any_bits(tmp_path: Path) -> None:
    """Subnormal ones are rounded twice; of infinity, a code that stands for 0 is a NaN."""
    state = pack(Mix({4: 32, 2: 16}, [4, 2], [0.5, 0.5]), (32, 1536), maxima=EDGES)
    check_reference(write(tmp_path, state), state)


@pytest.mark.against("exllamav2")
@pytest.mark.parametrize("mix", [*ALONE, ALL], ids=words)
def test_float32_is_one_product(mix: Mix, tmp_path: Path) -> None:
    maxima = torch.tensor([0.02, 0.3, 1.7, 65504, -2.5, float("inf"), 0.0, -0.0, float("nan"), 9.1])
    want = in_float32(mix, (64, 960), maxima)
    state = pack(mix, (64, 960), maxima=maxima)
    with an.parse(write(tmp_path, state)) as model:
        tensor = model["a.weight"]
        for level in supported_levels():
            for output, dtype in OUTPUTS.items():
                found = tensor.numpy(output, level=level)
                assert found.tobytes() == quiet(want.to(dtype)), (output, level)
        assert tensor[7:41, 100:501].tobytes() == quiet(want[7:41, 100:501])
        assert tensor[3].tobytes() == quiet(want[3])
    arrays = [state[name].numpy() for name in PARTS]
    assert exl2.dequantize(*arrays, dtype="f32").tobytes() == quiet(want)


@pytest.mark.against("exllamav2")
def test_padding_of_a_head_is_left_out_and_biases_are_kept(tmp_path: Path) -> None:
    """exllamav2 fills out features up to a multiple of 32, and says nowhere how many there were."""
    head = pack(ALL, (75, 960))
    state = pack(Mix({4: 32}, [4], [1]), (96, 960), bias=True)
    tables = {"model.embed_tokens.weight": torch.randn(75, 960, dtype=torch.half)}
    tensors = {f"lm_head.{name}": part for name, part in head.items()}
    tensors |= {f"model.layers.0.q_proj.{name}": part for name, part in state.items()}
    save_file({**tables, **tensors}, tmp_path / "output.safetensors")
    with an.parse(tmp_path) as model:
        assert not model.problems
        found = model["lm_head.weight"]
        assert found.scheme == "EXL2, without 21 of padding"
        want = reconstruct(head)
        assert want.shape == (96, 960)
        assert found.numpy("f16", math="reference").tobytes() == quiet(want[:75])
        bias = model["model.layers.0.q_proj.bias"].numpy("f16")
        assert bias.tobytes() == quiet(state["bias"])
