"""EXL2 made by hand: small, what is wrong with it, and directories as exllamav2 leaves them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import anamnesis as an
from anamnesis.schemes import exl2
from helpers.cli_runs import amn
from helpers.handmade import Entry, write_index, write_safetensors

Tensors = dict[str, Entry]

IN, OUT = 48, 8


def ints(letter: str, *values: int) -> bytes:
    return struct.pack(f"<{len(values)}{letter}", *values)


# A group of 4 bits, with codes 0 to 15 again and again, and one of 2 bits, with 0 to 3. Scales are
# 1 and 4; the first is of out feature 0 the 16th part of the 16th part of the largest.
TENSORS: Tensors = {
    "a.q_weight": (
        "I32",
        (5, OUT),
        ints("I", *([0x76543210] * OUT + [0xFEDCBA98] * OUT) * 2, *[0xE4E4E4E4] * OUT),
    ),
    "a.q_scale": ("I32", (2, 1), ints("I", 0xFFFFFFF0, 0x33333333)),
    "a.q_scale_max": ("F16", (2,), struct.pack("<2e", 1, 64)),
    "a.q_groups": ("I16", (4,), ints("h", 4, 0, 2, 4)),
    "a.q_invperm": ("I32", (IN,), ints("i", *reversed(range(IN)))),
}
STORED = [*[*range(-8, 8)] * 2, *[4 * code for code in (-2, -1, 0, 1)] * 4]
VALUES = STORED[::-1]


def refusal(folder: Path, tensors: Tensors) -> str:
    """What is wrong with the weight, as it is opened or as it is decoded."""
    with an.parse(write_safetensors(folder / "x.safetensors", tensors)) as model:
        with pytest.raises(an.AnamnesisError) as raised:
            model.remember(folder / "out.safetensors")
        assert not (folder / "out.safetensors").exists()
    return str(raised.value)


def test_values(tmp_path: Path) -> None:
    with an.parse(write_safetensors(tmp_path / "x.safetensors", TENSORS)) as model:
        tensor = model["a.weight"]
        assert tensor.scheme == "EXL2"
        values = tensor.numpy("f32")
        assert values.shape == (OUT, IN)
        assert values[1:].tolist() == [VALUES] * (OUT - 1)
        assert values[0].tolist() == [*VALUES[:16], *[value / 256 for value in VALUES[16:]]]


def test_arrays() -> None:
    dtypes = {"I32": "<i4", "F16": "<f2", "I16": "<i2"}
    arrays: dict[str, Any] = {
        name.removeprefix("a."): np.frombuffer(raw, dtypes[dtype]).reshape(shape)
        for name, (dtype, shape, raw) in TENSORS.items()
    }
    assert exl2.dequantize(**arrays, dtype="f32")[1].tolist() == VALUES
    with pytest.raises(ValueError, match="q_invperm is no order of 48 in features"):
        exl2.dequantize(**{**arrays, "q_invperm": np.zeros(IN, np.int32)})
    with pytest.raises(TypeError, match="q_scale_max has dtype float32"):
        exl2.dequantize(**{**arrays, "q_scale_max": np.zeros(2, np.float32)})


def test_what_exllamav2_makes_itself_is_claimed_and_not_read(tmp_path: Path) -> None:
    derived: Tensors = {
        "a.q_perm": ("I32", (IN,), bytes(4 * IN)),
        "a.q_group_map": ("I16", (2 * IN,), bytes(4 * IN)),
    }
    path = write_safetensors(tmp_path / "x.safetensors", {**TENSORS, **derived})
    with an.parse(path) as model:
        assert list(model) == ["a.weight"]
        assert model["a.weight"].numpy("f32")[1].tolist() == VALUES


WRONG: dict[str, tuple[dict[str, Entry], str]] = {
    "bits that it has not": (
        {"a.q_groups": ("I16", (4,), ints("h", 7, 0, 2, 4))},
        r"a\.q_groups: group 0 has 7 bits and lines 0 to 4 of a\.q_weight, which are no whole",
    ),
    "no bits": (
        {"a.q_groups": ("I16", (4,), ints("h", 0, 0, 2, 4))},
        r"a\.q_groups: group 0 has 0 bits",
    ),
    "a group of no lines": (
        {"a.q_groups": ("I16", (4,), ints("h", 4, 0, 2, 0))},
        r"a\.q_groups: group 0 has 4 bits and lines 0 to 0",
    ),
    "a group that ends before it begins": (
        {"a.q_groups": ("I16", (4,), ints("h", 4, 4, 2, 0))},
        r"a\.q_groups: group 0 has 4 bits and lines 4 to 0",
    ),
    "lines past the last": (
        {"a.q_groups": ("I16", (4,), ints("h", 4, 0, 2, -1))},
        r"a\.q_groups: group 0 has 4 bits and lines 0 to 65,535",
    ),
    "lines of no group": (
        {"a.q_groups": ("I16", (4,), ints("h", 4, 1, 2, 5))},
        r"a\.q_groups: group 0 has 4 bits and lines 1 to 5",
    ),
    "a part of a group": (
        {"a.q_groups": ("I16", (4,), ints("h", 4, 0, 2, 3))},
        r"a\.q_groups: group 0 has 4 bits and lines 0 to 3",
    ),
    "bits that grow": (
        {"a.q_groups": ("I16", (4,), ints("h", 2, 0, 4, 1))},
        r"a\.q_groups: group 1 has 4 bits, more than the one before it",
    ),
    "other in features": (
        {"a.q_groups": ("I16", (4,), ints("h", 2, 0, 2, 4))},
        r"a\.q_groups: groups have 80 in features, and a\.q_invperm 48",
    ),
    "an in feature twice": (
        {"a.q_invperm": ("I32", (IN,), ints("i", *range(IN - 1), 0))},
        r"a\.q_invperm is no order of 48 in features",
    ),
    "an in feature that there is not": (
        {"a.q_invperm": ("I32", (IN,), ints("i", *range(IN - 1), -1))},
        r"a\.q_invperm is no order of 48 in features",
    ),
    "a group too many": (
        {"a.q_scale_max": ("F16", (3,), bytes(6))},
        r"a\.q_scale \(I32 \[2, 1\]\) does not fit a\.q_weight \(I32 \[5, 8\]\); \[3, 1\] is",
    ),
    "bits of a group too few": (
        {"a.q_groups": ("I16", (3,), bytes(6))},
        r"a\.q_groups \(I16 \[3\]\) does not fit a\.q_scale_max \(F16 \[2\]\); \[4\] is",
    ),
    "scales of other out features": (
        {"a.q_scale": ("I32", (2, 2), bytes(16))},
        r"a\.q_scale \(I32 \[2, 2\]\) does not fit a\.q_weight",
    ),
    "out features that fill no words": (
        {"a.q_weight": ("I32", (5, 7), bytes(4 * 35))},
        r"a\.q_weight is I32 \[5, 7\]; \[words, out features\], of which there are multiples of 8",
    ),
    "codes of three dimensions": (
        {"a.q_weight": ("I32", (5, 8, 1), bytes(4 * 40))},
        r"a\.q_weight is I32 \[5, 8, 1\]",
    ),
    "codes of shorter integers": (
        {"a.q_weight": ("I16", (5, 16), bytes(4 * 40))},
        r"a\.q_weight is I16 \[5, 16\]; I32 that is not empty",
    ),
    "no groups": (
        {
            "a.q_scale": ("I32", (0, 1), b""),
            "a.q_scale_max": ("F16", (0,), b""),
            "a.q_groups": ("I16", (0,), b""),
        },
        r"a\.q_scale is I32 \[0, 1\]; I32 that is not empty",
    ),
    "an order of two dimensions": (
        {"a.q_invperm": ("I32", (1, IN), ints("i", *range(IN)))},
        r"a\.q_invperm is I32 \[1, 48\]; I32 \[in features\], at most 65,536, is expected",
    ),
    "more in features than exllamav2 counts": (
        {"a.q_invperm": ("I32", (65_537,), bytes(4 * 65_537))},
        r"a\.q_invperm is I32 \[65537\]; I32 \[in features\], at most 65,536, is expected",
    ),
    "scales that are no half floats": (
        {"a.q_scale_max": ("F32", (2,), bytes(8))},
        r"a\.q_scale_max is F32 \[2\]; F16 that is not empty",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_in_a_line(wrong: str, tmp_path: Path) -> None:
    changed, why = WRONG[wrong]
    said = refusal(tmp_path, {**TENSORS, **changed})
    assert "\n" not in said
    with pytest.raises(AssertionError, match=why):
        raise AssertionError(said)


@pytest.mark.parametrize("part", ["q_scale", "q_scale_max", "q_groups", "q_invperm"])
def test_missing_parts(part: str, tmp_path: Path) -> None:
    tensors = {name: entry for name, entry in TENSORS.items() if name != f"a.{part}"}
    said = refusal(tmp_path, tensors)
    assert f"a.q_weight (I32 [5, 8]) has no a.{part}: it may be in another shard" in said


def test_parts_without_codes(tmp_path: Path) -> None:
    tensors = {name: entry for name, entry in TENSORS.items() if name != "a.q_weight"}
    assert "looks like a part of a quantised weight" in refusal(tmp_path, tensors)


def test_floats_of_that_name_are_a_weight(tmp_path: Path) -> None:
    tensors: Tensors = {"a.q_weight": ("F32", (2, 2), bytes(16))}
    with an.parse(write_safetensors(tmp_path / "x.safetensors", tensors)) as model:
        assert model["a.q_weight"].numpy().tolist() == [[0, 0], [0, 0]]


def test_an_order_that_changes_meanwhile_names_no_other_memory(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", TENSORS)
    with an.parse(path) as model:
        tensor = model["a.weight"]
        assert tensor.numpy("f32")[1].tolist() == VALUES
        stored = tensor.parts[4]
        assert stored.name == "a.q_invperm"
        with path.open("r+b") as file:
            file.seek(stored.offset)
            file.write(ints("i", 1 << 30))
        with pytest.raises(an.ParseError, match=r"a\.q_invperm is no order of 48 in features"):
            tensor.numpy("f32")


def test_columns_of_a_conv1d(tmp_path: Path) -> None:
    name = "h.0.mlp.c_fc"
    tensors = {part.replace("a.", f"{name}.", 1): entry for part, entry in TENSORS.items()}
    write_safetensors(tmp_path / "model.safetensors", tensors)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with an.parse(tmp_path) as model:
        tensor = model[f"{name}.weight"]
        assert tensor.shape == (IN, OUT)
        assert tensor.numpy("f32")[:, 1].tolist() == VALUES
        assert tensor[5:30, 2:].tolist() == [[value] * (OUT - 2) for value in VALUES[5:30]]


# --- directories ---------------------------------------------------------------------------------

CONFIG = {
    "model_type": "llama",
    "vocab_size": 5,
    "quantization_config": {"quant_method": "exl2", "bits": 4.0, "head_bits": 6},
}
FUSED = {
    "model.layers.0.qkv_proj.weight": "model-00001-of-00002.safetensors",
    "model.layers.0.rotary_emb.inv_freq": "model-00002-of-00002.safetensors",
    "lm_head.weight": "model-00002-of-00002.safetensors",
}


def written(folder: Path) -> Path:
    """A directory as exllamav2 leaves it: an output of its own name, the index of the source."""
    head = {name.replace("a.", "lm_head."): entry for name, entry in TENSORS.items()}
    layer = {name.replace("a.", "model.layers.0.q_proj."): e for name, e in TENSORS.items()}
    table: Tensors = {"model.embed_tokens.weight": ("F16", (5, IN), bytes(10 * IN))}
    write_safetensors(folder / "output.safetensors", {**table, **layer, **head})
    write_index(folder, FUSED)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def test_index_of_the_source_is_stale(tmp_path: Path) -> None:
    with an.parse(written(tmp_path / "in")) as model:
        assert not model.problems
        names = ["model.embed_tokens.weight", "model.layers.0.q_proj.weight", "lm_head.weight"]
        assert sorted(model) == sorted(names)


def test_missing_shard_of_its_own_is_missed(tmp_path: Path) -> None:
    """An index that names a shard that is there is no index of the source."""
    folder = written(tmp_path / "in")
    write_index(folder, {**FUSED, "model.embed_tokens.weight": "output.safetensors"})
    with pytest.raises(an.ParseError, match=r"model-0000[12]-of-00002\.safetensors is missing"):
        an.parse(folder)


def test_from_the_command_line(tmp_path: Path) -> None:
    folder, out = written(tmp_path / "in"), tmp_path / "out"
    shown = amn("inspect", folder)
    assert "Format:      EXL2\n" in shown.stdout  # 8 out features are no 5, filled up to 32
    runs = [amn("remember", folder, "-o", out, "--quiet")]
    runs += [amn("convert", folder, "--to", "f16", "--math", "reference", "-o", f"{out}2")]
    runs += [amn("convert", folder, "--to", "int8", "-o", f"{out}3")]
    assert [run.returncode for run in runs] == [0, 0, 0], [run.stderr for run in runs]
    assert "quantization_config" not in json.loads((out / "config.json").read_text())
    index = json.loads((out / "model.safetensors.index.json").read_text())["weight_map"]
    assert set(index.values()) == {"output.safetensors"}
    with an.parse(out) as model:
        assert model["model.layers.0.q_proj.weight"].numpy("f32")[1].tolist() == VALUES
