"""All functions on arrays take the same options, with the same defaults, and refuse them alike."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any, Unpack, get_type_hints

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from anamnesis import schemes
from anamnesis.base.levels import LevelName, supported_levels
from anamnesis.base.workers import run
from anamnesis.schemes import awq, bnb, exl2, exl3, fp8, ggml, gptq, int4, int8, mlx, mx, nvfp4
from anamnesis.schemes.core import in_memory

ROWS, COLS = 1024, 2048  # of BF16 4 MiB: several threads' work
ARRAY = np.random.default_rng(0).standard_normal((ROWS, COLS)).astype(np.float32)
FEW = ARRAY[:32, :128]
SHARED: dict[str, tuple[Callable[..., Any], type]] = {
    "dequantize": (in_memory.dequantize, in_memory.DequantizeOptions),
    "quantize": (in_memory.quantize, in_memory.QuantizeOptions),
}

Made = Callable[..., Any]  # takes an array and options
Decoded = Callable[..., NDArray[Any]]  # takes what was made, and options

ENCODERS: dict[str, Made] = {
    "awq.quantize": awq.quantize,
    "bnb.quantize_4bit": bnb.quantize_4bit,
    "bnb.quantize_int8": bnb.quantize_int8,
    "fp8.quantize": fp8.quantize,
    "ggml.quantize": lambda array, **how: ggml.quantize(array, "Q8_0", **how),
    "gptq.quantize": gptq.quantize,
    "int4.quantize": int4.quantize,
    "int8.quantize": int8.quantize,
    "mlx.quantize": mlx.quantize,
    "mx.quantize": mx.quantize,
    "nvfp4.quantize": nvfp4.quantize,
}


def of_exl2(array: NDArray[Any]) -> list[NDArray[Any]]:
    """Codes of 4 bits in one group, for as many values."""
    rows, cols = array.shape
    words = np.arange(cols // 8 * rows, dtype=np.int32).reshape(cols // 8, rows)
    scales = np.zeros((1, rows // 8), np.int32), np.ones(1, np.float16)
    return [words, *scales, np.array([4, 0], np.int16), np.arange(cols, dtype=np.int32)]


# Of each function that decodes: what makes its arrays, and how it takes them.
DECODERS: dict[str, tuple[Made, Decoded]] = {
    "awq.dequantize": (awq.quantize, lambda made, **how: awq.dequantize(*made, **how)),
    "bnb.dequantize_4bit": (
        bnb.quantize_4bit,
        lambda made, **how: bnb.dequantize_4bit(**made._asdict(), **how),
    ),
    "bnb.dequantize_int8": (
        bnb.quantize_int8,
        lambda made, **how: bnb.dequantize_int8(*made, **how),
    ),
    "exl2.dequantize": (of_exl2, lambda made, **how: exl2.dequantize(*made, **how)),
    "exl3.dequantize": (
        lambda array: np.zeros((array.shape[1] // 8, -(-array.shape[0] // 128) * 8, 32), np.int16),
        lambda made, **how: exl3.dequantize(
            made, *(np.ones(16 * n, np.float16) for n in made.shape[:2]), **how
        ),
    ),
    "fp8.dequantize": (fp8.quantize, lambda made, **how: fp8.dequantize(*made, **how)),
    "ggml.dequantize": (
        lambda array: np.zeros((array.shape[0], array.shape[1] // 32 * 34), np.uint8),
        lambda made, **how: ggml.dequantize(made, "Q8_0", **how),
    ),
    "gptq.dequantize": (gptq.quantize, lambda made, **how: gptq.dequantize(*made, **how)),
    "int4.dequantize": (int4.quantize, int4.dequantize),
    "int8.dequantize": (int8.quantize, lambda made, **how: int8.dequantize(*made, **how)),
    "mlx.dequantize": (mlx.quantize, lambda made, **how: mlx.dequantize(*made, **how)),
    "mx.dequantize": (mx.quantize, lambda made, **how: mx.dequantize(*made, **how)),
    "nvfp4.dequantize": (nvfp4.quantize, lambda made, **how: nvfp4.dequantize(*made, **how)),
}


def public_functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions of all modules for arrays, by `module.function`."""
    for name in schemes.__all__:
        module = getattr(schemes, name)
        for member in module.__all__:
            if isinstance(function := getattr(module, member), FunctionType):
                yield f"{name}.{member}", function


FUNCTIONS = dict(public_functions())


def shared_by(name: str) -> tuple[Callable[..., Any], type]:
    return SHARED[name.partition(".")[2].partition("_")[0]]


def keywords_of(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [p for p in parameters if p.kind == p.KEYWORD_ONLY]


def decode_few(name: str, **options: Any) -> NDArray[Any]:
    make, decode = DECODERS[name]
    return decode(make(FEW), **options)


def test_every_function_is_called_here() -> None:
    assert set(FUNCTIONS) == {*ENCODERS, *DECODERS}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_signatures_have_the_options_that_all_share(name: str) -> None:
    """At their end, by keyword alone, with one default and one type."""
    shared, options = shared_by(name)
    keywords = keywords_of(shared)
    parameters = list(inspect.signature(FUNCTIONS[name]).parameters.values())
    assert parameters[-len(keywords) :] == keywords
    assert not {p.name for p in parameters[: -len(keywords)]} & {"dtype", "out", "threads", "level"}
    assert get_type_hints(FUNCTIONS[name])["options"] == Unpack[options]


@pytest.mark.parametrize("name", SHARED)
def test_type_checkers_read_what_runs(name: str) -> None:
    shared, options = SHARED[name]
    typed = {option: hint.__forward_arg__ for option, hint in options.__annotations__.items()}
    assert typed == {p.name: p.annotation for p in keywords_of(shared)}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_thread_for_each_cpu_by_default(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def noting(jobs: Any, worker: Any, threads: int) -> None:
        asked.append(threads)
        run(jobs, worker, threads)

    if name in DECODERS:
        make, decode = DECODERS[name]
        made = make(ARRAY)
        call: Callable[..., Any] = lambda **how: decode(made, **how)  # noqa: E731
    else:
        call = lambda **how: ENCODERS[name](ARRAY, **how)  # noqa: E731
    monkeypatch.setattr("anamnesis.schemes.core.arrays.run", noting)
    monkeypatch.setattr("anamnesis.schemes.core.arrays.default_threads", lambda: 3)
    whole = call()
    assert set(asked) == {3}
    asked.clear()
    alone = call(threads=1)
    assert set(asked) == {1}
    parts = [(whole, alone)] if isinstance(whole, np.ndarray) else zip(whole, alone, strict=True)
    for one, other in parts:
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("name", DECODERS)
def test_bf16_by_default_and_any_word_for_a_dtype(name: str) -> None:
    whole = decode_few(name)
    assert whole.dtype == ml_dtypes.bfloat16
    for dtype in ("bf16", "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)):
        again = decode_few(name, dtype=dtype)
        assert (again.dtype, again.tobytes()) == (whole.dtype, whole.tobytes())
    for dtype in ("f16", np.float16, np.dtype("f2")):
        assert decode_few(name, dtype=dtype).dtype == np.float16
    for level in supported_levels():
        assert decode_few(name, level=level).tobytes() == whole.tobytes()


@pytest.mark.parametrize("name", DECODERS)
def test_results_go_where_they_are_asked_to(name: str) -> None:
    whole = decode_few(name, dtype="f32")
    out = np.empty_like(whole)
    assert decode_few(name, dtype=np.float32, out=out) is out
    assert out.tobytes() == whole.tobytes()
    shape = whole.shape
    for wrong, error, message in (
        (np.empty(shape, np.float16), TypeError, "out has dtype float16, but float32 is asked for"),
        (np.empty(shape[::-1], np.float32), ValueError, r"out has shape \(.*\), the weight \("),
        (np.empty(shape[::-1], np.float32).T, ValueError, "out must be C-contiguous and writable"),
    ):
        with pytest.raises(error, match=message):
            decode_few(name, dtype="f32", out=wrong)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_options_are_refused_alike(name: str) -> None:
    def call(**options: Any) -> Any:
        return decode_few(name, **options) if name in DECODERS else ENCODERS[name](FEW, **options)

    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"level": "avx9"}, ValueError, "level 'avx9'"),
        ({"threads": 0}, ValueError, "threads must be at least 1, got 0"),
        ({"thread": 2}, TypeError, r"quantize\(\) got an unexpected keyword argument 'thread'"),
    ]
    if name in DECODERS:
        wrong.append(({"dtype": "f64"}, ValueError, "output dtype must be one of"))
    else:
        out = np.empty(1, np.uint8)
        wrong.append(({"out": out}, TypeError, "unexpected keyword argument 'out'"))
    for options, error, message in wrong:
        with pytest.raises(error, match=message):
            call(**options)


@pytest.mark.parametrize("name", ENCODERS)
def test_values_that_cannot_be_encoded_are_refused_alike(name: str) -> None:
    quantize = ENCODERS[name]
    with pytest.raises(TypeError, match="array has dtype float64, but must be one of float32, "):
        quantize(FEW.astype(np.float64))
    with pytest.raises(ValueError, match="array"):
        quantize(FEW[:0])


@pytest.mark.parametrize("level", supported_levels())
def test_values_of_an_infinite_scale_are_zeros_at_every_level(level: LevelName) -> None:
    """As compressed-tensors has them: the largest bfloat16 makes its scale overflow."""
    array = np.full((2, 64), 0x7F7F, np.uint16).view(ml_dtypes.bfloat16)
    codes, _ = mx.quantize(array, "mxfp8", level=level)
    assert not codes.view(np.uint8).any()
