"""EXL3: what is found, what is wrong with parts, and bands of matrices that are too long."""

from __future__ import annotations

import json
import struct
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes import exl3
from anamnesis.schemes.families.exl3.weight import Exl3Weight
from anamnesis.sources.memory import BufferSource
from helpers.claims import Tensors, directory, empty, refusal
from helpers.handmade import Entry, safetensors_bytes

MCG, MUL1 = (struct.pack("<I", multiplier) for multiplier in (0xCBAC1FED, 0x83DCD12D))
GOOD: Tensors = {
    "a.trellis": empty("I16", 8, 16, 48),
    "a.suh": empty("F16", 128),
    "a.svh": empty("F16", 256),
}
BOTH = "a.trellis .* has both a.su.? .* and a.su"


def parsed(tensors: Tensors) -> an.Model:
    return an.parse(safetensors_bytes(tensors))


@pytest.mark.parametrize(
    ("changed", "scheme"),
    [
        ({}, "EXL3, 3 bits, codebook 3inst"),
        ({"a.trellis": empty("I16", 8, 16, 16)}, "EXL3, 1 bit, codebook 3inst"),
        ({"a.mcg": ("I32", (), MCG)}, "EXL3, 3 bits, codebook mcg"),
        ({"a.mul1": ("I32", (1,), MUL1)}, "EXL3, 3 bits, codebook mul1"),
    ],
)
def test_found_by_its_parts(changed: Tensors, scheme: str) -> None:
    with parsed(GOOD | changed | {"a.bias": empty("F16", 256)}) as model:
        assert not model.problems
        assert set(model) == {"a.weight", "a.bias"}
        assert model["a.weight"].scheme == scheme
        assert model["a.weight"].shape == (256, 128)
        assert model["a.weight"].numpy("f32").shape == (256, 128)


def test_signs_of_older_files() -> None:
    """The lowest bit of an I16 is that of its first feature; 1 stands for -1."""
    rng = np.random.default_rng(3)
    trellis = rng.integers(-(1 << 15), 1 << 15, (8, 16, 32)).astype(np.int16)
    tensors: Tensors = {
        "a.trellis": ("I16", trellis.shape, trellis.tobytes()),
        "a.su": ("I16", (8,), struct.pack("<8H", 1, 0x8000, *[0] * 6)),
        "a.sv": ("I16", (16,), struct.pack("<16H", 0x0002, *[0] * 15)),
    }
    with parsed(tensors) as model:
        signed = model["a.weight"].numpy("f32")
    plain = exl3.dequantize(
        trellis, np.ones(128, np.float16), np.ones(256, np.float16), dtype="f32"
    )
    assert plain.any()
    u, v = np.ones(128, np.float16), np.ones(256, np.float16)
    u[[0, 31]] = v[1] = -1
    assert (signed == exl3.dequantize(trellis, u, v, dtype="f32")).all()
    assert not (signed == plain).all()


# What is changed or taken away, and what the error says.
WRONG: dict[str, tuple[dict[str, Entry | None], str]] = {
    "no svh": ({"a.svh": None}, "a.trellis .* has no a.svh or a.sv: it may be in another shard"),
    "no suh": ({"a.suh": None}, "a.trellis .* has no a.suh or a.su: it may be in another shard"),
    "no trellis": ({"a.trellis": None}, "a.s[uv]h"),
    "signs beside scales": ({"a.su": empty("I16", 8)}, BOTH),
    "two codebooks": (
        {"a.mcg": ("I32", (), MCG), "a.mul1": ("I32", (), MUL1)},
        "a.trellis .* has both a.mcg .* and a.mul1",
    ),
    "a marker of floats": ({"a.mcg": empty("F32")}, r"a.mcg is F32 \[\]; one I32 is expected"),
    "two multipliers": ({"a.mcg": empty("I32", 2)}, r"a.mcg is I32 \[2\]; one I32 is expected"),
    "another multiplier": (
        {"a.mcg": ("I32", (), b"\x01\0\0\0")},
        r"a.mcg \(I32 \[\]\): the multiplier is 0x00000001, not 0xcbac1fed",
    ),
    "no multiple of 16": ({"a.trellis": empty("I16", 8, 16, 44)}, "I16 .in / 16, out / 16, 16"),
    "no bits": ({"a.trellis": empty("I16", 8, 16, 0)}, "of 1 to 8 bits"),
    "nine bits": ({"a.trellis": empty("I16", 8, 16, 144)}, "of 1 to 8 bits"),
    "a matrix": ({"a.trellis": empty("I16", 8, 16)}, r"is I16 \[8, 16\]; I16 .in / 16"),
    "bytes": ({"a.trellis": empty("U8", 8, 16, 48)}, r"is U8 \[8, 16, 48\]; I16"),
    "no whole blocks": ({"a.trellis": empty("I16", 8, 12, 48)}, "whole blocks of 128 x 128"),
    "scales of other rows": (
        {"a.svh": empty("F16", 128)},
        r"a.svh \(F16 \[128\]\) does not fit a.trellis .*; F16 \[256\] or, of signs, I16 \[16\]",
    ),
    "scales of floats": ({"a.suh": empty("F32", 128)}, r"F16 \[128\] or, of signs, I16 \[8\]"),
    "a scale, as the earliest files had": (
        {"a.scale": empty("F32", 1)},
        r"a.trellis .* has a.scale \(F32 \[1\]\), which exllamav3 no longer reads",
    ),
    "half a bit": (
        {"a.trellis": empty("I16", 8, 16, 56)},
        r"a.trellis .* has 3\.5 bits a code; halves of bits are not read, codes of 1 to 8 bits are",
    ),
    "a weight beside it": (
        {"a.weight": empty("F16", 256, 128)},
        "there is another tensor of that name",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_parts_are_one_line(case: str) -> None:
    changes, message = WRONG[case]
    made = GOOD | changes
    error = refusal({name: entry for name, entry in made.items() if entry is not None})
    assert "\n" not in str(error)
    with pytest.raises(type(error), match=message):
        raise error


CONFIG = {
    "quant_method": "exl3",
    "version": "0.0.9",
    "bits": 4.0,
    "head_bits": 6,
    "calibration": {"rows": 250, "cols": 2048},
    "out_scales": "auto",
    "codebook": "mcg",
}


def test_a_config_as_exllamav3_writes_it(root: Path) -> None:
    """Bits of it are a mean; a trellis without a mark is none of the codebook that it names."""
    storage = {"a": {"stored_tensors": {}, "quant_format": "exl3", "bits_per_weight": 3}}
    config = {"quantization_config": CONFIG, "hidden_size": 128}
    directory(root, config, GOOD | {"a.mcg": ("I32", (), MCG)})
    (root / "quantization_config.json").write_text(json.dumps(CONFIG | {"tensor_storage": storage}))
    with an.parse(root) as model:
        assert not model.problems
        assert model["a.weight"].scheme == "EXL3, 3 bits, codebook mcg"
        model.remember(root.parent / "out")
    assert sorted(path.name for path in (root.parent / "out").iterdir()) == [
        "config.json",
        "model.safetensors",
    ]
    assert "quantization_config" not in json.loads((root.parent / "out/config.json").read_text())
    with an.parse(directory(root, config, GOOD)) as model:
        (error,) = set(map(str, model.problems.values()))
    assert "a.trellis (I16 [8, 16, 48]) has no a.mcg, though the config says that" in error


def test_floats_called_trellis_are_plain() -> None:
    with parsed({"garden.trellis": empty("F16", 8, 8, 16)}) as model:
        assert not model.problems
        assert set(model) == {"garden.trellis"}


@pytest.mark.parametrize("shape", [(0, 128), (128, 0), (0, 0)])
def test_empty(shape: tuple[int, int]) -> None:
    rows, cols = shape
    parts = (cols // 16, rows // 16, 32), cols, rows
    arrays = [np.zeros(parts[0], np.int16), *(np.zeros(n, np.float16) for n in parts[1:])]
    assert exl3.dequantize(*arrays).shape == shape


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"codebook": "mcgs"}, ValueError, "codebook must be 3inst, mcg, mul1, not 'mcgs'"),
        ({"trellis": np.zeros((8, 8, 24), np.int16)}, ValueError, "of 1 to 8 bits"),
        ({"trellis": np.zeros((8, 8, 16), np.uint16)}, TypeError, "trellis has dtype uint16"),
        ({"suh": np.zeros(8, np.float16)}, ValueError, "suh .* does not fit trellis"),
        ({"suh": np.zeros(128, np.float32)}, TypeError, "suh has dtype float32"),
        ({"svh": np.zeros((1, 128), np.float16)}, ValueError, "svh .* does not fit trellis"),
    ],
)
def test_wrong_arguments(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    good: dict[str, Any] = {"trellis": np.zeros((8, 8, 16), np.int16)}
    good |= dict.fromkeys(("suh", "svh"), np.ones(128, np.float16))
    with pytest.raises(error, match=message):
        exl3.dequantize(**{**good, **changes})


def weight_of(rows: int, cols: int, bits: int) -> Exl3Weight:
    shape = cols // 16, rows // 16, 16 * bits
    source = BufferSource(b"", "")  # which nobody reads
    trellis = StoredTensor("a.trellis", DTYPES["I16"], shape, rows * cols * bits // 8, 0, source)
    return Exl3Weight("a.weight", (rows, cols), (trellis,), "3inst")


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("output", ["BF16", "F32"])
@pytest.mark.parametrize("cols", [128, 4096, 14336, 53248, 1 << 17, 1 << 25])
def test_a_band_and_its_codes_stay_below_a_threads_share(cols: int, output: str, bits: int) -> None:
    weight = weight_of(1024, cols, bits)
    dtype = DTYPES[output]
    bands = weight.bands(dtype, 1 << 20)
    assert len(bands) > 0
    for band in islice(bands, 3):
        n = band.stop - band.start
        codes = 128 * min(n, cols) * bits // 8
        assert dtype.n_bytes(n) + codes <= 14 << 20
        assert band.start % cols % 128 == 0
        assert n % cols == 0 or (n < cols and n % 128 == 0)
