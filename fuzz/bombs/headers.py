"""Headers of safetensors, and what schemes make of their names."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from math import prod

from anamnesis._core import BNB_CODEBOOKS
from bombs.made import bomb, filled
from helpers.handmade import file_bytes, safetensors_bytes


def header(unit: Callable[[int], str], size: int) -> bytes:
    """Return a header of many entries, whatever they are."""
    return b"{" + filled(lambda i: unit(i).encode() + b",", size - 20)[:-1] + b"}"


def entries(name: str, unit: Callable[[int], str], data: bytes = b"") -> None:
    bomb(name, lambda size: file_bytes(header(unit, size - len(data)), data), "x.safetensors")


def entry(name: str, dtype: str, shape: str, start: int = 0, end: int = 0) -> str:
    return f'"{name}":{{"dtype":"{dtype}","shape":[{shape}],"data_offsets":[{start},{end}]}}'


entries("empty-tensors", lambda i: entry(f"{i}", "U8", "0"))
entries("empty-fp8", lambda i: entry(f"{i}.weight", "F8_E4M3", "0,0"))
entries(
    "scaled-fp8",
    lambda i: entry(f"a{i // 2}.weight{'_scale' * (i % 2)}", ("F8_E4M3", "F32")[i % 2], "0,0"),
)
entries("scales", lambda i: entry(f"a{i}.weight_scale", "F32", "0"))
entries("one-stem", lambda i: entry(f"{'a.' * 20}{i}.weight_scale", "F32", "0"))
entries("suffixes", lambda i: entry(f"a{'.weight_scale' * (i + 1)}", "F32", "0"))
entries("prefixes", lambda i: entry(f"{'a.' * i}weight", "F8_E4M3", "0"))
entries(
    "qweights",
    lambda i: entry(
        f"a{i // 4}.{('qweight', 'qzeros', 'scales', 'g_idx')[i % 4]}",
        ("I32", "I32", "F16", "I32")[i % 4],
        "0,0"[: 3 - 2 * (i % 4 == 3)],
    ),
)
entries(
    "absmax",
    lambda i: entry(
        f"a{i // 3}.weight{('', '.absmax', '.quant_map')[i % 3]}", ("U8", "F32", "F32")[i % 3], "0"
    ),
)
entries(
    "blocks",
    lambda i: entry(f"a{i // 2}_{('blocks', 'scales')[i % 2]}", "U8", "0,0,0,0"[: 7 - 2 * (i % 2)]),
)
entries(
    "packed",
    lambda i: entry(
        f"a{i // 3}.weight_{('packed', 'scale', 'shape')[i % 3]}",
        ("I32", "F16", "I64")[i % 3],
        "0,0",
    ),
)
entries("experts", lambda i: entry(f"layers.0.experts.{i}.w1.weight", "F8_E4M3", "0,0"))
entries("huge-and-empty", lambda i: entry(f"{i}", "U8", "9223372036854775807,0"))
entries("escapes", lambda i: entry("\\u0061" * 20 + f"{i}", "U8", "0"))
entries("surrogates", lambda i: entry("\\ud83d\\ude00" * 10 + f"{i}", "U8", "0"))
entries("same-name", lambda i: entry("a", "U8", "0"))
entries("zeros", lambda i: entry(f"{i}", "U8", "0," * 50 + "0"))
entries("small", lambda i: entry(f"{i}", "U8", "1", i, i + 1), bytes(900))
for name, body in (
    ("long-name", lambda n: entry("a" * n, "U8", "0")),
    ("long-dotted", lambda n: entry("a." * (n // 2) + "weight", "F8_E4M3", "0")),
    ("long-digits", lambda n: entry("layers." + "1" * n, "F8_E4M3", "0")),
    ("long-shape", lambda n: entry("a", "U8", "1," * (n // 2) + "0")),
    ("long-dtype", lambda n: entry("a", "F" * n, "0")),
    ("long-number", lambda n: entry("a", "U8", "9" * n)),
    ("long-float", lambda n: entry("a", "U8", "1." + "9" * n)),
    ("long-exponent", lambda n: entry("a", "U8", "1e" + "9" * n)),
    ("long-minus", lambda n: entry("a", "U8", "-" * n)),
    ("spaces", lambda n: " " * n + entry("a", "U8", "0")),
    ("spaces-inside", lambda n: entry("a", "U8", " " * n + "0")),
    ("deep", lambda n: '"a":' + "[" * n),
    ("deep-closed", lambda n: '"a":' + "[" * (n // 2) + "]" * (n // 2)),
    ("deep-dicts", lambda n: '"a":' * (n // 4)),
    ("metadata", lambda n: '"__metadata__":{"a":"' + "x" * n + '"}'),
    (
        "metadata-keys",
        lambda n: (
            '"__metadata__":{' + filled(lambda i: f'"{i}":"",'.encode(), n).decode()[:-1] + "}"
        ),
    ),
    ("metadata-escapes", lambda n: '"__metadata__":{"a":"' + "\\u001b" * (n // 6) + '"}'),
    ("comfy-deep", lambda n: '"__metadata__":{"_quantization_metadata":"' + "[" * n + '"}'),
    (
        "comfy-layers",
        lambda n: (
            '"__metadata__":{"_quantization_metadata":'
            + json.dumps(
                '{"layers":{'
                + filled(lambda i: f'"{i}":{{"format":"x"}},'.encode(), n // 2).decode()[:-1]
                + "}}"
            )
            + "}"
        ),
    ),
    ("comfy-number", lambda n: '"__metadata__":{"_quantization_metadata":"' + "9" * n + '"}'),
):
    bomb(name, lambda n, body=body: file_bytes("{" + body(n - 150) + "}"), "x.safetensors")


def one_weight(size: int, shape: tuple[int, int], scale: tuple[int, int], suffix: str) -> bytes:
    dtype, data = "F8_E4M3", bytes([0x38]) * prod(shape)
    scales = struct.pack("<f", 1) * prod(scale)
    return safetensors_bytes(
        {"a.weight": (dtype, shape, data), f"a.{suffix}": ("F32", scale, scales)}
    )


bomb("row", lambda n: one_weight(n, (1, n - 500), (1, 1), "weight_scale"), "x.safetensors")
bomb("column", lambda n: one_weight(n, (n // 6, 1), (n // 6, 1), "weight_scale"), "x.safetensors")
bomb(
    "grid",
    lambda n: one_weight(n, (n // 600, 100), (n // 600, 100), "weight_scale_inv"),
    "x.safetensors",
)


def bnb_state(size: int, told: str) -> bytes:
    return safetensors_bytes(
        {
            "a.weight": ("U8", (32, 1), bytes(32)),
            "a.weight.absmax": ("F32", (1,), bytes(4)),
            "a.weight.quant_map": ("F32", (16,), BNB_CODEBOOKS["NF4"]),
            "a.weight.quant_state.bitsandbytes__nf4": ("U8", (len(told),), told.encode()),
        }
    )


for name, told in (
    ("deep", lambda n: "[" * n),
    ("number", lambda n: '{"blocksize":' + "9" * n + "}"),
    (
        "shape",
        lambda n: (
            '{"quant_type":"nf4","blocksize":64,"dtype":"float16","shape":['
            + "1," * (n // 2)
            + "64]}"
        ),
    ),
    (
        "huge",
        lambda n: (
            '{"quant_type":"nf4","blocksize":64,"dtype":"float16","shape":[9223372036854775807,9223372036854775807]}'
        ),
    ),
    ("keys", lambda n: "{" + filled(lambda i: f'"{i}":0,'.encode(), n).decode()[:-1] + "}"),
):
    bomb(f"bnb-{name}", lambda n, told=told: bnb_state(n, told(n - 900)), "x.safetensors")
