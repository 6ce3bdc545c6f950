"""What is kept is what is stored, whole: a weight's tensors, and the words that explain them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import Entry, write_safetensors

REAL = Path(os.environ.get("ANAMNESIS_REAL") or "/nowhere") / "modern"
MADE = sorted(path.name for path in REAL.iterdir() if path.is_dir()) if REAL.is_dir() else []
UNREADABLE = {"modelopt_int8_sq"}
LONE = {
    "autoround_w2_asym_native": "GPTQ v2",
    "bitnet_bitlinear": "BitNet",
    "modelopt_int4_awq": "INT4",
    "vptq": "VPTQ",
}
KEEP = {"*": "keep"}


def stored(path: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """Return all stored tensors of a model."""
    with an.parse(path) as model:
        return {n: (t.dtype.name, t.shape, t.read()) for n, t in model.stored.items()}


def config(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((path / "config.json").read_text())
    return told


@pytest.mark.sampled(5)
@pytest.mark.skipif(not MADE, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("name", [name for name in MADE if name not in UNREADABLE])
def test_kept_directory_has_each_tensor_byte_for_byte(name: str, tmp_path: Path) -> None:
    with an.parse(REAL / name) as model:
        report = model.convert(tmp_path / "out", overrides=KEEP, verify=True)
        assert report.n_out == report.n_in == len(model.stored)
        with an.parse(tmp_path / "out") as again:
            assert dict(again.metadata).items() >= dict(model.metadata).items()
    assert stored(tmp_path / "out") == stored(REAL / name)
    if (REAL / name / "config.json").exists():
        assert config(tmp_path / "out") == config(REAL / name)


@pytest.mark.skipif(not MADE, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("ending", ["safetensors", "npz", "pth"])
@pytest.mark.parametrize("name", LONE)
def test_one_file_does_not_take_codes_that_only_a_config_explains(
    name: str, ending: str, tmp_path: Path
) -> None:
    out = tmp_path / f"out.{ending}"
    with (
        an.parse(REAL / name) as model,
        pytest.raises(an.UnsupportedError, match=rf"{LONE[name]}.*directory of safetensors"),
    ):
        model.convert(out, ending, overrides=KEEP)
    assert not out.exists()


@pytest.mark.sampled(13)
@pytest.mark.skipif(not MADE, reason="ANAMNESIS_REAL names no folder of checkpoints")
@pytest.mark.parametrize("ending", ["safetensors", "npz", "pth"])
@pytest.mark.parametrize("name", [name for name in MADE if name not in UNREADABLE])
def test_one_file_is_read_as_the_directory_is_or_refused(
    name: str, ending: str, tmp_path: Path
) -> None:
    out = tmp_path / f"out.{ending}"
    with an.parse(REAL / name) as model:
        try:
            model.convert(out, ending, overrides=KEEP)
        except an.UnsupportedError:
            return
        with an.parse(out) as again:
            assert set(again) >= set(model)
            for weight in model:
                one, other = model[weight].numpy(), again[weight].numpy()
                np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


# --- some kept, others not ------------------------------------------------------------------------


def codes(shape: tuple[int, int], seed: int) -> Entry:
    raw = np.random.default_rng(seed).integers(0, 0x7E, shape, np.uint8)
    return "F8_E4M3", shape, raw.tobytes()


def scale(value: float) -> Entry:
    return "F32", (1,), np.float32(value).tobytes()


def two_layers(root: Path, section: dict[str, Any] | None, **others: Entry) -> Path:
    """Write two FP8 layers with ranges of activations."""
    tensors: dict[str, Entry] = {}
    for i, layer in enumerate(("up", "down")):
        tensors[f"l.{layer}.weight"] = codes((16, 32), i)
        tensors[f"l.{layer}.weight_scale"] = scale(0.5 + i)
        tensors[f"l.{layer}.input_scale"] = scale(3.0 + i)
    write_safetensors(root / "model.safetensors", {**tensors, **others})
    told = {"model_type": "llama", **({"quantization_config": section} if section else {})}
    (root / "config.json").write_text(json.dumps(told))
    return root


CT = {"quant_method": "compressed-tensors", "format": "float-quantized", "ignore": ["lm_head"]}


def test_config_says_which_layers_are_decoded_beside_kept_ones(tmp_path: Path) -> None:
    root = two_layers(tmp_path / "in", CT)
    with an.parse(root) as model:
        report = model.convert(tmp_path / "out", overrides={"l.up.*": "keep"}, verify=True)
    before, after = stored(root), stored(tmp_path / "out")
    up = {name for name in before if name.startswith("l.up.")}
    assert {name: after[name] for name in up} == {name: before[name] for name in up}
    assert after.keys() == up | {"l.down.weight"}
    assert after["l.down.weight"][0] == "BF16"
    assert [dropped.name for dropped in report.dropped] == ["l.down.input_scale"]
    assert config(tmp_path / "out")["quantization_config"]["ignore"] == ["lm_head", "l.down"]


@pytest.mark.parametrize(
    "section", [{"quant_method": "quark"}, {"quant_method": "unheard-of"}], ids=str
)
def test_config_that_has_no_such_list_is_refused(section: dict[str, Any], tmp_path: Path) -> None:
    root = two_layers(tmp_path / "in", section)
    with an.parse(root) as model, pytest.raises(an.UnsupportedError, match=r"'l\.down'.* keep all"):
        model.convert(tmp_path / "out", overrides={"l.up.*": "keep"})
    with an.parse(root) as model:
        model.convert(tmp_path / "out.safetensors", overrides={"l.up.*": "keep"})


def test_file_of_another_tool_that_has_no_such_list_is_refused(tmp_path: Path) -> None:
    root = two_layers(tmp_path / "in", {"quant_method": "fp8"})
    (root / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    with an.parse(root) as model, pytest.raises(an.UnsupportedError, match="hf_quant_config"):
        model.convert(tmp_path / "out", overrides={"l.up.*": "keep"})


def test_encoded_weights_do_not_lie_beside_kept_ones_in_a_directory(tmp_path: Path) -> None:
    root = two_layers(tmp_path / "in", CT)
    with an.parse(root) as model, pytest.raises(an.UnsupportedError, match="one config"):
        model.convert(tmp_path / "out", overrides={"l.up.*": "keep", "l.down.*": "int8"})


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model."])
def test_marker_of_a_layer_goes_with_it_and_layers_that_are_decoded_are_told_no_more(
    prefix: str, tmp_path: Path
) -> None:
    layers = {name: {"format": "float8_e4m3fn"} for name in ("l.up", "l.down")}
    said = {f"{prefix}{name}": layer for name, layer in layers.items()}
    told = {"_quantization_metadata": json.dumps({"layers": said})}
    tensors: dict[str, Entry] = {}
    for name in layers:
        tensors[f"{name}.weight"] = codes((16, 32), len(name))
        tensors[f"{name}.weight_scale"] = scale(0.5)
        marker = json.dumps(layers[name]).encode()
        tensors[f"{name}.comfy_quant"] = ("U8", (len(marker),), marker)
    path = write_safetensors(tmp_path / "in.safetensors", tensors, told)
    with an.parse(path) as model:
        model.convert(tmp_path / "out.safetensors", overrides={"l.up.*": "keep"})
    with an.parse(tmp_path / "out.safetensors") as again:
        said.pop(f"{prefix}l.down")
        assert json.loads(again.metadata["_quantization_metadata"])["layers"] == said
        assert set(again.stored) == {
            *("l.up.weight", "l.up.weight_scale", "l.up.comfy_quant"),
            "l.down.weight",
        }


@pytest.mark.parametrize("others", ["decoded", "dropped"])
@pytest.mark.parametrize("kept", ["l.down.bias", "*"])
def test_marker_is_not_kept_without_its_codes(others: str, kept: str, tmp_path: Path) -> None:
    """Neither for what lies beside them, nor for the model around."""
    tensors: dict[str, Entry] = {}
    for name in ("l.up", "l.down"):
        tensors[f"{name}.weight"] = codes((16, 32), len(name))
        tensors[f"{name}.weight_scale"] = scale(0.5)
        tensors[f"{name}.bias"] = ("F32", (1,), bytes(4))
        marker = b'{"format": "float8_e4m3fn"}'
        tensors[f"{name}.comfy_quant"] = ("U8", (len(marker),), marker)
    path = write_safetensors(tmp_path / "in.safetensors", tensors)
    out = tmp_path / "out.safetensors"
    with an.parse(path) as model:
        drop = ["l.down.weight"] if others == "dropped" else []
        decoded = {"l.down.weight": "bf16"} if others == "decoded" else {}
        model.convert(out, drop=drop, overrides={**decoded, kept: "keep"}, verify=True)
    is_kept = {"l.up.comfy_quant"} if kept == "*" else set()
    with an.parse(out) as again:
        assert not again.problems
        assert {name for name in again.stored if name.endswith("comfy_quant")} == is_kept


def test_scale_is_not_kept_of_a_layer_that_is_plain_where_no_codes_are(tmp_path: Path) -> None:
    tensors = {
        "scaled_fp8": ("F8_E4M3", (2,), bytes(2)),
        "l.up.weight": codes((16, 32), 1),
        "l.up.scale_weight": scale(0.5),
        "l.end.weight": ("F32", (4, 4), bytes(64)),
        "l.end.scale_weight": scale(1.0),
    }
    path = write_safetensors(tmp_path / "in.safetensors", tensors)
    with an.parse(path) as model:
        model.convert(tmp_path / "out.safetensors", overrides={"l.end.weight": "keep"})
    with an.parse(tmp_path / "out.safetensors") as again:
        assert not again.problems
        assert set(again.stored) == {"l.up.weight", "l.end.weight"}


def test_new_name_that_hides_what_codes_are_is_refused(tmp_path: Path) -> None:
    root = two_layers(tmp_path / "in", CT)
    with an.parse(root) as model, pytest.raises(an.UnsupportedError, match="cannot be kept"):
        model.convert(tmp_path / "out", overrides=KEEP, rename={r"weight_scale$": "factor"})
    with an.parse(root) as model:
        model.convert(tmp_path / "out", overrides=KEEP, rename={r"^l\.": "m."})
    assert stored(tmp_path / "out") == {
        name.replace("l.", "m.", 1): value for name, value in stored(root).items()
    }


def test_scalar_beside_codes_is_verified_in_gguf(tmp_path: Path) -> None:
    raw = np.arange(-64, 64, dtype=np.int8)
    tensors: dict[str, Entry] = {
        "l.weight": ("I8", (8, 16), raw.tobytes()),
        "l.weight_scale": ("F32", (), np.float32(0.5).tobytes()),
    }
    path = write_safetensors(tmp_path / "in.safetensors", tensors)
    with an.parse(path) as model:
        model.convert(tmp_path / "out.gguf", "gguf", overrides=KEEP, verify=True)
