"""What lies beside codes: ranges of activations are dropped, all else stays with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file

import anamnesis as an
from helpers.claims import NORM, Q, Tensors, described, directory, empty
from helpers.handmade import write_safetensors

# --- ranges, and parameters that are called like them ---------------------------------------------

ATTN = "layers.0.attn"
QUANTISED: Tensors = {
    f"{ATTN}.k_proj.weight": empty("F8_E4M3", 8, 8),
    f"{ATTN}.k_proj.weight_scale": empty("F32"),
    "layers.0.experts.up": empty("F8_E4M3", 2, 8, 8),
    "layers.0.experts.up_scale": empty("F32"),
}
LEARNED: Tensors = {
    f"{ATTN}.q_scale": empty("F32", 64),
    f"{ATTN}.k_scale": empty("F32", 4, 1, 1),
    f"{ATTN}.v_scale": empty("F32", 1, 1, 64),
    f"{ATTN}.k_proj.output_scale": empty("F32", 8),
    f"{ATTN}.k_proj.input_scale": empty("F32", 8, 1),
    f"{ATTN}.output_scale": empty("F32", 1),
    "layers.0.ff.output_scale": empty("F32"),
    "layers.0.experts.down_input_scale": empty("F32", 2),
    "layers.0.experts.up_input_scale": empty("F32", 8),
    "vae.k_scale": empty("F32"),
    "q_scale": empty("F32", 1),
}
RANGES: Tensors = {
    f"{ATTN}.q_scale": empty("F32"),
    f"{ATTN}.k_scale": empty("BF16", 1),
    f"{ATTN}.attn.v_scale": empty("F32"),
    f"{ATTN}.k_proj.k_scale": empty("F32"),
    f"{ATTN}.k_proj.input_scale": empty("F32", 1),
    f"{ATTN}.k_proj.output_scale": empty("F32"),
    f"{ATTN}.k_proj.input_zero_point": empty("I8", 1),
    "layers.0.experts.up_input_scale": empty("F32", 2),
    "layers.0.experts.up_activation_scale": empty("F32", 2, 1),
}


@pytest.mark.parametrize("name", LEARNED)
def test_learned_parameters_called_like_ranges_stay(name: str, tmp_path: Path) -> None:
    tensors = {**QUANTISED, name: LEARNED[name]}
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        assert not model.problems
        assert name in model
        assert not model._ledger.dropped


@pytest.mark.parametrize("name", RANGES)
def test_ranges_are_dropped(name: str, tmp_path: Path) -> None:
    tensors = {**QUANTISED, name: RANGES[name]}
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        assert not model.problems
        assert [d.name for d in model._ledger.dropped] == [name]


def test_ranges_of_heads_are_declared(tmp_path: Path) -> None:
    tensors = {**QUANTISED, f"{ATTN}.k_scale": empty("BF16", 4, 1, 1)}
    told = {"quant_method": "compressed-tensors", "kv_cache_scheme": {"strategy": "attn_head"}}
    path = described(tmp_path / "a.safetensors", {"quantization_config": told}, tensors)
    with an.parse(path) as model:
        assert [d.name for d in model._ledger.dropped] == [f"{ATTN}.k_scale"]


def test_ranges_of_a_declared_cache_need_no_weight_beside(tmp_path: Path) -> None:
    tensors = {**QUANTISED, "layers.1.attn.k_scale": empty("F32")}
    told = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    path = described(tmp_path / "a.safetensors", {"quantization_config": told}, tensors)
    with an.parse(path) as model:
        assert [d.name for d in model._ledger.dropped] == ["layers.1.attn.k_scale"]


def test_ranges_of_what_passes_unread_pass_too(tmp_path: Path) -> None:
    tensors = {**QUANTISED, "b.weight": empty("U8", 4, 4), "b.weight_scale_2": empty("F32")}
    tensors["b.input_scale"] = empty("F32")
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        model.remember(tmp_path / "out.safetensors", allow_unknown=True)
    assert "b.input_scale" in load_file(tmp_path / "out.safetensors")


# What comes without ranges, so that one value called like a range is learned.
WITHOUT_RANGES: dict[str, Tensors] = {
    "INT8": {
        f"{ATTN}.k_proj.weight": empty("I8", 32, 32),
        f"{ATTN}.k_proj.SCB": empty("F32", 32),
    },
    "GPTQ": {
        f"{ATTN}.k_proj.qweight": empty("I32", 4, 32),
        f"{ATTN}.k_proj.qzeros": empty("I32", 1, 4),
        f"{ATTN}.k_proj.scales": empty("F16", 1, 32),
    },
}


@pytest.mark.parametrize("encoding", WITHOUT_RANGES)
def test_only_8_bit_floats_have_ranges(encoding: str, tmp_path: Path) -> None:
    learned = {f"{ATTN}.k_scale": empty("F32", 1), f"{ATTN}.k_proj.input_scale": empty("F32")}
    tensors = {**WITHOUT_RANGES[encoding], **learned}
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        assert not model.problems
        assert set(learned) < set(model)
        assert not model._ledger.dropped


# --- codes stay with all that lies beside them ----------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["weight_amax", "weight_offset", "weight_shift", "weight.s", "weight_s", "svd_up", "svd_down"],
)
def test_whatever_is_called_after_the_codes_is_a_part_of_them(name: str, tmp_path: Path) -> None:
    codes = {f"{Q}.weight": empty("F8_E4M3", 8, 8), f"{Q}.weight_scale": empty("F32")}
    tensors = {**codes, **NORM, f"{Q}.{name}": empty("F32", 8, 4)}
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        assert set(model.problems) == {*codes, f"{Q}.{name}"}


@pytest.mark.parametrize("name", ["weight_amax", "weight.s", "weight_s"])
def test_beside_plain_weights_such_names_are_parameters(name: str, tmp_path: Path) -> None:
    tensors = {f"{Q}.weight": empty("BF16", 8, 8), f"{Q}.{name}": empty("F32", 8), **QUANTISED}
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        assert not model.problems
        assert f"{Q}.{name}" in model


def test_parts_of_two_encodings_pass_together(tmp_path: Path) -> None:
    """What only one of them takes is not decoded either: nothing tells which is right."""
    absmax = {f"{ATTN}.k_proj.weight.absmax": empty("F32", 4)}
    scb = {f"{ATTN}.k_proj.SCB": empty("F32", 32)}
    for other in (absmax, scb):
        tensors = {**WITHOUT_RANGES["GPTQ"], **other}
        with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
            assert set(model.problems) == set(tensors)
            model.remember(tmp_path / "out.safetensors", allow_unknown=True, force=True)
        assert set(load_file(tmp_path / "out.safetensors")) == set(tensors)


def test_two_states_of_one_weight_pass_with_it(tmp_path: Path) -> None:
    tensors: Tensors = {
        "a.weight": empty("U8", 32, 1),
        "a.weight.absmax": empty("F32", 1),
        "a.weight.quant_map": empty("F32", 16),
    }
    for kind in ("nf4", "fp4"):
        told = json.dumps({"quant_type": kind, "blocksize": 64, "shape": [8, 8]}).encode()
        tensors[f"a.weight.quant_state.bitsandbytes__{kind}"] = ("U8", (len(told),), told)
    with an.parse(write_safetensors(tmp_path / "a.safetensors", tensors)) as model:
        assert set(model.problems) == set(tensors)


def test_sdnq_is_refused_by_name(root: Path) -> None:
    """Its 8-bit floats have a `scale` like any others, but may be cut into groups, or turned."""
    told = {"quant_method": "sdnq", "weights_dtype": "float8_e4m3fn", "group_size": 32}
    codes = {f"{Q}.weight": empty("F8_E4M3", 8, 2, 32), f"{Q}.scale": empty("F32", 8, 2, 1)}
    with an.parse(directory(root, {"quantization_config": told}, {**codes, **NORM})) as model:
        assert set(model.problems) == set(codes)
        assert all("sdnq" in str(error) for error in model.problems.values())
