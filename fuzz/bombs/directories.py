"""Directories: configs, indexes, shards."""

from __future__ import annotations

import json
from collections.abc import Callable

from bombs.gguf import part
from bombs.headers import entry, header
from bombs.made import BOMBS, Files, filled
from helpers.handmade import file_bytes, safetensors_bytes

ONE = safetensors_bytes({"a.weight": ("F8_E4M3", (2, 2), b"8888"), "b": ("F32", (1,), bytes(4))})
INDEX = "model.safetensors.index.json"


def beside(name: str, file: str, make: Callable[[int], bytes]) -> None:
    """Add a model with a file beside it."""
    BOMBS[name] = lambda n: {"model.safetensors": ONE, file: make(n - 300)}


for file in ("config.json", INDEX, "hf_quant_config.json", "quantize_config.json"):
    for name, body in (
        ("deep", lambda n: b"[" * n),
        ("deep-closed", lambda n: b'{"a":' * (n // 6) + b"1" + b"}" * (n // 6)),
        ("lists", lambda n: b'{"a":[' + filled(b"[],", n)[:-1] + b"]}"),
        ("dicts", lambda n: b'{"a":[' + filled(b"{},", n)[:-1] + b"]}"),
        ("keys", lambda n: b"{" + filled(lambda i: b'"%d":0,' % i, n)[:-1] + b"}"),
        ("number", lambda n: b'{"a":' + b"9" * n + b"}"),
        ("string", lambda n: b'{"a":"' + b"\\u0000" * (n // 6) + b'"}'),
        ("spaces", lambda n: b" " * n + b"{}"),
        ("deep-60", lambda n: b'{"a":[' + filled(b"[" * 60 + b"]" * 60 + b",", n)[:-1] + b"]}"),
    ):
        beside(f"{file}-{name}", file, body)
CONFIG = b'{"quantization_config":{"quant_method":%s}}'
for name, body in (
    (
        "not-converted",
        lambda n: (
            b'"fp8","modules_to_not_convert":[' + filled(lambda i: b'"%d",' % i, n - 90)[:-1] + b"]"
        ),
    ),
    (
        "not-converted-long",
        lambda n: b'"fp8","modules_to_not_convert":["' + b"a." * (n // 2 - 50) + b'"]',
    ),
    (
        "not-converted-regex",
        lambda n: b'"fp8","modules_to_not_convert":["' + b"(a+)+" * 20 + b'$"]',
    ),
    (
        "dynamic",
        lambda n: (
            b'"gptq","bits":4,"dynamic":{'
            + filled(lambda i: b'"-:(a+)+%d$":{},' % i, n - 90)[:-1]
            + b"}"
        ),
    ),
    (
        "groups",
        lambda n: (
            b'"compressed-tensors","config_groups":{'
            + filled(
                lambda i: b'"%d":{"targets":["re:(a+)+$"],"weights":{"num_bits":8}},' % i, n - 90
            )[:-1]
            + b"}"
        ),
    ),
    (
        "ignore",
        lambda n: (
            b'"compressed-tensors","ignore":['
            + filled(lambda i: b'"re:.*(a|aa)+%d",' % i, n - 90)[:-1]
            + b"]"
        ),
    ),
):
    beside(f"config-{name}", "config.json", lambda n, body=body: CONFIG % body(n))


def many_weights(config: bytes) -> Callable[[int], Files]:
    """Return FP8 weights with a config that has something to say of each."""

    def make(n: int) -> Files:
        name = "a" * 24
        data = file_bytes(header(lambda i: entry(f"{name}.{i}.weight", "F8_E4M3", "0,0"), n // 2))
        return {"model.safetensors": data, "config.json": filled_in(config, n // 2)}

    return make


def filled_in(pattern: bytes, n: int) -> bytes:
    before, unit, after = pattern.split(b"~")
    return before + filled(lambda i: unit % i + b",", n - len(before) - len(after))[:-1] + after


for name, pattern in (
    (
        "not-converted",
        b'{"quantization_config":{"quant_method":"fp8","modules_to_not_convert":[~"%d"~]}}',
    ),
    (
        "ignored",
        b'{"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":8,"type":"float","strategy":"channel"}}},"ignore":[~"re:.*a%d"~]}}',
    ),
    (
        "dynamic",
        b'{"quantization_config":{"quant_method":"gptq","bits":4,"group_size":128,"dynamic":{~"+:.*a.*%d":{}~}}}',
    ),
    (
        "extra",
        b'{"quantization_config":{"quant_method":"auto-round","bits":4,"extra_config":{~"a%d":{"bits":8}~}}}',
    ),
):
    BOMBS[f"weights-and-{name}"] = many_weights(pattern)


def index_of(names: Callable[[int], str], shards: Callable[[int], str], n: int) -> bytes:
    def one(i: int) -> bytes:
        return f"{json.dumps(names(i))}:{json.dumps(shards(i))},".encode()

    return b'{"weight_map":{' + filled(one, n - 30)[:-1] + b"}}"


for name, names, shards in (
    ("shards", str, lambda i: f"{i}.safetensors"),
    ("shards-torch", str, lambda i: f"{i}.bin"),
    ("names", lambda i: f"{'a.' * 100}{i}", lambda i: "model.safetensors"),
    ("folders", str, lambda i: f"{'a/' * 500}{i}.safetensors"),
    ("parents", str, lambda i: f"{'../' * 300}{i}.safetensors"),
    ("dots", str, lambda i: f"{'./' * 300}{i}.safetensors"),
    ("missing", str, lambda i: f"model-{i:05}-of-99999.safetensors"),
):
    make = lambda n, names=names, shards=shards: index_of(names, shards, n)  # noqa: E731
    beside(f"index-{name}", INDEX, make)


def shards_of(n: int, name: str, extra_name: str = "{}") -> Files:
    """Return a model in as many files as there is room for."""
    count = n // 170
    one = {i: safetensors_bytes({extra_name.format(i): ("U8", (0,), b"")}) for i in range(count)}
    return {name.format(i + 1, count): data for i, data in one.items()}


BOMBS["shards"] = lambda n: shards_of(n, "model-{:05}-of-{:05}.safetensors")
BOMBS["shards-same-tensor"] = lambda n: shards_of(n, "model-{:05}-of-{:05}.safetensors", "a")
BOMBS["shards-unnumbered"] = lambda n: shards_of(n, "{}.safetensors")
BOMBS["shards-gguf"] = lambda n: {
    f"x-{i + 1:05}-of-{n // 400:05}.gguf": part(i, n // 400) for i in range(n // 400)
}
BOMBS["files-beside"] = lambda n: {
    "model.safetensors": ONE,
    **{f"tokenizer-{i}.json": b"{}" for i in range(n // 100)},
}


# Names of files.
for i, name in enumerate(
    (
        "m-fp8" + "-scaled" * 30 + "-x",
        "m" + "-e4m3" * 40 + "-x",
        "m-fp8" + "-marlin" * 30 + "-x",
        "m" + "-unsloth" * 25 + "x",
        "m-w8a8" + "-e5m2fn" * 28 + "-x",
        "m" + "-q4_k_m" * 28 + "_x",
        "m" + "-auto-round" * 18 + "-x",
        "m" + "-int8_8bit.8bits" * 12 + "-x",
        "m-fp8" + "-dynamic.static_sym" * 11 + "-x",
        "m" + "-" * 200,
        "m" + "-_." * 70 + "x",
        "m-1" + "1" * 200 + "bpw-x",
        "m-g" + "1" * 200 + "-x",
        "m-00001-of-00002" * 12,
    )
):
    BOMBS[f"name-{i}"] = lambda _, name=name: {f"{name}.safetensors": ONE}
