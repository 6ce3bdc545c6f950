"""8-bit floats moved from each layout to each other one: the values before are those after."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes, write_safetensors
from helpers.repacks import entry, raw, repacked, stored

Array = NDArray[Any]
NAME = "model.layers.0.mlp.up_proj.weight"
MODULE = NAME.removesuffix("weight")
RNG = np.random.default_rng(25)


def codes(*shape: int) -> Array:
    """Every code, NaNs and -0 among them."""
    made = raw(*shape)
    made.reshape(-1)[:256] = np.arange(256)[: made.size]
    return made


def floats(*shape: int) -> Array:
    """Scales of many magnitudes, some of them subnormal products' and one negative."""
    made = np.exp2(RNG.uniform(-60, 30, shape)).astype(np.float32)
    made.reshape(-1)[0] = -made.reshape(-1)[0]
    return made


def powers(*shape: int) -> Array:
    """E8M0, the least and the greatest among them."""
    made = RNG.integers(90, 140, shape, dtype=np.uint8)
    made.reshape(-1)[:2] = (0, 254)[: made.size]
    return made


def as_f32(powers: Array) -> Array:
    return powers.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)


def as_bf16(scales: Array) -> Array:
    return scales.astype(ml_dtypes.bfloat16).view("u2")


class Case(NamedTuple):
    """A weight as one producer stores it, and how it is moved.

    Attributes
    ----------
    tensors : mapping
    config : mapping
        Its config.json.
    moves : mapping
        By target, what is written: the encoding's id, or why it cannot be.
    """

    tensors: Mapping[str, Entry]
    config: Mapping[str, Any]
    moves: Mapping[str, str]


def fp8(**config: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "fp8", **config}}


def same(*targets: str, **others: str) -> dict[str, str]:
    return {**{one: one for one in targets}, **{k.replace("_", "-"): v for k, v in others.items()}}


BLOCKS = ("fp8-block", "fp8-block-ct")
CHANNELS = ("fp8-channel",)
TENSORS = ("fp8-tensor", "fp8-tensor-ct")
POWERS = ("fp8-block-ue8m0", "mxfp8", "mxfp8-modelopt", "mlx-mxfp8")
ALL = (*BLOCKS, *CHANNELS, *TENSORS, *POWERS)

DIFFER = "differ where"
NO_POWERS = "its scales are not all powers of two"
IN_128 = fp8(weight_block_size=[128, 128])
WIDE, PARTIAL = (256, 384), (200, 288)
EQUAL = np.repeat(floats(2, 1), 3, 1)  # of all blocks of a row


def _no(why: str, *targets: str) -> dict[str, str]:
    return dict.fromkeys(targets, why)


def beside(suffix: str, shape: tuple[int, ...], scales: Entry, dtype: str = "F8_E4M3") -> Any:
    return {NAME: entry(dtype, codes(*shape)), NAME + suffix: scales}


CASES = {
    "transformers, blocks": Case(
        beside("_scale_inv", WIDE, entry("F32", floats(2, 3))),
        IN_128,
        {**same(*BLOCKS), **_no(DIFFER, *CHANNELS, *TENSORS), **_no(NO_POWERS, *POWERS)},
    ),
    "transformers, partial blocks": Case(
        beside("_scale_inv", PARTIAL, entry("BF16", as_bf16(floats(2, 3)))),
        IN_128,
        {**same(*BLOCKS), **_no(DIFFER, *CHANNELS, *TENSORS), **_no(NO_POWERS, *POWERS)},
    ),
    "DeepSeek, UE8M0": Case(
        beside("_scale_inv", PARTIAL, entry("F8_E8M0", powers(2, 3))),
        fp8(weight_block_size=[128, 128], scale_fmt="ue8m0"),
        {**same(*BLOCKS, *POWERS), **_no(DIFFER, *CHANNELS, *TENSORS)},
    ),
    "DeepSeek, F32 that are powers of two": Case(
        {
            NAME: entry("F8_E4M3", codes(*WIDE)),
            f"{MODULE}scale": entry("F32", as_f32(powers(2, 3))),
        },
        fp8(weight_block_size=[128, 128], scale_fmt="ue8m0"),
        {**same(*BLOCKS, *POWERS), **_no(DIFFER, *CHANNELS, *TENSORS)},
    ),
    "other blocks": Case(
        beside("_scale_inv", (256, 192), entry("F32", floats(4, 3))),
        fp8(weight_block_size=[64, 64]),
        {
            "fp8-block": "fp8-block-64x64",
            "fp8-block-ct": "fp8-block-ct-64x64",
            "fp8-block-32x16": "fp8-block-32x16",
            "fp8-block-96x64": "fp8-block-64x64",
            **_no(DIFFER, *CHANNELS, *TENSORS),
            **_no(NO_POWERS, *POWERS),
        },
    ),
    "blocks that are equal in a row": Case(
        beside("_scale_inv", PARTIAL, entry("F32", EQUAL)),
        IN_128,
        {**same(*BLOCKS, *CHANNELS), **_no(DIFFER, *TENSORS), **_no(NO_POWERS, *POWERS)},
    ),
    "E5M2": Case(
        beside("_scale_inv", WIDE, entry("F32", floats(2, 3)), "F8_E5M2"),
        IN_128,
        {"fp8-block-e5m2": "fp8-block-e5m2", **_no("codes are E5M2, and E4M3 in", *ALL)},
    ),
    "FNUZ": Case(
        beside("_scale_inv", WIDE, entry("F32", floats(2, 3)), "F8_E4M3FNUZ"),
        IN_128,
        _no("codes are E4M3FNUZ, and E4M3 in", *ALL),
    ),
    "compressed-tensors, channels": Case(
        beside("_scale", PARTIAL, entry("F32", floats(200, 1))),
        {},
        {**same(*CHANNELS), **_no(DIFFER, *BLOCKS, *TENSORS), **_no(NO_POWERS, "mxfp8")},
    ),
    "FBGEMM, channels of one dimension that are alike": Case(
        beside("_scale", WIDE, entry("F16", np.repeat(np.array([0.5, 3], np.float16), 128))),
        {},
        {
            **same(*BLOCKS, *CHANNELS),
            **_no(DIFFER, *TENSORS),
            **_no(NO_POWERS, "mxfp8", "fp8-block-ue8m0"),
        },
    ),
    "ModelOpt, blocks of four dimensions": Case(
        beside("_scale", WIDE, entry("F32", floats(2, 1, 3, 1))),
        {},
        {**same(*BLOCKS), **_no(DIFFER, *CHANNELS, *TENSORS)},
    ),
    "one for all": Case(
        beside("_scale", PARTIAL, entry("F32", floats(1))),
        {},
        {**same(*BLOCKS, *CHANNELS, *TENSORS), **_no(NO_POWERS, *POWERS)},
    ),
    "one for all, a power of two": Case(
        {
            NAME: entry("F8_E4M3", codes(*PARTIAL)),
            f"{MODULE}qscale_weight": entry("BF16", np.uint16(0x3C80)),
        },
        {},
        same(*ALL),
    ),
    "MXFP8": Case(
        beside("_scale", PARTIAL, entry("U8", powers(200, 9))),
        {},
        {
            **same("mxfp8", "mxfp8-modelopt", "mlx-mxfp8"),
            "fp8-block": "fp8-block-1x32",
            "fp8-block-ct": "fp8-block-ct-1x32",
            "fp8-block-ue8m0": "fp8-block-1x32-ue8m0",
            **_no(DIFFER, *CHANNELS, *TENSORS),
        },
    ),
    "MXFP8 that is the same in blocks": Case(
        beside(
            "_scale",
            PARTIAL,
            entry("F8_E8M0", powers(2, 3).repeat(128, 0)[:200].repeat(4, 1)[:, :9]),
        ),
        {},
        {**same(*BLOCKS, *POWERS), **_no(DIFFER, *CHANNELS, *TENSORS)},
    ),
    "codes that are values": Case(
        {NAME: entry("F8_E4M3", codes(*PARTIAL))},
        {},
        {**same(*CHANNELS, *TENSORS, *POWERS[1:]), "fp8-block-ct": "fp8-block-ct"},
    ),
    "experts": Case(
        {
            "model.layers.0.mlp.experts.down_proj": entry("F8_E4M3", codes(3, 128, 256)),
            "model.layers.0.mlp.experts.down_proj_scale_inv": entry("F32", floats(3, 1, 2)),
        },
        IN_128,
        same("fp8-block", fp8_block_64x128="fp8-block-64x128"),
    ),
    "experts with one scale each": Case(
        {
            "model.layers.0.mlp.experts.down_proj": entry("F8_E4M3", codes(3, 128, 256)),
            "model.layers.0.mlp.experts.down_proj_scale_inv": entry("F8_E8M0", powers(3, 1, 1)),
        },
        {},
        same("fp8-block", "fp8-block-ue8m0"),
    ),
}
PAIRS = [(case, target) for case, made in CASES.items() for target in made.moves]


def folder(path: Path, case: Case) -> Path:
    write_safetensors(path / "model.safetensors", dict(case.tensors))
    (path / "config.json").write_text(json.dumps(case.config))
    return path


def bits(model: an.Model, name: str) -> Array:
    return model[name].numpy(dtype="f32").view("u4")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("case", "target"), PAIRS)
def test_values(case: str, target: str, tmp_path: Path) -> None:
    """Equal to the bit in float32, and each code the byte that it was; else there is a reason."""
    made = CASES[case]
    wanted = made.moves[target]
    name = next(iter(made.tensors))
    with an.parse(folder(tmp_path / "in", made)) as before:
        if not wanted.startswith(("fp8", "mx", "ml")):
            with pytest.raises(an.UnsupportedError, match=wanted):
                before.convert(tmp_path / "out", target, lossless=True)
            plan = before.plan(target).to_dict()
            assert wanted in {**plan["unmovable"], **plan["plain"]}[name]
            return
        report = before.convert(tmp_path / "out", target, verify=True, lossless=True)
        assert report.repacked == {name: wanted}
        assert not report.inexact
        with an.parse(tmp_path / "out") as after:
            assert (bits(before, name) == bits(after, name)).all()
            (again,) = after._ledger.weights
            assert again == name
            assert stored(after)[name][2] == made.tensors[name][2]


@pytest.mark.parametrize("case", CASES)
def test_every_target_is_decided(case: str, tmp_path: Path) -> None:
    """What is not moved has a reason, and what is moved is the same in a lone file."""
    with an.parse(folder(tmp_path, CASES[case])) as model:
        for target in ALL:
            plan = model.plan(target).to_dict()
            name = next(iter(model))
            is_stack = len(model[name].shape) == 3
            assert is_stack or name in {**plan["repacked"], **plan["unmovable"], **plan["plain"]}


THERE_AND_BACK = [
    ("transformers, blocks", "fp8-block-ct", "fp8-block"),
    ("DeepSeek, UE8M0", "fp8-block-ct", "fp8-block-ue8m0"),
    ("DeepSeek, UE8M0", "fp8-block", "fp8-block-ue8m0"),
    ("DeepSeek, UE8M0", "mxfp8", "fp8-block-ue8m0"),
    ("MXFP8", "mlx-mxfp8", "mxfp8"),
    ("other blocks", "fp8-block-ct", "fp8-block"),
]


@pytest.mark.parametrize(("case", "there", "back"), THERE_AND_BACK)
def test_there_and_back(case: str, there: str, back: str, tmp_path: Path) -> None:
    with an.parse(folder(tmp_path / "in", CASES[case])) as model:
        model.convert(tmp_path / "there", there)
        first = stored(model)
    with an.parse(tmp_path / "there") as model:
        model.convert(tmp_path / "back", back)
    with an.parse(tmp_path / "back") as model:
        again = stored(model)
    assert again == first


@pytest.mark.parametrize(
    ("case", "target"),
    [
        ("transformers, blocks", "fp8-block"),
        ("DeepSeek, UE8M0", "fp8-block-ue8m0"),
        ("compressed-tensors, channels", "fp8-channel"),
        ("one for all", "fp8-tensor-ct"),
        ("MXFP8", "mxfp8"),
    ],
)
def test_what_is_so_already_is_unchanged(case: str, target: str, tmp_path: Path) -> None:
    made = CASES[case]
    with an.parse(folder(tmp_path / "in", made)) as model:
        report = model.convert(tmp_path / "out", target)
        assert report.unchanged == (NAME,)
        first = stored(model)
    with an.parse(tmp_path / "out") as model:
        assert stored(model) == first


def test_sizes_of_blocks_are_settled_together(tmp_path: Path) -> None:
    """Weights of one block alone follow those that show a size."""
    tensors = {
        **{k.replace("up_proj", "a_proj"): v for k, v in CASES["other blocks"].tensors.items()},
        "model.layers.0.mlp.b_proj.weight": entry("F8_E4M3", codes(32, 64)),
        "model.layers.0.mlp.b_proj.weight_scale_inv": entry("F32", floats(1, 1)),
    }
    case = Case(tensors, fp8(weight_block_size=[64, 64]), {})
    with an.parse(folder(tmp_path / "in", case)) as model:
        report = model.convert(tmp_path / "out", "fp8-block-ct", lossless=True)
    assert set(report.repacked.values()) == {"fp8-block-ct-64x64"}
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    (group,) = config["config_groups"].values()
    assert group["weights"]["block_structure"] == [64, 64]


def test_what_is_moved_and_what_is_encoded_must_be_of_one_size(tmp_path: Path) -> None:
    """A directory has one config; a plain weight stays plain, unless it is asked for by name."""
    plain = np.ones((256, 256), np.float32)
    finite = entry("F8_E4M3", codes(256, 256) & 0x77)
    told = {NAME: finite, f"{NAME}_scale_inv": entry("F32", floats(4, 4))}
    tensors = {**told, f"{MODULE}b.weight": entry("F32", plain)}
    case = Case(tensors, fp8(weight_block_size=[64, 64]), {})
    with an.parse(folder(tmp_path / "in", case)) as model:
        why = "one config.json cannot describe fp8-block and fp8-block-64x64"
        report = model.convert(tmp_path / "moved", "fp8-block")
        assert (report.repacked, report.n_encoded) == ({NAME: "fp8-block-64x64"}, 0)
        assert report.plain == {f"{MODULE}b.weight": why}
        named = {f"{MODULE}b.weight": "fp8-block"}
        report = model.convert(tmp_path / "anew", "fp8-block", overrides=named)
        assert (len(report.repacked), report.n_encoded, len(report.requantised)) == (0, 2, 1)
        assert report.unmovable == {NAME: why}
        report = model.convert(tmp_path / "out", "fp8-block-64x64")
    assert (len(report.repacked), report.n_encoded) == (1, 1)


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("fp8-block", {"weight_block_size": [128, 128], "scale_fmt": "float"}),
        ("fp8-block-ue8m0", {"weight_block_size": [128, 128], "scale_fmt": "ue8m0"}),
        ("fp8-tensor", {"weight_block_size": None, "scale_fmt": "float"}),
    ],
)
def test_the_config_says_what_is_true(target: str, told: dict[str, Any], tmp_path: Path) -> None:
    with an.parse(folder(tmp_path / "in", CASES["one for all, a power of two"])) as model:
        model.convert(tmp_path / "out", target)
    config = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]
    assert config["activation_scheme"] == "dynamic"
    assert {key: config[key] for key in told} == told


@pytest.mark.parametrize("threads", [1, 3])
def test_scales_that_are_spread_are_the_same_whatever_the_threads(threads: int) -> None:
    tensors = beside("_scale", (700, 1000), entry("F32", floats(1)))
    made = repacked(tensors, "fp8-block-32x48", threads=threads)
    dtype, shape, data = stored(made)[f"{NAME}_scale_inv"]
    assert (dtype, shape) == ("F32", [22, 21])
    assert data == tensors[f"{NAME}_scale"][2] * (22 * 21)


def test_e8m0s_nan_is_one_in_f32() -> None:
    """And all products with it are NaNs before and after."""
    scales = powers(2, 3)
    scales[1, 2] = 255
    tensors = beside("_scale_inv", WIDE, entry("F8_E8M0", scales))
    made = repacked(tensors, "fp8-block-ct")
    with an.parse(safetensors_bytes(tensors)) as before:
        assert (bits(before, NAME) == bits(made, NAME)).all()
        with pytest.raises(an.UnsupportedError, match=NO_POWERS):
            made.convert(io.BytesIO(), "fp8-block-ue8m0", lossless=True)


@pytest.mark.parametrize(("rows", "cols", "block"), [(17, 21, (1, 7)), (136, 96, (128, 128))])
@pytest.mark.parametrize("target", ["fp8-block", "fp8-block-ct", "fp8-block-modelopt"])
def test_a_lone_file_says_blocks_that_scales_leave_open(
    rows: int, cols: int, block: tuple[int, int], target: str, tmp_path: Path
) -> None:
    grid = tuple(-(-n // b) for n, b in zip((rows, cols), block, strict=True))
    rng = np.random.default_rng(7)
    tensors = {
        "a.weight": entry("F8_E4M3", rng.integers(0, 127, (rows, cols), dtype=np.uint8)),
        "a.weight_scale_inv": entry("F32", rng.random(grid, dtype=np.float32)),
    }
    told = {"quant_method": "fp8", "weight_block_size": list(block)}
    source, out = tmp_path / "in", tmp_path / "out.safetensors"
    write_safetensors(source / "model.safetensors", tensors)
    (source / "config.json").write_text(json.dumps({"quantization_config": told}))
    with an.parse(source) as before:
        report = before.convert(out, target, verify=True)
        if not report.repacked:
            assert target == "fp8-block-modelopt"  # which has one size
            return
        with an.parse(out) as after:
            assert after["a.weight"].numpy("f32").tobytes() == (
                before["a.weight"].numpy("f32").tobytes()
            )
        if len(target) == len("fp8-block"):
            with pytest.raises(an.UnsupportedError, match="has no place for its weight_block_size"):
                before.convert(tmp_path / "out.npz", f"npz-{target}")


def test_a_lone_file_says_bits_that_words_leave_open(tmp_path: Path) -> None:
    """Words of 7 bits, padded, are as many as those of 8."""
    rng = np.random.default_rng(8)
    tensors = {
        "a.weight": entry("I8", rng.integers(-128, 128, (8, 32), dtype=np.int8)),
        "a.weight_scale": entry("F32", rng.random((8, 1), dtype=np.float32)),
    }
    out = tmp_path / "out.safetensors"
    with an.parse(safetensors_bytes(tensors)) as before:
        assert before.convert(out, "int8-packed", verify=True).repacked
        with an.parse(out) as after:
            assert after["a.weight"].numpy("f32").tobytes() == (
                before["a.weight"].numpy("f32").tobytes()
            )
