"""INT8 of bitsandbytes and of others: moved where all products of a row agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bitsandbytes.functional as library
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import anamnesis as an
from helpers.handmade import Entry
from helpers.repacks import entry, folder

pytestmark = pytest.mark.against("bitsandbytes")

Array = NDArray[Any]
CODES = np.arange(-128, 128, dtype=np.int8)[None]
RNG = np.random.default_rng(127)
CT = {"quant_method": "compressed-tensors"}


def theirs(scb: Array, codes: Array = CODES) -> Array:
    """bitsandbytes' own values, in float32."""
    made = library.int8_vectorwise_dequant(torch.from_numpy(codes), torch.from_numpy(scb))
    assert made.dtype is torch.float32
    return made.numpy()


def of_bnb(path: Path, scb: Array, codes: Array = CODES) -> Path:
    tensors: dict[str, Entry] = {
        "a.weight": entry("I8", codes),
        "a.SCB": entry("F32", scb),
        "a.weight_format": entry("U8", np.uint8(0)),
    }
    told = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    return folder(path, tensors, quantization_config=told)


def of_ct(path: Path, scales: Array, codes: Array = CODES) -> Path:
    tensors = {"a.weight": entry("I8", codes), "a.weight_scale": entry("F32", scales[:, None])}
    return folder(path, tensors, quantization_config=CT)


def kinds_of_equality(ours: Array, others: Array) -> tuple[bool, bool]:
    """Whether values are the same bits in float32; and whether they are in BF16 and F16."""
    pair = [torch.from_numpy(one) for one in (ours, others)]
    short = [
        torch.equal(pair[0].to(dtype).view(torch.int16), pair[1].to(dtype).view(torch.int16))
        for dtype in (torch.bfloat16, torch.float16)
    ]
    return bool((ours.view("u4") == others.view("u4")).all()), all(short)


def neighbours(number: np.float32, n: int) -> Array:
    return (np.float32(number).view("i4") + np.arange(-n, n + 1, dtype=np.int32)).view("f4")


def check(found: tuple[bool, bool], report: an.Report, path: Path, before: Array) -> None:
    """What is moved is what can be, and it is said in which dtypes values stay."""
    exact, short = found
    assert bool(report.repacked) == (exact or short)
    if report.repacked:
        assert report.inexact == (() if exact else ("a.weight",))
        with an.parse(path) as after:
            assert kinds_of_equality(after["a.weight"].numpy(), before) >= (exact, True)


SCBS = [
    *np.exp2(np.arange(-20, 12, 4)).astype("f4") * np.float32(127),
    *np.exp(RNG.uniform(-8, 4, 40)).astype("f4"),
]


def test_out_of_bitsandbytes(tmp_path: Path) -> None:
    """Of a scale's partner and 16 numbers on each side none does where it says so."""
    n_moved = 0
    for i, scb in enumerate(SCBS):
        row = np.array([scb], "f4")
        values = theirs(row)
        pairs = [kinds_of_equality(CODES * one, values) for one in neighbours(scb / 127, 16)]
        found = any(exact for exact, _ in pairs), any(short for _, short in pairs)
        with an.parse(of_bnb(tmp_path / f"in{i}", row)) as model:
            assert model["a.weight"].numpy().tobytes() == values.tobytes()
            report = model.convert(tmp_path / f"out{i}", "int8")
        check(found, report, tmp_path / f"out{i}", values)
        n_moved += len(report.repacked)
    assert n_moved > 0


def test_into_bitsandbytes(tmp_path: Path) -> None:
    """The values of what is written are bitsandbytes' own."""
    n_moved = 0
    for i, scb in enumerate(SCBS):
        scale = np.array([scb / np.float32(127)], "f4")
        values = CODES * scale
        ways = [np.array([one], "f4") for one in neighbours(np.float32(scale[0] * 127.0), 16)]
        pairs = [kinds_of_equality(theirs(way), values) for way in ways]
        found = any(exact for exact, _ in pairs), any(short for _, short in pairs)
        with an.parse(of_ct(tmp_path / f"in{i}", scale)) as model:
            report = model.convert(tmp_path / f"out{i}", "bnb-int8")
        check(found, report, tmp_path / f"out{i}", values)
        if report.repacked:
            with an.parse(tmp_path / f"out{i}") as after:
                scb_made = np.frombuffer(after.stored["a.SCB"].read(), "f4").copy()
                assert theirs(scb_made).tobytes() == after["a.weight"].numpy().tobytes()
        n_moved += len(report.repacked)
    assert n_moved > 0


def test_its_own_stay(tmp_path: Path) -> None:
    with an.parse(of_bnb(tmp_path / "in", np.array([3.0], "f4"))) as model:
        report = model.convert(tmp_path / "out", "bnb-int8", lossless=True)
        assert list(report.repacked) == ["a.weight"]
        with an.parse(tmp_path / "out") as after:
            assert after["a.weight"].numpy().tobytes() == model["a.weight"].numpy().tobytes()
    told = json.loads((tmp_path / "out" / "config.json").read_text())
    assert told["quantization_config"]["load_in_8bit"]


def test_blocks_of_a_size_that_nothing_is_encoded_in(tmp_path: Path) -> None:
    """What is moved need not be what is written of values."""
    state = json.dumps({"quant_type": "nf4", "blocksize": 7, "shape": [5, 7], "dtype": "bfloat16"})
    tensors = {
        "a.weight": entry("U8", RNG.integers(0, 256, (18, 1), dtype=np.uint8)),
        "a.weight.absmax": entry("F32", RNG.normal(size=5).astype(np.float32)),
        "a.weight.quant_map": entry("F32", library.get_4bit_type("nf4", device="cpu").numpy()),
        "a.weight.quant_state.bitsandbytes__nf4": entry(
            "U8", np.frombuffer(state.encode(), np.uint8)
        ),
    }
    told = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    source, out = folder(tmp_path / "in", tensors, quantization_config=told), tmp_path / "out"
    with an.parse(source) as before:
        report = before.convert(out, "bnb-nf4", verify=True)
        assert report.unchanged == ("a.weight",)
        with an.parse(out) as after:
            assert (after["a.weight"].numpy() == before["a.weight"].numpy()).all()
