"""The bytes of an output: what other readers make of it, what passes through, what is cast."""

from __future__ import annotations

import io
import json
import os
import struct
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.levels import supported_levels
from anamnesis.schemes.core.bands import cut_into
from helpers.handmade import Entry, safetensors_bytes, write_safetensors
from helpers.models import codes, small_model

OUTPUTS = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}


def expand(scale: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    return wide[: shape[0], : shape[1]]


def decoded(model: dict[str, Entry], name: Any) -> torch.Tensor:
    """float32, by torch."""
    (_, shape, raw), (_, grid, scales) = model[name], model[f"{name}_scale_inv"]
    values = torch.frombuffer(bytearray(raw), dtype=torch.float8_e4m3fn).reshape(tuple(shape))
    scale = torch.frombuffer(bytearray(scales), dtype=torch.float32).reshape(tuple(grid))
    return values.to(torch.float32) * expand(scale, tuple(shape))


@pytest.mark.parametrize("output", OUTPUTS)
def test_loads_in_safetensors(output: Any, tmp_path: Path) -> None:
    model = small_model()
    out = tmp_path / "out.safetensors"
    with an.parse(safetensors_bytes(model, {"made": "by hand", "ä": "ö\n"})) as parsed:
        parsed.remember(out, output)
    by_torch = safetensors.torch.load_file(out)
    by_numpy = safetensors.numpy.load_file(out) if output != "bf16" else None
    assert sorted(by_torch) == ["a.weight", "b.weight", "ids", "norm.weight"]
    for name in ("a.weight", "b.weight"):
        want = decoded(model, name).to(OUTPUTS[output])
        assert by_torch[name].dtype == want.dtype
        assert torch.equal(by_torch[name].view(torch.uint8), want.view(torch.uint8))
    with safetensors.safe_open(out, "pt") as file:
        assert file.metadata() == {"made": "by hand", "ä": "ö\n"}
    if by_numpy is not None and "norm.weight" not in by_numpy:
        pytest.fail("numpy lost a tensor")


def test_layout_of_the_file(tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    an.parse(safetensors_bytes(small_model())).remember(out, "f32")
    raw = out.read_bytes()
    (n,) = struct.unpack("<Q", raw[:8])
    assert n % 8 == 0
    header = json.loads(raw[8 : 8 + n])
    end = 0
    for tensor in header.values():
        width = DTYPES[tensor["dtype"]].bits // 8
        assert tensor["data_offsets"][0] == end
        assert end % width == 0
        end = tensor["data_offsets"][1]
    assert 8 + n + end == len(raw)


def every_dtype() -> dict[str, Entry]:
    rng = np.random.default_rng(0)
    tensors: dict[str, Entry] = {}
    for name, dtype in DTYPES.items():
        if name.startswith("F8_"):
            continue  # codes, which do not pass
        for shape in ((), (8,), (3, 8), (0, 8), (40, 16)):
            bits = int(np.prod(shape, dtype=np.int64)) * dtype.bits
            if bits % 8 == 0:
                raw = rng.bytes(bits // 8)
                if name == "BOOL":
                    raw = bytes(b & 1 for b in raw)
                tensors[f"{name}{list(shape)}"] = (name, shape, raw)
    return tensors


@pytest.mark.parametrize("bands", [64, 1 << 20])
def test_passthrough_of_every_dtype(bands: int) -> None:
    tensors = {**every_dtype(), "q": codes(4, 4)}
    with cut_into(bands):
        written = an.parse(safetensors_bytes(tensors)).remember_to_bytes(threads=3)
    with an.parse(written) as result:
        assert sorted(result.stored) == sorted(tensors)
        for name, (dtype, shape, raw) in tensors.items():
            if name != "q":
                stored = result.stored[name]
                assert (stored.dtype.name, stored.shape) == (dtype, shape)
                assert stored.read() == raw
    known = {k: v for k, v in tensors.items() if v[0][:2] not in ("F6", "F4")}
    found = safetensors.torch.load(an.parse(safetensors_bytes(known)).remember_to_bytes())
    assert sorted(found) == sorted(known)


@pytest.mark.parametrize("output", OUTPUTS)
def test_cast_all(output: Any) -> None:
    rng = np.random.default_rng(0)
    tensors: dict[str, Entry] = {"q": codes(4, 4), "i": ("I32", (2,), bytes(8))}
    floats = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16}
    floats["BF16"] = torch.bfloat16
    want: dict[str, torch.Tensor] = {}
    for name, dtype in floats.items():
        raw = bytearray(rng.bytes(1000 * 8))
        values = torch.frombuffer(raw, dtype=dtype)
        values = torch.where(values.isnan(), torch.ones((), dtype=dtype), values)
        if name == "F64":  # half of them in reach of the outputs
            values[::2] = torch.from_numpy(rng.normal(0, 100, (len(values) + 1) // 2))
        shape = (len(values),)
        tensors[name] = (name, shape, values.contiguous().view(torch.uint8).numpy().tobytes())
        want[name] = values.to(OUTPUTS[output])
    model = an.parse(safetensors_bytes(tensors))
    for level in supported_levels():
        stream = io.BytesIO()
        report = model.remember(stream, output, cast_all=True, level=level)
        found = safetensors.torch.load(stream.getvalue())
        for name, tensor in want.items():
            assert found[name].dtype == tensor.dtype
            assert torch.equal(found[name].view(torch.uint8), tensor.view(torch.uint8))
            values = safetensors.torch.load(safetensors_bytes({"x": tensors[name]}))["x"]
            n = int((values.isfinite() & tensor.isinf()).sum())
            assert report.overflows.get(name, 0) == n
        assert found["i"].dtype == torch.int32
    assert model.remember(lambda *_: None).overflows == {}


def test_overflow_counts_equal_torchs(tmp_path: Path) -> None:
    model = small_model()
    rng = np.random.default_rng(1)
    for name in ("a.weight", "b.weight"):
        shape, raw = model[f"{name}_scale_inv"][1:]
        scale = np.exp2(rng.uniform(0, 12, len(raw) // 4)).astype(np.float32)
        model[f"{name}_scale_inv"] = ("F32", shape, scale.tobytes())
    want = {}
    for name in ("a.weight", "b.weight"):
        values = decoded(model, name)
        want[name] = int((values.isfinite() & values.to(torch.float16).isinf()).sum())
    assert all(want.values())
    for threads in (1, 4):
        for level in supported_levels():
            parsed = an.parse(safetensors_bytes(model))
            assert (
                parsed.remember(io.BytesIO(), "f16", threads=threads, level=level).overflows == want
            )
            assert parsed.remember(lambda *_: None, "f16", threads=threads).overflows == want
            assert parsed.remember(io.BytesIO(), "bf16").overflows == {}
    report = parsed.remember(tmp_path / "out.safetensors", "f16")
    assert report.overflows == want
    assert f"{sum(want.values()):,} values overflowed F16" in str(report)


# --- doors ----------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_bands")
@pytest.mark.parametrize("threads", [1, 4])
def test_all_doors_give_the_same(threads: int, tmp_path: Path) -> None:
    model = an.parse(safetensors_bytes(small_model(), {"a": "b"}))
    path = tmp_path / "out.safetensors"
    model.remember(path, threads=threads)
    want = path.read_bytes()
    assert model.remember_to_bytes(threads=threads) == want
    stream = io.BytesIO(b"before")
    stream.seek(6)
    report = model.remember(stream, threads=threads)
    assert stream.getvalue() == b"before" + want
    assert report.path is None
    assert report.n_bytes == len(want)
    arrays: dict[str, Any] = {}
    model.remember(arrays.__setitem__, threads=threads)
    found = safetensors.torch.load(want)
    assert sorted(arrays) == sorted(found)
    for name, array in arrays.items():
        assert array.shape == tuple(found[name].shape)
        raw = found[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        assert array.tobytes() == raw
    assert arrays["a.weight"].dtype == ml_dtypes.bfloat16


class Grudging(io.RawIOBase):
    """A stream that cannot seek and takes little at a time."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        part = bytes(data)[:1000]
        self.taken += part
        return len(part)


@pytest.mark.usefixtures("small_bands")
def test_stream_that_takes_less_at_a_time() -> None:
    model = an.parse(safetensors_bytes(small_model()))
    stream = Grudging()
    model.remember(stream, threads=4)
    assert bytes(stream.taken) == model.remember_to_bytes()


@pytest.mark.skipif(os.name == "nt", reason="needs a pipe of its own")
def test_pipe() -> None:
    model = an.parse(safetensors_bytes(small_model()))
    read, write = os.pipe()
    found = bytearray()

    def drain() -> None:
        with open(read, "rb") as file:
            found.extend(file.read())

    reader = threading.Thread(target=drain)
    reader.start()
    with open(write, "wb", buffering=0) as file:
        model.remember(file, threads=2)
    reader.join()
    assert bytes(found) == model.remember_to_bytes()


def test_nothing_else_is_an_output(tmp_path: Path) -> None:
    model = an.parse(safetensors_bytes(small_model()))
    with pytest.raises(TypeError, match="out must be"):
        model.remember(3)  # type: ignore[arg-type]
    for wrong in ({"threads": 0}, {"max_shard_size": 0}, {"dtype": "f8"}, {"level": "mmx"}):
        with pytest.raises(ValueError, match=r"at least 1|one of"):
            model.remember(tmp_path / "new" / "out.safetensors", **wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small_bands")
@pytest.mark.parametrize("threads", [1, 2, 7])
@pytest.mark.parametrize("door", ["path", "stream", "callback"])
def test_progress(door: str, threads: int, tmp_path: Path) -> None:
    model = an.parse(safetensors_bytes(small_model()))
    calls: list[tuple[int, int]] = []
    caller = threading.get_ident()

    def progress(done: int, total: int) -> None:
        assert threading.get_ident() == caller
        calls.append((done, total))

    outs: dict[str, Any] = {"stream": io.BytesIO(), "callback": lambda *_: None}
    model.remember(outs.get(door, tmp_path / "o"), threads=threads, progress=progress)
    totals = {total for _, total in calls}
    assert totals == {(256 * 384 + 128 * 256) * 2 + 14 + 24}
    assert [c[0] for c in calls] == sorted(c[0] for c in calls)
    assert calls[-1][0] == totals.pop()


def test_a_model_of_nothing(tmp_path: Path) -> None:
    for tensors in ({}, {"a": ("F32", (0, 3), b"")}):
        path = write_safetensors(tmp_path / "in.safetensors", tensors)
        out = tmp_path / "out.safetensors"
        with an.parse(path) as model:
            model.remember(out, force=True)
        assert sorted(safetensors.torch.load_file(out)) == sorted(tensors)


def test_report_adds_up() -> None:
    report = an.parse(safetensors_bytes(small_model())).remember(io.BytesIO())
    assert report.n_in == report.n_out + report.n_consumed + len(report.dropped)
    json.dumps(report.to_dict())
    assert "in 7 tensors, out 4, dropped 1" in str(report)
