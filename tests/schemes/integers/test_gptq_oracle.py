"""GPTQ checkpoints that GPTQModel packed, beside what its own TorchLinear makes of them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load, load_file, save_file

import anamnesis as an
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import gptq
from helpers.fp8_layouts import quiet, raw_bytes
from helpers.handmade import write_index
from helpers.packed_checkpoints import (
    BITS,
    OUTPUTS,
    PLANAR,
    SCALES,
    Gptq,
    State,
    affine,
    as_numpy,
    check,
    random_floats,
    random_words,
    real_weight,
    write,
)

CASES = [
    *(Gptq(b, g, sym=s) for b, g, s in product((2, 3, 4, 8), (32, 64, 128, -1), (True, False))),
    *(Gptq(b, g, act_order=True) for b, g in product((2, 3, 4, 8), (32, 128))),
    *(Gptq(b, v2=True, sym=s) for b, s in product((2, 3, 4, 8), (True, False))),
    *(Gptq(b, 64, scales=s, act_order=a) for b, s, a in product((3, 4), SCALES, (True, False))),
    *(Gptq(b, g, planar=True) for b, g in product(PLANAR, (32, 128, -1))),
    *(Gptq(b, 32, planar=True, act_order=True, scales="BF16") for b in PLANAR),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gptqmodel(case: Gptq, tmp_path: Path) -> None:
    state = case.pack(real_weight())
    with an.parse(write(tmp_path, state, case.config)) as model:
        check(model, state, case)


@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_in_small_bands(case: Gptq, tmp_path: Path, small_bands: None) -> None:
    """Rows and columns are cut, words and 3-bit triples kept whole."""
    state = case.pack(real_weight()[:96, :256].contiguous())
    with an.parse(write(tmp_path, state, case.config)) as model:
        check(model, state, case)


@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_in_memory(case: Gptq) -> None:
    state = case.pack(real_weight())
    arrays = [as_numpy(state[name]) for name in ("qweight", "qzeros", "scales", "g_idx")]
    exact = case.dequantize(state, torch.float32)
    for output, dtype in OUTPUTS.items():
        found = gptq.dequantize(
            *arrays,
            bits=case.bits,
            zeros_plus_one=not case.v2,
            planar=case.planar,
            dtype=output,
            threads=2,
        )
        assert found.tobytes() == raw_bytes(exact.to(dtype))


@pytest.mark.parametrize("case", [c for c in CASES[::3] if not c.act_order], ids=str)
def test_without_g_idx(case: Gptq, tmp_path: Path) -> None:
    state = case.pack(real_weight())
    rest = {name: tensor for name, tensor in state.items() if name != "g_idx"}
    with an.parse(write(tmp_path, rest, case.config)) as model:
        check(model, state, case)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("config", [{}, {"bits": 4, "group_size": 128}, {"bits": 2}])
def test_shapes_tell_the_width_of_each_layer(
    config: dict[str, object], bits: int, tmp_path: Path
) -> None:
    """Whatever the config says, or forgets, of all of them."""
    case = Gptq(bits, 128)
    state = case.pack(real_weight())
    with an.parse(write(tmp_path, state, config)) as model:
        check(model, state, case)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_a_small_layer_without_a_config(bits: int, tmp_path: Path) -> None:
    """By its size alone it might have 7 bits as well as 8."""
    case = Gptq(bits, 32)
    words = torch.arange(3 * 19 * 2, dtype=torch.int32).reshape(-1, 19) * 123_456_789
    state = {
        "qweight": words[: -(-12 * bits // 32)].clone(),
        "qzeros": words[5:, : -(-19 * bits // 32)].clone(),
        "scales": torch.linspace(0.5, 1, 19).half().reshape(1, 19),
        "g_idx": torch.zeros(12, dtype=torch.int32),
    }
    with an.parse(write(tmp_path, state, {})) as model:
        check(model, state, case)


def test_a_zero_point_of_zero_borrows_from_its_neighbour(tmp_path: Path) -> None:
    """v1 takes off a 1 in every place of a word at once, and GPTQModel adds it so again."""
    case = Gptq(4)
    weight = real_weight()
    weight[::3] = weight[::3].abs()
    state = case.pack(weight)
    assert (affine(weight, 4, 128, False)["zeros"] == 0).any()
    with an.parse(write(tmp_path, state, case.config)) as model:
        check(model, state, case)


@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_random_words(bits: int, act_order: bool, tmp_path: Path) -> None:
    """Zero points of every value, all ones among them, in v1; scales of either sign."""
    case = Gptq(bits, 32, act_order=act_order)
    generator = torch.Generator().manual_seed(bits)
    words = torch.randint(-(2**31), 2**31, (8 * bits + 8, 96), generator=generator)
    state = {
        "qweight": words[: 8 * bits].to(torch.int32),
        "qzeros": words[8 * bits :, : 3 * bits].to(torch.int32),
        "scales": torch.randn((8, 96), generator=generator).half(),
        "g_idx": case.groups(256),
    }
    with an.parse(write(tmp_path, state, case.config)) as model:
        check(model, state, case)


@pytest.mark.against("GPTQModel")
@pytest.mark.parametrize("act_order", [False, True])
@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("bits", range(2, 9))
def test_words_and_scales_of_any_bits(bits: int, scales: str, act_order: bool) -> None:
    """Scales that are infinite, subnormal or NaN among them; zero points as they are and less 1."""
    in_features, out_features, n_groups = 320, 96, 10
    generator = torch.Generator().manual_seed(bits)
    layouts = [(False, False), (True, False)] if bits in BITS else []
    for v2, planar in [*layouts, *([(False, True)] if bits in PLANAR else [])]:
        case = Gptq(bits, 32, act_order=act_order, v2=v2, scales=scales, planar=planar)
        state = {
            "qweight": random_words(in_features * bits // 32, out_features, generator),
            "qzeros": random_words(n_groups, out_features * bits // 32, generator),
            "scales": random_floats(n_groups, out_features, SCALES[scales], generator),
            "g_idx": case.groups(in_features),
        }
        exact = case.dequantize(state, torch.float32)
        arrays = [as_numpy(tensor) for tensor in state.values()]
        for (output, dtype), level in product(OUTPUTS.items(), supported_levels()):
            found = gptq.dequantize(
                *arrays,
                bits=bits,
                zeros_plus_one=not v2,
                planar=planar,
                dtype=output,
                level=level,
            )
            assert found.tobytes() == quiet(exact.to(dtype)), (v2, output, level)


def test_shards(tmp_path: Path) -> None:
    """Each part in another file, different widths beside each other, with plain ones."""
    cases = {"a": Gptq(4), "b": Gptq(3, 32, act_order=True), "c": Gptq(8, -1, sym=True)}
    shards: list[State] = [{}, {}, {}]
    weight_map = {}
    states = {module: case.pack(real_weight()) for module, case in cases.items()}
    for module, state in states.items():
        for i, (name, tensor) in enumerate([*state.items(), ("bias", torch.ones(768))]):
            shards[i % 3][f"{module}.{name}"] = tensor
            weight_map[f"{module}.{name}"] = f"model-0000{i % 3 + 1}-of-00003.safetensors"
    for i, shard in enumerate(shards, 1):
        save_file(shard, tmp_path / f"model-0000{i}-of-00003.safetensors", {"format": "pt"})
    write_index(tmp_path, weight_map)
    dynamic = {r"+:^b$": {"bits": 3, "group_size": 32}, r"+:^c$": {"bits": 8, "group_size": -1}}
    config = {**cases["a"].config, "dynamic": dynamic}
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    (tmp_path / "quantize_config.json").write_text(json.dumps(config))
    out = tmp_path.with_name(f"{tmp_path.name}-out")
    with an.parse(tmp_path) as model:
        report = model.remember(out, "f32", threads=2)
        for module, case in cases.items():
            check(model, states[module], case, f"{module}.weight")
    assert [d.name for d in report.dropped] == ["quantize_config.json"]
    written = {k: v for path in out.glob("*.safetensors") for k, v in load_file(path).items()}
    for module, case in cases.items():
        exact = case.dequantize(states[module], torch.float32)
        assert raw_bytes(written[f"{module}.weight"]) == raw_bytes(exact)
        assert torch.equal(written[f"{module}.bias"], torch.ones(768))
    assert sorted(written) == [f"{m}.{n}" for m in "abc" for n in ("bias", "weight")]
    told = json.loads((out / "config.json").read_bytes())
    assert "quantization_config" not in told


@pytest.mark.parametrize("level", supported_levels())
def test_remembered_bytes_are_the_same_whatever_the_threads(level: Any, tmp_path: Path) -> None:
    case = Gptq(3, 64, act_order=True)
    with an.parse(write(tmp_path, case.pack(real_weight()), case.config)) as model:
        one, many = (model.remember_to_bytes(threads=n, level=level) for n in (1, 3))
    assert one == many
    assert np.isfinite(load(one)["a.weight"].float().numpy()).all()
