"""llama-quantize and headers: tensors in order, layers numbered anew, keys."""

from __future__ import annotations

from typing import Any

import pytest

from anamnesis.schemes.families.ggml.header import (
    GUESSED,
    ImatrixOf,
    file_type,
    header_edits,
    in_order,
    model_facts,
    read_override,
    without_layers,
)
from anamnesis.schemes.families.ggml.mixes import COPY, ModelFacts

U32 = "uint32"


def test_tensors_are_in_the_order_of_layers_and_then_of_names() -> None:
    names = ["blk.10.b", "blk.2.b", "token_embd.weight", "blk.2.a", "Z", "v.blk.3.a", "blk.x", "é"]
    assert in_order(names) == [
        "Z",
        "blk.x",
        "token_embd.weight",
        "v.blk.3.a",
        "é",
        "blk.2.a",
        "blk.2.b",
        "blk.10.b",
    ]


def test_layers_that_remain_are_numbered_anew() -> None:
    names = ["output.weight", *(f"blk.{i}.{part}" for i in range(6) for part in "ab")]
    left, n = without_layers(names, [4, 1])
    assert n == 4
    assert left == {
        "output.weight": "output.weight",
        **{
            f"blk.{old}.{part}": f"blk.{new}.{part}"
            for old, new in ((0, 0), (2, 1), (3, 2), (5, 3))
            for part in "ab"
        },
    }


def test_layers_that_are_not_there_leave_all_as_it_is() -> None:
    names = ["blk.0.a", "blk.1.a", "a"]
    assert without_layers(names, [7]) == ({name: name for name in names}, 2)
    assert without_layers(["a"], [0]) == ({"a": "a"}, 0)


# --- what a header says ---------------------------------------------------------------------------


def metadata(arch: str, **numbers: Any) -> dict[str, Any]:
    keys = {name.replace("__", "."): n for name, n in numbers.items()}
    return {"general.architecture": arch, **{f"{arch}.{key}": n for key, n in keys.items()}}


def test_facts_are_those_of_the_architecture() -> None:
    told = metadata(
        "qwen3moe",
        block_count=48,
        attention__head_count=32,
        attention__head_count_kv=[4] * 48,
        expert_count=128,
    )
    assert model_facts(told) == ModelFacts("qwen3moe", 48, 32, 4, 128)
    without = metadata("gpt2", block_count=12, attention__head_count=12)
    assert model_facts(without) == ModelFacts("gpt2", 12, 12, 12)
    assert model_facts({}) == ModelFacts()
    assert model_facts(metadata("clip", block_count=12)) == ModelFacts("clip")
    assert model_facts(metadata("llama", block_count="x", expert_count=-1)).n_layers == 0


@pytest.mark.parametrize(
    ("arch", "numbers", "is_70b"),
    [
        ("llama", {"block_count": 80, "attention__head_count_kv": 8}, True),
        ("llama", {"block_count": 80, "attention__head_count_kv": 64}, False),
        ("llama", {"block_count": 80, "attention__head_count_kv": 8, "expert_count": 8}, False),
        ("llama", {"block_count": 79, "attention__head_count_kv": 8}, False),
        ("qwen2", {"block_count": 80, "attention__head_count_kv": 64}, True),
        ("qwen3", {"block_count": 80, "attention__head_count_kv": 8}, False),
        ("jais2", {"block_count": 68}, True),
        ("qwen2", {"block_count": 81, "nextn_predict_layers": 1}, True),
    ],
)
def test_some_models_are_called_70b(arch: str, numbers: dict[str, int], is_70b: bool) -> None:
    told = metadata(arch, attention__head_count=64, **numbers)
    assert model_facts(told).is_70b is is_70b


def test_overrides_count_where_the_tool_reads_them() -> None:
    told = metadata("llama", block_count=32, attention__head_count=32)
    overrides = dict(map(read_override, ("llama.block_count=int:4", "llama.expert_count=int:8")))
    assert model_facts(told, overrides) == ModelFacts("llama", 4, 32, 32, 8)
    wrong = dict([read_override("llama.block_count=str:4")])
    assert model_facts(told, wrong).n_layers == 32
    of_layers = dict([read_override("llama.attention.head_count_kv=int:8")])
    assert model_facts(told, of_layers).n_kv_heads == 32  # it is not there to be overridden


def test_a_copy_says_what_its_source_says_or_is() -> None:
    assert file_type("q4_k_m", {}) == 15
    assert file_type(COPY, {"general.file_type": 18}) == 18
    assert file_type(COPY, {}, dict([read_override("general.file_type=int:3")])) == 3
    assert file_type(COPY, {}, dtypes=["F32", "Q4_K", "Q4_K"]) == GUESSED + 15
    assert file_type(COPY, {}, dtypes=["F16", "F32", "F32", "F16"]) == GUESSED
    assert file_type(COPY, {}, dtypes=["NVFP4"]) == GUESSED + 39
    assert file_type(COPY, {}, dtypes=["MXFP4"]) == GUESSED
    assert file_type(COPY, {}) == GUESSED


# --- what is written into one ---------------------------------------------------------------------


def test_keys_are_set_behind_all_others_and_last_ones_win() -> None:
    overrides = [read_override(text) for text in ("a=int:-7", "b=str:x", "a=bool:true")]
    edits = header_edits(15, overrides, n_layers=("llama", 3))
    assert list(edits.new.items()) == [
        ("general.quantization_version", {"type": U32, "value": 2}),
        ("general.file_type", {"type": U32, "value": 15}),
        ("b", {"type": "string", "value": "x"}),
        ("a", {"type": "bool", "value": True}),
        ("llama.block_count", {"type": U32, "value": 3}),
    ]
    assert list(edits.gone) == list(edits.new)
    assert set(edits.gone.values()) == {None}


def test_an_importance_matrix_is_named() -> None:
    found = header_edits(15, imatrix=ImatrixOf("é" * 100, ["wiki", "more"], 12, 40)).new
    keys = {key.removeprefix("quantize.imatrix."): typed["value"] for key, typed in found.items()}
    assert keys.pop("file") == "é" * 63 + "\udcc3"  # 127 bytes
    assert keys["dataset"] == "wiki"
    assert (keys["entries_count"], keys["chunks_count"]) == (12, 40)
    assert list(header_edits(15, imatrix=ImatrixOf("a", [], 12, 0)).new)[2:] == [
        "quantize.imatrix.file",
        "quantize.imatrix.entries_count",
    ]
    assert len(header_edits(15, imatrix=ImatrixOf("a", [], 0, 7)).new) == 2


def test_overrides_are_written_as_the_tool_reads_them() -> None:
    assert read_override("a.b=int:-7") == ("a.b", {"type": U32, "value": 7})
    assert read_override("a=float:1e-3") == ("a", {"type": "float32", "value": 0.001})
    assert read_override("a=str:") == ("a", {"type": "string", "value": ""})
    assert read_override("a=str:x=y:z")[1]["value"] == "x=y:z"


@pytest.mark.parametrize(
    "text",
    [
        "a",
        "a=",
        "a=7",
        "=int:7",
        "a=int:x",
        "a=int:4294967296",
        "a=float:x",
        "a=float:nan",
        "a=bool:1",
        "a=u8:1",
        "a=str:" + "é" * 64,
        "a" * 128 + "=int:7",
    ],
)
def test_what_is_written_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write KEY=TYPE:VALUE|that llama-quantize writes"):
        read_override(text)
