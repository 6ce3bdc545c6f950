"""Hostile headers of up to 64 KB: a result or the one kind of error, soon and in little memory."""

from __future__ import annotations

import json
import struct

import pytest
from exercise import exercise

import anamnesis as an
from helpers.handmade import file_bytes, safetensors_bytes

SMALL = 65_536
ONE = struct.pack("<f", 1.0)
U64_MAX = 2**64 - 1


def entry(more: str = "", shape: str = "[1]") -> str:
    return f'{{"dtype":"U8","shape":{shape},"data_offsets":[0,1]{more}}}'


def file_of(value: str) -> bytes:
    return file_bytes(f'{{"a":{value}}}', b"a")


def nested(opening: str, closing: str, n: int, middle: str = "") -> bytes:
    return file_of(entry(f',"x":{opening * n}{middle}{closing * n}'))


REFUSED: dict[str, tuple[bytes, type[an.AnamnesisError]]] = {
    "arrays nested": (nested("[", "]", 30_000), an.LimitExceeded),
    "arrays nested, not closed": (nested("[", "", 60_000), an.LimitExceeded),
    "objects nested": (nested('{"":', "}", 10_000, "1"), an.LimitExceeded),
    "both nested": (nested('{"a":[', "]}", 7_000), an.LimitExceeded),
    "empty arrays, not closed": (nested("[", "", 1, "[]," * 20_000), an.ParseError),
    "a shape of 10,000 dims": (file_of(entry(shape=f"[{'1,' * 9_999}1]")), an.LimitExceeded),
    "a shape of 10,000 dims, keys in another order": (
        file_of(f'{{"shape":[{"1," * 9_999}1],"dtype":"U8","data_offsets":[0,1]}}'),
        an.LimitExceeded,
    ),
    "a shape, not closed": (file_of(entry(shape="[" + "1," * 30_000)), an.ParseError),
    "a shape of commas": (file_of(entry(shape="[" + "," * 30_000 + "]")), an.LimitExceeded),
    "a shape of spaces": (file_of(entry(shape="[1" + " " * 60_000 + "2]")), an.ParseError),
    "a dim of 60,000 digits": (file_of(entry(shape=f"[{'1' * 60_000}]")), an.ParseError),
    "offsets of 30,000 numbers": (
        file_of(f'{{"dtype":"U8","shape":[1],"data_offsets":[{"1," * 29_999}1]}}'),
        an.LimitExceeded,
    ),
    "a dim of 64 set bits, squared": (
        file_of(entry(shape=f"[{U64_MAX},{U64_MAX}]")),
        an.ParseError,
    ),
    "spaces and no end": (file_bytes("{" + " \t\r\n" * 15_000), an.ParseError),
    "a name and no end": (file_bytes('{"' + "a" * 60_000), an.ParseError),
    "escapes and no end": (file_bytes('{"' + "\\\\" * 30_000), an.ParseError),
    "half surrogates": (file_bytes('{"' + "\\ud800" * 10_000 + '":1}'), an.ParseError),
    "braces": (file_bytes("{" * 60_000), an.ParseError),
    "keys without values": (file_bytes("{" + '"a":{' * 10_000), an.LimitExceeded),
    "commas": (file_bytes("{" + "," * 60_000), an.ParseError),
    "digits": (file_of(entry(',"x":' + "9" * 60_000)), an.ParseError),
    "an exponent of 50,000 digits": (file_of(entry(',"x":1e' + "9" * 50_000)), an.ParseError),
    "NULs": (file_bytes(bytes(60_000)), an.ParseError),
    "metadata nested": (
        file_bytes('{"__metadata__":' + '{"a":' * 10_000 + "}" * 10_001),
        an.ParseError,
    ),
    "metadata as ComfyUI's, nested": (
        safetensors_bytes({}, {"_quantization_metadata": "[" * 60_000}),
        an.ParseError,
    ),
    "metadata as ComfyUI's, a number": (
        safetensors_bytes({}, {"_quantization_metadata": "1" * 50_000}),
        an.ParseError,
    ),
    "metadata as ComfyUI's, layers a list": (
        safetensors_bytes({}, {"_quantization_metadata": '{"layers":[1]}'}),
        an.ParseError,
    ),
    "metadata as ComfyUI's, a layer null": (
        safetensors_bytes({}, {"_quantization_metadata": '{"layers":{"a":null}}'}),
        an.ParseError,
    ),
    "metadata as ComfyUI's, format nested": (
        safetensors_bytes(
            {}, {"_quantization_metadata": '{"layers":{"a":{"format":' + "[" * 50_000}
        ),
        an.ParseError,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.usefixtures("bounded")
def test_refused(name: str) -> None:
    raw, error = REFUSED[name]
    assert len(raw) <= SMALL
    with pytest.raises(error) as raised:
        an.parse(raw)
    assert raised.type is error
    assert len(str(raised.value)) < 1000


NAMES = {
    "NUL": "\0",
    "line break": "a\nb\r\n",
    "escape sequence": "\x1b[2J\x1b]0;title\x07",
    "right to left": "\u202egpj.exe",
    "path": "../../../etc/passwd",
    "absolute path": "/etc/passwd",
    "Windows path": "C:\\windows\\system32\\x",
    "nothing": "",
    "dots": "...",
    "long": "n" * 60_000,
    "quotes": "\"'`$(reboot)",
    "percent and braces": "%s%n{0}{name}",
    "markup": "[bold]<b>",
    "dunder": "__class__",
    "beyond the basic plane": "\U0010ffff\ufffe",
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("bounded")
def test_names(name: str) -> None:
    """Names mean nothing: they come out as they went in, and are printed without harm."""
    odd = NAMES[name]
    tensors = {odd: ("F32", [1], ONE), odd + ".weight_scale": ("F32", [1], ONE)}
    model = exercise(safetensors_bytes(tensors, {odd: odd}))
    assert model is not None
    assert set(model) == {odd, odd + ".weight_scale"}
    assert set(model.problems) == {odd + ".weight_scale"}
    assert all(line.isprintable() for line in str(model.inspect()).split("\n"))


@pytest.mark.parametrize("character", ["n", "\0", "\U0010ffff"])
def test_messages_are_short_whatever_they_quote(character: str) -> None:
    name = character * 10_000
    with pytest.raises(an.ParseError, match=" … ") as raised:
        an.parse(
            file_bytes(json.dumps({name: {"dtype": "F7", "shape": [], "data_offsets": [0, 0]}}))
        )
    assert len(str(raised.value)) <= 2000
    assert str(raised.value).startswith("<bytes>: tensor '")
    assert str(raised.value).endswith("has the unknown dtype 'F7' (at byte 9)")
    model = an.parse(safetensors_bytes({name + ".qweight": ("I32", [0], b"")}))
    assert all(len(str(problem)) <= 2000 for problem in model.problems.values())


ACCEPTED: dict[str, bytes] = {
    "a header of spaces": file_bytes("{" + " " * 60_000 + "}"),
    "escapes": safetensors_bytes({"\x01" * 10_000: ("U8", [0], b"")}),
    "64 dims": file_of(entry(shape=f"[{'1,' * 63}1]")),
    "keys that mean nothing": file_of(entry(',"x":1' * 8_000)),
    "empty arrays that mean nothing": nested("[", "]", 1, "[]," * 20_000 + "[]"),
    "metadata entries": safetensors_bytes({}, {str(i): "" for i in range(5_000)}),
    "900 empty tensors": safetensors_bytes({str(i): ("F64", [0], b"") for i in range(900)}),
    "2^40 empty rows": safetensors_bytes({"a": ("F32", [2**40, 0], b"")}),
    "no rows of 2^62": safetensors_bytes({"a": ("F32", [0, 2**62], b"")}),
    "no rows of 2^64 - 1": safetensors_bytes({"a": ("F32", [0, U64_MAX], b"")}),
    "2^40 empty matrices of FP8": safetensors_bytes(
        {"a": ("F8_E4M3", [2**40, 0, 5], b""), "a_scale": ("F32", [], ONE)}
    ),
    "2^40 empty matrices of FP8, as many scales": safetensors_bytes(
        {"a": ("F8_E4M3", [2**40, 0, 5], b""), "a_scale": ("F32", [2**40, 0, 1], b"")}
    ),
    "2^62 empty rows of FP8": safetensors_bytes({"a": ("F8_E5M2", [2**62, 0], b"")}),
    "empty matrices in 2^62 columns of blocks": safetensors_bytes(
        {"a": ("F8_E4M3", [0, 2**62], b""), "a_scale": ("F32", [0, 2**55], b"")}
    ),
    "60,000 matrices of one element": safetensors_bytes(
        {"a": ("F8_E4M3", [60_000, 1, 1], b"\x38" * 60_000), "a_scale": ("F32", [], ONE)}
    ),
    "12,000 matrices with a scale each": safetensors_bytes(
        {
            "a": ("F8_E4M3", [12_000, 1, 1], b"\x38" * 12_000),
            "a_scale": ("F32", [12_000, 1, 1], ONE * 12_000),
        }
    ),
    "6,000 matrices in two blocks each": safetensors_bytes(
        {
            "a": ("F8_E4M3", [6_000, 1, 2], b"\x38" * 12_000),
            "a_scale": ("F32", [6_000, 1, 2], ONE * 12_000),
        }
    ),
    "300 weights of FP8": safetensors_bytes(
        {
            f"{i}{end}": (dtype, [1], raw)
            for i in range(300)
            for end, dtype, raw in ((".weight", "F8_E4M3", b"\x38"), (".weight_scale", "F32", ONE))
        }
    ),
    "200 weights in ambiguous blocks": safetensors_bytes(
        {
            f"{i}{end}": (dtype, shape, raw)
            for i in range(200)
            for end, dtype, shape, raw in (
                (".weight", "F8_E4M3", [1, 12], b"\x38" * 12),
                (".weight_scale", "F32", [1, 5], ONE * 5),
            )
        }
    ),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ACCEPTED)
@pytest.mark.usefixtures("bounded")
def test_accepted(name: str) -> None:
    assert len(ACCEPTED[name]) <= SMALL
    assert exercise(ACCEPTED[name]) is not None


@pytest.mark.parametrize("shape", [[2**62, 0], [0, 2**62], [0, 2**64 - 1]])
@pytest.mark.parametrize("dtype", ["F32", "F8_E4M3"])
def test_no_array_of_such_a_shape(shape: list[int], dtype: str) -> None:
    """numpy has no such empty arrays, but a file may."""
    model = an.parse(safetensors_bytes({"a": (dtype, shape, b"")}))
    with pytest.raises(an.UnsupportedError, match="numpy has no array"):
        model["a"].numpy()
    assert an.parse(model.remember_to_bytes())["a"].shape == tuple(shape)


@pytest.mark.slow
def test_100_000_tensors() -> None:
    names = [f"model.layers.{i}.weight" for i in range(50_000)]
    tensors = {n + end: ("U8", [1], b"a") for n in names for end in ("", ".bias")}
    raw = safetensors_bytes(tensors)
    model = an.parse(raw)
    assert len(model) == 100_000
    assert model.inspect().n_tensors == 100_000
    assert model["model.layers.49999.weight"].numpy() == ord("a")


@pytest.mark.slow
def test_100_000_weights_of_fp8() -> None:
    tensors = {}
    for i in range(100_000):
        tensors[f"{i}.weight"] = ("F8_E4M3", [1], b"\x38")
        tensors[f"{i}.weight_scale_inv"] = ("F32", [1], ONE)
    model = an.parse(safetensors_bytes(tensors))
    assert model.inspect().schemes == {"per-tensor FP8 (E4M3)": 100_000}
    assert len(model.remember_to_bytes(threads=1)) > 200_000
