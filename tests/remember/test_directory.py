"""A directory in, a directory out: shards, index, config and all that lies beside."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import anamnesis as an
from helpers.handmade import write_index, write_safetensors
from helpers.models import CONFIG, SIDECARS, codes, small_model, tree, write_directory

NAMES = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
INDEX = "model.safetensors.index.json"
WEIGHTS = {"a.weight": 0, "norm.weight": 0, "b.weight": 1, "ids": 1}


def remembered(source: Path, out: Path, **how: Any) -> an.Report:
    with an.parse(source) as model:
        return model.remember(out, **how)


def test_directory(tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    report = remembered(source, out)
    found = tree(out)
    assert sorted(found) == sorted([*NAMES, INDEX, "config.json", *SIDECARS])
    assert {name: found[name] for name in SIDECARS} == SIDECARS
    index = json.loads(found[INDEX])
    assert index["weight_map"] == {t: NAMES[i] for t, i in WEIGHTS.items()}
    tensors = [t for name in NAMES for t in load_file(out / name).values()]
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors)
    config = json.loads(found["config.json"])
    assert config == {
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": "bfloat16",
        "dtype": "bfloat16",
    }
    for i, name in enumerate(NAMES):
        assert sorted(load_file(out / name)) == sorted(t for t, n in WEIGHTS.items() if n == i)
    assert sorted(d.name for d in report.dropped) == ["b.input_scale", "hf_quant_config.json"]
    # the same weights as from one file
    single = write_safetensors(tmp_path / "in.safetensors", small_model())
    with an.parse(single) as model:
        for name in WEIGHTS:
            shard = load_file(out / NAMES[WEIGHTS[name]])
            assert shard[name].float().numpy().tobytes() == (
                model[name].numpy("bf16").astype("f4").tobytes()
            )


def test_a_resume_with_nothing_to_do_reports_the_same(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "in")
    with an.parse(source) as model:
        first = model.remember(tmp_path / "out")
        again = model.remember(tmp_path / "out", resume=True)
    assert first.dropped == again.dropped
    assert "hf_quant_config.json" in {dropped.name for dropped in again.dropped}


def test_partial_output_beside_the_source_is_not_copied(tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    leftover = source / "other.amn-partial" / "files"
    leftover.mkdir(parents=True)
    (leftover / "x.safetensors").write_bytes(b"half")
    remembered(source, out)
    assert sorted(tree(out)) == sorted([*NAMES, INDEX, "config.json", *SIDECARS])


@pytest.mark.parametrize("output", ["bf16", "f16", "f32"])
def test_config(output: str, tmp_path: Path) -> None:
    names = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
    source = write_directory(tmp_path / "in")
    config = {
        **CONFIG,
        "compression_config": {"a": 1},
        "quantization": {"group_size": 64},
        "text_config": {"dtype": "bfloat16", "quantization_config": {"q": 1}, "n": [1, {"b": 2}]},
        "vision_config": {"torch_dtype": "bfloat16", "hidden": 3},
        "audio_config": {"no": "dtype"},
        "note": "ünïcode",
    }
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (source / "params.json").write_text('{"dim": 3, "quantization": {"qformat_weight": "fp8"}}')
    remembered(source, tmp_path / "out", dtype=output)
    told = json.loads((tmp_path / "out" / "config.json").read_bytes())
    dtype = names[output]
    assert told == {
        "architectures": ["LlamaForCausalLM"],
        "torch_dtype": dtype,
        "dtype": dtype,
        "text_config": {"dtype": dtype, "n": [1, {"b": 2}]},
        "vision_config": {"torch_dtype": dtype, "hidden": 3},
        "audio_config": {"no": "dtype"},
        "note": "ünïcode",
    }
    assert json.loads((tmp_path / "out" / "params.json").read_bytes()) == {"dim": 3}


def test_config_of_an_unquantised_model_keeps_its_dtype(tmp_path: Path) -> None:
    source = tmp_path / "in"
    write_safetensors(source / "model.safetensors", {"a": ("BF16", (4,), bytes(8))})
    (source / "config.json").write_text('{"dtype": "bfloat16"}')
    remembered(source, tmp_path / "out", dtype="f32")
    assert json.loads((tmp_path / "out" / "config.json").read_bytes()) == {"dtype": "bfloat16"}
    remembered(source, tmp_path / "cast", dtype="f32", cast_all=True)
    assert json.loads((tmp_path / "cast" / "config.json").read_bytes())["dtype"] == "float32"


@pytest.mark.parametrize("limit", [1, 70_000, 10**9])
def test_max_shard_size(limit: int, tmp_path: Path) -> None:
    source, out = write_directory(tmp_path / "in"), tmp_path / "out"
    remembered(source, out, max_shard_size=limit)
    shards = sorted(p.name for p in out.glob("*.safetensors"))
    n = {1: 4, 70_000: 2, 10**9: 1}[limit]
    expected = [f"model-{i:05}-of-{n:05}.safetensors" for i in range(1, n + 1)]
    assert shards == (expected if n > 1 else ["model.safetensors"])
    index = json.loads((out / INDEX).read_bytes())
    found = {t: name for name in shards for t in load_file(out / name)}
    assert index["weight_map"] == found
    assert sorted(found) == sorted(WEIGHTS)
    for name in shards:
        tensors = load_file(out / name).values()
        assert len(tensors) == 1 or sum(t.nbytes for t in tensors) <= limit


def test_no_index(tmp_path: Path) -> None:
    remembered(write_directory(tmp_path / "in", index=False), tmp_path / "out")
    index = json.loads((tmp_path / "out" / INDEX).read_bytes())
    assert sorted(index["weight_map"]) == sorted(WEIGHTS)


def test_stale_index(tmp_path: Path) -> None:
    """Left over from the model before it was quantised, as many repositories have it."""
    source = write_directory(tmp_path / "in")
    names = [f"model-{i:05}-of-00009.safetensors" for i in range(1, 10)]
    write_index(source, {t: names[i] for i, t in enumerate(WEIGHTS)})
    remembered(source, tmp_path / "out")
    index = json.loads((tmp_path / "out" / INDEX).read_bytes())
    assert index["weight_map"] == {t: NAMES[i] for t, i in WEIGHTS.items()}


def test_shard_of_scales_alone(tmp_path: Path) -> None:
    """It has no use afterwards; the other's name needs an index, even if there was none."""
    model = small_model()
    source, out = tmp_path / "in", tmp_path / "out"
    scales = {k: v for k, v in model.items() if "scale" in k}
    write_safetensors(source / NAMES[1], scales)
    write_safetensors(source / NAMES[0], {k: v for k, v in model.items() if k not in scales})
    remembered(source, out)
    assert sorted(tree(out)) == [NAMES[0], INDEX]
    assert set(json.loads((out / INDEX).read_bytes())["weight_map"].values()) == {NAMES[0]}


def test_one_file_in_a_directory_needs_no_index(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "in" / "model.safetensors", small_model())
    remembered(tmp_path / "in", tmp_path / "out")
    assert sorted(tree(tmp_path / "out")) == ["model.safetensors"]


def test_missing_shard(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "in")
    (source / NAMES[1]).unlink()
    with pytest.raises(an.ParseError, match=NAMES[1]):
        an.parse(source)


def test_metadata_of_shards(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "in")
    remembered(source, tmp_path / "out")
    for name in NAMES:
        with an.parse(tmp_path / "out" / name) as shard:
            assert shard.metadata == {"format": "pt", "made": name}


@pytest.mark.skipif(os.name == "nt", reason="needs links")
def test_links_of_the_hubs_cache(tmp_path: Path) -> None:
    """All files are links into a folder of blobs; copies come out, not links."""
    repository = tmp_path / "models--o--n"
    plain = write_directory(tmp_path / "plain")
    snapshot = repository / "snapshots" / "abc"
    for i, path in enumerate(sorted(p for p in plain.rglob("*") if p.is_file())):
        blob = repository / "blobs" / str(i)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(path.read_bytes())
        link = snapshot / path.relative_to(plain)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(blob)
    remembered(snapshot, tmp_path / "out")
    remembered(plain, tmp_path / "want")
    assert tree(tmp_path / "out") == tree(tmp_path / "want")
    assert not [p for p in (tmp_path / "out").rglob("*") if p.is_symlink()]


def test_a_directory_needs_a_directory(tmp_path: Path) -> None:
    source = write_directory(tmp_path / "in")
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(an.OutputError, match="directory"):
        remembered(source, tmp_path / "file")
    single = write_safetensors(tmp_path / "in.safetensors", {"a": codes(2, 2)})
    (tmp_path / "folder").mkdir()
    with pytest.raises(an.OutputError, match="directory"):
        remembered(single, tmp_path / "folder")


# --- adapters, configs of nothing -----------------------------------------------------------------


def test_an_adapter_alone_keeps_its_name(tmp_path: Path) -> None:
    """peft looks for it under that name; an index of it no program reads."""
    source = tmp_path / "in"
    source.mkdir()
    lora = {"base_model.model.q.lora_A.weight": ("F32", (2, 2), bytes(16))}
    write_safetensors(source / "adapter_model.safetensors", lora)
    (source / "adapter_config.json").write_text("{}")
    for how in ({}, {"max_shard_size": 10**6}):
        out = tmp_path / f"out{len(how)}"
        remembered(source, out, **how)
        assert sorted(tree(out)) == ["adapter_config.json", "adapter_model.safetensors"]


@pytest.mark.parametrize("config", ["{}", '{"quantization_config": {"quant_method": "fp8"}}'])
def test_an_empty_config_is_kept(config: str, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    codes: Any = {
        "a.weight": ("F8_E4M3", (4, 4), bytes(16)),
        "a.weight_scale": ("F32", (), bytes(4)),
    }
    write_safetensors(source / "model.safetensors", codes)
    (source / "config.json").write_text(config)
    remembered(source, tmp_path / "out")
    told = json.loads((tmp_path / "out" / "config.json").read_bytes())
    assert told.keys() <= {"dtype", "torch_dtype"}


@pytest.mark.parametrize("content", ["[1]", "null", "not JSON"])
def test_params_of_another_program_are_left_out(content: str, tmp_path: Path) -> None:
    """Mistral's is an object; whatever else is called so does not stop a conversion."""
    source = tmp_path / "in"
    source.mkdir()
    write_safetensors(source / "model.safetensors", {"a": ("F32", (1,), bytes(4))})
    (source / "params.json").write_text(content)
    report = remembered(source, tmp_path / "out")
    assert sorted(tree(tmp_path / "out")) == ["model.safetensors"]
    assert [(d.name, d.reason) for d in report.dropped] == [("params.json", "not a JSON object")]
