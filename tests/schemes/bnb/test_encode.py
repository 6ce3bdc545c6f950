"""Codes, absmax, SCB and quant_state are byte for byte those of bitsandbytes, run here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import bitsandbytes.functional as library
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

import anamnesis as an
from anamnesis import _core
from anamnesis.base.dtypes import DTYPES as OURS
from anamnesis.base.levels import supported_levels
from anamnesis.base.stored import StoredTensor
from anamnesis.schemes import bnb
from anamnesis.schemes.core import arrays
from anamnesis.schemes.core.bands import Band
from anamnesis.schemes.core.codes import Task
from anamnesis.schemes.core.encoding import Encoding
from anamnesis.schemes.core.layout import Layers
from anamnesis.schemes.core.plain import Plain
from anamnesis.schemes.core.weight import Scratch
from anamnesis.schemes.families.bnb.layouts import FourBitLayout, four_bit, int8
from anamnesis.sources.memory import BufferSource
from helpers.blockwise import encode_values
from helpers.bnb_cases import BLOCKS, half_weights, real_weight
from helpers.bnb_library import COUNTS, SETTINGS, nested_cases, numbers
from helpers.encoder_oracles import DTYPES, array_of, raw, weights
from helpers.scripts import HELPERS, environment

LEVELS = supported_levels()
KINDS = ("nf4", "fp4")
ENCODINGS: dict[str, Encoding] = {
    "bnb-nf4": four_bit(),
    "bnb-nf4-nested": four_bit(is_nested=True),
    "bnb-fp4": four_bit("fp4"),
    "bnb-fp4-nested": four_bit("fp4", is_nested=True),
    "bnb-int8": int8(),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the libraries make: see bnb_library.py. The model's own weights are in `original`."""
    folder = tmp_path_factory.mktemp("bnb")
    (folder / "original").mkdir()
    subprocess.run(
        [sys.executable, HELPERS / "bnb_library.py", folder / "original", folder],
        check=True,
        capture_output=True,
        env={**environment(), "ATEN_CPU_CAPABILITY": "avx2"},
    )
    return folder


def adversarial(n: int, dtype: str) -> Iterator[tuple[str, torch.Tensor]]:
    """What all encoders are tried with, and ties at the midpoints, beside a 1 in each block."""
    yield from weights(1, n, dtype)
    rng = np.random.default_rng(n)
    for kind in KINDS:
        book = np.sort(library.get_4bit_type(kind, device="cpu").numpy())
        middles = (book[:-1] + book[1:]) / 2
        near = np.stack([np.nextafter(middles, -9), middles, np.nextafter(middles, 9)])
        values = rng.choice(near.reshape(-1), n).astype(np.float32)
        values[::30] = 1
        yield f"ties of {kind}", torch.from_numpy(values).to(DTYPES[dtype])


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("n", "block"), [(1, 64), (31, 32), (64, 64), (1001, 64), (4100, 4096), (5000, 64)], ids=str
)
def test_four_bits(n: int, block: int, kind: str, dtype: str) -> None:
    for name, weight in adversarial(n, dtype):
        codes, state = library.quantize_4bit(weight, blocksize=block, quant_type=kind)
        for level in LEVELS:
            ours = bnb.quantize_4bit(array_of(weight), kind, blocksize=block, level=level)
            told = (name, level)
            assert ours.weight.tobytes() == raw(codes), told
            assert ours.weight.shape == tuple(codes.shape)
            assert ours.absmax.tobytes() == raw(state.absmax), told
            assert ours.quant_map.tobytes() == raw(state.code)
            assert (ours.shape, ours.blocksize) == (tuple(weight.shape), block)


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("block", BLOCKS)
def test_real_weights(block: int) -> None:
    weight = real_weight()
    for dtype in DTYPES.values():
        for kind in KINDS:
            values = weight.to(dtype)
            codes, state = library.quantize_4bit(values, blocksize=block, quant_type=kind)
            ours = bnb.quantize_4bit(array_of(values), kind, blocksize=block, threads=2)
            assert ours.weight.tobytes() == raw(codes)
            assert ours.absmax.tobytes() == raw(state.absmax)
            if kind == "fp4":  # there is no -0 among them
                for level in LEVELS:
                    made = bnb.quantize_4bit(
                        array_of(values), kind, blocksize=block, second_zero=True, level=level
                    )
                    assert made.weight.tobytes() == raw(codes)


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("kind", KINDS)
def test_real_half_floats(kind: str) -> None:
    weight = half_weights()
    assert weight.dtype == torch.float16
    for nested in (False, True):
        codes, state = library.quantize_4bit(weight, quant_type=kind, compress_statistics=nested)
        for level in LEVELS:
            ours = bnb.quantize_4bit(array_of(weight), kind, nested=nested, level=level)
            assert ours.weight.tobytes() == raw(codes)
            if not nested:  # else by the sum of one thread, which the test of that has
                assert ours.absmax.tobytes() == raw(state.absmax)
    quantised, scb, _ = library.int8_vectorwise_quant(weight)
    codes, maxima = bnb.quantize_int8(array_of(weight), threads=2)
    assert codes.tobytes() == raw(quantised)
    assert maxima.tobytes() == raw(scb)


@pytest.mark.against("bitsandbytes")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (3, 33), (9, 264), (130, 200)], ids=str)
def test_int8(shape: tuple[int, int], dtype: str) -> None:
    n_compared = 0
    for name, weight in (*weights(*shape, dtype), ("real", real_weight().to(DTYPES[dtype]))):
        halves = weight.half()
        if not torch.isfinite(halves).all():
            with pytest.raises(an.UnsupportedError, match="half floats"):
                bnb.quantize_int8(array_of(weight))
            continue
        n_compared += 1
        codes, scb, _ = library.int8_vectorwise_quant(halves)
        for level in LEVELS:
            ours = bnb.quantize_int8(array_of(weight), level=level)
            assert ours[0].tobytes() == raw(codes), (name, level)
            assert ours[1].tobytes() == raw(scb), (name, level)
    assert n_compared > 9


# --- absmax that are quantised themselves ---------------------------------------------------------


@pytest.mark.slow
@pytest.mark.against("bitsandbytes")
def test_nested(made: Path) -> None:
    want = load_file(made / "nested.safetensors")
    for name, weight, kind, block in nested_cases():
        state = json.loads(raw(want[f"{name}/quant_state.bitsandbytes__{kind}"]))
        for level in LEVELS:
            ours = bnb.quantize_4bit(
                array_of(weight), kind, blocksize=block, nested=True, level=level
            )
            assert ours.nested_offset == state["nested_offset"], (name, level)
            for part in ("", "absmax", "nested_absmax", "nested_quant_map"):
                found: NDArray[Any] = getattr(ours, part or "weight")
                assert found.tobytes() == raw(want[f"{name}/{part}"]), (name, part, level)


@pytest.mark.slow
def test_sums_are_torchs(made: Path) -> None:
    sums = load_file(made / "sums.safetensors")["sums"].tolist()
    for count, want in zip(COUNTS, sums, strict=True):
        values: Any = numbers(count)
        whole = _core.Sum(count)
        assert whole.add(values) == want, count
        parts = _core.Sum(count)
        step = max(count // 7 // 32 * 32, 32)
        found = [parts.add(values[start : start + step]) for start in range(0, count, step)]
        assert found[:-1] == [None] * (len(found) - 1)
        assert found[-1] == want, count


def test_sums_refuse_parts_of_rows() -> None:
    values: Any = np.ones(64, np.float32)
    wrong: Any
    for wrong in (values[:31], values[:0], np.ones(128, np.float32)):
        with pytest.raises(ValueError, match="whole rows"):
            _core.Sum(100).add(wrong)


# --- bands, threads, the loss ---------------------------------------------------------------------


def stored(encoding: Encoding, shape: tuple[int, ...], outs: list[bytes]) -> list[StoredTensor]:
    state = outs[-1] if isinstance(encoding.layout, FourBitLayout) else b""
    offset = json.loads(state).get("nested_offset", 0.0) if state else 0.0
    found = np.float32(offset).tobytes()
    return [
        StoredTensor(p.name, p.dtype, p.shape, len(out), 0, BufferSource(memoryview(out), ""))
        for p, out in zip(encoding.parts("q.weight", shape, found), outs, strict=True)
    ]


@pytest.mark.parametrize("block", [32, 64, 4096])
@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=lambda e: e.id)
def test_any_bands_and_threads(encoding: Encoding, block: int) -> None:
    """And the loss is that of what is decoded again."""
    if isinstance(encoding.layout, FourBitLayout):
        encoding = four_bit(encoding.layout.kind, block, encoding.layout.is_nested)
    shape = (333, 1001)
    generator = torch.Generator().manual_seed(5)
    weight = (torch.randn(shape, generator=generator) * 0.02).to(DTYPES[encoding.values.name])
    values = memoryview(raw(weight))
    whole = encode_values(encoding, values, shape, weight.numel(), 1, "scalar")
    for level in LEVELS:
        for n, threads in ((1, 3), (100_000, 2), (weight.numel(), 1)):
            assert encode_values(encoding, values, shape, n, threads, level) == whole
    again = encoding.layout.weight("q.weight", shape, tuple(stored(encoding, shape, whole[0])))
    assert again.shape == shape
    decoded = arrays.decode(again, OURS["F32"], None, 1, _core.LEVELS[LEVELS[-1]])
    error, loss = np.abs(decoded - weight.float().numpy()), whole[1]
    assert (loss.n, loss.largest) == (error.size, error.max())
    power = (weight.double() ** 2).sum().item()
    wanted = (error.sum(dtype=np.float64), (error.astype(np.float64) ** 2).sum(), power)
    np.testing.assert_allclose((loss.absolute, loss.squared, loss.power), wanted, rtol=2e-6)


@pytest.mark.parametrize("encoding", ENCODINGS.values(), ids=lambda e: e.id)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_infinities_and_nans_are_refused(encoding: Encoding, value: float) -> None:
    """The library gives all of a block, or a row, one code then; the weight is told by name."""
    array = np.ones((40, 1000), np.float32)
    array[39, 999] = value
    quantize: Callable[[NDArray[Any]], object] = bnb.quantize_int8
    if isinstance(encoding.layout, FourBitLayout):
        quantize = partial(
            bnb.quantize_4bit, kind=encoding.layout.kind, nested=encoding.layout.is_nested
        )
    with pytest.raises(an.UnsupportedError, match="an infinity or a NaN"):
        quantize(array)
    source = arrays.stored(array, "layers.0.q.weight", ("F32",))
    weight = Plain(source.name, source.shape, (source,))
    outs = [memoryview(bytearray(8 * array.size))] * 6
    task = Task(Band(0, array.size), weight.shape, bytes(4), _core.LEVELS["scalar"])
    with pytest.raises(an.UnsupportedError, match=r"layers\.0\.q\.weight: an infinity or a NaN"):
        encoding.take(weight, task, Scratch(), outs)


def test_wrong_arguments() -> None:
    ones = np.ones((2, 64), np.float32)
    with pytest.raises(TypeError, match="float64"):
        bnb.quantize_4bit(np.ones(4))
    with pytest.raises(ValueError, match="no values"):
        bnb.quantize_4bit(ones[:0])
    with pytest.raises(ValueError, match="block size"):
        bnb.quantize_4bit(ones, blocksize=48)
    with pytest.raises(ValueError, match="nf4 or fp4"):
        bnb.quantize_4bit(ones, "fp8")
    with pytest.raises(ValueError, match="second zero"):
        bnb.quantize_4bit(ones, second_zero=True)
    with pytest.raises(ValueError, match="matrix"):
        bnb.quantize_int8(ones[0])


# --- there and back -------------------------------------------------------------------------------

ROOT = os.environ.get("ANAMNESIS_REAL")
SLICES = sorted(p for p in Path(ROOT, "bnb").glob("*") if "expected" not in p.name) if ROOT else []


@pytest.mark.parametrize("path", SLICES, ids=lambda p: p.stem)
def test_real_files_come_back(path: Path) -> None:
    """Decoded to BF16, and encoded again: the same bytes, both zeros of FP4 among them.

    Of a slice whose absmax were quantised, the codes of the values come back so; what else there is
    of them, below.
    """
    want = load_file(path)
    with an.parse(path) as model:
        (tensor,) = model.values()
        values = tensor.numpy("bf16")
        name = tensor.name
    if "int8" in path.name:  # a part of longer rows, whose largest values are elsewhere
        scb = want[name.replace("weight", "SCB")]
        whole = np.concatenate([values, scb.numpy()[:, None].astype(values.dtype)], axis=1)
        codes, maxima = bnb.quantize_int8(whole)
        assert np.ascontiguousarray(codes[:, :-1]).tobytes() == raw(want[name])
        assert maxima.tobytes() == raw(scb)
        return
    kind = "fp4" if "fp4" in path.name else "nf4"
    made = bnb.quantize_4bit(values, kind, second_zero=kind == "fp4")
    assert made.weight.tobytes() == raw(want[name])
    assert made.quant_map.tobytes() == raw(want[f"{name}.quant_map"])
    if f"{name}.nested_absmax" not in want:
        assert made.absmax.tobytes() == raw(want[f"{name}.absmax"])
        state = f"{name}.quant_state.bitsandbytes__{kind}"
        encoding = four_bit(kind, made.blocksize, has_second_zero=kind == "fp4")
        assert encoding.laid_out(name, made.shape)[1][3] == raw(want[state])


def with_other_blocks(
    values: NDArray[np.float32], block: int, offset: np.float32, largest: np.float32
) -> NDArray[np.float32]:
    """Return a slice, and blocks that it shared a nested absmax with: one is the farthest off."""
    near = [np.float32(offset + largest), np.float32(offset - largest)]
    near += [np.nextafter(value, np.float32(to)) for value in near for to in (-9, 9)]
    farthest = next(value for value in near if value > 0 and abs(value - offset) == largest)
    others = np.zeros((256 - values.size // block % 256, block), np.float32)
    others[:, 0] = offset
    others[0, 0] = farthest
    return np.concatenate([values.reshape(-1), others.reshape(-1)])


@pytest.mark.parametrize("path", [p for p in SLICES if "int8" not in p.name], ids=lambda p: p.stem)
def test_nested_absmax_of_real_files_come_back(path: Path) -> None:
    """All bytes do, if what only the whole weight has is told: the mean, and the other blocks.

    A slice has fewer than the 256 blocks whose absmax share a nested one, and its own mean is not
    the `nested_offset`. Absmax are no BF16 numbers, so that it begins with float32.
    """
    want = load_file(path)
    with an.parse(path) as model:
        (tensor,) = model.values()
        name, values = tensor.name, tensor.numpy("f32")
    (state,) = [key for key in want if ".quant_state." in key]
    told = json.loads(raw(want[state]))
    if "nested_offset" not in told:
        return
    offset, block = np.float32(told["nested_offset"]), told["blocksize"]
    (largest,) = want[f"{name}.nested_absmax"].numpy()
    whole = with_other_blocks(values, block, offset, largest)
    encoding = four_bit(told["quant_type"], block, is_nested=True).fitted(OURS["F32"])
    shape = (1, whole.size)
    outs = [memoryview(bytearray(part.n_bytes)) for part in encoding.parts(name, shape)]
    for level in (_core.LEVELS[known] for known in LEVELS):
        task = Task(Band(0, whole.size), shape, offset.tobytes(), level)
        encoding.encode(memoryview(whole.tobytes()), task, outs)
        codes, absmax = want[name], want[f"{name}.absmax"]
        assert bytes(outs[0][: codes.numel()]) == raw(codes)
        assert bytes(outs[1][: absmax.numel()]) == raw(absmax)
        assert bytes(outs[3]) == largest.tobytes()
    constants = four_bit(told["quant_type"], block, is_nested=True).laid_out(
        name, tuple(told["shape"]), offset.tobytes()
    )[1]
    assert constants[2] == raw(want[f"{name}.quant_map"])
    assert constants[4] == raw(want[f"{name}.nested_quant_map"])
    assert constants[5] == raw(want[state])


def test_second_zero() -> None:
    values = np.array([1, -0.0, 0.0, 1e-4, -1e-4, -0.5], np.float32)
    for level in LEVELS:
        library_has = bnb.quantize_4bit(values, "fp4", level=level)
        assert library_has.weight.reshape(-1).tolist() == [0x30, 0x08, 0x0D]
        packed = bnb.quantize_4bit(values, "fp4", second_zero=True, level=level)
        assert packed.weight.reshape(-1).tolist() == [0x38, 0x08, 0x0D]
        decoded = bnb.dequantize_4bit(**packed._asdict(), dtype="f32")
        assert np.signbit(decoded).tolist() == [False, True, False, True, False, True]


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_decoded_codes_come_back(kind: str, nested: bool) -> None:
    """What is decoded is encoded as what it was, the absmax being what they were."""
    values = real_weight().numpy()
    first = bnb.quantize_4bit(values, kind, nested=nested)
    decoded = bnb.dequantize_4bit(**first._asdict(), dtype="f32")
    again = bnb.quantize_4bit(decoded, kind, second_zero=kind == "fp4")
    assert again.weight.tobytes() == first.weight.tobytes()


# --- what other programs are told -----------------------------------------------------------------


def test_config() -> None:
    for name, settings in SETTINGS.items():
        config = BitsAndBytesConfig(llm_int8_skip_modules=["lm_head"], **settings)
        want = json.loads(json.dumps(config.to_dict()))
        assert ENCODINGS[name].layout.declare(Layers(["lm_head"])) == want
    assert int8().layout.declare(Layers([]))["llm_int8_skip_modules"] is None
    tied = ["model.embed_tokens", "model.norm"]
    assert int8().layout.declare(Layers(tied))["llm_int8_skip_modules"] == [*tied, "lm_head"]


def composed(original: Path, encoding: Encoding, folder: Path) -> dict[str, torch.Tensor]:
    """A directory as a conversion writes it: the tensors, and a config that tells of them."""
    tensors, plain = {}, []
    for name, weight in load_file(original / "model.safetensors").items():
        shape = tuple(weight.shape)
        if encoding.refuses(name, shape, OURS["BF16"]):
            tensors[name] = weight
            plain.append(name.rpartition(".")[0])
            continue
        values = memoryview(raw(weight.to(DTYPES[encoding.values.name])))
        outs, _ = encode_values(encoding, values, shape, weight.numel(), 1, LEVELS[-1])
        for part, out in zip(stored(encoding, shape, outs), outs, strict=True):
            dtype = getattr(torch, part.dtype.torch_name)
            tensor = torch.frombuffer(bytearray(out), dtype=dtype).reshape(part.shape).clone()
            tensors[name.rpartition(".")[0] + part.name.removeprefix("q")] = tensor
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((original / "config.json").read_text())
    config["quantization_config"] = encoding.layout.declare(Layers(plain))
    (folder / "config.json").write_text(json.dumps(config))
    return tensors


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ENCODINGS)
def test_transformers_loads_it(name: str, made: Path, tmp_path: Path) -> None:
    """Its own files have the same tensors, and its models the same logits."""
    ours = composed(made / "original", ENCODINGS[name], tmp_path)
    theirs = load_file(made / name / "model.safetensors")
    assert {n: (t.dtype, tuple(t.shape), raw(t)) for n, t in ours.items()} == {
        n: (t.dtype, tuple(t.shape), raw(t)) for n, t in theirs.items()
    }
    tokens = torch.arange(24).reshape(2, 12)
    logits = []
    for folder in (tmp_path, made / name):
        model = AutoModelForCausalLM.from_pretrained(folder).eval()
        with torch.no_grad():
            logits.append(model(tokens).logits)
    assert torch.equal(*logits)
    with an.parse(tmp_path) as model:
        assert not model.problems
        schemes = {tensor.scheme for tensor in model.values()}
    assert any("BitsAndBytes" in scheme for scheme in schemes)
