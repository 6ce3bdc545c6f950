"""Stacks of experts become what a model with a matrix for each layer of each expert becomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes.core.plain import PlainColumns
from helpers.alike import converted_alike
from helpers.handmade import Entry, write_index, write_safetensors

BLOCK = "model.layers.0.mlp"
NUMPY = {"BF16": ml_dtypes.bfloat16, "F16": np.float16, "F32": np.float32}
Arrays = dict[str, np.ndarray[Any, Any]]

CT = ("fp8-block-ct", "fp8-channel", "fp8-tensor-ct", "int8", "int4", "int4-asym", "nvfp4", "mxfp8")
# Each layout with the model_type that it takes, if any: transposed, alternating, biases.
LAYOUTS = {
    "linear": ("qwen3_5_moe", False, False, False),
    "transposed": ("llama4", True, False, False),
    "alternating": ("gpt_oss", True, True, True),
    "halves with biases": ("openai_privacy_filter", True, False, True),
}


def experts(n: int, inner: int, outer: int, dtype: str = "BF16", biases: bool = False) -> Arrays:
    """One matrix, and perhaps one bias, for each layer of each expert."""
    rng = np.random.default_rng((n, inner, outer))
    found = {}
    for expert in range(n):
        shapes = {"gate_proj": (inner, outer), "up_proj": (inner, outer)}
        for layer, shape in {**shapes, "down_proj": (outer, inner)}.items():
            name = f"{BLOCK}.experts.{expert}.{layer}"
            values = rng.standard_normal(shape) * rng.uniform(0.01, 0.1)
            found[f"{name}.weight"] = values.astype(NUMPY[dtype])
            if biases:
                found[f"{name}.bias"] = rng.standard_normal(shape[0]).astype(NUMPY[dtype])
    return found


def stacked(matrices: Arrays, *, transposed: bool = False, alternating: bool = False) -> Arrays:
    """The same as transformers has them."""

    def layer(name: str) -> np.ndarray[Any, Any]:
        n = len({key.split(".experts.")[1].split(".")[0] for key in matrices})
        return np.stack([matrices[f"{BLOCK}.experts.{i}.{name}"] for i in range(n)])

    found = {}
    for kind, suffix in (("weight", ""), ("bias", "_bias")):
        if f"{BLOCK}.experts.0.up_proj.{kind}" not in matrices:
            continue
        gate, up, down = (layer(f"{name}_proj.{kind}") for name in ("gate", "up", "down"))
        if alternating:
            both = np.stack([gate, up], 2).reshape(gate.shape[0], -1, *gate.shape[2:])
        else:
            both = np.concatenate([gate, up], 1)
        if transposed and kind == "weight":
            both, down = both.swapaxes(1, 2), down.swapaxes(1, 2)
        found[f"{BLOCK}.experts.gate_up_proj{suffix}"] = np.ascontiguousarray(both)
        found[f"{BLOCK}.experts.down_proj{suffix}"] = np.ascontiguousarray(down)
    return found


def entries(arrays: Arrays) -> dict[str, Entry]:
    names = {np.dtype(kind): name for name, kind in NUMPY.items()}
    return {n: (names[a.dtype], a.shape, a.tobytes()) for n, a in arrays.items()}


def beside(dtype: str = "BF16") -> Arrays:
    """What else a layer has: a linear layer and a router."""
    rng = np.random.default_rng(7)
    shapes = {f"{BLOCK}.shared_expert.up_proj.weight": (128, 256), f"{BLOCK}.gate.weight": (4, 256)}
    return {n: rng.standard_normal(s).astype(NUMPY[dtype]) for n, s in shapes.items()}


def saved(folder: Path, arrays: Arrays, model_type: str | None = None, **config: Any) -> Path:
    """A directory of one file."""
    write_safetensors(folder / "model.safetensors", entries(arrays), {"format": "pt"})
    told = {**({"model_type": model_type} if model_type else {}), **config}
    (folder / "config.json").write_text(json.dumps(told))
    return folder


def stored(folder: Path) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    with an.parse(folder) as model:
        return {n: (s.dtype.name, tuple(s.shape), s.read()) for n, s in model.stored.items()}


def quantization(folder: Path) -> Any:
    return json.loads((folder / "config.json").read_text())["quantization_config"]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("to", "dtype"), [*((to, "BF16") for to in CT), ("int8", "F16"), ("nvfp4", "F32")]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_bytes_are_those_of_matrices(layout: str, to: str, dtype: str, tmp_path: Path) -> None:
    """Codes, scales, what stays plain, the config, the losses."""
    kind, transposed, alternating, biases = LAYOUTS[layout]
    matrices = experts(3, 128, 256, dtype, biases)
    stacks = stacked(matrices, transposed=transposed, alternating=alternating)
    reports = []
    for name, arrays in (("stacks", stacks), ("matrices", matrices)):
        source = saved(tmp_path / name, {**beside(dtype), **arrays}, kind)
        with an.parse(source) as model:
            reports.append(model.forget(tmp_path / f"{name}-out", to, verify=True))
    ours, want = (stored(tmp_path / f"{name}-out") for name in ("stacks", "matrices"))
    assert ours == want
    assert quantization(tmp_path / "stacks-out") == quantization(tmp_path / "matrices-out")
    losses = [report.loss for report in reports]
    assert losses[0] is not None
    assert losses[0].weights == losses[1].weights  # type: ignore[union-attr]
    assert reports[0].plain == reports[1].plain
    assert reports[0].taken_apart == {name: 3 * (2 if "gate_up" in name else 1) for name in stacks}
    assert reports[0].n_quantized == 0


@pytest.mark.parametrize("to", ["nvfp4-modelopt", "mxfp4-modelopt", "mxfp8-modelopt"])
@pytest.mark.parametrize(
    ("kind", "transposed"), [("qwen3_5_moe", False), (None, False), ("qwen3_vl_moe", True)]
)
def test_modelopt(kind: str | None, transposed: bool, to: str, tmp_path: Path) -> None:
    matrices = experts(2, 64, 96)
    made = {}
    for name, arrays in (("s", stacked(matrices, transposed=transposed)), ("m", matrices)):
        source = saved(tmp_path / name, arrays, kind)
        with an.parse(source) as model:
            model.forget(tmp_path / f"{name}-out", to, verify=True)
        made[name] = stored(tmp_path / f"{name}-out")
    assert made["s"] == made["m"]


def test_sections_of_the_config_tell(tmp_path: Path) -> None:
    """A model of several says of a section what it is."""
    stacks = stacked(experts(2, 64, 96, biases=True), transposed=True, alternating=True)
    source = saved(tmp_path / "in", stacks, "other", text_config={"model_type": "gpt_oss"})
    with an.parse(source) as model:
        assert len(model.forget(tmp_path / "out", "int8").taken_apart) == 4


def test_granite(tmp_path: Path) -> None:
    """Its files have other names for the same."""
    matrices = experts(2, 64, 96)
    other = {f"{BLOCK}.experts.gate_up_proj": "input", f"{BLOCK}.experts.down_proj": "output"}
    moe = "model.layers.0.block_sparse_moe"
    arrays = {f"{moe}.{other[n]}_linear.weight": a for n, a in stacked(matrices).items()}
    with an.parse(saved(tmp_path / "in", arrays, "granitemoe")) as model:
        model.forget(tmp_path / "out", "int8", verify=True)
    with an.parse(saved(tmp_path / "matrices", matrices)) as model:
        model.forget(tmp_path / "want", "int8")
    want = {name.replace(BLOCK, moe): what for name, what in stored(tmp_path / "want").items()}
    assert stored(tmp_path / "out") == want


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["linear", "transposed", "alternating"])
@pytest.mark.parametrize("to", ["int4-asym", "nvfp4", "fp8-block-ct"])
def test_any_bands_threads_and_a_run_that_is_resumed(layout: str, to: str, tmp_path: Path) -> None:
    kind, transposed, alternating, biases = LAYOUTS[layout]
    matrices = experts(3, 256, 384, biases=biases)
    stacks = stacked(matrices, transposed=transposed, alternating=alternating)
    source = saved(tmp_path / "in", stacks, kind)
    converted_alike(source, to, tmp_path / "whole")


def test_shards(tmp_path: Path) -> None:
    """A matrix stays in the shard of its stack, and the index names it."""
    matrices = experts(2, 64, 96)
    stacks = stacked(matrices)
    folder = tmp_path / "in"
    files = {name: f"model-0000{i}-of-00002.safetensors" for i, name in enumerate(stacks, 1)}
    for name, file in files.items():
        write_safetensors(folder / file, entries({name: stacks[name]}), {"format": "pt"})
    write_index(folder, files)
    (folder / "config.json").write_text("{}")
    with an.parse(folder) as model:
        model.forget(tmp_path / "out", "int8", verify=True)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    shards = {name: file[:11] for name, file in index["weight_map"].items()}
    assert {n: shards[n] for n in shards if "down" in n} == {
        f"{BLOCK}.experts.{i}.down_proj.{p}": "model-00002"
        for i in range(2)
        for p in ("weight", "weight_scale")
    }
    assert len(shards) == 12


# --- what stays plain -----------------------------------------------------------------------------


UNKNOWN = "experts with biases, of a model_type that is not known"


@pytest.mark.parametrize(
    ("to", "kind", "shapes", "why"),
    [
        ("int8", None, {"gate_up_proj": (2, 128, 96)}, "experts that may be [in, out]"),
        ("int8", None, {"gate_up_proj": (2, 128, 96), "down_proj": (3, 96, 64)}, "may be [in, out"),
        ("int8", None, {"gate_up_proj": (2, 129, 96), "down_proj": (2, 96, 64)}, "may be [in, out"),
        ("int8", None, {"up_proj": (2, 64, 96), "down_proj": (2, 96, 64)}, "may be [in, out]"),
        ("int8", None, {"gate_up_proj": (0, 128, 96), "down_proj": (0, 96, 64)}, "no values"),
        ("int8", None, {"gate_up_proj": (2, 0, 96), "down_proj": (2, 96, 0)}, "no values"),
        ("int8", None, {"gate_up_proj": (2, 128, 0), "down_proj": (2, 0, 64)}, "no values"),
        ("int4", None, {"gate_up_proj": (2, 96, 96), "down_proj": (2, 96, 48)}, "whole groups"),
        ("int8", None, {"gate_up_proj": (9, 2, 1), "down_proj": (9, 1, 1)}, "fewer than 256"),
        ("nvfp4-modelopt", "llama4", {"gate_up_proj": (2, 96, 128), "down_proj": (2, 64, 96)},
         "experts that are [in, out], which ModelOpt keeps stacked"),
        *(
            (to, kind, {
                "gate_up_proj": (2, 96, 128), "down_proj": (2, 64, 96),
                "gate_up_proj_bias": bias, "down_proj_bias": (2, 96),
            }, why)
            for to, kind, bias, why in (
                ("int8", None, (2, 128), UNKNOWN),
                ("int8", "llama4", (2, 128), UNKNOWN),
                ("int8", "gpt_oss", (2, 127), "experts whose biases do not fit them"),
                ("int8", "gpt_oss", (2, 2, 64), "experts whose biases do not fit them"),
                ("nvfp4-modelopt", "gpt_oss", (2, 128), "experts with biases"),
            )
        ),
        *(
            ("int8", None, {"gate_up_proj": (2, 128, 96), "down_proj": (2, 96, 64), **more},
             "experts that have more than projections")
            for more in ({"norm.weight": (96,)}, {"0.up_proj.weight": (64, 96)})
        ),
    ],
)  # fmt: skip
def test_stacks_that_stay_plain(
    to: str, kind: str | None, shapes: dict[str, tuple[int, ...]], why: str, tmp_path: Path
) -> None:
    """Whole, with the reason; the config names their module."""
    arrays = {
        f"{BLOCK}.experts.{n}": np.ones(s, ml_dtypes.bfloat16) for n, s in shapes.items()
    } | beside()
    source = saved(tmp_path / "in", arrays, kind)
    with an.parse(source) as model:
        report = model.forget(tmp_path / "out", to, verify=True)
    names = [f"{BLOCK}.experts.{name}" for name in shapes if name.endswith("_proj")]
    assert all(why in report.plain[name] for name in names), report.plain
    assert not report.taken_apart
    made, before = stored(tmp_path / "out"), stored(source)
    assert all(made[name] == before[name] for name in names)
    told = quantization(tmp_path / "out")
    assert f"{BLOCK}.experts" in told["ignore"]


def test_what_is_left_of_a_module(tmp_path: Path) -> None:
    """Where only some layers can be encoded, the others are plain matrices; the config names them.

    That is how llm-compressor saves layers that it is told to ignore.
    """
    matrices = experts(2, 96, 256)  # down_proj has rows of 96, which are no whole groups
    stacks = stacked(matrices, transposed=True)
    with an.parse(saved(tmp_path / "in", stacks)) as model:
        report = model.forget(tmp_path / "out", "int4", verify=True)
        again = model.forget(tmp_path / "down", "int8", include=["*.down_proj*"])
    down = [f"{BLOCK}.experts.{i}.down_proj" for i in range(2)]
    assert report.plain == {f"{n}.weight": "rows are not in whole groups of 128" for n in down}
    assert quantization(tmp_path / "out")["ignore"] == [*down, "lm_head"]
    made = stored(tmp_path / "out")
    for name in down:
        want = matrices[f"{name}.weight"]
        assert made[f"{name}.weight"] == ("BF16", want.shape, want.tobytes())
    assert set(again.plain.values()) == {"excluded"}
    assert len(again.plain) == 4


def test_patterns_name_stacks_or_matrices(tmp_path: Path) -> None:
    source = saved(tmp_path / "in", {**stacked(experts(3, 64, 96)), **beside()})
    one = f"{BLOCK}.experts.1.up_proj.weight"
    with an.parse(source) as model:
        report = model.forget(tmp_path / "a", "int8", exclude=["*.experts.gate_up_proj"])
        assert len(report.plain) == 7  # and the router
        report = model.forget(tmp_path / "b", "int8", exclude=["*.experts.*"])
        assert report.plain == {
            **dict.fromkeys(stacked(experts(1, 64, 96)), "excluded"),
            f"{BLOCK}.gate.weight": "router",
        }
        assert not report.taken_apart
        report = model.forget(tmp_path / "c", "int8", include=[one])
        assert report.n_encoded == 1
        report = model.convert(
            tmp_path / "d.safetensors", "int8", overrides={one: "keep", "*.down_proj": "f16"}
        )
        assert len(report.taken_apart) == 2
        with pytest.raises(ValueError, match="no weight matches"):
            model.forget(tmp_path / "e", "int8", include=["*.experts.9.*"])
        report = model.convert(
            tmp_path / "f.safetensors", "bf16", overrides={"*.experts.*": "int8"}
        )
        assert report.n_encoded == 9
    with an.parse(tmp_path / "d.safetensors") as model:
        assert model.stored[one].dtype.name == "BF16"
        assert model.stored[f"{BLOCK}.experts.0.down_proj.weight"].dtype.name == "F16"
        assert model.stored[f"{BLOCK}.experts.0.up_proj.weight"].dtype.name == "I8"


def test_other_encodings_keep_stacks(tmp_path: Path) -> None:
    source = saved(tmp_path / "in", {**stacked(experts(2, 128, 256)), **beside()})
    with an.parse(source) as model:
        for to in ("fp8-block", "fp8-tensor", "bnb-nf4", "mlx-4bit", "gptq-4bit"):
            assert not model.plan(to).account.taken_apart, to
        assert not model.plan("bf16").account.taken_apart


def test_a_stack_in_codes_is_taken_apart_where_it_is_not_moved(tmp_path: Path) -> None:
    """As it would be if it was decoded first, and taken apart then."""
    with an.parse(saved(tmp_path / "in", {**stacked(experts(2, 128, 256)), **beside()})) as model:
        model.forget(tmp_path / "fp8", "fp8-block")
    with an.parse(tmp_path / "fp8") as model:
        report = model.forget(tmp_path / "out", "int8")
        model.remember(tmp_path / "plain")
    names = {f"{BLOCK}.experts.{i}.{n}_proj.weight" for i in (0, 1) for n in ("gate", "up", "down")}
    assert report.taken_apart == {
        f"{BLOCK}.experts.gate_up_proj": 4,
        f"{BLOCK}.experts.down_proj": 2,
    }
    assert names <= report.requantised.keys()
    with an.parse(tmp_path / "plain") as model:
        model.forget(tmp_path / "want", "int8")
    assert stored(tmp_path / "out") == stored(tmp_path / "want")
    with an.parse(tmp_path / "fp8") as model:
        moved = model.forget(tmp_path / "moved", "fp8-block-ct")
    assert not moved.taken_apart
    assert {f"{BLOCK}.experts.gate_up_proj", f"{BLOCK}.experts.down_proj"} <= moved.repacked.keys()


def test_columns_that_alternate_are_converted_alone() -> None:
    """Values that overflow are counted in the columns that are wanted, and no others."""
    from anamnesis.base.dtypes import DTYPES
    from anamnesis.base.stored import StoredTensor
    from anamnesis.schemes.core.bands import Run
    from anamnesis.schemes.core.weight import Scratch
    from anamnesis.sources.memory import BufferSource

    array = np.ones((40, 14), np.float32)
    array[:, 1::2] = 1e30
    source = BufferSource(array.tobytes(), "here")
    tensor = StoredTensor("w", DTYPES["F32"], array.shape, array.nbytes, 0, source)
    for first, want in ((0, 0), (1, 8 * 3)):
        columns = PlainColumns("w", (40, 7), (tensor,), first, 2)
        out = memoryview(bytearray(2 * 8 * 3))
        found = columns.decode_tile(Run(32, 40), Run(2, 5), DTYPES["F16"], Scratch(), out)
        assert found == want
        with np.errstate(over="ignore"):
            values = array[32:40, first::2][:, 2:5].astype(np.float16)
        assert bytes(out) == values.tobytes()
