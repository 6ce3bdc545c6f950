"""Headers that claim GPTQ or AWQ and do not keep to it: an error that names them, or a result."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest
from exercise import exercise
from transformers.integrations.awq import AWQ_SCALES_MAPPINGS

import anamnesis as an
from helpers.handmade import Entry, safetensors_bytes, write_safetensors

WIDTH = {"I32": 4, "U32": 4, "F16": 2, "BF16": 2, "F32": 4, "I16": 2, "I64": 8, "F8_E4M3": 1}


def of(dtype: str, *shape: int, fill: bytes = b"\x11") -> Entry:
    n = WIDTH[dtype]
    for dim in shape:
        n *= dim
    return dtype, shape, fill * n


def gptq(**other: Entry | None) -> dict[str, Entry]:
    """Two groups of 64 in features, 64 out features, 4 bits; parts replaced, left out if None."""
    parts: dict[str, Entry | None] = {
        "qweight": of("I32", 16, 64),
        "qzeros": of("I32", 2, 8),
        "scales": of("F16", 2, 64),
        "g_idx": ("I32", (128,), struct.pack("<128i", *(i // 64 for i in range(128)))),
    }
    return {f"a.{name}": part for name, part in {**parts, **other}.items() if part is not None}


def awq(**other: Entry | None) -> dict[str, Entry]:
    parts: dict[str, Entry | None] = {
        "qweight": of("I32", 128, 8),
        "qzeros": of("I32", 2, 8),
        "scales": of("F16", 2, 64),
    }
    return {f"a.{name}": part for name, part in {**parts, **other}.items() if part is not None}


BROKEN: dict[str, tuple[dict[str, Entry], str]] = {
    "no scales": (gptq(scales=None), "no a.scales"),
    "no zeros": (gptq(qzeros=None), "no a.qzeros"),
    "zeros of fewer groups": (gptq(qzeros=of("I32", 1, 8)), "differ in their groups"),
    "zeros of no width": (gptq(qzeros=of("I32", 2, 7)), "no width"),
    "codes of no width": (gptq(qweight=of("I32", 15, 64)), "no width"),
    "codes in bytes": (gptq(qweight=of("F8_E4M3", 16, 64)), "F8_E4M3"),
    "codes in halves of words": (gptq(qweight=of("I16", 32, 64)), "I16"),
    "scales of 8 bits": (gptq(scales=of("F8_E4M3", 2, 64)), "F8_E4M3"),
    "scales that are integers": (gptq(scales=of("I32", 2, 64)), "I32"),
    "flat scales": (gptq(scales=of("F16", 128)), "2 dimensions"),
    "flat everything": (
        gptq(qweight=of("I32", 64), qzeros=of("I32", 8), scales=of("F16", 64), g_idx=None),
        "2 dimensions",
    ),
    "stacked experts": (gptq(qweight=of("I32", 2, 16, 64)), "fit neither|2 dimensions"),
    "a square g_idx": (gptq(g_idx=of("I32", 128, 1)), "1 dimensions"),
    "g_idx of 64 bits": (gptq(g_idx=of("I64", 128)), "I64"),
    "g_idx too short": (gptq(g_idx=of("I32", 120)), "no width"),
    "an empty g_idx": (gptq(g_idx=of("I32", 0)), "no width"),
    "no groups": (gptq(qzeros=of("I32", 0, 8), scales=of("F16", 0, 64)), "no groups"),
    "more groups than features": (
        gptq(qzeros=of("I32", 200, 8), scales=of("F16", 200, 64), g_idx=None),
        "do not make 200 groups",
    ),
    "groups of 64 or of 96": (
        gptq(
            qweight=of("I32", 24, 64),
            qzeros=of("I32", 2, 8),
            scales=of("F16", 2, 64),
            g_idx=None,
        ),
        "96 or 128",
    ),
    "2, 3 or 4 bits": (
        gptq(qweight=of("I32", 12, 4), qzeros=of("I32", 1, 1), scales=of("F16", 1, 4), g_idx=None),
        "bits would fit",
    ),
    "a plain weight beside": ({**gptq(), "a.weight": of("F16", 2)}, "a.weight is stored as well"),
    "an FP8 weight beside": ({**awq(), "a.weight": of("F8_E4M3", 2)}, "a.weight is stored as well"),
    "an embedding": (
        {name.replace("a.", "embed_tokens."): part for name, part in gptq().items()},
        "GPTQ of an embedding",
    ),
    "GEMV of other zeros": (
        awq(qweight=of("I32", 64, 16), qzeros=of("I32", 64, 2), scales=of("F16", 64, 8)),
        "not those of AWQ gemv",
    ),
    "GEMV in other groups": (
        awq(qweight=of("I32", 64, 16), qzeros=of("I32", 64, 3), scales=of("F16", 64, 24)),
        "24 places for scales fit no groups of 128",
    ),
    "GEMV without places for scales": (
        awq(qweight=of("I32", 64, 7), qzeros=of("I32", 64, 0), scales=of("F16", 64, 0)),
        "0 places for scales fit no groups of 56",
    ),
    "GEMV in groups of 128 or of 256": (
        awq(qweight=of("I32", 64, 32), qzeros=of("I32", 64, 1), scales=of("F16", 64, 8)),
        "groups may be of 128 or 256",
    ),
    "GEMV with a g_idx": (
        gptq(qweight=of("I32", 64, 16), qzeros=of("I32", 64, 1), scales=of("F16", 64, 8)),
        "no g_idx",
    ),
    "GEMV-fast with whole zeros": (
        awq(qweight=of("I16", 16, 128), qzeros=of("I32", 8, 64), scales=of("F16", 8, 64)),
        "a.qzeros is I32",
    ),
    "GEMV-fast of other scales": (
        awq(qweight=of("I16", 16, 128), qzeros=of("F16", 8, 64), scales=of("F16", 8, 32)),
        "not those of AWQ gemv_fast",
    ),
    "GEMV-fast of half a tile": (
        awq(qweight=of("I16", 16, 96), qzeros=of("F16", 8, 64), scales=of("F16", 8, 64)),
        "not those of AWQ gemv_fast",
    ),
    "Marlin with zeros": (gptq(qweight=of("I32", 8, 128)), "Marlin with zero points"),
    "Marlin in 8 bits of odd rows": (
        awq(qweight=of("I32", 8, 192), qzeros=None, scales=of("F16", 1, 48)),
        "no multiple of 64",
    ),
    "Marlin of odd rows": (
        awq(qweight=of("I32", 8, 96), qzeros=None, scales=of("F16", 1, 48)),
        "no multiple of 64",
    ),
    "Marlin of odd groups": (
        awq(qweight=of("I32", 8, 128), qzeros=None, scales=of("F16", 3, 64)),
        "128 in features do not make 3 groups",
    ),
    "Marlin and a weight": (
        {**awq(qweight=of("I32", 8, 128), qzeros=None), "a.weight": of("F16", 2)},
        "a.weight, but that is stored as well",
    ),
    "AWQ in 8 bits": (awq(qweight=of("I32", 128, 16), qzeros=of("I32", 2, 16)), "8 bits"),
    "AWQ in 5 bits": (awq(qweight=of("I32", 128, 10), qzeros=of("I32", 2, 10)), "5 bits"),
    "AWQ with g_idx": (awq(g_idx=of("I32", 128)), "no g_idx"),
    "AWQ of other zeros": (awq(qzeros=of("I32", 2, 9)), "fit neither"),
    "AWQ of no groups": (awq(qzeros=of("I32", 0, 8), scales=of("F16", 0, 64)), "no groups"),
}


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("name", BROKEN)
def test_refused_by_name(name: str) -> None:
    tensors, why = BROKEN[name]
    model = exercise(safetensors_bytes(tensors))
    assert model is not None
    with pytest.raises((an.ParseError, an.UnsupportedError), match=why):
        model.remember_to_bytes()
    qweight = next(n for n in tensors if n.endswith("qweight"))
    assert qweight in str(model.problems[qweight])


def test_nothing_is_left_of_a_run_that_such_an_index_ended(tmp_path: Path) -> None:
    """It is seen only when the layer is decoded; to resume would be of no use."""
    groups = struct.pack("<128i", *(2 if i == 127 else 0 for i in range(128)))
    path = write_safetensors(tmp_path / "in.safetensors", gptq(g_idx=("I32", (128,), groups)))
    with an.parse(path) as model, pytest.raises(an.ParseError, match="in group 2"):
        model.remember(tmp_path / "out.safetensors")
    assert [p.name for p in tmp_path.iterdir()] == ["in.safetensors"]


def test_inspect_says_once_what_is_wrong_with_a_layer() -> None:
    """Though four tensors cannot be read; and of a broken file not that it is empty."""
    model = an.parse(safetensors_bytes(gptq(qzeros=of("I32", 1, 8))))
    assert len(model.problems) == 4
    (problem,) = set(map(str, model.problems.values()))
    assert "a.qweight I32 [16, 64], qzeros I32 [1, 8], scales F16 [2, 64], g_idx I32" in problem
    text = str(model.inspect())
    assert text.count("Problem:") == text.count("nothing that can be read)") == 1
    assert "empty" not in text
    assert "no tensors" not in text


@pytest.mark.parametrize("act", sorted({m["act"] for m in AWQ_SCALES_MAPPINGS.values()}))
def test_scaled_activations_of_awq(act: str) -> None:
    """`ScaledActivation` divides by them; without it the model would be another."""
    name = f"transformer.h.0.mlp.{act}.scales"
    model = exercise(safetensors_bytes({**awq(), name: of("F16", 64)}))
    assert model is not None
    assert list(model.problems) == [name]
    with pytest.raises(an.UnsupportedError, match=rf"{act}\.scales .*divides activations"):
        model.remember_to_bytes()
    assert not an.parse(safetensors_bytes({name: of("F16", 64)})).problems


@pytest.mark.parametrize("group", [-1, 2, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("at", [0, 77, 127])
def test_an_index_that_is_no_group(group: int, at: int) -> None:
    groups = [i % 2 for i in range(128)]
    groups[at] = group
    raw = safetensors_bytes(gptq(g_idx=("I32", (128,), struct.pack("<128i", *groups))))
    model = an.parse(raw)
    with pytest.raises(an.ParseError, match=rf"a\.g_idx: in feature {at} is in group") as caught:
        model.remember_to_bytes()
    assert caught.value.offset is not None
    assert raw[caught.value.offset :][:4] == struct.pack("<i", group)


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "tensors",
    [
        gptq(qweight=of("I32", 16, 0), qzeros=of("I32", 2, 0), scales=of("F16", 2, 0)),
        gptq(qweight=of("I32", 0, 64), g_idx=None),
        gptq(
            qweight=of("I32", 0, 64),
            g_idx=of("I32", 0),
            qzeros=of("I32", 0, 8),
            scales=of("F16", 0, 64),
        ),
        gptq(qweight=of("I32", 2**40, 0), qzeros=of("I32", 2**40, 0), scales=of("F16", 2**40, 0)),
        gptq(qweight=of("I32", 0, 2**60), qzeros=of("I32", 0, 2**57), scales=of("F16", 0, 2**60)),
        awq(qweight=of("I32", 0, 8)),
        awq(qweight=of("I32", 127, 8)),
        awq(qweight=of("I32", 2**50, 0), qzeros=of("I32", 2, 0), scales=of("F16", 2, 0)),
        gptq(qzeros=of("I32", 128, 8), scales=of("F16", 128, 64)),
        gptq(
            qweight=of("I32", 1, 8),
            qzeros=of("I32", 1, 1),
            scales=of("F16", 1, 8),
            g_idx=of("I32", 8, fill=b"\0"),
        ),
        {**gptq(), **{f"b.{name[2:]}": part for name, part in awq().items()}},
        {name[2:]: part for name, part in gptq().items()},
    ],
    ids=range(12),
)
def test_odd_shapes(tensors: dict[str, Entry]) -> None:
    assert exercise(safetensors_bytes(tensors)) is not None


CONFIGS: tuple[tuple[Any, str], ...] = (
    ({"checkpoint_format": "marlin"}, "config says marlin, but the shapes do not"),
    ({"is_marlin_format": True}, "config says marlin, but the shapes do not"),
    ({"version": "GEMV"}, "config says gemv, but the shapes do not"),
    (
        {"quant_method": "awq", "format": "gemv_fast"},
        "config says gemv_fast, but the shapes",
    ),
    ({"group_size": 32}, "do not make 2 groups of 32"),
)


def test_planes_of_other_features(tmp_path: Path) -> None:
    """Three bits run on over words where planes of them would not be whole."""
    parts = gptq(
        qweight=of("I32", 12, 40), qzeros=of("I32", 2, 4), scales=of("F16", 2, 40), g_idx=None
    )
    path = write_safetensors(tmp_path / "model.safetensors", parts)
    with an.parse(path) as model:
        assert model["a.weight"].shape == (40, 128)
    config = {"quantization_config": {"checkpoint_format": "gptq_p"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with an.parse(path) as model, pytest.raises(an.ParseError, match="multiples of 32 features"):
        model.remember_to_bytes()


@pytest.mark.parametrize(("config", "why"), CONFIGS)
def test_configs_that_contradict(config: Any, why: str, tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", gptq(g_idx=None))
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    with an.parse(path) as model, pytest.raises(an.AnamnesisError, match=why):
        model.remember_to_bytes()


def test_awq_of_other_bits_by_its_config(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", awq())
    (tmp_path / "quant_config.json").write_text('{"w_bit": 3, "q_group_size": 64}')
    with an.parse(path) as model, pytest.raises(an.ParseError, match="config says 3"):
        model.remember_to_bytes()


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize(
    "config",
    [
        {"bits": 4, "dynamic": {"(a+)+$": {"bits": 8}, "-:" + "(x*)*" * 50: {}}},
        {"bits": True, "group_size": 0},
        {"bits": "4", "group_size": "128"},
        {"bits": [4], "group_size": {"a": 1}},
        {"bits": 10**30, "extra_config": {"a": {"bits": 4}}},
        {"group_size": -(10**30)},
        {"checkpoint_format": 2, "format": None, "version": [1], "packing_format": {}},
        {"quant_method": "auto-round", "packing_format": 3, "backend": []},
    ],
)
def test_odd_configs(config: Any, tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "model.safetensors", gptq())
    (tmp_path / "config.json").write_text(json.dumps({"quantization_config": config}))
    (tmp_path / "quantize_config.json").write_text(json.dumps(config))
    assert exercise(path) is not None


@pytest.mark.parametrize("group", [-3, 2, 999])
@pytest.mark.parametrize("target", ["int4", "gptq-4bit"])
def test_groups_that_are_none_are_not_copied(target: str, group: int, tmp_path: Path) -> None:
    """Where the same codes are written in another layout, nothing decodes them."""
    told = [i // 64 for i in range(128)]
    told[5] = group
    listed = {"g_idx": ("I32", (128,), struct.pack("<128i", *told))}
    config = {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 64}}
    write_safetensors(tmp_path / "model.safetensors", gptq(**listed))
    (tmp_path / "config.json").write_text(json.dumps(config))
    with (
        an.parse(tmp_path) as model,
        pytest.raises(an.ParseError, match=rf"column 5 is in group {group}, but there are 2"),
    ):
        model.convert(tmp_path.with_suffix(".out"), target)
