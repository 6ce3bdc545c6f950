"""What the GGUF writer takes, ggml itself reads; what it refuses, ggml would refuse."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

import anamnesis as an
from anamnesis.base.dtypes import BLOCK_DTYPES, DTYPES
from anamnesis.base.stored import Part
from anamnesis.formats.gguf.values import merged
from anamnesis.formats.gguf.write import GgufWriter
from helpers import gguf_handmade as handmade
from helpers.written import every_part, written

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))

import ggml_c

DTYPE = {0: DTYPES["F32"], 8: BLOCK_DTYPES["Q8_0"]}


class Params(ctypes.Structure):
    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


@cache
def library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(ggml_c.library()))
    lib.gguf_init_from_file.restype = ctypes.c_void_p
    lib.gguf_init_from_file.argtypes = (ctypes.c_char_p, Params)
    lib.gguf_free.argtypes = (ctypes.c_void_p,)
    for name, restype, *args in (
        ("gguf_get_n_tensors", ctypes.c_int64),
        ("gguf_get_n_kv", ctypes.c_int64),
        ("gguf_get_data_offset", ctypes.c_size_t),
        ("gguf_get_tensor_name", ctypes.c_char_p, ctypes.c_int64),
        ("gguf_get_tensor_offset", ctypes.c_size_t, ctypes.c_int64),
        ("gguf_get_tensor_size", ctypes.c_size_t, ctypes.c_int64),
        ("gguf_get_tensor_type", ctypes.c_int, ctypes.c_int64),
    ):
        getattr(lib, name).restype = restype
        getattr(lib, name).argtypes = (ctypes.c_void_p, *args)
    return lib


@contextmanager
def opened(path: Path) -> Iterator[int | None]:
    context = library().gguf_init_from_file(str(path).encode(), Params(True, None))
    yield context
    if context:
        library().gguf_free(context)


def test_ggml_reads_all_that_is_written(tmp_path: Path) -> None:
    model = every_part(GgufWriter())
    raw = written(GgufWriter(), model, {"general.alignment": 64, "a": ["x", "y"], "b": 1.5})
    path = tmp_path / "m.gguf"
    path.write_bytes(raw)
    lib = library()
    with opened(path) as context:
        assert context
        assert lib.gguf_get_n_tensors(context) == len(model)
        assert lib.gguf_get_n_kv(context) == 3
        start = lib.gguf_get_data_offset(context)
        for i, (part, data) in enumerate(model):
            assert lib.gguf_get_tensor_name(context, i) == part.name.encode()
            assert lib.gguf_get_tensor_size(context, i) == part.n_bytes
            at = start + lib.gguf_get_tensor_offset(context, i)
            assert raw[at : at + part.n_bytes] == data


@pytest.mark.parametrize(
    ("name", "dims", "kind", "is_read"),
    [
        ("x" * 63, [1], 0, True),
        ("x" * 64, [1], 0, False),
        ("é" * 32, [1], 0, False),
        ("a", [], 0, True),
        ("a", [1] * 4, 0, True),
        ("a", [1] * 5, 0, False),
        ("a", [31], 8, False),
        ("a", [], 8, False),
        ("a", [32], 8, True),
    ],
)
def test_refusals_are_those_of_ggml(
    name: str, dims: list[int], kind: int, is_read: bool, tmp_path: Path
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(handmade.gguf_bytes({}, {name: handmade.Tensor(dims, kind, bytes(64))}))
    with opened(path) as context:
        assert bool(context) == is_read
    refused = GgufWriter().refuses(Part(name, DTYPE[kind], tuple(reversed(dims))))
    assert (refused is None) == is_read


def test_real_vocabularies_go_over_byte_for_byte() -> None:
    """Headers that llama.cpp's converter wrote, with a quarter of a million strings."""
    paths = sorted((ggml_c.llama_cpp() / "models").glob("ggml-vocab-*.gguf"))
    assert len(paths) >= 19
    for path in paths:
        raw = path.read_bytes()
        with an.parse(path) as model:
            assert not model.stored
            ours = written(GgufWriter(), [], merged(model.metadata))
        assert ours[8 : len(raw)] == raw[8:], path.name  # behind the version, which may be 2
        assert not any(ours[len(raw) :])
