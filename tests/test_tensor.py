"""A tensor feels like one: its dtype and shape, and its values for numpy and others."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.dtypes import DTYPES, output_dtype
from helpers.handmade import WriteModel, safetensors_bytes

VALUES = np.linspace(-3, 3, 12, dtype=np.float32).reshape(3, 4)
STORED: dict[str, tuple[str, Any]] = {
    "f32": ("F32", VALUES),
    "f16": ("F16", VALUES.astype(np.float16)),
    "bf16": ("BF16", VALUES.astype(ml_dtypes.bfloat16)),
    "f64": ("F64", VALUES.astype(np.float64) / 3),
    "i64": ("I64", np.arange(6).reshape(2, 3)),
    "bool": ("BOOL", np.array([True, False])),
    "c64": ("C64", np.array([1 + 2j, 3], np.complex64)),
    "scalar": ("F32", np.array(2.5, np.float32)),
}
DEFAULTS = {"f16": "f4", "bf16": "f4"}  # of the others it is what is stored


@pytest.fixture
def model() -> Any:
    tensors = {name: (kind, a.shape, a.tobytes()) for name, (kind, a) in STORED.items()}
    tensors["fp8"] = ("F8_E4M3", (3, 4), b"\x38" * 12)
    tensors["fp8_scale"] = ("F32", (1,), np.float32(2).tobytes())
    with an.parse(safetensors_bytes(tensors)) as model:
        yield model


@pytest.mark.parametrize("name", STORED)
def test_by_default_nothing_is_lost(model: an.Model, name: Any) -> None:
    _, values = STORED[name]
    tensor, array = model[name], np.asarray(model[name])
    assert tensor.dtype == array.dtype == np.dtype(DEFAULTS.get(name, values.dtype))
    assert (tensor.shape, tensor.ndim) == (array.shape, array.ndim)
    assert (tensor.size, tensor.nbytes) == (array.size, array.nbytes)
    assert array.tobytes() == values.astype(array.dtype).tobytes()
    assert tensor.numpy().tobytes() == tensor[...].tobytes() == array.tobytes()
    assert tensor.numpy().dtype == tensor[...].dtype == array.dtype


def test_of_codes_and_of_packed_values(model: an.Model) -> None:
    assert model["fp8"].dtype == np.float32
    assert np.all(np.asarray(model["fp8"]) == 2)
    packed = an.parse(safetensors_bytes({"packed": ("F4", (2, 4), bytes(4))}))["packed"]
    assert packed.dtype == np.uint8
    assert (packed.shape, packed.nbytes) == ((2, 4), 4)
    assert packed.numpy().shape == (4,)


SPELT: dict[str, tuple[Any, ...]] = {
    "bf16": ("bf16", "BF16", "bfloat16", ml_dtypes.bfloat16, np.dtype(ml_dtypes.bfloat16)),
    "f16": ("f16", "float16", "Float16", "fp16", "half", np.float16, np.dtype("f2"), np.half),
    "f32": ("f32", "float32", "FP32", np.float32, np.dtype("<f4"), np.single),
}


@pytest.mark.parametrize("short", SPELT)
def test_dtypes_by_any_name(model: an.Model, short: str) -> None:
    wanted = model["f64"].numpy(output_dtype(short))
    for dtype in (*SPELT[short], DTYPES[short.upper()]):
        found = model["f64"].numpy(dtype)
        assert (found.dtype, found.tobytes()) == (wanted.dtype, wanted.tobytes())


@pytest.mark.parametrize(
    "dtype", ["bf61", "", np.float64, np.int8, float, np.dtype(">f4"), 3, object(), DTYPES["F64"]]
)
def test_wrong_dtypes(model: an.Model, dtype: Any) -> None:
    with pytest.raises(
        ValueError, match=r"must be one of bf16, f16, f32, or numpy's.*torch's"
    ) as found:
        model["f32"].numpy(dtype)
    assert dtype is float or "got a type" not in str(found.value)
    with pytest.raises(ValueError, match="output dtype must be one of"):
        model.remember_to_bytes(dtype)


@pytest.mark.parametrize("dtype", [np.float64, ">f4", np.int32, ml_dtypes.bfloat16, "f2", bool])
def test_asarray_of_any_dtype(model: an.Model, dtype: Any) -> None:
    for name in ("f32", "f64", "bf16", "i64"):
        wanted = np.asarray(model[name]).astype(dtype)
        for found in (np.asarray(model[name], dtype), np.array(model[name], dtype=dtype)):
            assert found.dtype == wanted.dtype
            assert found.tobytes() == wanted.tobytes()


def test_asarray_without_a_copy(model: an.Model) -> None:
    with pytest.raises(ValueError, match="'f32' has no array yet"):
        model["f32"].__array__(copy=False)
    first, second = np.array(model["f32"], copy=True), np.asarray(model["f32"])
    first[0] = 9
    assert second[0, 0] == -3
    assert second.flags.writeable


def test_other_protocols(model: an.Model) -> None:
    assert np.from_dlpack(model["bf16"]).tobytes() == np.asarray(model["bf16"]).tobytes()
    assert model["bf16"].__dlpack_device__() == (1, 0)
    assert np.array_equal(VALUES + model["f32"], 2 * VALUES)
    assert np.array_equal(np.concatenate([model["f32"], VALUES]), np.concatenate([VALUES] * 2))


def test_rows(model: an.Model) -> None:
    assert len(model["f32"]) == 3
    assert [row.tolist() for row in model["f32"]] == VALUES.tolist()
    with pytest.raises(TypeError, match="without dimensions"):
        len(model["scalar"])
    with pytest.raises(TypeError, match="without dimensions"):
        list(model["scalar"])
    assert all(bool(tensor) for tensor in model.values())
    assert model["scalar"][()] == 2.5


def test_equal_is_the_same_weight(write_model: WriteModel, model: an.Model) -> None:
    path = write_model({"a": ("F32", [1], bytes(4)), "b": ("F32", [1], bytes(4))})
    with an.parse(path) as one, an.parse(path) as other:
        assert one["a"] == one["a"] == other["a"]
        assert one["a"] != one["b"]
        assert len({one["a"], one["b"], other["a"]}) == 2
        assert one["a"] != model["f32"]
    assert np.all(model["f32"] == VALUES)  # element by element, as numpy takes it


def test_pickled_by_its_path(write_model: WriteModel, model: an.Model) -> None:
    path = write_model({"a": ("F32", [2], VALUES.tobytes()[:8])})
    with an.parse(path) as opened:
        copy = pickle.loads(pickle.dumps(opened["a"]))
        assert copy == opened["a"]
        assert copy is not opened["a"]
    assert copy.numpy().tolist() == VALUES[0, :2].tolist()  # of files of its own
    with pytest.raises(TypeError, match="from a path can be pickled, not from bytes"):
        pickle.dumps(model["f32"])


def test_its_parts_are_told_in_short(model: an.Model) -> None:
    told = repr(model["fp8"].parts)
    assert told == "(<StoredTensor 'fp8', F8_E4M3 [3, 4]>, <StoredTensor 'fp8_scale', F32 [1]>)"
