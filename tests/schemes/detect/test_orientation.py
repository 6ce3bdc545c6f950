"""Layers that may be Conv1D: what the config, the names, the biases and the user say of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.detect.config_facts import QuantFacts, read_facts
from anamnesis.schemes.detect.orientation import is_conv1d
from helpers.handmade import Entry, write_safetensors

GPT2 = "transformer.h.0.attn.c_attn"
SQUARE = "transformer.h.0.attn.c_proj"


def int8(module: str, rows: int, cols: int, bias: int | None = None) -> dict[str, Entry]:
    tensors: dict[str, Entry] = {
        f"{module}.weight": ("I8", [rows, cols], np.arange(rows * cols, dtype="i1").tobytes()),
        f"{module}.SCB": ("F32", [rows], np.arange(1, rows + 1, dtype="f4").tobytes()),
    }
    if bias is not None:
        tensors[f"{module}.bias"] = ("F32", [bias], bytes(4 * bias))
    return tensors


def fp8(module: str, rows: int, cols: int, bias: int | None = None) -> dict[str, Entry]:
    codes = np.arange(rows * cols, dtype="u1") % 0x70
    tensors: dict[str, Entry] = {
        f"{module}.weight": ("F8_E4M3", [rows, cols], codes.tobytes()),
        f"{module}.weight_scale": ("F32", [1], np.float32(0.5).tobytes()),
    }
    if bias is not None:
        tensors[f"{module}.bias"] = ("F32", [bias], bytes(4 * bias))
    return tensors


def folder(path: Path, tensors: dict[str, Entry], config: dict[str, Any] | None) -> Path:
    path.mkdir(exist_ok=True)
    write_safetensors(path / "model.safetensors", tensors)
    if config is not None:
        (path / "config.json").write_text(json.dumps(config))
    return path


def shape(path: Path, name: str, **how: Any) -> tuple[int, ...]:
    with an.parse(path, **how) as model:
        return model[f"{name}.weight"].shape


# --- what the config says ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["gpt2", "openai-gpt", "imagegpt", "jais", "btlm"])
def test_conv1d_types(kind: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "m", int8(GPT2, 6, 2, 6), {"model_type": kind})
    assert shape(path, GPT2) == (2, 6)
    assert shape(path / "model.safetensors", GPT2) == (2, 6)


@pytest.mark.parametrize("kind", ["gpt_bigcode", "gpt_neo", "qwen", "codeshell"])
def test_linear_types_with_the_same_names(kind: str, tmp_path: Path) -> None:
    path = folder(tmp_path / "m", int8(GPT2, 6, 2, 6), {"model_type": kind})
    assert shape(path, GPT2) == (6, 2)


@pytest.mark.parametrize(
    "config", [None, {}, {"model_type": "new", "auto_map": {"AutoModel": "m.M"}}, {"model_type": 3}]
)
def test_what_may_be_either_is_refused(config: dict[str, Any] | None, tmp_path: Path) -> None:
    path = folder(tmp_path / "m", int8(GPT2, 6, 2, 6) | int8("lm_head", 4, 2), config)
    with an.parse(path) as model:
        assert set(model.problems) == {f"{GPT2}.weight", f"{GPT2}.SCB"}
        assert f"{GPT2}.bias" in model
        assert model["lm_head.weight"].shape == (4, 2)
        with pytest.raises(an.UnsupportedError, match=r"c_attn.*Conv1D.*config\.json.*conv1d"):
            model.remember_to_bytes()
        model.remember_to_bytes(allow_unknown=True)
    assert shape(path, GPT2, conv1d=True) == (2, 6)
    assert shape(path, GPT2, conv1d=False) == (6, 2)


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.q_proj",
        "model.layers.0.mlp.c_fc",  # StarCoder2
        "visual.transformer.resblocks.0.mlp.c_proj",
        "transformer.h.0.mlp.fc_in",
        "lm_head",
        "attn.c_attn",
    ],
)
@pytest.mark.parametrize("how", [{}, {"conv1d": True}])
def test_other_names_need_no_config(name: str, how: dict[str, Any], tmp_path: Path) -> None:
    path = folder(tmp_path / "m", int8(name, 6, 2), None)
    assert shape(path, name, **how) == (6, 2)


@pytest.mark.parametrize(
    ("config", "encoder", "decoder"),
    [
        ({"decoder": {"model_type": "gpt2"}}, True, True),
        ({"encoder": {"model_type": "vit"}, "decoder": {"model_type": "gpt2"}}, True, True),
        ({"encoder": {"model_type": "gpt_neo"}, "decoder": {"model_type": "gpt2"}}, False, True),
        ({"encoder": {"model_type": "gpt2"}, "decoder": {"model_type": "gpt_neo"}}, True, False),
        ({"text_config": {"model_type": "gpt2"}, "model_type": "own", "auto_map": {}}, True, True),
        ({"text_config": {"model_type": "qwen"}, "model_type": "own"}, False, False),
        ({"a": {"model_type": "gpt2"}, "b": {"model_type": "gpt_neo"}}, None, None),
    ],
)
def test_models_in_one(config: dict[str, Any], encoder: bool | None, decoder: bool | None) -> None:
    facts = read_facts(config, {})
    for part, wanted in (("encoder", encoder), ("decoder", decoder)):
        name = f"{part}.transformer.h.11.mlp.c_fc.weight"
        if wanted is None:
            with pytest.raises(an.UnsupportedError, match=r"gpt2, gpt_neo"):
                is_conv1d(name, facts)
        else:
            assert is_conv1d(name, facts) is wanted


def test_biases_and_plain_weights_are_none() -> None:
    facts = QuantFacts(conv1d=True)
    assert is_conv1d(f"{GPT2}.weight", facts)
    assert not is_conv1d(f"{GPT2}.bias", facts)
    assert not is_conv1d("transformer.h.0.ln_1.weight", facts)


def test_plain_weights_stay(tmp_path: Path) -> None:
    tensors = int8(GPT2, 6, 2, 6) | {f"{SQUARE}.weight": ("F16", [2, 4], bytes(16))}
    path = folder(tmp_path / "m", tensors, {"model_type": "gpt2"})
    assert shape(path, SQUARE) == (2, 4)


# --- what shapes say --------------------------------------------------------------------------


def test_a_bias_that_contradicts(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", int8(GPT2, 2, 6, bias=6), {"model_type": "gpt2"})
    with an.parse(path) as model, pytest.raises(an.ParseError, match=r"\[out, in\].*\[2, 6\]"):
        model[f"{GPT2}.weight"]
    path = folder(tmp_path / "m", int8(GPT2, 2, 6, bias=6), {"model_type": "gpt_neo"})
    assert shape(path, GPT2) == (2, 6)


@pytest.mark.parametrize("as_linear", [False, True])
@pytest.mark.parametrize("config", [{"model_type": "gpt2"}, {"model_type": "gpt_neo"}])
def test_fp8_is_turned_where_biases_show_it(
    as_linear: bool, config: dict[str, Any], tmp_path: Path
) -> None:
    """AutoRound and GPTQModel store [out, in]; what is cast as it stands stays [in, out]."""
    dims = (6, 2) if as_linear else (2, 6)
    tensors = fp8(GPT2, *dims, bias=6) | fp8(SQUARE, 2, 2, bias=2)
    path = folder(tmp_path / "m", tensors, config)
    is_turned = as_linear and config["model_type"] == "gpt2"
    codes = {f"{GPT2}.weight": dims, f"{SQUARE}.weight": (2, 2)}
    with an.parse(path, conv1d=False) as stored, an.parse(path) as model:
        for name, dims in codes.items():
            before = stored[name].numpy()
            assert before.shape == dims
            wanted = before.T if is_turned else before
            assert np.array_equal(model[name].numpy(), wanted)
            assert model[name].scheme.endswith("transposed") == is_turned


def test_fp8_of_squares_alone(tmp_path: Path) -> None:
    """Nothing tells how they are stored."""
    path = folder(tmp_path / "m", fp8(SQUARE, 2, 2, bias=2), {"model_type": "gpt2"})
    with an.parse(path) as model, pytest.raises(an.UnsupportedError, match="conv1d"):
        model[f"{SQUARE}.weight"]
    for conv1d in (False, True):
        with an.parse(path, conv1d=conv1d) as model:
            assert model[f"{SQUARE}.weight"].scheme.endswith("transposed") == conv1d


def test_fp8_that_lies_as_the_model_has_it_needs_no_config(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", fp8(GPT2, 2, 6, bias=6), None)
    assert shape(path, GPT2) == (2, 6)
    path = folder(tmp_path / "n", fp8(GPT2, 6, 2, bias=6), None)
    with an.parse(path) as model, pytest.raises(an.UnsupportedError, match="conv1d"):
        model[f"{GPT2}.weight"]


# --- what is quantised ----------------------------------------------------------------------------

MAY_BE = "Conv1D or nn.Linear; conv1d=True or conv1d=False says which"


def floats(module: str, rows: int, cols: int, bias: int | None = None) -> dict[str, Entry]:
    values = np.random.default_rng(rows).normal(size=rows * cols).astype("f4")
    tensors: dict[str, Entry] = {f"{module}.weight": ("F32", [rows, cols], values.tobytes())}
    if bias is not None:
        tensors[f"{module}.bias"] = ("F32", [bias], bytes(4 * bias))
    return tensors


def forgotten(path: Path, to: str, **how: Any) -> dict[str, Any]:
    """The shapes of the codes that are written; a reason for what is left."""
    out = path.with_name("out.safetensors")
    with an.parse(path, **how) as model:
        report = model.forget(out, to, force=True, verify=True)
    with an.parse(out, conv1d=False) as written:
        stored = {n: t.shape for n, t in written.stored.items() if n.endswith(".weight")}
        shapes = {name.removesuffix(".weight"): shape for name, shape in stored.items()}
    return {**shapes, **{n.removesuffix(".weight"): why for n, why in report.plain.items()}}


def test_layers_are_turned_as_the_config_says(tmp_path: Path) -> None:
    tensors = {**floats(GPT2, 64, 192), **floats(SQUARE, 64, 64), **floats("x.y", 32, 64)}
    for config, is_turned in (
        ({"model_type": "gpt2"}, True),
        ({"model_type": "gpt_bigcode"}, False),
        ({"model_type": "gpt2", "text_config": {"model_type": "gpt_bigcode"}}, None),
        (None, None),
    ):
        path = folder(tmp_path / "m", tensors, config) / "model.safetensors"
        found = forgotten(path, "bnb-int8")
        want = {True: (192, 64), False: (64, 192), None: MAY_BE}[is_turned]
        assert found == {
            GPT2: want,
            SQUARE: (64, 64) if is_turned is not None else MAY_BE,
            "x.y": (32, 64),
        }
        for conv1d in (True, False):
            found = forgotten(path, "bnb-int8", conv1d=conv1d)
            assert found[GPT2] == ((192, 64) if conv1d else (64, 192))
        left = {True: "Conv1D", False: (64, 192), None: MAY_BE}[is_turned]
        assert forgotten(path, "int8")[GPT2] == left
        (tmp_path / "m" / "config.json").unlink(missing_ok=True)


def test_layers_are_turned_as_the_biases_say(tmp_path: Path) -> None:
    square = floats(SQUARE, 64, 64, 64)
    for rows, cols, bias, want in (
        (64, 192, 192, (192, 64)),
        (192, 64, 192, (192, 64)),
        (64, 192, None, MAY_BE),
        (64, 192, 7, MAY_BE),
    ):
        tensors = {**floats(GPT2, rows, cols, bias), **square, **floats("x.y", 32, 64)}
        path = folder(tmp_path / "m", tensors, None) / "model.safetensors"
        found = forgotten(path, "bnb-int8")
        assert found[GPT2] == want
        assert found[SQUARE] == (MAY_BE if want == MAY_BE else (64, 64))
        with an.parse(path) as model:
            values = model[f"{SQUARE}.weight"].numpy()
        if want != MAY_BE:
            with an.parse(path.with_name("out.safetensors"), conv1d=False) as written:
                codes = written[f"{SQUARE}.weight"].numpy()
            turned = values.T if rows == 64 else values
            assert np.abs(codes - turned).max() < 0.05 < np.abs(codes - turned.T).max()


def test_a_config_that_biases_contradict(tmp_path: Path) -> None:
    tensors = {**floats(GPT2, 192, 64, 192), **floats("x.y", 32, 64)}
    path = folder(tmp_path / "m", tensors, {"model_type": "gpt2"}) / "model.safetensors"
    assert forgotten(path, "bnb-int8")[GPT2] == MAY_BE
    assert forgotten(path, "bnb-int8", conv1d=True)[GPT2] == (64, 192)


def test_an_override_says_what_is_wrong(tmp_path: Path) -> None:
    path = folder(tmp_path / "m", floats(GPT2, 64, 192), {"model_type": "gpt2"})
    with an.parse(path) as model:
        for to in ("int8", "fp8-channel"):
            with pytest.raises(an.UnsupportedError, match="asks for: Conv1D"):
                model.convert(tmp_path / "out", overrides={"*": to})
        model.convert(tmp_path / "out", overrides={"*": "bnb-nf4"}, verify=True)
    with an.parse(tmp_path / "out") as written:
        assert written[f"{GPT2}.weight"].shape == (64, 192)
        assert "transposed" in written[f"{GPT2}.weight"].scheme
        # What is quantised already is not turned twice.
        written.forget(tmp_path / "again", "bnb-int8", verify=True)
        want = written[f"{GPT2}.weight"].numpy()
    with an.parse(tmp_path / "again") as again:
        assert np.abs(again[f"{GPT2}.weight"].numpy() - want).max() < 0.05
