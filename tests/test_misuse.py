"""Arguments of another kind are refused in one line that names the argument."""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from helpers.handmade import safetensors_bytes

AN: Any = an  # for arguments of wrong types

PLAIN = safetensors_bytes({"a.weight": ("F32", (2, 2), np.ones((2, 2), "<f4").tobytes())})


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"limits": 5}, TypeError, "limits must be a ParseLimits, not 5"),
        ({"select": 5}, TypeError, "select must be a str, not 5"),
        ({"void_dtype": 7}, TypeError, "void_dtype must be a str, not 7"),
        ({"block_size": "128x128"}, TypeError, "two whole numbers, rows and columns"),
        ({"block_size": (128,)}, TypeError, "two whole numbers, rows and columns"),
        ({"block_size": (1.5, 2)}, TypeError, "two whole numbers, rows and columns"),
        ({"block_size": (0, 0)}, ValueError, "at least 1 by 1"),
        ({"block_size": (-1, 3)}, ValueError, "at least 1 by 1"),
    ],
)
def test_options_of_parse(options: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        an.parse(PLAIN, **options)


@pytest.mark.parametrize(
    ("options", "error", "told"),
    [
        ({"overrides": [("*", "bf16")]}, TypeError, "overrides must be a mapping"),
        ({"rename": [("a", "b")]}, TypeError, "rename must be a mapping"),
        ({"overrides": {"a": None}}, TypeError, "overrides cannot map 'a' to None"),
        ({"overrides": {3: "int4"}}, TypeError, "overrides cannot map 3 to 'int4'"),
        ({"rename": {"a": None}}, TypeError, "rename cannot map 'a' to None"),
        ({"metadata": ["a"]}, TypeError, "metadata must be a mapping"),
        ({"threads": "2"}, TypeError, "threads must be a whole number, not '2'"),
        ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
        ({"split_max_size": "much"}, ValueError, "split_max_size: 'much' is not a size"),
        ({"split_max_size": 1.5}, TypeError, "split_max_size must be a whole number"),
        ({"split_max_size": 0}, ValueError, "split_max_size must be at least 1"),
    ],
)
@pytest.mark.parametrize(
    "call", [lambda m, **o: m.plan("gguf", **o), lambda m, **o: m.convert("x.gguf", "gguf", **o)]
)
def test_options_of_convert(
    call: Callable[..., object], options: Any, error: type[Exception], told: str
) -> None:
    with an.parse(PLAIN) as model, pytest.raises(error, match=told):
        call(model, **options)


class _Type(Enum):  # as gguf-py's
    Q4_K = 12
    MOSTLY_Q8_0 = 7


@pytest.fixture(scope="module")
def values() -> Any:
    return np.linspace(-1, 1, 256 * 256, dtype=np.float32).reshape(256, 256)


@pytest.fixture
def path(values: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    an.save({"a.weight": values}, "a.safetensors")
    return "a.safetensors"


def test_sizes_as_text(path: str) -> None:
    limits = an.ParseLimits(max_single_alloc="500MB", max_total_bytes="2GiB")
    assert (limits.max_single_alloc, limits.max_total_bytes) == (500_000_000, 2 << 30)
    assert an.convert(path, "cut", max_shard_size="100KB").n_files == 1
    assert an.plan(path, "gguf", split_max_size="1MB").n_bytes
    with an.parse(path) as model:
        assert model.fit(target_size="1MB").types
    for name in ("max_single_alloc", "max_total_bytes"):
        with pytest.raises(ValueError, match=f"{name}: 'much' is not a size"):
            AN.ParseLimits(**{name: "much"})
    for name in ("max_item_count", "max_decompression_ratio"):
        with pytest.raises(TypeError, match=f"{name} must be a number, not '5'"):
            AN.ParseLimits(**{name: "5"})


def test_types_of_gguf_py(path: str, values: Any) -> None:
    from anamnesis.schemes import ggml

    blocks = ggml.quantize(values, _Type.Q4_K)
    assert np.array_equal(blocks, ggml.quantize(values, "q4_k"))
    assert np.array_equal(ggml.dequantize(blocks, _Type.Q4_K), ggml.dequantize(blocks, "Q4_K"))
    for given, name in ((_Type.MOSTLY_Q8_0, "gguf-q8_0"), (_Type.Q4_K, "gguf-q4_k")):
        assert an.plan(path, given).to_dict() == an.plan(path, name).to_dict()
    an.convert(path, "a.gguf", "gguf", overrides={"a.*": _Type.Q4_K})
    with an.parse("a.gguf") as model:
        assert model["a.weight"].scheme == "Q4_K"


@pytest.mark.parametrize("dtype", [np.float16, np.dtype("float16"), "half"])
def test_dtypes_as_targets(path: str, dtype: Any) -> None:
    an.convert(path, "b.safetensors", dtype)
    with an.parse("b.safetensors") as model:
        assert str(model.stored["a.weight"].dtype) == "F16"


_SEVERAL = "must be a str or several"
REFUSED: list[tuple[str, Any, str]] = [
    ("to", 5, "to must be a str, not 5"),
    ("to", ["gguf"], r"to must be a str, not \['gguf'\]"),
    ("to", b"gguf", "to must be a str, not b'gguf'"),
    ("force", "yes", "force must be True or False, not 'yes'"),
    ("verify", np.ones(3), "verify must be True or False, not a ndarray"),
    ("include", 5, f"include {_SEVERAL}, not 5"),
    ("exclude", [1], rf"exclude {_SEVERAL}, not \[1\]"),
    ("drop", None, f"drop {_SEVERAL}, not None"),
    ("overrides", {"a": 5}, "overrides cannot map 'a' to 5"),
    ("overrides", {"a": None}, "overrides cannot map 'a' to None"),
    ("metadata", {3: 4}, "metadata cannot map 3 to 4"),
    ("level", np.ones(3), "level must be a str, not a ndarray"),
    ("names", 5, "names must be a str, not 5"),
    ("threads", np.ones(3), "threads must be a whole number, not a ndarray"),
    ("progress", 5, "progress must be a function or True, not 5"),
    ("expect_same", 5, "expect_same must be a path, not 5"),
    ("output_tensor_type", 5, "output_tensor_type must be a str, not 5"),
    ("prune_layers", 1.5, "prune_layers must be a whole number, not 1.5"),
    ("max_shard_size", [1], r"max_shard_size must be a whole number, not \[1\]"),
]


@pytest.mark.parametrize(("name", "value", "told"), REFUSED)
def test_refused_in_one_line(path: str, name: str, value: Any, told: str) -> None:
    with pytest.raises(TypeError, match=f"^{told}$"):
        an.convert(path, "out.safetensors", **{"to": "gguf-q4_k_m", name: value})


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda: AN.save("x.gguf", {"a": np.ones(3)}), TypeError, "the path goes behind them"),
        (lambda: AN.save(None, "x.gguf"), TypeError, "tensors must be a mapping .* not None"),
        (lambda: AN.save({"a": None}, "x.gguf"), TypeError, "'a' is a NoneType, not an array"),
        (lambda: AN.convert(AN.parse(PLAIN), "x"), TypeError, "where is a Model already"),
        (lambda: AN.convert(PLAIN, "a\0b"), ValueError, "out must be a path, without null"),
        (lambda: AN.parse("a\0b"), ValueError, "where must be a path, without null"),
        (lambda: AN.convert(PLAIN, io.StringIO()), TypeError, "out must be a binary file"),
        (lambda: AN.parse(AN.parse(PLAIN).stored["a.weight"]), TypeError, "cannot read a Stored"),
        (lambda: AN.read_recipe(5), TypeError, "path must be a path, not 5"),
        (lambda: AN.plan(PLAIN, measure="x"), TypeError, "measure must be a whole number"),
        (lambda: AN.parse(PLAIN).fit(target_size=[1]), TypeError, "target_size must be a whole"),
        (lambda: AN.parse(PLAIN).fit(target_size=9, least={"a": 1}), TypeError, "least cannot map"),
        (lambda: AN.parse(PLAIN).select(5), TypeError, r"include must be .* not \(5,\)"),
        (lambda: AN.parse(PLAIN).state_dict(framework=5), TypeError, "framework must be a str"),
    ],
)
def test_wrong_arguments(call: Callable[[], object], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told) as found:
        call()
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("fp8.dequantize", {"weight": "x"}, "weight must be an array of numbers, not a str"),
        ("fp8.dequantize", {"weight": None}, "weight must be an array of numbers, not a NoneType"),
        ("fp8.quantize", {"format": 5}, "format must be a str, not 5"),
        ("fp8.quantize", {"block": "128"}, "block must be two whole numbers"),
        ("ggml.quantize", {"type": 5}, "type must be a str, not 5"),
        ("ggml.dequantize", {"type": None}, "type must be a str, not None"),
        ("ggml.dequantize", {"out": [1]}, r"out must be an array of numpy, not \[1\]"),
        ("ggml.quantize", {"threads": "2"}, "threads must be a whole number, not '2'"),
        ("bnb.quantize_4bit", {"nested": "x"}, "nested must be True or False, not 'x'"),
        ("bnb.dequantize_4bit", {"shape": 5}, "shape must be whole numbers, not 5"),
        ("int4.dequantize", {"packed": 5}, "packed must be what `quantize` returns, not 5"),
        ("nvfp4.quantize", {"amax": "x"}, "amax must be a number, not 'x'"),
    ],
)
def test_arguments_on_arrays(values: Any, name: str, arguments: Any, told: str) -> None:
    module, _, function = name.partition(".")
    call = getattr(getattr(an.schemes, module), function)
    first, *_ = inspect.signature(call).parameters
    usual = {"packed": None, first: values, "type": "Q8_0", "absmax": 1.0, "quant_map": [0.0] * 16}
    if name == "ggml.dequantize":
        usual[first] = np.zeros((1, 34), np.uint8)
    known = {k: v for k, v in usual.items() if k in inspect.signature(call).parameters}
    with pytest.raises(TypeError, match=told):
        call(**known | arguments)


@pytest.mark.parametrize(
    ("call", "error", "told"),
    [
        (lambda p: AN.edit_metadata(p, limits=5), TypeError, "limits must be a ParseLimits, not 5"),
        (lambda p: AN.edit_metadata(p, set=[1]), TypeError, "set must be a mapping"),
        (lambda p: AN.edit_metadata(p, unset=5), TypeError, "unset must be a str or several"),
        (lambda p: AN.edit_metadata(5), TypeError, "path must be a path, not 5"),
        (lambda p: AN.safe_open(p, dtype=np.ones(3)), ValueError, "got a ndarray"),
        (lambda p: AN.safe_open(5), TypeError, "cannot read an int"),
        (
            lambda p: an.convert(p, "b.gguf", metadata={"k": np.float16}),
            an.UnsupportedError,
            "metadata 'k': GGUF has no type for type",
        ),
        (
            lambda p: an.plan(p, "gguf-q4_k_m", override_kv={"k": {"type": "u8"}}),
            ValueError,
            "override_kv 'k' must be a number",
        ),
    ],
)
def test_wrong_arguments_with_files(
    path: str, call: Callable[[str], object], error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=told):
        call(path)
