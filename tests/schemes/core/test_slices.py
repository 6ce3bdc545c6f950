"""Some elements of a weight are those of the whole, and are decoded from little more than them."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import anamnesis as an
from anamnesis.base.dtypes import DTYPES
from anamnesis.base.indexing import box_of
from anamnesis.base.levels import resolve_level
from anamnesis.schemes.core import slices
from anamnesis.schemes.core.slices import decode_box
from anamnesis.sources.file import FileSource
from helpers.handmade import safetensors_bytes, write_safetensors
from helpers.weight_cases import CASES, NAME, four_bit, fp8, int8, packed, tensors_of

LEVEL = resolve_level()
STEPS = (None, 1, 2, 3, 7, -1, -2, -5)


def indices(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """A basic index of any kind, in bounds or not."""
    key: list[Any] = []
    for n in shape[: rng.integers(0, len(shape) + 1)]:
        kind = rng.integers(0, 5)
        if kind == 0:
            key.append(slice(None))
        elif kind == 1:
            key.append(int(rng.integers(-n - 1, n + 1)))
        else:
            ends = [int(rng.integers(-n - 2, n + 3)) for _ in range(2)]
            start, stop = (end if rng.random() < 0.8 else None for end in ends)
            key.append(slice(start, stop, STEPS[rng.integers(0, len(STEPS))]))
    for item in (None, ...):
        if rng.random() < 0.2:
            key.insert(int(rng.integers(0, len(key) + 1)), item)
    return tuple(key)


def check(tensor: an.Tensor, rng: np.random.Generator, n: int, threads: int = 1) -> None:
    for dtype in ("F32", "BF16"):
        whole = tensor.numpy(dtype)
        for _ in range(n):
            key = indices(rng, tensor.shape)
            try:
                wanted = whole[key]
            except IndexError:
                with pytest.raises(IndexError):
                    tensor[key]
                continue
            box = box_of(key, tensor.shape)
            found = decode_box(tensor._weight, DTYPES[dtype], box, threads, LEVEL)[box.rest]
            assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), key
            assert found.tobytes() == wanted.tobytes(), key


@pytest.mark.sampled(3)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("conv1d", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_parts_of_a_matrix(
    case: str, conv1d: bool, held: bool, rng: np.random.Generator, tmp_path: Path
) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", tensors_of(case, rng))
    with an.parse(path.read_bytes() if held else path, conv1d=conv1d) as model:
        check(model[f"{NAME}.weight"], rng, 15)


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "case", ["nf4", "gptq", "gptq-act-order", "awq", "fp8", "int8", "nvfp4", "mxfp4", "mxfp6"]
)
@pytest.mark.usefixtures("small_bands")
def test_parts_of_many_bands(
    case: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "_SPARSE", 64)
    monkeypatch.setattr(slices, "_DENSE", 256)
    path = write_safetensors(tmp_path / "model.safetensors", tensors_of(case, rng))
    for conv1d in (False, True):
        with an.parse(path, conv1d=conv1d) as model:
            check(model[f"{NAME}.weight"], rng, 6, threads=3)


SHAPES = [(), (1,), (0,), (7,), (3, 0, 2), (2, 3, 4), (5, 1, 6, 2), (40, 700)]


@pytest.mark.parametrize("shape", SHAPES)
def test_parts_of_plain_tensors(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    values = rng.standard_normal(shape).astype(np.float32)
    for dtype, array in (("F32", values), ("I64", values.astype(np.int64)), ("BOOL", values > 0)):
        raw = safetensors_bytes({"w": (dtype, shape, array.tobytes())})
        with an.parse(raw) as model:
            tensor = model["w"]
            for _ in range(60):
                key = indices(rng, shape)
                try:
                    wanted = array[key]
                except IndexError:
                    with pytest.raises(IndexError):
                        tensor[key]
                    continue
                found = tensor[key]
                assert type(found) is type(wanted), key
                assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), key
                assert np.array_equal(found, wanted), key


def test_experts_of_a_batch(rng: np.random.Generator) -> None:
    """Matrices one after the other, each with a grid of scales of its own."""
    codes = rng.integers(0, 127, (3, 130, 200), np.uint8)
    scales = rng.random((3, 2, 2)).astype(np.float32)
    raw = safetensors_bytes(
        {
            "w": ("F8_E4M3", codes.shape, codes.tobytes()),
            "w_scale_inv": ("F32", scales.shape, scales.tobytes()),
        }
    )
    with an.parse(raw, block_size=(128, 128)) as model:
        check(model["w"], rng, 40)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_boxes_are_numpys(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(0, 6), max_size=4)))
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    key = indices(np.random.default_rng(data.draw(st.integers(0, 2**32))), shape)
    try:
        wanted = array[key]
    except IndexError:
        with pytest.raises(IndexError):
            box_of(key, shape)
        return
    box = box_of(key, shape)
    spans = zip(box.starts, box.counts, box.steps, strict=True)
    taken = array[np.ix_(*(range(a, a + n * step, step) for a, n, step in spans))]
    assert taken.shape == box.counts
    assert np.array_equal(taken[box.rest], wanted)
    assert taken[box.rest].shape == wanted.shape


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ((slice(None), 7), "index 7 is out of bounds for axis 1 with size 4"),
        (-4, "index -4 is out of bounds for axis 0 with size 3"),
        ((0, 0, 0), "too many indices: 3 for 2 dimensions"),
        ((..., ...), "only have one ellipsis"),
        ([0, 1], "a list is not supported as an index"),
        (np.array([True, False, True]), "a ndarray is not supported"),
        (True, "a bool is not supported"),
        ("0", "a str is not supported"),
        (1.0, "a float is not supported"),
    ],
)
def test_what_is_no_index(key: Any, words: str) -> None:
    with an.parse(safetensors_bytes({"w": ("F32", (3, 4), bytes(48))})) as model:
        with pytest.raises(IndexError, match=words) as raised:
            model["w"][key]
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize("n", [2**31, 2**62, 2**63, 2**64 - 1])
def test_sizes_without_end(n: int) -> None:
    """Of tensors without data; numpy has them up to a size, whatever the index."""
    for shape in ((n, 0), (0, n)):
        tensor = an.parse(safetensors_bytes({"w": ("F32", shape, b"")}))["w"]
        assert tensor.size == 0
        for key in ((), slice(None), slice(None, None, -3), slice(1, 3), (slice(0), slice(5))):
            try:
                assert tensor[key].size == 0
            except an.UnsupportedError as error:
                assert "numpy has no array of shape" in str(error)  # noqa: PT017
        if shape[0]:
            assert tensor[-1].shape == (0,)


def test_packed_values_have_no_parts() -> None:
    with an.parse(safetensors_bytes({"w": ("F4", (4, 4), bytes(8))})) as model:
        assert model["w"].numpy().shape == (8,)
        with pytest.raises(IndexError, match="'w' holds packed F4: index what numpy"):
            model["w"][0]


# --- what is read -----------------------------------------------------------------------------

ROWS, COLS = 256, 11008


def large(kind: str, rng: np.random.Generator, folder: Path) -> tuple[Path, str]:
    """A weight of `ROWS` x `COLS` of some family, and its name."""
    if kind == "q4_k":
        blocks = rng.integers(0, 255, (ROWS, COLS // 256 * 144), dtype=np.uint8)
        writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
        writer.add_tensor("w", blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_K)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return folder / "model.gguf", "w"
    parts = {
        "fp8": lambda: fp8(rng, ROWS, COLS, (128, 128)),
        "gptq": lambda: packed(rng, ROWS, COLS, 4, 128, "gptq"),
        "gptq-act-order": lambda: packed(rng, ROWS, COLS, 4, 128, "act"),
        "awq": lambda: packed(rng, ROWS, COLS, 4, 128, "awq"),
        "nf4": lambda: four_bit(rng, ROWS, COLS, 64, False),
        "nf4-nested": lambda: four_bit(rng, ROWS, COLS, 64, True),
        "int8": lambda: int8(rng, ROWS, COLS),
        "bf16": lambda: {"weight": ("BF16", (ROWS, COLS), rng.bytes(2 * ROWS * COLS))},
    }[kind]()
    tensors = {f"{NAME}.{part}": entry for part, entry in parts.items()}
    return write_safetensors(folder / "model.safetensors", tensors), f"{NAME}.weight"


KINDS = ("fp8", "gptq", "gptq-act-order", "awq", "nf4", "nf4-nested", "int8", "bf16", "q4_k")


class Reads:
    """How many bytes of files are read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_bytes = 0
        for method in ("_read_some", "_read_rows"):
            self._count(method, monkeypatch)

    def _count(self, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        read = getattr(FileSource, method)

        def counting(source: FileSource, *args: Any) -> Any:
            self.n_bytes += len(args[-1])
            return read(source, *args)

        monkeypatch.setattr(FileSource, method, counting)

    def of(self, read: Any) -> int:
        before = self.n_bytes
        read()
        return self.n_bytes - before


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_reads_little_more_than_itself(
    kind: str, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight rows at most, of packed words; and what all rows share, codebooks and g_idx."""
    path, name = large(kind, rng, tmp_path)
    with an.parse(path, conv1d=False) as model:
        tensor = model[name]
        whole = tensor.numpy()
        reads = Reads(monkeypatch)
        n_row = sum(part.n_bytes for part in tensor.parts) / ROWS
        shared = 4 * COLS if kind == "gptq-act-order" else 2048
        n_rows = 8 if kind.startswith(("gptq", "awq")) else 1
        for key in (0, 3, -1, (5, slice(10, 20)), slice(7, 8), (2, ..., slice(None, None, 3))):
            assert reads.of(lambda key=key: tensor[key]) <= n_rows * n_row + shared, key
            assert tensor[key].tobytes() == whole[key].tobytes()
        n = reads.of(lambda: tensor[100:164])
        assert n <= (64 + 2 * n_rows) * n_row + shared * 8
        assert tensor[100:164].tobytes() == whole[100:164].tobytes()
        assert reads.of(lambda: tensor[::50]) <= 11 * (n_rows * n_row + shared)


def test_a_few_columns_read_little_more_than_them(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, most in (("fp8", 80), ("bf16", 24), ("int8", 76)):
        path, name = large(kind, rng, tmp_path)
        with an.parse(path, conv1d=False) as model:
            tensor = model[name]
            whole = tensor.numpy()
            with monkeypatch.context() as patched:
                assert Reads(patched).of(lambda: tensor[:, 10:20]) <= most * ROWS  # noqa: B023
            assert tensor[:, 10:20].tobytes() == whole[:, 10:20].tobytes()


def test_memory_of_a_strided_slice() -> None:
    """What is decoded with what is between is held a piece at a time."""
    n = 8 << 20
    raw = safetensors_bytes({"w": ("F32", (n,), bytes(4 * n))})
    with an.parse(raw) as model:
        model["w"][::1000]
        tracemalloc.start()
        try:
            assert model["w"][::1000].shape == (-(-n // 1000),)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 1 << 20


def test_a_slice_is_within_limits() -> None:
    """A weight that is too large to be had whole can be had in parts."""
    raw = safetensors_bytes({"w": ("F32", (1000, 100), bytes(400_000))})
    with an.parse(raw, limits=an.ParseLimits(max_single_alloc=100_000)) as model:
        with pytest.raises(an.LimitExceeded, match="max_single_alloc"):
            model["w"].numpy()
        assert model["w"][:100].shape == (100, 100)
        with pytest.raises(an.LimitExceeded, match="max_single_alloc"):
            model["w"][:300]
