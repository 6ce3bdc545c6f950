"""Directories: shards with and without an index, links, configs, and what lies beside them."""

from __future__ import annotations

import json
import os
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from handmade import Entry, write_index, write_safetensors

import anamnesis as an

ONE = struct.pack("<f", 1.0)
A: dict[str, Entry] = {"a": ("F32", [1], ONE)}
B: dict[str, Entry] = {"b": ("F32", [1], struct.pack("<f", 2.0))}
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"

needs_links = pytest.mark.skipif(os.name == "nt", reason="links need a privilege on Windows")
needs_posix = pytest.mark.skipif(os.name == "nt", reason="no such file names on Windows")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


def two_shards(root: Path) -> None:
    write_safetensors(root / FIRST, A)
    write_safetensors(root / SECOND, B)


def left_out(model: an.Model) -> dict[str, str]:
    return {d.name: d.reason for d in model._checkpoint.left_out}


# --- shards and indexes -----------------------------------------------------------------------


def test_with_an_index(root: Path) -> None:
    two_shards(root)
    write_index(root, {"a": FIRST, "b": SECOND})
    with an.parse(root) as model:
        assert list(model) == ["a", "b"]
        assert model["b"].numpy() == [2.0]
        assert model.inspect().files == 2


def test_an_index_opens_its_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_shards(root)
    index = write_index(root, {"a": FIRST, "b": SECOND})
    monkeypatch.chdir(root)
    for where in (index, str(index), index.name):
        with an.parse(where) as model:
            assert list(model) == ["a", "b"]
            assert model.inspect().files == 2


def test_an_index_that_is_not_there(root: Path) -> None:
    two_shards(root)
    with pytest.raises(FileNotFoundError):
        an.parse(root / "model.safetensors.index.json")


def test_without_an_index(root: Path) -> None:
    two_shards(root)
    with an.parse(root) as model:
        assert list(model) == ["a", "b"]


def test_path_as_text(root: Path) -> None:
    two_shards(root)
    assert len(an.parse(str(root))) == 2


def test_index_in_a_subfolder(root: Path) -> None:
    write_safetensors(root / "deep" / "x.safetensors", A)
    write_index(root, {"a": "deep/x.safetensors"})
    assert list(an.parse(root)) == ["a"]


@pytest.mark.parametrize(
    "weight_map",
    [
        {"a": "old-00001-of-00001.safetensors"},
        {"a": "old-00001-of-00002.safetensors", "b": "old-00002-of-00002.safetensors"},
        {"a": FIRST, "b": "old.safetensors"},
        {"a": FIRST, "b": SECOND, "a.qweight": FIRST},
        {},
    ],
    ids=["another file", "other files", "one other file", "other tensors", "nothing"],
)
def test_stale_index(root: Path, weight_map: dict[str, str]) -> None:
    two_shards(root)
    write_index(root, weight_map)
    assert set(an.parse(root)) == {"a", "b"}


def test_missing_shard_of_an_index(root: Path) -> None:
    write_safetensors(root / FIRST, A)
    write_index(root, {"a": FIRST, "b": SECOND, "c": SECOND})
    with pytest.raises(an.ParseError, match=f"{SECOND} is missing.*'b'; 2 tensors"):
        an.parse(root)


def test_missing_shard_that_is_named_is_the_one_of_the_tensor(root: Path) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_index(root, {"a": "gone.safetensors", "b": "x.safetensors", "c": "zone.safetensors"})
    with pytest.raises(an.ParseError, match=r"zone\.safetensors is missing.*'c'"):
        an.parse(root)


@pytest.mark.parametrize("n", ["00001", "00002", "00003"])
def test_gap_in_the_numbering(root: Path, n: str) -> None:
    for i in {"00001", "00002", "00003"} - {n}:
        write_safetensors(root / f"model-{i}-of-00003.safetensors", {i: A["a"]})
    with pytest.raises(an.ParseError, match=f"model-{n}-of-00003.safetensors is missing"):
        an.parse(root)


def test_gap_in_the_numbering_beside_a_stale_index(root: Path) -> None:
    write_safetensors(root / "output-00001-of-00002.safetensors", A)
    write_index(root, {"a": "model.safetensors"})
    with pytest.raises(an.ParseError, match="output-00002-of-00002"):
        an.parse(root)


def test_numbering_of_a_hundred_thousand(root: Path) -> None:
    """Missing ones are noticed at the first, present ones are looked up, not searched."""
    for i in range(1, 500):
        write_safetensors(root / f"m-{i:05d}-of-99999.safetensors", {str(i): A["a"]})
    with pytest.raises(an.ParseError, match="m-00500-of-99999"):
        an.parse(root)


def test_index_of_many_missing_shards(root: Path) -> None:
    """Each tensor's shard is looked up, not searched."""
    write_safetensors(root / "x.safetensors", A)
    missing = {f"t{i}": f"s{i}.safetensors" for i in range(50_000)}
    write_index(root, {"a": "x.safetensors", **missing})
    with pytest.raises(an.ParseError, match="50,000 tensors are missing"):
        an.parse(root)


def test_twins_without_an_index(root: Path) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_safetensors(root / "y.safetensors", {**A, **B})
    with pytest.raises(an.ParseError, match=r"'a' is in both x\.safetensors and y\.saf.*move away"):
        an.parse(root)


@pytest.mark.parametrize(("holder", "value"), [("x.safetensors", 1.0), ("y.safetensors", 2.0)])
def test_twins_with_an_index(root: Path, holder: str, value: float) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_safetensors(root / "y.safetensors", {"a": B["b"], "c": A["a"]})
    write_index(root, {"a": holder, "c": "y.safetensors"})
    model = an.parse(root)
    assert model["a"].numpy() == [value]
    loser = "y.safetensors" if holder == "x.safetensors" else "x.safetensors"
    assert left_out(model) == {f"a in {loser}": "the index names another shard for it"}


def test_twins_with_an_index_that_names_a_third(root: Path) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_safetensors(root / "y.safetensors", A)
    write_index(root, {"a": "z.safetensors"})
    with pytest.raises(an.ParseError, match="no index says which to use"):
        an.parse(root)


@pytest.mark.parametrize("with_index", [False, True])
def test_scale_in_another_shard(root: Path, with_index: bool) -> None:
    write_safetensors(root / FIRST, {"a.weight_scale_inv": ("F32", [], B["b"][2])})
    write_safetensors(root / SECOND, {"a.weight": ("F8_E4M3", [2], b"\x38\x40")})
    if with_index:
        write_index(root, {"a.weight": SECOND, "a.weight_scale_inv": FIRST})
    model = an.parse(root)
    assert list(model) == ["a.weight"]
    assert model["a.weight"].numpy().tolist() == [2.0, 4.0]


@pytest.mark.parametrize("n_present", [0, 1])
def test_half_a_download(root: Path, n_present: int) -> None:
    """An index none or some of whose shards are there, beside weights that it does not know."""
    write_safetensors(root / "visual.safetensors", A)
    names = [FIRST, SECOND]
    for name in names[:n_present]:
        write_safetensors(root / name, {f"in {name}": A["a"]})
    write_index(root, {f"in {name}": name for name in names})
    with pytest.raises(an.ParseError, match=f"{names[n_present]} is missing") as raised:
        an.parse(root)
    assert ("remove it if it is stale" in str(raised.value)) == (n_present == 0)


def test_index_of_the_model_before_it_was_quantised(root: Path) -> None:
    """What became codes is there, and so is what newer code computes."""
    qweight: Entry = ("I32", [1, 8], bytes(32))
    packed: dict[str, Entry] = {
        "m.qweight": qweight,
        "m.qzeros": ("I32", [1, 1], bytes(4)),
        "m.scales": ("F16", [1, 8], bytes(16)),
        "m.g_idx": ("I32", [8], bytes(32)),
    }
    write_safetensors(root / "model.safetensors", packed)
    old = {"m.weight": FIRST, "m.rotary_emb.inv_freq": SECOND}
    write_index(root, old)
    an.parse(root)
    write_index(root, {**old, "n.weight": SECOND})
    with pytest.raises(an.ParseError, match=r"'n\.weight'; 1 tensors"):
        an.parse(root)


def test_index_of_a_tensor_that_no_shard_has(root: Path) -> None:
    two_shards(root)
    write_index(root, {"a": FIRST, "b": SECOND, "c.txt": SECOND, "x.inv_freq": FIRST})
    (root / "c.txt").write_text("a file that is called as the tensor is")
    model = an.parse(root)
    assert left_out(model) == {"c.txt": "an index names it, but no shard has it"}
    assert model._checkpoint.sidecars == ["c.txt"]


def write_torch(path: Path, **tensors: torch.Tensor) -> None:
    torch.save(tensors, path)


def test_second_copy_in_torchs_format(root: Path) -> None:
    write_safetensors(root / "model.safetensors", {**A, **B})
    one = torch.ones(1)
    write_torch(root / "pytorch_model.bin", a=one, tied=one, b=one + 1, position_ids=torch.ones(9))
    model = an.parse(root)
    assert set(model) == {"a", "b"}
    reason = "a second copy of the model in PyTorch's format"
    assert left_out(model) == {"pytorch_model.bin": reason}


@pytest.mark.parametrize(
    "tensors",
    [{"lora": torch.ones(1)}, {"a": torch.ones(1), "c": torch.ones(3)}, {"a": torch.ones(2)}],
    ids=["others", "one more", "another shape"],
)
@pytest.mark.parametrize("name", ["model.safetensors", "x.safetensors"])
def test_torch_file_that_is_no_copy(root: Path, name: str, tensors: dict[str, Any]) -> None:
    write_safetensors(root / name, A)
    write_torch(root / "pytorch_model.bin", **tensors)
    lacking = next(t for t in tensors if t != "a" or len(tensors) == 1)
    with pytest.raises(
        an.ParseError, match=rf"pytorch_model\.bin is not a second copy.*'{lacking}'"
    ):
        an.parse(root)


def test_torch_file_that_cannot_be_compared(root: Path) -> None:
    """Not downloaded: the model is what transformers would load, if it would load one."""
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    (root / "pytorch_model.bin").write_bytes(pointer)
    write_safetensors(root / "x.safetensors", A)
    with pytest.raises(an.ParseError, match=r"pytorch_model\.bin: this is a Git LFS pointer"):
        an.parse(root)
    (root / "x.safetensors").rename(root / "model.safetensors")
    (reason,) = left_out(an.parse(root)).values()
    assert reason.startswith("cannot be read: ")
    assert "Git LFS pointer" in reason


@pytest.mark.parametrize("usual", [False, True])
def test_index_of_torch_files_that_are_not_there(root: Path, usual: bool) -> None:
    write_safetensors(root / ("model.safetensors" if usual else "x.safetensors"), A)
    index = "pytorch_model.bin.index.json"
    (root / index).write_text('{"weight_map": {"a": "p-1.bin", "tied": "p-2.bin"}}')
    if usual:
        assert list(left_out(an.parse(root))) == [index]
    else:
        with pytest.raises(an.ParseError, match=r"p-2\.bin is missing"):
            an.parse(root)


@pytest.mark.parametrize("extra", [False, True])
def test_mistral_names_by_their_shapes(root: Path, extra: bool) -> None:
    ours: dict[str, Entry] = {"q": ("F32", [2, 3], bytes(24)), "norm": ("F32", [3], bytes(12))}
    theirs: dict[str, Entry] = {"wq": ours["q"], "s": ("F32", [1], bytes(4))}
    if extra:
        theirs["vision"] = ("F32", [3, 3], bytes(36))
    write_safetensors(root / "model.safetensors", ours)
    write_safetensors(root / "consolidated.safetensors", theirs)
    if extra:
        with pytest.raises(an.ParseError, match=r"consolidated\.safetensors is not a second copy"):
            an.parse(root)
    else:
        assert list(left_out(an.parse(root))) == ["consolidated.safetensors"]


def test_mistral_names_with_experts_one_by_one(root: Path) -> None:
    stacked: dict[str, Entry] = {"experts": ("F32", [2, 2, 3], bytes(48))}
    singly: dict[str, Entry] = {f"experts.{i}.w": ("F32", [2, 3], bytes(24)) for i in range(2)}
    write_safetensors(root / "model.safetensors", stacked)
    write_safetensors(root / "consolidated.safetensors", singly)
    index = "consolidated.safetensors.index.json"
    weight_map = dict.fromkeys(singly, "consolidated.safetensors")
    (root / index).write_text(json.dumps({"weight_map": weight_map}))
    assert set(left_out(an.parse(root))) == {"consolidated.safetensors", index}


def test_files_of_second_copies_are_closed(root: Path) -> None:
    write_safetensors(root / "model.safetensors", A)
    write_torch(root / "pytorch_model.bin", a=torch.ones(1))
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(20):
        an.parse(root).close()
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_mistral_names_beside_shards(root: Path) -> None:
    two_shards(root)
    write_safetensors(root / "consolidated.safetensors", {"other.a": A["a"]})
    write_safetensors(root / "consolidated-00001-of-00001.safetensors", A)
    model = an.parse(root)
    assert set(model) == {"a", "b"}
    assert set(left_out(model)) == {
        "consolidated.safetensors",
        "consolidated-00001-of-00001.safetensors",
    }


def test_mistral_names_alone(root: Path) -> None:
    write_safetensors(root / "consolidated.safetensors", A)
    model = an.parse(root)
    assert list(model) == ["a"]
    assert left_out(model) == {}


def test_no_weights(root: Path) -> None:
    (root / "config.json").write_text("{}")
    with pytest.raises(an.ParseError, match=r"no \.safetensors file"):
        an.parse(root)


def test_broken_shard_is_named(root: Path) -> None:
    two_shards(root)
    (root / SECOND).write_bytes(b"\2\0\0\0\0\0\0\0{]")
    with pytest.raises(an.ParseError, match=SECOND) as raised:
        an.parse(root)
    assert raised.value.offset == 9


# --- names that lead out ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "shard",
    [
        *("../secret.safetensors", "..", "x/../../secret.safetensors", "/etc/passwd", ""),
        *("..\\secret.safetensors", "C:\\secret.safetensors", "c:secret.safetensors", "a\0b"),
    ],
)
def test_index_that_leads_out(root: Path, shard: str) -> None:
    write_safetensors(root.parent / "secret.safetensors", B)
    write_safetensors(root / "x.safetensors", A)
    write_index(root, {"a": "x.safetensors", "b": shard})
    with pytest.raises(an.ParseError, match="leads out"):
        an.parse(root)


@pytest.mark.parametrize("shard", ["\ud800", "n" * 5000, ".", "x.safetensors/y", "%2e%2e/x", "~/x"])
def test_index_of_odd_names_that_are_merely_not_there(root: Path, shard: str) -> None:
    write_safetensors(root / "x.safetensors", A)
    write_index(root, {"a": "x.safetensors", "b": shard})
    with pytest.raises(an.ParseError, match="is missing"):
        an.parse(root)


@needs_links
@pytest.mark.parametrize("target", ["../secret.safetensors", "absolute"])
def test_link_that_leads_out(root: Path, target: str) -> None:
    secret = write_safetensors(root.parent / "secret.safetensors", B)
    (root / "y.safetensors").symlink_to(secret if target == "absolute" else target)
    (root / "tokenizer.json").symlink_to(secret)
    write_safetensors(root / "x.safetensors", A)
    model = an.parse(root)
    assert list(model) == ["a"]
    assert set(left_out(model)) == {"y.safetensors", "tokenizer.json"}
    assert model._checkpoint.sidecars == []


@needs_links
def test_linked_folder(root: Path) -> None:
    write_safetensors(root.parent / "other" / "y.safetensors", B)
    (root / "sub").symlink_to(root.parent / "other")
    write_safetensors(root / "x.safetensors", A)
    model = an.parse(root)
    assert left_out(model) == {"sub": "a link to a folder"}
    assert model._checkpoint.sidecars == []


@needs_links
def test_link_in_the_directory(root: Path) -> None:
    write_safetensors(root / "files" / "1.bin", A)
    (root / "x.safetensors").symlink_to("files/1.bin")
    assert list(an.parse(root)) == ["a"]


@needs_links
@pytest.mark.parametrize("name", ["x.safetensors", "config.json"])
def test_links_in_a_circle_and_to_nothing(root: Path, name: str) -> None:
    write_safetensors(root / "a.safetensors", A)
    (root / name).symlink_to(name)
    with pytest.raises(OSError, match=name):
        an.parse(root)
    (root / name).unlink()
    (root / name).symlink_to("gone")
    with pytest.raises(FileNotFoundError):
        an.parse(root)


@needs_links
def test_cache_of_the_hub(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--name"
    snapshot = repository / "snapshots" / "0123abc"
    snapshot.mkdir(parents=True)
    write_safetensors(repository / "blobs" / "f00", A)
    (repository / "blobs" / "ba2").write_text('{"dtype": "float32"}')
    (snapshot / "model.safetensors").symlink_to("../../blobs/f00")
    (snapshot / "config.json").symlink_to("../../blobs/ba2")
    write_safetensors(tmp_path / "models--org--other" / "blobs" / "1", B)
    (snapshot / "stolen.safetensors").symlink_to("../../../models--org--other/blobs/1")
    with an.parse(snapshot) as model:
        assert list(model) == ["a"]
        assert model._checkpoint.config == {"dtype": "float32"}
        assert set(left_out(model)) == {"stolen.safetensors"}


@needs_links
def test_folder_of_a_snapshot_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    """Diffusers' repositories have a model in each folder."""
    repository = tmp_path / "models--org--name"
    folder = repository / "snapshots" / "0123abc" / "unet"
    folder.mkdir(parents=True)
    write_safetensors(repository / "blobs" / "f00", A)
    (folder / "diffusion_pytorch_model.safetensors").symlink_to("../../../blobs/f00")
    write_safetensors(tmp_path / "elsewhere", B)
    (folder / "stolen.safetensors").symlink_to("../../../../elsewhere")
    with an.parse(folder) as model:
        assert list(model) == ["a"]
        assert set(left_out(model)) == {"stolen.safetensors"}


@needs_links
def test_folder_reached_by_a_link(root: Path, tmp_path: Path) -> None:
    two_shards(root)
    (tmp_path / "link").symlink_to(root)
    assert len(an.parse(tmp_path / "link")) == 2


# --- configs and sidecars ---------------------------------------------------------------------

BROKEN: dict[str, tuple[bytes, type[an.AnamnesisError]]] = {
    "empty": (b"", an.ParseError),
    "cut short": (b'{"a": 1', an.ParseError),
    "an array": (b"[]", an.ParseError),
    "null": (b"null", an.ParseError),
    "not UTF-8": (b'{"a": "\xff"}', an.ParseError),
    "a number of 10,000 digits": (b'{"a": ' + b"1" * 10_000 + b"}", an.ParseError),
    "nested 65 deep": (b'{"a":' * 65 + b"1" + b"}" * 65, an.LimitExceeded),
    "nested 100,000 deep": (b'{"a":' * 100_000, an.ParseError),
    "nested 100,000 deep, arrays": (b"[" * 100_000 + b"]" * 100_000, an.ParseError),
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


# --- nothing to read ------------------------------------------------------------------------------


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
