"""Configs and what else lies beside the weights; directories without any."""

from __future__ import annotations

import json
import os
import tracemalloc
from pathlib import Path

import pytest

import anamnesis as an
from helpers.checkpoints import FIRST, SECOND, A, B, left_out, needs_posix, two_shards
from helpers.handmade import write_index, write_safetensors

BROKEN: dict[str, tuple[bytes, type[an.AnamnesisError]]] = {
    "empty": (b"", an.ParseError),
    "cut short": (b'{"a": 1', an.ParseError),
    "an array": (b"[]", an.ParseError),
    "null": (b"null", an.ParseError),
    "not UTF-8": (b'{"a": "\xff"}', an.ParseError),
    "a number of 10,000 digits": (b'{"a": ' + b"1" * 10_000 + b"}", an.ParseError),
    "nested 65 deep": (b'{"a":' * 65 + b"1" + b"}" * 65, an.LimitExceeded),
    "nested 100,000 deep": (b'{"a":' * 100_000, an.LimitExceeded),
    "nested 100,000 deep, arrays": (b"[" * 100_000 + b"]" * 100_000, an.LimitExceeded),
}


@pytest.mark.parametrize("name", ["config.json", "hf_quant_config.json"])
@pytest.mark.parametrize("case", BROKEN)
def test_broken_config(root: Path, name: str, case: str) -> None:
    raw, error = BROKEN[case]
    write_safetensors(root / "model.safetensors", A)
    (root / name).write_bytes(raw)
    for where in (root, root / "model.safetensors"):
        with pytest.raises(error, match=name):
            an.parse(where)


@pytest.mark.parametrize("case", BROKEN)
def test_broken_index(root: Path, case: str) -> None:
    raw, error = BROKEN[case]
    write_safetensors(root / "model.safetensors", A)
    (root / "model.safetensors.index.json").write_bytes(raw)
    with pytest.raises(error, match=r"index\.json"):
        an.parse(root)


@pytest.mark.parametrize("weight_map", ["null", "[]", "1", '"a"', '{"a": 1}', '{"a": null}'])
def test_index_without_a_map(root: Path, weight_map: str) -> None:
    write_safetensors(root / "model.safetensors", A)
    (root / "model.safetensors.index.json").write_text(f'{{"weight_map": {weight_map}}}')
    with pytest.raises(an.ParseError, match="weight_map must map tensors to shards"):
        an.parse(root)


def test_huge_config(root: Path) -> None:
    write_safetensors(root / "model.safetensors", A)
    with (root / "config.json").open("wb") as file:
        file.truncate(200_000_001)
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(root)
    assert raised.value.limit == "JSON_MAX_BYTES"


def test_config_of_many_values(root: Path) -> None:
    write_safetensors(root / "model.safetensors", A)
    (root / "config.json").write_text('{"a": [' + "[]," * 2_000_000 + "[]]}")
    tracemalloc.start()
    try:
        with pytest.raises(an.LimitExceeded) as raised:
            an.parse(root)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()
    assert raised.value.limit == "JSON_MAX_VALUES"


@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors.index.json", "quant_config.json"]
)
@pytest.mark.parametrize("limit", ["max_total_bytes", "max_item_count"])
def test_values_beside_the_weights_count(root: Path, name: str, limit: str) -> None:
    write_safetensors(root / "model.safetensors", A)
    values = ",".join(f'"k{i}":1' for i in range(20_000))
    (root / name).write_text(f'{{"weight_map": {{"a": "model.safetensors"}}, {values}}}')
    most = {"max_total_bytes": 1_000_000, "max_item_count": 1000}[limit]
    tracemalloc.start()
    try:
        with pytest.raises(an.LimitExceeded) as raised:
            an.parse(root, limits=an.ParseLimits(**{limit: most}))
        assert tracemalloc.get_traced_memory()[1] < 1_500_000
    finally:
        tracemalloc.stop()
    assert raised.value.limit == limit


@pytest.mark.parametrize("depth", [100, 2_000, 200_000])
@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")])
def test_config_nested_deeply(root: Path, depth: int, opening: str, closing: str) -> None:
    write_safetensors(root / "model.safetensors", A)
    nested = f'{{"a": {opening * depth}1{closing * depth}}}'
    (root / "config.json").write_text(nested)
    with pytest.raises(an.LimitExceeded, match=r"config\.json: JSON nested too deeply; 64"):
        an.parse(root).inspect()


@pytest.mark.parametrize(
    "config",
    [
        {"quantization_config": None},
        {"quantization_config": [1, 2]},
        {"quantization_config": {"config_groups": {"g": {"weights": {"block_structure": {}}}}}},
        {"text_config": [[{"quantization_config": {}}]]},
        {"quantization": "int8", "producer": "me"},
        {"torch_dtype": {"a": 1}, "dtype": []},
        {"a": "\ud800"},
    ],
    ids=str,
)
def test_odd_configs(root: Path, config: dict[str, object]) -> None:
    write_safetensors(root / "model.safetensors", A)
    (root / "config.json").write_text(json.dumps(config))
    model = an.parse(root)
    model.remember(root.parent / "out")
    written = json.loads((root.parent / "out" / "config.json").read_bytes())
    assert "quantization_config" not in written or isinstance(written["quantization_config"], list)


@pytest.mark.parametrize(
    "section",
    [
        {"quant_method": 1, "weight_block_size": "axb"},
        {"weight_block_size": [128, -1]},
        {"weight_block_size": [True, 1.5]},
        {"weight_block_size": "\u0661\u0662x3"},
    ],
    ids=str,
)
def test_odd_sections_over_plain_weights(root: Path, section: dict[str, object]) -> None:
    write_safetensors(root / "model.safetensors", A)
    (root / "config.json").write_text(json.dumps({"quantization_config": section}))
    with an.parse(root) as model:
        assert "the config says a quantisation" in str(model.problems["a"])


def test_config_nested_64_deep(root: Path) -> None:
    write_safetensors(root / "model.safetensors", A)
    (root / "config.json").write_text('{"a":' * 63 + "{}" + "}" * 63)
    an.parse(root).remember(root.parent / "out")


def test_sidecars(root: Path) -> None:
    two_shards(root)
    write_index(root, {"a": FIRST, "b": SECOND})
    for name in ("config.json", "tokenizer.json", "original/params.json", ".git/config", "a.b.py"):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    assert an.parse(root)._checkpoint.sidecars == [
        "a.b.py",
        "original/params.json",
        "tokenizer.json",
    ]


@needs_posix
def test_file_names_of_other_systems(root: Path) -> None:
    write_safetensors(root / "model.safetensors", A)
    names = ["a:b.json", "a\\b.json", "a\nb.json"]
    for name in names:
        (root / name).write_text("{}")
    model = an.parse(root)
    assert model._checkpoint.sidecars == sorted(names)
    assert left_out(model) == {}


@needs_posix
def test_file_names_that_are_not_utf8(root: Path) -> None:
    raw = os.fsencode(root) + b"/model-\xff.safetensors"
    write_safetensors(root / "model.safetensors", A)
    try:
        os.rename(root / "model.safetensors", raw)
    except OSError:
        pytest.skip("the file system takes no such names")
    write_safetensors(root / "b.safetensors", B)
    out = root.parent / "out"
    an.parse(root).remember(out)
    assert set(an.parse(out)) == {"a", "b"}


def test_unreadable_folder(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be listed is not passed over in silence."""
    two_shards(root)
    (root / "sub").mkdir()
    scandir = os.scandir

    def refusing(path: str | Path) -> object:
        if Path(path).name == "sub":
            raise PermissionError(13, "no", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with pytest.raises(PermissionError):
        an.parse(root)


def test_files_are_closed(root: Path) -> None:
    two_shards(root)
    with an.parse(root) as model:
        sources = [shard.source for shard in model._checkpoint.shards.values()]
    for source in sources:
        with pytest.raises(OSError):  # noqa: PT011 -- of a closed descriptor
            source.read(0, 1)


def test_limits_count_over_all_files(root: Path) -> None:
    two_shards(root)
    write_index(root, {"a": FIRST, "b": SECOND})
    assert len(an.parse(root, limits=an.ParseLimits(max_item_count=4))) == 2  # index and headers
    with pytest.raises(an.LimitExceeded) as raised:
        an.parse(root, limits=an.ParseLimits(max_item_count=3))
    assert raised.value.limit == "max_item_count"


def test_an_empty_path() -> None:
    with pytest.raises(an.ParseError, match=r"^the path is empty; name a file or a directory"):
        an.parse("")


@pytest.mark.parametrize(
    ("names", "remedy"),
    [
        ([], None),
        (["config.json"], None),
        (["a.gguf"], "name one of its GGUF files, such as a.gguf"),
        (["adapter_model.bin"], "name one of its files, such as adapter_model.bin"),
        (["unet/x.safetensors", "vae/x.safetensors"], "pass one of its folders, such as unet"),
    ],
)
def test_a_directory_without_weights(root: Path, names: list[str], remedy: str | None) -> None:
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).touch()
    with pytest.raises(an.ParseError, match=r"no \.safetensors file in this directory") as raised:
        an.parse(root)
    assert raised.value.remedy == remedy
