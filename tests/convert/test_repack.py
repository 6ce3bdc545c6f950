"""Conversions that move codes from one layout to another: what they say, and how they end."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

import anamnesis as an
from anamnesis.convert.request import targets
from anamnesis.schemes import encodings
from anamnesis.schemes.core.bands import cut_into
from helpers.handmade import safetensors_bytes, write_safetensors
from helpers.repacks import (
    CT,
    EXPONENTS,
    MLX,
    MXFP4,
    awq,
    check,
    entry,
    f32,
    folder,
    int4,
    raw,
    stored,
)

MODEL = {
    **{k.replace("a.", "model.layers.0.mlp.up_proj."): v for k, v in CT.items()},
    "model.embed_tokens.weight": entry("BF16", raw(16, 128).view("u2") & 0xBFFF),  # finite
    "model.norm.weight": entry("F32", f32(1, 2, 3)),
}
UP = "model.layers.0.mlp.up_proj.weight"


def test_what_it_says() -> None:
    with an.parse(safetensors_bytes(MODEL)) as model:
        plan = model.plan("comfy-nvfp4").to_dict()
        report = model.convert(io.BytesIO(), "comfy-nvfp4")
    assert plan["repacked"] == report.repacked == {UP: "comfy-nvfp4"}
    assert plan["encodings"] == {"comfy-nvfp4": 1, "bf16": 1, "f32": 1}
    assert report.to_dict()["repacked"] == report.repacked
    assert set(report.plain) == {"model.embed_tokens.weight", "model.norm.weight"}
    assert set(report.plain.values()) == {"outside of the model's blocks"}
    assert "; 1 repacked without loss;" in str(report)


def test_a_directory_says_what_it_is(tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_safetensors(source / "model.safetensors", MODEL, {"format": "pt"})
    told = {"quantization_config": {"quant_method": "compressed-tensors"}, "model_type": "llama"}
    (source / "config.json").write_text(json.dumps(told))
    with an.parse(source) as model:
        model.convert(tmp_path / "mlx", "mlx-nvfp4", verify=True)
        model.convert(tmp_path / "out", "mlx-nvfp4", threads=3)
    files = [(tmp_path / at / "model.safetensors").read_bytes() for at in ("mlx", "out")]
    assert files[0] == files[1]
    config = json.loads((tmp_path / "mlx" / "config.json").read_text())
    assert config["model_type"] == "llama"
    section = {"group_size": 16, "bits": 4, "mode": "nvfp4"}
    assert config["quantization"] == config["quantization_config"] == section


@pytest.mark.parametrize("target", ["gptq-4bit", "int4"])
@cut_into(256)
def test_a_run_that_is_killed_and_resumed(target: str, tmp_path: Path) -> None:
    """The same bytes; nothing under the final name before."""
    out = tmp_path / "out.safetensors"

    def stop(done: int, total: int) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    with an.parse(write_safetensors(tmp_path / "a.safetensors", awq())) as model:
        model.convert(tmp_path / "whole.safetensors", target)
        with pytest.raises(KeyboardInterrupt):
            model.convert(out, target, progress=stop, threads=1)
        assert not out.exists()
        report = model.convert(out, target, resume=True)
        assert len(report.repacked) == 1
    assert out.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


def test_a_head_that_is_repacked_is_not_declared_plain(tmp_path: Path) -> None:
    """Encoders leave heads as they are, and say so; one that is quantised already is moved."""
    head = {k.replace("a.", "lm_head."): v for k, v in MLX.items()}
    plain = {"model.embed_tokens.weight": MODEL["model.embed_tokens.weight"]}
    with an.parse(folder(tmp_path / "in", {**head, **plain})) as model:
        report = model.convert(tmp_path / "out", "nvfp4")
    assert report.repacked == {"lm_head.weight": "nvfp4"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["quantization_config"]["ignore"] == ["model.embed_tokens"]


def test_one_weight_among_others() -> None:
    """An override repacks too; what is excluded comes out as values."""
    both = {**MODEL, **{k.replace("a.", "b."): v for k, v in CT.items()}}
    with an.parse(safetensors_bytes(both)) as model:
        out = io.BytesIO()
        report = model.convert(out, "bf16", overrides={"b.weight": "mlx-nvfp4"})
        assert report.repacked == {"b.weight": "mlx-nvfp4"}
        assert stored(an.parse(out.getvalue()))["b.weight"][0] == "U32"
        out = io.BytesIO()
        report = model.convert(out, "mlx-nvfp4", exclude="b.*")
        assert report.repacked == {UP: "mlx-nvfp4"}
        assert report.plain["b.weight"] == "excluded"
        assert stored(an.parse(out.getvalue()))["b.weight"][0] == "BF16"


def test_a_byte_that_means_something_else_stops_the_run(tmp_path: Path) -> None:
    """255 of an E8M0 is infinite to compressed-tensors, and 2^128 to gpt-oss and ggml."""
    exponents = EXPONENTS.copy()
    exponents[7, 1] = 255
    tensors = {**MXFP4["mxfp4"], "a.weight_scale": entry("U8", exponents)}
    check(tensors, "mlx-mxfp4", {**MXFP4["mlx-mxfp4"], "a.scales": entry("U8", exponents)})
    with an.parse(safetensors_bytes(tensors)) as model:
        with pytest.raises(
            an.UnsupportedError, match=r"a.weight_scale: byte 15 is 255, which gguf"
        ):
            model.convert(tmp_path / "out.gguf", "gguf-mxfp4")
        assert not list(tmp_path.iterdir())


def test_a_file_that_is_cut_short(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "a.safetensors", int4())
    with an.parse(path) as model:
        path.write_bytes(path.read_bytes()[:-100])
        with pytest.raises(an.ParseError, match="was cut while it was read"):
            model.convert(tmp_path / "out.safetensors", "awq-4bit")


@pytest.mark.parametrize("name", encodings.LAYOUTS)
def test_layouts_encode_nothing(name: str) -> None:
    encoding = targets.encoding(name)
    assert encoding.id.startswith(name)
    plain = {"a.weight": entry("F32", np.ones((32, 64), np.float32))}
    with an.parse(safetensors_bytes(plain)) as model:
        why = "(it quantises nothing|amn does not quantise to .* yet)"
        told = f"no weight of the model suits {name}.*; {why}; .* does"
        with pytest.raises(an.UnsupportedError, match=told):
            model.convert(io.BytesIO(), name)
        with pytest.raises(an.UnsupportedError, match=f"not in codes that {name}"):
            model.convert(io.BytesIO(), "f32", overrides={"a.weight": name})
    for call in (
        lambda: encoding.parts("a", (1, 1)),
        lambda: encoding.encoder.grain((1, 1)),
        lambda: encoding.extents((1, 1), None),  # type: ignore[arg-type]
        lambda: encoding.encode(memoryview(b""), None, ()),  # type: ignore[arg-type]
    ):
        with pytest.raises(an.UnsupportedError, match="only takes codes that are there already"):
            call()
