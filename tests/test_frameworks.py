"""`state_dict` as NumPy's, torch's and JAX's arrays, on devices."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an

ARRAYS: dict[str, Any] = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b": np.ones(5, ml_dtypes.bfloat16),
    "ids": np.arange(7, dtype=np.int32),
    "empty": np.empty((0, 3), np.float16),
}


@pytest.fixture
def model(tmp_path: Path) -> an.Model:
    an.save(ARRAYS, tmp_path / "in.safetensors")
    return an.parse(tmp_path / "in.safetensors")


class StandIn(ModuleType):
    """What of JAX is asked for; it notes what comes where."""

    def __init__(self) -> None:
        super().__init__("jax")
        self.config = SimpleNamespace(jax_enable_x64=False)
        self.put: list[tuple[Any, Any]] = []

    def devices(self, platform: str) -> list[str]:
        return [f"{platform}:0", f"{platform}:1"]

    def device_put(self, array: Any, device: Any) -> Any:
        self.put.append((array, device))
        return array


def test_jax_is_given_the_arrays(model: an.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    jax = StandIn()
    monkeypatch.setitem(sys.modules, "jax", jax)
    state = model.state_dict("bf16", framework="jax", device="gpu")
    assert {name: a.dtype.name for name, a in state.items()} == {
        "a.weight": "float32",
        "b": "bfloat16",
        "ids": "int32",
        "empty": "float16",
    }
    assert {device for _, device in jax.put} == {"gpu:0"}
    own = object()
    model.state_dict(framework="jax", device=own)
    assert jax.put[-1][1] is own


@pytest.mark.parametrize("kind", ["float64", "int64", "uint64", "complex128"])
def test_jax_cuts_nothing(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would make 32 bits of them, without a word but a warning."""
    jax = StandIn()
    monkeypatch.setitem(sys.modules, "jax", jax)
    np.savez(tmp_path / "in.npz", a=np.ones(3, kind), b=np.ones(3, np.complex64))
    with an.parse(tmp_path / "in.npz") as model:
        with pytest.raises(ValueError, match=r"tensor 'a' is \w+, which JAX has only after"):
            model.state_dict(framework="jax")
        assert jax.put == []
        jax.config.jax_enable_x64 = True
        assert model.state_dict(framework="jax")["a"].dtype == kind


def test_a_framework_that_is_not_there(model: an.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, package in (("jax", "jax"), ("torch", "torch"), ("pt", "torch")):
        monkeypatch.setitem(sys.modules, package, None)  # as if it were not installed
        with pytest.raises(ModuleNotFoundError) as caught:
            model.state_dict(framework=name)  # type: ignore[call-overload]
        assert str(caught.value) == (f"framework={name!r} needs {package}, which is not installed")
        assert caught.value.name == package


def test_numpy_has_no_devices(model: an.Model) -> None:
    with pytest.raises(TypeError, match=r"on no device: leave device=\.\.\. out"):
        model.state_dict(device="cuda")  # type: ignore[call-overload]


def test_jax_itself(model: an.Model) -> None:
    jax = pytest.importorskip("jax", reason="not a case: jax is not installed")
    for device in (None, "cpu", jax.devices("cpu")[0]):
        state = model.state_dict("bf16", framework="jax", device=device)
        for name, array in state.items():
            assert isinstance(array, jax.Array)
            assert array.devices() == {jax.devices("cpu")[0]}
            assert np.asarray(array).dtype == ARRAYS[name].dtype
            assert np.asarray(array).tobytes() == ARRAYS[name].tobytes()
            assert array.shape == ARRAYS[name].shape
    half = model.state_dict("bf16", framework="jax", cast_all=True)
    assert half["a.weight"].dtype == jax.numpy.bfloat16
