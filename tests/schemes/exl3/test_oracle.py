"""EXL3 beside exllamav3's own kernels: their source, compiled for a CPU, where CUDA is emulated."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.levels import supported_levels
from anamnesis.schemes import exl3
from helpers import exllamav3_emulated
from helpers.guarded import at_offset

pytestmark = pytest.mark.against("exllamav3's kernels, as GPTQModel has them, on an emulated GPU")

REAL = os.environ.get("ANAMNESIS_REAL")
CODEBOOKS = exllamav3_emulated.CODEBOOKS
MULTIPLIERS = {"mcg": 0xCBAC1FED, "mul1": 0x83DCD12D}
Arrays = dict[str, NDArray[Any]]
OUTPUTS: tuple[Any, ...] = ("f32", "bf16", "f16")


def trellis(rng: np.random.Generator, shape: tuple[int, int], bits: int) -> NDArray[Any]:
    rows, cols = shape
    return rng.integers(-(1 << 15), 1 << 15, (cols // 16, rows // 16, 16 * bits)).astype(np.int16)


def scales(rng: np.random.Generator, n: int) -> NDArray[Any]:
    """Of every magnitude, zeros and subnormals among them; no infinity comes of them."""
    values = rng.standard_normal(n) * np.exp2(rng.integers(-20, 4, n))
    values[::17] = 0
    values[5::31] = -0.0
    return values.astype(np.float16)


def quiet(values: NDArray[Any], output: str) -> bytes:
    """Float32 rounded once, NaNs being the one quiet NaN."""
    with np.errstate(all="ignore"):
        rounded = values.astype(DTYPES[output.upper()].numpy())
    rounded[np.isnan(values)] = np.nan
    return np.abs(rounded, where=np.isnan(values), out=rounded).tobytes()


def check(arrays: Arrays, codebook: str, want: NDArray[Any]) -> None:
    for level in supported_levels():
        for output in OUTPUTS:
            found = exl3.dequantize(**arrays, codebook=codebook, dtype=output, level=level)  # type: ignore[arg-type]
            assert found.tobytes() == quiet(want, output), (level, output)


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("codebook", CODEBOOKS)
def test_codebooks_and_bits(codebook: str, bits: int, rng: np.random.Generator) -> None:
    shape = 384, 256
    arrays = {
        "trellis": trellis(rng, shape, bits),
        "suh": scales(rng, shape[1]),
        "svh": scales(rng, shape[0]),
    }
    check(arrays, codebook, exllamav3_emulated.weight(codebook, *arrays.values()))


@pytest.mark.parametrize("codebook", CODEBOOKS)
def test_every_state(codebook: str, rng: np.random.Generator) -> None:
    """Of 8 bits two neighbours are a state: each of all 65,536 is in these tiles."""
    pairs = np.arange(1 << 16, dtype=np.uint32)
    stream = np.stack([pairs >> 8, pairs & 0xFF], -1).astype(np.uint8).reshape(-1, 4)
    words = np.ascontiguousarray(stream[:, ::-1]).view(np.int16).reshape(16, 32, 128)
    inner = exllamav3_emulated.inner(words, codebook)
    assert len(np.unique(inner.view(np.uint16))) > 500
    ones = {"suh": np.ones(256, np.float16), "svh": np.ones(512, np.float16)}
    want = exllamav3_emulated.weight(codebook, words, **ones)
    check({"trellis": words, **ones}, codebook, want)


def test_infinite_scales(rng: np.random.Generator) -> None:
    """Of any bits: NaNs and infinities meet zeros, and each other."""
    arrays = {
        "trellis": trellis(rng, (256, 256), 4),
        "suh": rng.integers(0, 1 << 16, 256).astype(np.uint16).view(np.float16),
        "svh": rng.integers(0, 1 << 16, 256).astype(np.uint16).view(np.float16),
    }
    arrays["suh"][:128] = rng.standard_normal(128)  # or nothing would be finite
    check(arrays, "3inst", exllamav3_emulated.weight("3inst", *arrays.values()))


def as_signs(bits: NDArray[Any]) -> NDArray[Any]:
    """What `LinearEXL3.unpack_bf` makes of int16."""
    words = bits.view(np.uint16).astype(np.int32)
    expanded = (words[:, None] & (1 << np.arange(16))) > 0
    return (1.0 - expanded.reshape(-1).astype(np.float16) * 2.0).astype(np.float16)


def test_signs(rng: np.random.Generator) -> None:
    arrays = {
        "trellis": trellis(rng, (256, 384), 3),
        "suh": rng.integers(-(1 << 15), 1 << 15, 24).astype(np.int16),
        "svh": rng.integers(-(1 << 15), 1 << 15, 16).astype(np.int16),
    }
    signs = as_signs(arrays["suh"]), as_signs(arrays["svh"])
    check(arrays, "mul1", exllamav3_emulated.weight("mul1", arrays["trellis"], *signs))


def stored(rng: np.random.Generator, shape: tuple[int, int], bits: int, codebook: str) -> Arrays:
    marker = {}
    if codebook in MULTIPLIERS:
        marker[codebook] = np.array(MULTIPLIERS[codebook], np.uint32).view(np.int32)
    return {
        "trellis": trellis(rng, shape, bits),
        "suh": scales(rng, shape[1]),
        "svh": scales(rng, shape[0]),
        **marker,
    }


@pytest.mark.parametrize("bands", ["usual", "small"])
def test_a_model_of_unequal_bits(
    bands: str, tmp_path: Path, rng: np.random.Generator, request: pytest.FixtureRequest
) -> None:
    """The head has more bits; bands are of blocks, of some rows of them, or of parts of a row."""
    if bands == "small":
        request.getfixturevalue("small_bands")
    layers = {
        "model.layers.0.mlp.up_proj": ((512, 128), 2, "3inst"),
        "model.layers.0.mlp.down_proj": ((128, 1024), 3, "mcg"),
        "lm_head": ((640, 384), 6, "mul1"),
    }
    parts = {name: stored(rng, *how) for name, how in layers.items()}
    tensors = {f"{name}.{end}": part for name, ends in parts.items() for end, part in ends.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    with an.parse(tmp_path / "model.safetensors") as model:
        assert not model.problems
        model.remember(tmp_path / "out.safetensors", dtype="f32")
        found = load_file(tmp_path / "out.safetensors")
        assert found.keys() == {f"{name}.weight" for name in layers}
        for name, (shape, bits, codebook) in layers.items():
            some = parts[name]
            want = exllamav3_emulated.weight(codebook, some["trellis"], some["suh"], some["svh"])
            tensor = model[f"{name}.weight"]
            assert tensor.shape == shape
            assert tensor.scheme == f"EXL3, {bits} bits, codebook {codebook}"
            assert found[f"{name}.weight"].tobytes() == quiet(want, "f32")
            assert tensor[7:99, 50:111].tobytes() == quiet(want[7:99, 50:111], "f32")
            assert tensor[127:].tobytes() == quiet(want[127:], "f32")


def test_padding_of_a_head_is_left_out(tmp_path: Path, rng: np.random.Generator) -> None:
    """exllamav3 fills out features up to a multiple of 128; embeddings say how many there were."""
    head, layer = stored(rng, (384, 256), 6, "mcg"), stored(rng, (384, 256), 3, "mcg")
    tensors = {"model.embed_tokens.weight": rng.standard_normal((259, 256)).astype(np.float16)}
    tensors |= {f"lm_head.{end}": part for end, part in head.items()}
    tensors |= {f"model.layers.0.up_proj.{end}": part for end, part in layer.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    with an.parse(tmp_path / "model.safetensors") as model:
        assert not model.problems
        found = model["lm_head.weight"]
        assert found.scheme == "EXL3, 6 bits, codebook mcg, without 125 of padding"
        want = exllamav3_emulated.weight("mcg", head["trellis"], head["suh"], head["svh"])
        assert want.shape == (384, 256)
        assert found.numpy("f32").tobytes() == quiet(want[:259], "f32")
        assert found[250:].tobytes() == quiet(want[250:259], "f32")
        assert model["model.layers.0.up_proj.weight"].shape == (384, 256)


def test_arrays_at_any_address(rng: np.random.Generator) -> None:
    arrays = stored(rng, (128, 128), 5, "3inst")
    moved = {
        name: at_offset(array.reshape(-1).view(np.uint8), 2).view(array.dtype).reshape(array.shape)
        for name, array in arrays.items()
    }
    check(moved, "3inst", exllamav3_emulated.weight("3inst", *arrays.values()))


@pytest.mark.skipif(not REAL, reason="ANAMNESIS_REAL names no folder of checkpoints")
def test_what_gptqmodel_reads() -> None:
    """Its decoder, another one, gives values that round to these values of the codebook."""
    folder = Path(REAL or "", "modern")
    tensors = load_file(folder / "exl3" / "model.safetensors")
    theirs = load_file(folder / "exl3.expected.safetensors")
    with an.parse(folder / "exl3") as model:
        assert len(model) == 3
        for name, tensor in model.items():
            layer = name.removesuffix(".weight")
            codebook = next((c for c in MULTIPLIERS if f"{layer}.{c}" in tensors), "3inst")
            arrays = [tensors[f"{layer}.{end}"] for end in ("trellis", "suh", "svh")]
            inner = exllamav3_emulated.inner(arrays[0], codebook)
            assert inner.tobytes() == theirs[f"{layer}.inner"].astype(np.float16).tobytes()
            want = exllamav3_emulated.weight(codebook, *arrays)
            assert tensor.numpy("f32").tobytes() == quiet(want, "f32")
