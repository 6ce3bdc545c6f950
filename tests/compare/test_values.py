"""How far values lie apart: figures against numpy, whatever encodings and threads."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.base.levels import LevelName
from helpers.handmade import Entry, write_safetensors
from helpers.pairs_of_models import BF16, llama, weights

RUNS: tuple[tuple[int, LevelName | None], ...] = ((1, None), (2, None), (7, None), (2, "scalar"))
RNG = np.random.default_rng(1)


def both(tmp_path: Path, a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> an.Comparison:
    for name, array in (("a", a), ("b", b)):
        an.save({"w": array}, tmp_path / f"{name}.npz", force=True)
    return an.compare(tmp_path / "a.npz", tmp_path / "b.npz", values=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int32, np.uint8])
@pytest.mark.parametrize("shape", [(1,), (7, 5), (300, 1000), (3, 700, 500)])
def test_figures_are_numpys(tmp_path: Path, dtype: Any, shape: tuple[int, ...]) -> None:
    a = (RNG.standard_normal(shape) * 50).astype(dtype)
    b = a.copy()
    b.flat[:: max(a.size // 9, 1)] += np.asarray(3, dtype)
    (weight,) = both(tmp_path, a, b).weights
    found = weight.difference
    assert found is not None
    x, y = a.astype(np.float64), b.astype(np.float64)
    assert found.differing == int((a != b).sum())
    assert found.first == tuple(int(i[0]) for i in np.nonzero(a != b))
    assert found.loss.largest == np.abs(x - y).max()
    assert found.loss.mean == pytest.approx(np.abs(x - y).mean(), rel=1e-6)
    assert found.loss.nmse == pytest.approx(((x - y) ** 2).sum() / (x**2).sum(), rel=1e-6)
    cosine = (x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum())
    assert found.cosine == pytest.approx(cosine, rel=1e-6)


def test_numbers_that_are_none_are_in_no_sum(tmp_path: Path) -> None:
    a = np.array([1, np.nan, np.inf, -0.0, 2], np.float32)
    b = np.array([1, np.nan, -np.inf, 0.0, np.nan], np.float32)
    (weight,) = both(tmp_path, a, b).weights
    assert weight.difference is not None
    assert weight.difference.differing == 3  # of other bits: -0, too
    assert weight.difference.not_finite == 3
    assert weight.difference.loss.squared == 0
    assert weight.difference.loss.power == 1


NAN = np.float64("nan")


@pytest.mark.parametrize(
    ("a", "b", "n"),
    [
        (np.array([2**53 + 1]), np.array([2.0**53]), 1),
        (np.array([2**53 + 1]), np.array([2**53], np.uint64), 1),
        (np.array([2**63 - 1]), np.array([2**63], np.uint64), 1),
        (np.array([1, -2]), np.array([1, -2], np.int32), 0),
        (np.array([1 + 2j], np.complex64), np.array([1 + 3j]), 1),
        (np.array([1 + 2j], np.complex64), np.array([1], np.float32), 1),
        (np.array([1 + 0j], np.complex64), np.array([1]), 0),
        (np.array([-0.0, 1]), np.array([0.0, 1], np.float32), 1),
        (np.array([0.0, NAN]), np.array([0.0, NAN], np.float32), 0),
        (np.array([0.1]), np.array([0.1], np.float32), 1),
    ],
)
def test_dtypes_are_compared_exactly(tmp_path: Path, a: Any, b: Any, n: int) -> None:
    for pair in ((a, b), (b, a)):
        found = both(tmp_path, *pair)
        (weight,) = found.weights
        assert weight.difference is not None
        assert weight.difference.differing == n
        assert found.same is (n == 0)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("size", [1e154, 1e200, 1e308])
def test_values_too_large_for_a_sum_are_no_error(tmp_path: Path, size: float, sign: int) -> None:
    a = np.full(5, size)
    found = both(tmp_path, a, a * np.array([0, sign, 1, sign, sign]))
    assert not found.same
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.page().to_html()


def test_sums_that_are_too_large_are_no_error(tmp_path: Path) -> None:
    pairs = {"a": np.array([1e154]), "b": np.array([1.2e154]), "c": np.full(300_000, 1e153)}
    for name, factor in (("a", 1), ("b", -2)):
        an.save({n: v * factor for n, v in pairs.items()}, tmp_path / f"{name}.npz")
    found = an.compare(tmp_path / "a.npz", tmp_path / "b.npz", values=True)
    assert found.total is not None
    assert found.total.loss.power == np.inf
    json.dumps(found.to_dict(), allow_nan=False)
    assert "Two models" in found.page().to_html()


def test_threads_are_at_least_one(tmp_path: Path) -> None:
    path = llama(tmp_path / "a")
    for call in (lambda **how: an.compare(path, path, **how), lambda **how: an.check(path, **how)):
        with pytest.raises(ValueError, match="threads must be at least 1, got 0"):
            call(threads=0)


def test_one_value_of_many_is_found_named_and_counted(tmp_path: Path) -> None:
    a = RNG.standard_normal((1000, 3000)).astype(BF16)
    b = a.copy()
    b[777, 2345] = 9
    found = both(tmp_path, a, b)
    (weight,) = found.differing
    assert weight.difference is not None
    assert (weight.difference.differing, weight.difference.first) == (1, (777, 2345))


def test_figures_do_not_depend_on_threads_or_levels(tmp_path: Path) -> None:
    a = llama(tmp_path / "a")
    an.convert(a, tmp_path / "b.gguf", "gguf-q4_k_m")
    runs = [
        an.compare(a, tmp_path / "b.gguf", values=True, threads=threads, level=level).to_dict()
        for threads, level in RUNS
    ]
    assert runs[1:] == runs[:1] * 3


@pytest.mark.parametrize("to", ["fp8-block", "int8", "bnb-nf4", "mxfp4", "nvfp4"])
def test_an_encoding_loses_what_its_report_says(tmp_path: Path, to: str) -> None:
    a = llama(tmp_path / "a")
    told = an.convert(a, tmp_path / "b", to).loss
    assert told is not None
    found = an.compare(a, tmp_path / "b", values=True)
    for weight in found.differing:
        assert weight.difference is not None
        assert weight.difference.loss.largest == told.weights[weight.name].largest
    assert {weight.name for weight in found.differing} == {
        name for name, loss in told.weights.items() if loss.squared
    }


def test_the_same_values_in_another_encoding_are_the_same(tmp_path: Path) -> None:
    an.convert(llama(tmp_path / "a"), tmp_path / "b", "fp8-block")
    an.remember(tmp_path / "b", tmp_path / "c", dtype="f32")
    found = an.compare(tmp_path / "b", tmp_path / "c", values=True)
    assert found.same
    assert found.counts["same values"] == 14
    assert not an.compare(tmp_path / "b", tmp_path / "c").same


def test_equal_bytes_are_not_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = llama(tmp_path / "a")
    b = llama(tmp_path / "b")
    from anamnesis.convert.compare import values

    monkeypatch.setattr(values, "decode_run", None)
    assert an.compare(a, b, values=True).counts == {"same bytes": 21}


def test_what_cannot_be_decoded_is_compared_as_it_is_stored(tmp_path: Path) -> None:
    odd: dict[str, Entry] = {
        "w.weight_scale": ("F32", (1,), b"\0\0\0\0"),
        "v": ("F32", (1,), bytes(4)),
    }
    other = {**odd, "w.weight_scale": ("F32", (1,), b"\0\0\0\1")}
    paths = [
        write_safetensors(tmp_path / f"{i}.safetensors", one)
        for i, one in enumerate((odd, odd, other))
    ]
    assert an.compare(paths[0], paths[1], values=True).same
    assert not an.compare(paths[0], paths[2], values=True).same


def test_progress_ends_at_all_and_a_call_can_be_cancelled(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    arrays = weights()
    arrays["lm_head.weight"][0, 0] = 7
    a, b = llama(tmp_path / "a"), llama(tmp_path / "b", arrays)
    an.compare(a, b, values=True, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] > 0
    stop = threading.Event()
    stop.set()
    with pytest.raises(an.Cancelled):
        an.compare(a, b, values=True, cancel=stop)


def test_models_that_are_open_stay_open(tmp_path: Path) -> None:
    with an.parse(llama(tmp_path / "a")) as model:
        assert an.compare(model, model, values=True).same
        assert not model.closed
