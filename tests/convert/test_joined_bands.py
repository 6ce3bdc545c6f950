"""Stacks of experts put together band by band: every encoding, odd sizes, what does not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from anamnesis.schemes.core.bands import cut_into
from helpers.handmade import write_safetensors

Array = NDArray[np.float32]
MODULE = "model.layers.0.mlp.experts"
RNG = np.random.default_rng(5)
# Whether matrices are turned, and whether gate and up alternate.
WAYS = {"gpt_oss": (True, True), "llama4_text": (True, False), "gemma4_text": (False, False)}
ANY_SIZE = ("bf16", "f32", "int8", "fp8-channel", "fp8-tensor-ct")
WHOLE_UNITS = (
    *("int4-32", "int4-asym-32", "mxfp4", "nvfp4", "mxfp8", "fp8-block-32x32", "mlx-4bit-32"),
    *("gptq-4bit-32", "awq-4bit-32", "nvfp4-modelopt"),
)


def experts(inner: int, outer: int, n: int = 3, biases: bool = False) -> dict[str, Array]:
    """Single experts, as llm-compressor names them."""
    shapes = {"gate": (inner, outer), "up": (inner, outer), "down": (outer, inner)}
    made = {}
    for i in range(n):
        for layer, shape in shapes.items():
            made[f"{MODULE}.{i}.{layer}_proj.weight"] = RNG.normal(size=shape).astype("f4")
            if biases:
                bias = RNG.normal(size=shape[0]).astype("f4")
                made[f"{MODULE}.{i}.{layer}_proj.bias"] = bias
    return made


def folder(path: Path, kind: str, tensors: dict[str, Array]) -> Path:
    path.mkdir()
    (path / "config.json").write_text(json.dumps({"model_type": kind}))
    stored: Any = {name: ("F32", a.shape, a.tobytes()) for name, a in tensors.items()}
    write_safetensors(path / "model.safetensors", stored)
    return path


def stacked(pieces: dict[str, Array], kind: str, n: int = 3) -> dict[str, Array]:
    """What is to come out."""
    is_turned, alternates = WAYS[kind]
    found = {}
    for last in ("weight", "bias") if f"{MODULE}.0.up_proj.bias" in pieces else ("weight",):
        end = "" if last == "weight" else "_bias"
        both, downs = [], []
        for i in range(n):
            gate, up = (pieces[f"{MODULE}.{i}.{p}_proj.{last}"] for p in ("gate", "up"))
            both.append(
                np.stack([gate, up], 1).reshape(-1, *gate.shape[1:])
                if alternates
                else np.concatenate([gate, up])
            )
            downs.append(pieces[f"{MODULE}.{i}.down_proj.{last}"])
        for name, one in (("gate_up_proj", np.stack(both)), ("down_proj", np.stack(downs))):
            turned = is_turned and last == "weight"
            found[f"{MODULE}.{name}{end}"] = one.swapaxes(1, 2) if turned else one
    return found


def check(source: Path, kind: str, out: Path, **options: Any) -> an.Report:
    with an.parse(source) as model:
        pieces = {name: model[name].numpy("f32") for name in model}
        report = model.convert(out, "f32", cast_all=True, verify=True, **options)
    want = stacked(pieces, kind)
    with an.parse(out) as model:
        assert set(model) == set(want)
        for name, values in want.items():
            found = model[name].numpy("f32")
            assert found.shape == values.shape, name
            assert found.tobytes() == np.ascontiguousarray(values).tobytes(), name
    assert report.put_together.keys() == want.keys()
    return report


CASES = [
    *((to, sizes) for to in ANY_SIZE for sizes in ((37, 45), (64, 96), (1, 70))),
    *((to, (96, 160)) for to in WHOLE_UNITS),
]


@pytest.mark.sampled(31)
@pytest.mark.parametrize("band_bytes", [256, 4096, 1 << 20])
@pytest.mark.parametrize(("to", "sizes"), CASES, ids=str)
def test_values(to: str, sizes: tuple[int, int], band_bytes: int, tmp_path: Path) -> None:
    tensors = experts(*sizes, biases=to != "awq-4bit-32")
    dense = folder(tmp_path / "dense", "other", tensors)
    with cut_into(band_bytes), an.parse(dense) as model:
        model.convert(tmp_path / "coded", to)
    for kind in WAYS:
        config = json.loads((tmp_path / "coded" / "config.json").read_text())
        (tmp_path / "coded" / "config.json").write_text(json.dumps(config | {"model_type": kind}))
        with cut_into(band_bytes):
            check(tmp_path / "coded", kind, tmp_path / kind)


@pytest.mark.parametrize("kind", WAYS)
def test_pieces_of_two_kinds(kind: str, tmp_path: Path) -> None:
    """Codes and floats make one stack, if they are written in one dtype."""
    dense = folder(tmp_path / "dense", kind, experts(64, 96))
    with an.parse(dense) as model:
        model.forget(tmp_path / "coded", "int8", exclude="*.1.up_proj.weight")
    with an.parse(tmp_path / "coded") as model:
        own = model[f"{MODULE}.1.up_proj.weight"].dtype
        other: Any = "f16" if own.name != "F16" else "bf16"
        assert not model.remember(tmp_path / "other", dtype=other).put_together
    assert check(tmp_path / "coded", kind, tmp_path / "out").n_quantized == 8


def test_what_stays_apart(tmp_path: Path) -> None:
    whole = experts(64, 96)
    cases = {
        "one is missing": {n: a for n, a in whole.items() if ".1.up_proj" not in n},
        "the last lacks one": {n: a for n, a in whole.items() if ".2.down_proj" not in n},
        "a number is missing": {n: a for n, a in whole.items() if ".1." not in n},
        "uneven": {**whole, f"{MODULE}.1.up_proj.weight": np.ones((32, 96), "f4")},
        "a bias alone": {**whole, f"{MODULE}.1.up_proj.bias": np.ones(64, "f4")},
        "there already": {**whole, f"{MODULE}.down_proj": np.ones(3, "f4")},
        "four dimensions": {n: a[None] for n, a in whole.items()},
        "empty": {n: a[:0] for n, a in whole.items()},
    }
    for case, tensors in cases.items():
        source = folder(tmp_path / case, "gpt_oss", tensors)
        with an.parse(source) as model:
            report = model.remember(tmp_path / f"{case} out")
            assert not report.put_together, case
        with an.parse(tmp_path / f"{case} out") as model:
            assert set(model) == set(tensors), case
    with an.parse(folder(tmp_path / "of another", "mixtral", whole)) as model:
        assert not model.plan().account.put_together
    with an.parse(folder(tmp_path / "whole", "gpt_oss", whole)) as model:
        assert model.plan().account.put_together == {
            f"{MODULE}.gate_up_proj": 6,
            f"{MODULE}.down_proj": 3,
        }
        assert not model.plan("int8").account.put_together
        assert not model.plan("gguf", names="keep").account.put_together
        assert not model.plan("bf16", overrides={"*.1.up_proj.weight": "f32"}).account.put_together


def test_shards_and_other_containers(tmp_path: Path) -> None:
    dense = folder(tmp_path / "dense", "llama4_text", experts(64, 96, biases=True))
    with an.parse(dense) as model:
        model.forget(tmp_path / "coded", "int8", max_shard_size=8192)
    assert len(list((tmp_path / "coded").glob("*.safetensors"))) > 3
    check(tmp_path / "coded", "llama4_text", tmp_path / "out", max_shard_size=16384)
    with an.parse(tmp_path / "coded") as model:
        model.convert(tmp_path / "out.pth", "pth-f32")
    with an.parse(tmp_path / "out.pth") as one, an.parse(tmp_path / "out") as other:
        assert set(one) == set(other)
        for name in one:
            assert np.array_equal(one[name].numpy("f32"), other[name].numpy("f32"))


def test_a_run_that_is_killed_and_resumed(tmp_path: Path) -> None:
    source = folder(tmp_path / "in", "gpt_oss", experts(64, 96))

    def stop(done: int, total: int) -> None:
        if 2 * done > total:
            raise KeyboardInterrupt

    with an.parse(source) as model:
        model.remember(tmp_path / "whole")
        with pytest.raises(KeyboardInterrupt):
            model.remember(tmp_path / "out", progress=stop)
        model.remember(tmp_path / "out", resume=True)
    files = [(tmp_path / at / "model.safetensors").read_bytes() for at in ("whole", "out")]
    assert files[0] == files[1]
