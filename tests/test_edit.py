"""Weights with other values: what `edit` writes, beside numpy and the model edited by hand."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file

import anamnesis as an
from anamnesis.convert.resume.protocol import Run
from anamnesis.schemes.core.bands import cut_into
from helpers.alike import files

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(11)
THREADS = [1, 2, 7]


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def double(tensor: an.Tensor) -> Any:
    return tensor.numpy() * 2


@pytest.fixture
def small_bands() -> Iterator[None]:
    """Bands of a few kilobytes, so that small weights have many."""
    with cut_into(4096):
        yield


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A directory of one file, of several dtypes."""
    arrays = {
        "model.embed_tokens.weight": floats(64, 256).astype(BF16),
        "model.layers.0.mlp.up_proj.weight": floats(384, 256).astype(BF16),
        "model.layers.0.mlp.down_proj.weight": floats(256, 384).astype(BF16),
        "model.layers.1.mlp.up_proj.weight": floats(384, 256).astype(BF16),
        "model.layers.1.mlp.down_proj.weight": floats(256, 384).astype(BF16),
        "model.norm.weight": floats(256),
        "model.half": floats(33, 7).astype(np.float16),
        "model.double": RNG.standard_normal(9),
        "model.position_ids": np.arange(12),
    }
    folder = tmp_path / "plain"
    folder.mkdir()
    an.save(arrays, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"}))
    (folder / "tokenizer.json").write_text("{}")
    return folder


@pytest.fixture
def fp8(plain: Path, tmp_path: Path) -> Path:
    """The same in FP8, in several shards."""
    an.forget(plain, tmp_path / "fp8", "fp8-block", max_shard_size=150_000)
    return tmp_path / "fp8"


def whole(folder: Path) -> dict[str, Any]:
    """Return all tensors of a directory, as safetensors reads them."""
    return {n: a for file in folder.glob("*.safetensors") for n, a in load_file(file).items()}


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, np.ascontiguousarray(array).tobytes()


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert {n: bits(a) for n, a in one.items()} == {n: bits(a) for n, a in other.items()}


# --- what is written ----------------------------------------------------------------------------


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.usefixtures("small_bands")
def test_three_tensors_of_a_sharded_fp8_directory(fp8: Path, tmp_path: Path, threads: int) -> None:
    norm, up = floats(256), floats(384, 256)
    an.remember(fp8, tmp_path / "as-it-is")
    with an.parse(fp8) as model:
        down = model["model.layers.1.mlp.down_proj.weight"].numpy()
        report = model.remember(
            tmp_path / "edited",
            threads=threads,
            edit={
                "model.norm.weight": norm,
                "model.layers.0.mlp.up_proj.weight": up,
                "model.layers.1.mlp.down_proj.weight": double,
            },
        )
    assert len(report.edited) == 3
    assert report.n_quantized == 4
    assert report.n_in == report.n_out + report.n_consumed
    expected = whole(tmp_path / "as-it-is")
    expected["model.norm.weight"] = norm
    expected["model.layers.0.mlp.up_proj.weight"] = up.astype(BF16)
    expected["model.layers.1.mlp.down_proj.weight"] = (down * 2).astype(BF16)
    assert_same(whole(tmp_path / "edited"), expected)
    one, other = files(tmp_path / "edited"), files(tmp_path / "as-it-is")
    assert one.keys() == other.keys()
    assert [n for n in one if n.endswith(".json") and one[n] != other[n]] == []


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.usefixtures("small_bands")
def test_merge_a_lora(plain: Path, tmp_path: Path, threads: int) -> None:
    names = [f"model.layers.{i}.mlp.up_proj" for i in range(2)]
    lora = {name: (floats(384, 8), floats(8, 256)) for name in names}

    def merged(tensor: an.Tensor) -> Any:
        b, a = lora[tensor.name.removesuffix(".weight")]
        return tensor.numpy() + np.float32(0.5) * (b @ a)

    an.convert(plain, tmp_path / "out", edit={"*.up_proj": merged}, threads=threads)
    expected = whole(plain)
    for name, (b, a) in lora.items():
        before = expected[f"{name}.weight"].astype(np.float32)
        expected[f"{name}.weight"] = (before + np.float32(0.5) * (b @ a)).astype(BF16)
    assert_same(whole(tmp_path / "out"), expected)


def test_drop_a_layer(plain: Path, tmp_path: Path) -> None:
    report = an.convert(plain, tmp_path / "one", edit={"model.layers.1": None})
    assert {drop.name for drop in report.dropped} == {
        "model.layers.1.mlp.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight",
    }
    an.convert(plain, tmp_path / "other", drop="model.layers.1")
    assert files(tmp_path / "one") == files(tmp_path / "other")


def test_the_first_pattern_that_fits_decides(plain: Path, tmp_path: Path) -> None:
    up = floats(384, 256).astype(BF16)
    edit = {"model.layers.1.mlp.up_proj.weight": up, "model.layers.*": None}
    an.convert(plain, tmp_path / "out.safetensors", edit=edit)
    found = load_file(tmp_path / "out.safetensors")
    assert_same({n: a for n, a in found.items() if "layers" in n}, {next(iter(edit)): up})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("to", ["fp8-block", "fp8-tensor", "int4", "bnb-nf4-nested"])
@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.usefixtures("small_bands")
def test_forget_as_the_edited_model(plain: Path, tmp_path: Path, to: str, threads: int) -> None:
    """Those of one that is edited by hand are the same: files, and what they took."""
    edit = {"*.up_proj": double, "model.norm.weight": floats(256).astype(np.float64)}
    edit["*.0.mlp.down_proj.weight"] = floats(128, 384)
    arrays: dict[str, Any] = whole(plain)
    for name, array in arrays.items():
        if "up_proj" in name:
            arrays[name] = (array.astype(np.float32) * 2).astype(BF16)
    arrays["model.norm.weight"] = edit["model.norm.weight"].astype(np.float32)
    arrays["model.layers.0.mlp.down_proj.weight"] = edit["*.0.mlp.down_proj.weight"].astype(BF16)
    by_hand = tmp_path / "by-hand"
    by_hand.mkdir()
    an.save(arrays, by_hand / "model.safetensors")
    for name in ("config.json", "tokenizer.json"):
        (by_hand / name).write_bytes((plain / name).read_bytes())
    one = an.forget(by_hand, tmp_path / "one", to, threads=threads)
    other = an.forget(plain, tmp_path / "other", to, threads=threads, edit=edit, verify=True)
    assert files(tmp_path / "one") == files(tmp_path / "other")
    assert one.loss == other.loss


@pytest.mark.parametrize("to", ["safetensors", "f32", "int4", "bnb-nf4"])
@pytest.mark.parametrize("cast_all", [False, True])
def test_the_values_it_has_change_nothing(
    plain: Path, fp8: Path, tmp_path: Path, to: str, cast_all: bool
) -> None:
    for source in (plain, fp8):
        one, other = tmp_path / f"one-{source.name}", tmp_path / f"other-{source.name}"
        an.convert(source, one, to, cast_all=cast_all)
        an.convert(source, other, to, cast_all=cast_all, edit={"*": lambda t: t})
        assert files(one) == files(other)


def test_experts_and_layers_that_are_turned(tmp_path: Path) -> None:
    """What an encoding takes apart, or transposes, is cut out of the edited values."""
    stacks = {
        "mlp.experts.gate_up_proj": floats(3, 128, 64).astype(BF16),
        "mlp.experts.down_proj": floats(3, 64, 64).astype(BF16),
    }
    conv1d = {"h.0.mlp.c_fc.weight": floats(64, 192), "h.0.mlp.c_fc.bias": floats(192)}
    for arrays, to in ((stacks, "int8"), (conv1d, "bnb-nf4"), (conv1d, "bnb-int8")):
        calls: list[str] = []

        def halved(tensor: an.Tensor, calls: list[str] = calls) -> Any:
            calls.append(tensor.name)
            return tensor.numpy() / 2

        an.save({n: a / 2 for n, a in arrays.items()}, tmp_path / "half.safetensors", force=True)
        an.save(arrays, tmp_path / "in.safetensors", force=True)
        one, other = io.BytesIO(), io.BytesIO()
        an.forget(tmp_path / "half.safetensors", one, to, conv1d=True)
        an.forget(tmp_path / "in.safetensors", other, to, conv1d=True, edit={"*": halved})
        assert one.getvalue() == other.getvalue()
        assert sorted(calls) == sorted(arrays)


@pytest.mark.parametrize("to", ["gguf", "npz", "pth", "npy"])
def test_other_containers(plain: Path, tmp_path: Path, to: str) -> None:
    name = "model.layers.0.mlp.up_proj.weight"
    new = floats(384, 256)
    with an.parse(plain).select(name) as model:
        model.convert(tmp_path / f"out.{to}", to, edit={name: new}, names="keep")
    with an.parse(tmp_path / f"out.{to}") as model:
        (found,) = model.values()
        assert (found.numpy() == new.astype(BF16).astype(np.float32)).all()


def test_blocks_of_a_gguf_are_not_kept_where_they_are_edited(tmp_path: Path) -> None:
    name = "blk.0.ffn_up.weight"
    with an.parse(_blocks(tmp_path)) as model:
        values = model[name].numpy()
        model.convert(tmp_path / "out.gguf", "gguf", edit={name: double})
    with an.parse(tmp_path / "out.gguf") as model:
        assert model[name].scheme == "BF16"
        assert (model[name].numpy("bf16") == (values * 2).astype(BF16)).all()


def _blocks(folder: Path) -> Path:
    codes = RNG.integers(-8, 8, (64, 128)).astype(np.float16)
    codes[:, ::32] = -8
    an.save({"blk.0.ffn_up.weight": codes}, folder / "x.safetensors")
    an.forget(folder / "x.safetensors", folder / "int4.safetensors", "int4-32", dtype="f16")
    an.convert(folder / "int4.safetensors", folder / "q4.gguf", "gguf-q4_0")
    return folder / "q4.gguf"


# --- dtypes -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, BF16])
@pytest.mark.parametrize("name", ["model.half", "model.norm.weight", "model.double"])
@pytest.mark.parametrize("by_function", [False, True])
def test_floats_are_rounded_once(
    plain: Path, tmp_path: Path, dtype: Any, name: str, by_function: bool
) -> None:
    before = whole(plain)[name]
    new = (RNG.standard_normal(before.shape) * 3).astype(dtype)
    edit = {name: (lambda _: new) if by_function else new}
    an.convert(plain, tmp_path / "out.safetensors", edit=edit)
    found = load_file(tmp_path / "out.safetensors")[name]
    with np.errstate(over="ignore"):
        way = np.float64 if before.dtype == np.float64 else np.float32
        assert bits(found) == bits(new.astype(way).astype(before.dtype))


@pytest.mark.parametrize("by_function", [False, True])
def test_float64_goes_by_way_of_float32(tmp_path: Path, by_function: bool) -> None:
    """As it does where a float64 that is stored is cast."""
    ties = np.arange(128, 256) * 4.0 + 2.0  # half between two BF16
    beside = [ties * (1 + 2.0**-40), ties * (1 - 2.0**-40)]
    new = np.concatenate(beside).repeat(64).reshape(128, 128)
    expected = new.astype(np.float32).astype(BF16)
    an.save({"a.weight": floats(128, 128)}, tmp_path / "f32.safetensors")
    an.save({"a.weight": new}, tmp_path / "f64.safetensors")
    an.forget(tmp_path / "f32.safetensors", tmp_path / "fp8.safetensors", "fp8-block")
    edit = {"a": (lambda _: new) if by_function else new}
    for source, options in (("f32", {"cast_all": True}), ("f64", {"cast_all": True}), ("fp8", {})):
        with an.parse(tmp_path / f"{source}.safetensors") as model:
            raw = model.remember_to_bytes(edit=edit, **options)  # type: ignore[arg-type]
        with an.parse(raw) as model:
            assert bits(model["a.weight"].numpy("bf16")) == bits(expected)


def test_overflows_are_counted(plain: Path, tmp_path: Path) -> None:
    new = np.full((33, 7), 1e6, np.float32)
    for edit in ({"model.half": new}, {"model.half": lambda _: new}):
        report = an.convert(plain, tmp_path / "out.safetensors", edit=edit, force=True)
        assert report.overflows == {"model.half": 33 * 7}
        assert np.isinf(load_file(tmp_path / "out.safetensors")["model.half"]).all()


def test_odd_arrays(plain: Path, tmp_path: Path) -> None:
    """Of other strides, and another byte order."""
    arrays = {
        "model.layers.0.mlp.up_proj.weight": floats(256, 384).T,
        "model.norm.weight": floats(512)[::-2].astype(">f4"),
        "model.half": np.broadcast_to(np.float16(2), (5, 3)),
        "model.position_ids": np.arange(24)[::2],
    }
    edits: list[dict[str, Any]] = [arrays]
    edits.append({n: lambda t: arrays[t.name] for n in arrays if n != "model.half"})
    for edit in edits:
        an.convert(plain, tmp_path / "out.safetensors", edit=edit, force=True)
        found = load_file(tmp_path / "out.safetensors")
        expected = whole(plain)
        for name in edit:
            expected[name] = arrays[name].astype(expected[name].dtype)
        assert_same(found, expected)


# --- how functions are called -------------------------------------------------------------------


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.usefixtures("small_bands")
def test_once_for_each_pass(plain: Path, threads: int) -> None:
    """Whichever thread comes late."""
    calls: list[str] = []

    def noted(tensor: an.Tensor) -> Any:
        assert isinstance(tensor, an.Tensor)
        calls.append(tensor.name)
        time.sleep(len(calls) % 3 / 1000)
        return tensor.numpy()

    with an.parse(plain) as model:
        model.remember(io.BytesIO(), edit={"*": noted}, threads=threads)
        assert sorted(calls) == sorted(model)
        calls.clear()
        model.forget(io.BytesIO(), "fp8-tensor", edit={"*.up_proj": noted}, threads=threads)
        assert len(calls) == 2 * 2  # a survey each


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.usefixtures("small_bands")
def test_a_function_may_return_the_same_memory_each_time(
    plain: Path, tmp_path: Path, threads: int
) -> None:
    buffer = np.empty(384 * 256, np.float32)

    def more(tensor: an.Tensor) -> Any:
        out = buffer[: tensor.shape[0] * tensor.shape[1]].reshape(tensor.shape)
        return np.add(tensor.numpy(), 1, out=out)

    edit = {"*_proj.weight": more}
    an.convert(plain, tmp_path / "out", "f32", edit=edit, threads=threads)
    before, after = whole(plain), whole(tmp_path / "out")
    for name in before:
        if name.endswith("_proj.weight"):
            wanted = (before[name].astype(np.float32) + 1).astype(BF16)
            assert bits(after[name].astype(BF16)) == bits(wanted)


@pytest.mark.parametrize("to", ["fp8-tensor", "nvfp4-modelopt"])
def test_a_function_that_is_not_the_same_each_time_is_named(
    plain: Path, tmp_path: Path, to: str
) -> None:
    def random(tensor: an.Tensor) -> Any:
        return RNG.standard_normal(tensor.shape)

    with pytest.raises(ValueError, match=r"function for '\*_proj.weight' returned other values"):
        an.convert(plain, tmp_path / "out", to, edit={"*_proj.weight": random})
    assert not (tmp_path / "out").exists()


def test_plan_reads_nothing(plain: Path) -> None:
    def never(tensor: an.Tensor) -> Any:
        raise AssertionError(tensor.name)

    with an.parse(plain) as model:
        before = model.plan("int4")
        plan = model.plan("int4", edit={"*.up_proj": never, "model.norm": np.zeros(3)})
        assert set(plan.account.edited) == {
            "model.layers.0.mlp.up_proj.weight",
            "model.layers.1.mlp.up_proj.weight",
            "model.norm.weight",
        }
        assert plan.to_dict()["edited"] == list(plan.account.edited)
        assert plan.n_tensor_bytes == before.n_tensor_bytes - 4 * 253
        assert plan.peak_memory >= before.peak_memory + 4 * 384 * 256 - 1000
        with pytest.raises(AssertionError, match="up_proj"):
            model.plan("int4", measure=True, edit={"*.up_proj": never})


def test_a_function_for_each_weight(plain: Path) -> None:
    """As `remember` has it, with arrays in memory."""
    found: dict[str, Any] = {}
    with an.parse(plain) as model:
        model.remember(found.__setitem__, edit={"model.norm.weight": double})
        norm = model["model.norm.weight"].numpy()
    assert (found["model.norm.weight"] == 2 * norm).all()


def test_save(tmp_path: Path) -> None:
    an.save({"a": np.ones(3, np.float32)}, tmp_path / "a.npz", edit={"a": double})
    with np.load(tmp_path / "a.npz") as found:
        assert found["a"].tolist() == [2, 2, 2]


def test_in_one_call(plain: Path, tmp_path: Path) -> None:
    edit = {"model.norm.weight": np.zeros(256, np.float32)}
    an.remember(plain, tmp_path / "a", edit=edit)
    an.convert(plain, tmp_path / "b", edit=edit)
    assert files(tmp_path / "a") == files(tmp_path / "b")
    assert an.plan(plain, edit=edit).account.edited == ("model.norm.weight",)
    assert an.forget(plain, tmp_path / "c", "int4", edit=edit).edited == ("model.norm.weight",)


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "kind", "message"),
    [
        ({"model.nrm.weight": double}, ValueError, "did you mean 'model.norm.weight'"),
        ({"model.norm": [1.0, 2.0]}, TypeError, "edit: 'model.norm' is a list, not an array"),
        ({"model.norm": 3.0}, TypeError, "is a float, not an array"),
        ({3: double}, TypeError, "edit cannot map 3 to"),
        ([("model.norm", None)], TypeError, "edit must be a mapping, such as a dict, not a list"),
        (lambda a: a, TypeError, "such as {'*': function}, not a function"),
        ({"model.norm": np.zeros(256, int)}, TypeError, "has floats, but the array I64: cast it"),
        ({"model.norm": lambda _: np.zeros(256, int)}, TypeError, "has floats, but the array I64"),
        ({"model.position_ids": np.zeros(12)}, TypeError, "is I64, but the array F64: cast it"),
        ({"*.up_proj": np.zeros((2, 2))}, ValueError, "fits 2 weights, but the array is [2, 2]"),
        ({"model.norm": lambda t: t.numpy()[1:]}, ValueError, "returned [255] for 'model.norm"),
        ({"model.norm": lambda _: None}, TypeError, "returned None for 'model.norm.weight'"),
        ({"model.norm": lambda _: "x"}, TypeError, "is a str, not an array"),
        ({"*": None}, an.UnsupportedError, "none of the 9 weights is left"),
    ],
)
def test_what_is_refused(
    plain: Path, tmp_path: Path, edit: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind) as caught:
        an.convert(plain, tmp_path / "out", edit=edit)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert os.listdir(tmp_path) == ["plain"]


def test_what_cannot_be_kept_too(plain: Path, tmp_path: Path) -> None:
    with pytest.raises(an.UnsupportedError, match="cannot be edited and kept"):
        an.convert(
            plain,
            tmp_path / "out",
            "int4",
            edit={"*.up_proj": double},
            overrides={"*.up_proj": "keep"},
        )


def test_what_cannot_be_read(write_model: Callable[..., Path], tmp_path: Path) -> None:
    source = write_model({"a.qweight": ("I32", [4, 4], bytes(64)), "b": ("F32", [1], bytes(4))})
    with an.parse(source) as model:
        (name,) = model.problems
        with pytest.raises(type(model.problems[name])):
            model.convert(tmp_path / "out", edit={name: np.zeros(3)}, allow_unknown=True)
        report = model.convert(tmp_path / "out.safetensors", edit={name: None})
    assert report.n_out == 1


class Broken(Exception):
    """What a function raises."""


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("kind", [Broken, OSError, KeyboardInterrupt, an.ParseError])
@pytest.mark.usefixtures("small_bands")
def test_what_a_function_raises(plain: Path, tmp_path: Path, threads: int, kind: Any) -> None:
    raised = kind("mine")

    def fail(tensor: an.Tensor) -> Any:
        raise raised

    edit = {"*.1.mlp.down_proj.weight": fail}
    with pytest.raises(kind) as caught:
        an.convert(plain, tmp_path / "out", edit=edit, threads=threads)
    assert caught.value is raised
    assert "'model.layers.1.mlp.down_proj.weight'" in raised.__notes__[0]
    assert os.listdir(tmp_path) == ["plain"]


def test_limits(plain: Path, tmp_path: Path) -> None:
    """A weight that a function makes is held against them, by its size in memory."""
    name = "model.layers.0.mlp.up_proj.weight"
    n_bytes = 4 * 384 * 256
    for limit in ("max_single_alloc", "max_total_bytes"):
        with an.parse(plain, limits=an.ParseLimits(**{limit: n_bytes})) as model:
            model.remember(io.BytesIO(), edit={"*_proj": double, "model.norm": np.zeros(999_999)})
        with (
            an.parse(plain, limits=an.ParseLimits(**{limit: n_bytes - 1})) as model,
            pytest.raises(an.LimitExceeded, match="edited tensor") as caught,
        ):
            model.remember(tmp_path / "out", edit={name: double})
        assert caught.value.limit == limit
    assert os.listdir(tmp_path) == ["plain"]


# --- resumed runs -------------------------------------------------------------------------------


class Killed(BaseException):
    """As if the process were."""


def killed(source: Path, out: Path, edit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what a run leaves that is killed when all is written."""

    def die(self: Run) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("anamnesis.checkpoint.open.Checkpoint.check_unchanged", die)
        with pytest.raises(Killed):
            an.convert(source, out, edit=edit)


def test_resume_with_arrays(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, new = tmp_path / "out", floats(256)
    killed(plain, out, {"model.norm": new}, monkeypatch)
    other = new.copy()
    other[7] += 1
    for edit in ({"model.norm": other}, {"model.norm": new.reshape(2, 128)}, None):
        with pytest.raises(an.OutputError, match="a different source, version or options"):
            an.convert(plain, out, edit=edit, resume=True)
    an.convert(plain, out, edit={"model.norm": new.copy()}, resume=True)
    assert_same({"norm": whole(out)["model.norm.weight"]}, {"norm": new})


def test_functions_cannot_be_resumed(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match="a function to edit by cannot be resumed"):
        an.convert(plain, tmp_path / "out", edit={"model.norm": double}, resume=True)
    killed(plain, tmp_path / "out", {"model.norm": double}, monkeypatch)
    assert os.listdir(tmp_path) == ["plain"]


# --- memory -------------------------------------------------------------------------------------

PEAK = """
import sys, ml_dtypes, numpy, anamnesis as an
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) >> 10
def negated(tensor):
    array = tensor.numpy()
    array *= -1
    return array
edit = {name: negated for name in sys.argv[4:]}
with an.parse(sys.argv[1]) as model:
    model.convert(sys.argv[2], edit=edit, threads=int(sys.argv[3]))
print(peak())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="not a case: needs /proc/self/status")
@pytest.mark.parametrize("threads", [1, 2])
def test_peak_memory(tmp_path: Path, threads: int) -> None:
    """Of 200 MB, ten weights of 20 MB: one that is edited, or all of them."""
    n = 10 << 20
    header = {
        f"{i}.weight": {
            "dtype": "BF16",
            "shape": [n // 1024, 1024],
            "data_offsets": [2 * n * i, 2 * n * (i + 1)],
        }
        for i in range(10)
    }
    raw = json.dumps(header).encode()
    with open(tmp_path / "in.safetensors", "wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        file.truncate(8 + len(raw) + 20 * n)

    def peak(*edited: str) -> int:
        arguments = [str(tmp_path / name) for name in ("in.safetensors", "out.safetensors")]
        command = [sys.executable, "-c", PEAK, *arguments, str(threads), *edited]
        done = subprocess.run(command, capture_output=True, check=True)
        (tmp_path / "out.safetensors").unlink()
        return int(done.stdout)

    none = peak()
    held = 4 * n >> 20
    assert peak("3") - none <= held + threads * 16
    at_once = 1 if threads == 1 else 2  # where two weights follow each other
    assert peak("*") - none <= at_once * held + threads * 16


# --- functions of arrays --------------------------------------------------------------------------

OF_ARRAYS: dict[str, Callable[[Any], Any]] = {
    "a product": lambda a: a * 2,
    "from the right": lambda a: 1 - a / 3,
    "in place": lambda a: _in_place(a),
    "powers": lambda a: 2**a + a**2 // 1 % 3,
    "functions of numpy": lambda a: np.clip(np.sqrt(np.abs(a)), 0, 0.5),
    "methods": lambda a: a.astype(np.float32).clip(-1, 1) - a.mean(),
    "masks": lambda a: np.where((a > 0) & (a != 1), a, -a),
    "equal to": lambda a: np.where(a == a.max(), 0, a),
    "signs": lambda a: -abs(a) + +a,
    "matrices": lambda a: (a @ a.T @ a) * 1e-3,
    "shapes": lambda a: a.reshape(-1).reshape(a.shape),
    "two": lambda a: a + a,
}


def _in_place(a: Any) -> Any:
    a *= 3
    return a


@pytest.mark.parametrize("kind", OF_ARRAYS)
def test_functions_of_arrays(plain: Path, tmp_path: Path, kind: str) -> None:
    name, function = "model.layers.0.mlp.up_proj.weight", OF_ARRAYS[kind]
    with an.parse(plain) as model:
        wanted = function(model[name].numpy())
        model.remember(tmp_path / "out", edit={name: function}, math="float32")
    with an.parse(tmp_path / "out") as made:
        assert bits(made[name].numpy("bf16")) == bits(wanted.astype(np.float32).astype(BF16))


def test_a_tensor_is_no_array_that_can_be_changed(plain: Path) -> None:
    with an.parse(plain) as model:
        tensor = model["model.norm.weight"]
        with pytest.raises(TypeError, match=r"'model\.norm\.weight' lies in its file"):
            tensor[0] = 1
        with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'sort'"):
            tensor.sort()  # type: ignore[attr-defined]
        assert tensor == model["model.norm.weight"]
        assert tensor != model["model.half"]
        assert tensor is not None
        assert tensor != "model.norm.weight"
        assert not hasattr(tensor, "__array_interface__")


def test_another_shape_is_named(plain: Path, tmp_path: Path) -> None:
    with an.parse(plain) as model:
        edit = {"model.norm.weight": floats(3), "model.half": floats(33, 7)}
        told = "'model.norm.weight' is edited to [3], and was [256]"
        assert told in model.plan(edit=edit).warnings
        report = model.remember(tmp_path / "out", edit=edit)
        assert report.warnings.count(told) == 1
        assert "model.half" not in str(report)
