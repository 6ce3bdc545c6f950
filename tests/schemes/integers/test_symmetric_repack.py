"""Zero points of GPTQ and AWQ that are all the middle code: left out, and no value changes.

Words are packed by GPTQModel, real layers are as published; compressed-tensors decodes what is
written.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.quantization import QuantizationConfig
from safetensors.torch import load_file, save_file

import anamnesis as an
from anamnesis.schemes.families.integers import moving
from helpers.packed_checkpoints import Awq, Gptq, State, real_weight, write

pytestmark = pytest.mark.against("compressed-tensors, GPTQModel, AutoAWQ")

ROOT = os.environ.get("ANAMNESIS_REAL")
WEIGHT = real_weight()


def converted(source: Path, out: Path, target: str) -> tuple[dict[str, str], State, dict[str, Any]]:
    """What each weight was repacked as, the tensors, and the arguments of weights in the config.

    Values in float32 are equal to the bit.
    """
    with an.parse(source) as before:
        report = before.convert(out, target, verify=True)
        with an.parse(out) as after:
            for name in report.repacked:
                old, new = before[name].numpy("f32"), after[name].numpy("f32")
                assert old.tobytes() == new.tobytes(), name
    section = json.loads((out / "config.json").read_text())["quantization_config"]
    group = section.get("config_groups", {"group_0": {"weights": {}}})["group_0"]
    return dict(report.repacked), load_file(out / "model.safetensors"), group["weights"]


def their_values(folder: Path, name: str = "a") -> torch.Tensor:
    """compressed-tensors' own, in float32 as it gives that to float32 scales."""
    section = json.loads((folder / "config.json").read_text())["quantization_config"]
    scheme = QuantizationConfig.model_validate(section).config_groups["group_0"]
    own: Any = {
        key.removeprefix(f"{name}."): tensor
        for key, tensor in load_file(folder / "model.safetensors").items()
    }
    own["weight_scale"] = own["weight_scale"].float()
    decoded = BaseCompressor.get_value_from_registry(section["format"]).decompress(own, scheme)
    found: torch.Tensor = decoded["weight"]
    return found


def folder_of(case: Gptq | Awq, state: State, path: Path) -> Path:
    path.mkdir()
    return write(path, state, case.config).parent


@pytest.mark.parametrize("scales", ["F16", "BF16", "F32"])
@pytest.mark.parametrize("group_size", [32, 128, -1])
@pytest.mark.parametrize("sym", [True, False])
@pytest.mark.parametrize("kind", ["gptq", "gptq-v2", "awq"])
def test_int4(kind: str, sym: bool, group_size: int, scales: str, tmp_path: Path) -> None:
    case: Gptq | Awq = Gptq(4, group_size, sym=sym, scales=scales, v2=kind == "gptq-v2")
    if kind == "awq":
        case = Awq(group_size, sym=sym, scales=scales)
    state = case.pack(WEIGHT)
    source = folder_of(case, state, tmp_path / "in")
    repacked, made, told = converted(source, tmp_path / "out", "int4")
    assert ("a.weight_zero_point" in made) == (told["symmetric"] is False) == (not sym)
    assert repacked["a.weight"].endswith("-asym") == (not sym)
    exact = case.dequantize(state, torch.float32)
    assert torch.equal(their_values(tmp_path / "out"), exact)


@pytest.mark.parametrize("group_size", [32, 128, -1])
@pytest.mark.parametrize("v2", [False, True])
def test_int8_in_words(v2: bool, group_size: int, tmp_path: Path) -> None:
    case = Gptq(8, group_size, sym=True, v2=v2)
    state = case.pack(WEIGHT)
    source = folder_of(case, state, tmp_path / "in")
    repacked, made, told = converted(source, tmp_path / "out", "int8-packed")
    size = group_size if group_size > 0 else WEIGHT.shape[1]
    assert repacked == {"a.weight": f"int8-packed-{size}"}
    assert told["num_bits"] == 8
    assert told["symmetric"] is True
    assert sorted(made) == ["a.weight_packed", "a.weight_scale", "a.weight_shape"]
    exact = case.dequantize(state, torch.float32)
    assert torch.equal(their_values(tmp_path / "out"), exact)


def test_int8_has_no_zero_points(tmp_path: Path) -> None:
    case = Gptq(8, 64, sym=False)
    source = folder_of(case, case.pack(WEIGHT), tmp_path / "in")
    with (
        an.parse(source) as model,
        pytest.raises(an.UnsupportedError, match=r"a.weight .* its zero points are not all 128"),
    ):
        model.convert(tmp_path / "out", "int8-packed")


@pytest.mark.parametrize(("bits", "sym"), [(4, True), (4, False), (8, True)])
def test_act_order(bits: int, sym: bool, tmp_path: Path) -> None:
    case = Gptq(bits, 64, sym=sym, act_order=True)
    source = folder_of(case, case.pack(WEIGHT), tmp_path / "in")
    target = "int4" if bits == 4 else "int8-packed"
    repacked, made, told = converted(source, tmp_path / "out", target)
    assert repacked["a.weight"].endswith("-actorder")
    assert told["actorder"] == "group"
    assert ("a.weight_zero_point" in made) == (not sym)


@pytest.mark.parametrize("target", ["int4-asym", "int4-asym-64"])
def test_zero_points_that_are_asked_for_stay(target: str, tmp_path: Path) -> None:
    case = Gptq(4, 64, sym=True)
    source = folder_of(case, case.pack(WEIGHT), tmp_path / "in")
    _, made, told = converted(source, tmp_path / "out", target)
    assert "a.weight_zero_point" in made
    assert told["symmetric"] is False


def test_all_weights_of_a_model_agree(tmp_path: Path) -> None:
    """One config describes them, and layers that programs merge are of one kind."""
    plain, odd = Gptq(4, 64, sym=True).pack(WEIGHT), Gptq(4, 64, sym=True).pack(WEIGHT)
    odd["qzeros"][1, 3] += 1
    both = {f"{m}.{k}": t for m, s in (("a", plain), ("b", odd)) for k, t in s.items()}
    source = folder_of(Gptq(4, 64), plain, tmp_path / "in")
    save_file(both, source / "model.safetensors")
    repacked, _, told = converted(source, tmp_path / "out", "int4")
    assert repacked == dict.fromkeys(("a.weight", "b.weight"), "int4-64-asym")
    assert told["symmetric"] is False
    with an.parse(source) as model:  # what is not repacked says nothing
        report = model.convert(tmp_path / "one", "int4", include="a.*")
    assert report.repacked == {"a.weight": "int4-64"}


def test_gptq_says_it_of_words_from_awq(tmp_path: Path) -> None:
    for sym in (True, False):
        case = Awq(64, sym=sym)
        state = case.pack(WEIGHT)
        if not sym:
            state["qzeros"].fill_(0x76543211)
        source = folder_of(case, state, tmp_path / f"in-{sym}")
        converted(source, tmp_path / f"out-{sym}", "gptq-4bit")
        told = json.loads((tmp_path / f"out-{sym}" / "config.json").read_text())
        assert told["quantization_config"]["sym"] is sym


def test_zero_points_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that differs may lie anywhere."""
    monkeypatch.setattr(moving, "_PIECE", 256)
    case = Gptq(4, 32, sym=True)
    for at in (0, -1):
        state = case.pack(WEIGHT)
        state["qzeros"].view(-1)[at] -= 1 << 28
        source = folder_of(Gptq(4, 32, sym=False), state, tmp_path / f"in{at}")
        _, made, _ = converted(source, tmp_path / f"out{at}", "int4")
        assert "a.weight_zero_point" in made


PUBLISHED = {
    "gptq/llama_3_2_1b_int4.safetensors": ("int4", True),
    "awq/falcon3_1b_awq.safetensors": ("int4", False),
    "gptq/falcon3_1b_int8.safetensors": ("int8-packed", True),
    "modern/autoround_w4_sym_gptq/model.safetensors": ("int4", True),
    "modern/autoround_w4_asym_awq/model.safetensors": ("int4", False),
}


@pytest.mark.skipif(not ROOT, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("name", PUBLISHED)
def test_published(name: str, tmp_path: Path) -> None:
    target, sym = PUBLISHED[name]
    path = Path(str(ROOT), name)
    config = path.with_name(f"{path.stem}.config.json")
    source = path.parent if not config.exists() else tmp_path / "in"
    if config.exists():
        source.mkdir()
        shutil.copy(path, source / "model.safetensors")
        (source / "config.json").write_bytes(config.read_bytes())
    repacked, made, told = converted(source, tmp_path / "out", target)
    assert repacked
    assert told["symmetric"] is sym
    assert any(key.endswith("zero_point") for key in made) == (not sym)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("sym", [True, False])
def test_gptq_says_it_of_its_own_words(sym: bool, bits: int, tmp_path: Path) -> None:
    """`sym: false` in the config was true of any; the words stay as they are."""
    case = Gptq(bits, 64, sym=sym)
    state = case.pack(WEIGHT)
    source = folder_of(Gptq(bits, 64, sym=False), state, tmp_path / "in")
    repacked, made, _ = converted(source, tmp_path / "out", f"gptq-{bits}bit")
    assert repacked["a.weight"].endswith("-asym") != sym
    told = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert told["sym"] is sym
    assert all(torch.equal(made[f"a.{name}"], tensor) for name, tensor in state.items())
